"""What a logger tells at INFO or below is no cause, in whatever form it writes its level."""

import pytest

from perdure.triage.judge import judge
from perdure.triage.text.log_levels import is_told
from perdure.triage.verdict import Label

HEADS = {
    "logging": "2026-05-02 07:14:09,331 - loader - INFO - {}",
    "basicConfig": "DEBUG:plug.registry:{}",
    "loguru": "2026-05-02 07:14:09.331 | DEBUG    | plug.cache:open:88 - {}",
    "rich": "[07:14:09] INFO     {}                         cache.py:88",
    "structlog": "2026-05-02 07:14:09 [info     ] {} [plug.cache]",
    "hydra": "[2026-05-02 07:14:09,331][plug.cache][INFO] - {}",
    "vllm": "INFO 05-02 07:14:09 [cache.py:88] {}",
    "vllm, of a process": "(EngineCore_DP0 pid=4711) INFO 05-02 07:14:09 [cache.py:88] {}",
    "absl": "I0502 07:14:09.331000 140233 cache.cc:88] {}",
    "glog with a year": "I20260502 07:14:09.331000 4711 cache.cc:88] {}",
    "TensorFlow": "2026-05-02 07:14:09.331000: I tensorflow/core/util/cache.cc:88] {}",
    "PyTorch": "[I502 07:14:09.331000000 cache.cpp:88] {}",
    "jupyter": "[I 2026-05-02 07:14:09.331 ServerApp] {}",
    "optuna": "[I 2026-05-02 07:14:09,331] {}",
    "logback": "07:14:09.331 [main] INFO  org.plug.Cache - {}",
    "spring": "2026-05-02T07:14:09.331Z  INFO 4711 --- [main] org.plug.Cache : {}",
    "spark": "26/05/02 07:14:09 INFO Cache: {}",
    "tracing": "2026-05-02T07:14:09.331Z DEBUG plug::cache: {}",
    "env_logger": "[2026-05-02T07:14:09Z INFO  plug::cache] {}",
    "logrus": 'time="2026-05-02T07:14:09Z" level=debug msg="{}"',
    "zap": '{{"level":"info","ts":1777706049.3,"caller":"plug/cache.go:88","msg":"{}"}}',
    "zerolog": "7:14AM INF {}",
    "python-json-logger": '{{"asctime": "2026-05-02", "levelname": "INFO", "message": "{}"}}',
    "serilog": "[07:14:09 INF] {}",
    "slf4j-simple": "[main] INFO org.plug.Cache - {}",
    "ros": "[INFO] [1777706049.331]: {}",
    "singularity": "INFO:    {}",
    "of a rank": "[rank3]:[2026-05-02 07:14:09,331] [INFO] [cache.py:88] {}",
    "srun --label": "12: 2026-05-02 07:14:09 INFO {}",
}
MESSAGES = {
    "import": "ImportError: cannot import name 'fused' from 'plug', the slow one is taken",
    "file": "FileNotFoundError: [Errno 2] No such file or directory: '/etc/plug.toml', built-in values are taken",
    "usage": "plug: error: unrecognized arguments: --fast",
    "gpu": "Unable to initialize backend 'cuda': no such plugin",
}
END = "step 10 loss 2.0\nConnectionResetError: [Errno 104] Connection reset by peer\n"


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("message", MESSAGES)
def test_what_a_logger_tells_before_the_failure_is_not_its_cause(head: str, message: str) -> None:
    line = HEADS[head].format(MESSAGES[message].replace('"', "'"))
    assert is_told(line.encode()), line
    verdict = judge(f"{line}\n{END}".encode())
    assert (verdict.label, verdict.category) == (Label.TRANSIENT, "net")


@pytest.mark.parametrize("head", HEADS)
def test_a_passing_trouble_that_it_tells_yields_to_the_error_after_it(head: str) -> None:
    told = HEADS[head].format("Could not connect to 10.2.0.7:443, connection refused; the local copy is taken")
    verdict = judge(f"{told}\nstep 10 loss 2.0\nTypeError: f() missing 1 required positional argument: 'y'\n".encode())
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "api")


@pytest.mark.parametrize(
    "line",
    [
        "2026-05-02 07:14:09,331 - loader - ERROR - ImportError: cannot import name 'fused'",
        "E0502 07:14:09.331000 140233 cache.cc:88] INFO: cannot open it",
        '{"level":"error","msg":"INFO: cannot open it"}',
        " ** On entry to DGESV, INFO = 4",
        "LinAlgError: the algorithm failed, INFO=5",
        "2026-05-02 07:14:09 cannot find the DEBUG symbols",
        "RuntimeError: the flag VERBOSE is not set: cannot start",
        "[2026-05-02, 07:14:09 UTC] {subprocess.py:93} INFO - ModuleNotFoundError: No module named 'x'",
        "[2026-05-02, 07:14:09 UTC] {pod_manager.py:431} INFO - [base] ModuleNotFoundError: No module named 'x'",
        "n7:1021:1188 [2] NCCL INFO misc/socket.cc:567 -> 2",
    ],
)
def test_errors_values_and_what_is_relayed_from_another_program_count(line: str) -> None:
    assert not is_told(line.encode())


def test_a_relayed_error_stops_a_job() -> None:
    log = b"[2026-05-02, 07:14:09 UTC] {subprocess.py:93} INFO - ModuleNotFoundError: No module named 'apex'\n"
    assert judge(log).label is Label.DETERMINISTIC


@pytest.mark.parametrize("level", ["WARN ", "WARNING: ", "[INFO] ", "2026-05-02 07:14:09 node-handler INFO "])
@pytest.mark.parametrize(
    "news",
    [
        "EC2 Spot interruption notice: action=terminate",
        "the instance will be preempted: received a preemption notice",
        "compute.instances.preempted on vm n1",
        "TERM_PREEMPT: job killed after preemption",
        "Instance i-07 status: instance-terminated-no-capacity",
    ],
)
def test_news_of_a_preemption_counts_at_any_level(level: str, news: str) -> None:
    verdict = judge(f"step 7 loss 0.3\n{level}{news}\nreceived SIGTERM\n".encode())
    assert (verdict.label, verdict.category) == (Label.TRANSIENT, "preempt")
