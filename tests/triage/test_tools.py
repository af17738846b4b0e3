"""Standard messages of ordinary tools and languages: what each means, and the words that a person reads."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label, Verdict
from tests.copying import replace

FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 600.0, exit_code=1, gpus=1)
RETRY, STOP, UNSURE = Label.TRANSIENT, Label.DETERMINISTIC, Label.UNSURE


def judged(text: str, code: int = 1, gpus: int = 1) -> Verdict:
    return judge(f"step 1\nstep 2\n{text}\n".encode(), replace(FAILED, exit_code=code, gpus=gpus))


CURL = "curl: ({}) {}"
RSYNC = "rsync error: {} (code {}) at io.c(228)"
TERMINATE = "terminate called after throwing an instance of '{}'\n  what():  {}\n"


@pytest.mark.parametrize(
    ("text", "label", "category"),
    [
        (CURL.format(7, "Failed to connect to 10.0.0.2 port 9 after 0 ms: Couldn't connect to server"), RETRY, "net"),
        (CURL.format(7, "Failed to connect to x port 443: Connection refused"), RETRY, "net"),
        (CURL.format(28, "Operation timed out after 30001 milliseconds with 0 bytes received"), RETRY, "net"),
        (CURL.format(22, "The requested URL returned error: 503"), RETRY, "net"),
        (CURL.format(22, "The requested URL returned error: 429"), RETRY, "net"),
        (CURL.format(22, "The requested URL returned error: 404"), STOP, "config"),
        (CURL.format(22, "The requested URL returned error: 403 Forbidden"), STOP, "auth"),
        (CURL.format(3, "URL using bad/illegal format or missing URL"), STOP, "config"),
        (CURL.format(60, "SSL certificate problem: self-signed certificate in certificate chain"), STOP, "config"),
        (CURL.format(67, "Access denied: 530"), STOP, "config"),
        ("awaiting response... 404 Not Found\n2026-11-22 22:00:01 ERROR 404: Not Found.", STOP, "config"),
        ("2026-11-22 22:00:01 ERROR 503: Service Unavailable.", RETRY, "net"),
        ("Connecting to data.org|10.0.0.2|:443... failed: Connection refused.", RETRY, "net"),
        ("rsync: connection unexpectedly closed (0 bytes received so far) [Receiver]\n"
         + RSYNC.format("error in rsync protocol data stream", 12), RETRY, "net"),
        (RSYNC.format("timeout in data send/receive", 30), RETRY, "net"),
        ('rsync: [sender] link_stat "/data/x" failed: No such file or directory (2)\n'
         + RSYNC.format("some files/attrs were not transferred (see previous errors)", 23), STOP, "missing_file"),
        ("bash: line 1: rsync: command not found\nrsync: connection unexpectedly closed (0 bytes received so far)",
         RETRY, "net"),
        ("x.rb:3:in `<main>': undefined method `upcase' for nil:NilClass (NoMethodError)", STOP, "api"),
        ("x.rb:9:in `initialize': Connection refused - connect(2) for 10.0.0.2:80 (Errno::ECONNREFUSED)", RETRY, "net"),
        ("Can't locate Foo/Bar.pm in @INC (you may need to install Foo::Bar) at x.pl line 3.", STOP, "import"),
        ("Error: Cannot find module 'foo'\nRequire stack:\n- /home/a/x.js", STOP, "import"),
        ("gzip: stdin: unexpected end of file\ntar: Child returned status 1", STOP, "data"),
        ("job.sh: line 9: syntax error: unexpected end of file", STOP, "syntax"),
        ("ssh: connect to host n3 port 22: Host is down", RETRY, "net"),
        ("Connection closed by 10.0.0.2 port 22\nscp: Connection closed", RETRY, "net"),
        ("srun: error: Only allocated 1 nodes asked for 2", STOP, "dist_config"),
        ("thread 'main' panicked at src/main.rs:14:10:\ncalled `Option::unwrap()` on a `None` value", STOP, "api"),
        ("thread 'main' panicked at src/main.rs:14:10:\ncalled `Result::unwrap()` on an `Err` value: Os { code: 111,"
         ' kind: ConnectionRefused, message: "Connection refused" }', RETRY, "net"),
        ("==123==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000014", STOP, "index"),
        ("At line 14 of file heat.f90\nFortran runtime error: Index '11' of dimension 1 of array 'a' above upper bound"
         " of 10", STOP, "index"),
        ("At line 14 of file heat.f90\nFortran runtime error: End of file", STOP, "data"),
        ("forrtl: severe (24): end-of-file during read, unit 5", STOP, "data"),
        (TERMINATE.format("std::out_of_range", "vector::_M_range_check: __n (which is 10) >= size"), STOP, "index"),
        (TERMINATE.format("std::bad_alloc", "std::bad_alloc"), STOP, "host_oom"),
        (TERMINATE.format("std::system_error", "Connection reset by peer"), RETRY, "net"),
        (TERMINATE.format("std::filesystem::filesystem_error", "cannot create directory: No space left on device [/d]"),
         STOP, "disk_quota"),
    ],
)  # fmt: skip
def test_what_a_tool_says_decides(text: str, label: Label, category: str) -> None:
    verdict = judged(text)
    assert (verdict.label, verdict.category) == (label, category)


@pytest.mark.parametrize("end", ["Aborted (core dumped)", "srun: error: n1: task 0: Aborted (core dumped)"])
@pytest.mark.parametrize("says", ["could not open config.json", "mesh.bin: No such file or directory"])
def test_what_an_exception_of_cpp_says_is_no_line_that_a_script_survives(says: str, end: str) -> None:
    verdict = judged(TERMINATE.format("std::runtime_error", says) + end, code=134)
    assert (verdict.label, verdict.category) == (STOP, "missing_file")


def test_an_exception_of_cpp_is_named_where_the_signal_alone_would_not() -> None:
    text = TERMINATE.format("std::out_of_range", "vector::_M_range_check")
    assert judged(text, code=134).category == "index"
    assert judged(text + "srun: error: n1: task 0: Aborted (core dumped)", code=134).label is STOP
    assert judged(TERMINATE.format("std::runtime_error", "no cells in the mesh"), code=134).label is not RETRY


WAITED = """srun: First task exited 3s ago
srun: StepId=36.0 tasks 1-2: running
srun: StepId=36.0 task 0: exited
srun: launch/slurm: _step_signal: Terminating StepId=36.0
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
slurmstepd-n4: error: *** STEP 36.0 ON n4 CANCELLED AT 2026-11-22T22:31:56 ***
srun: error: n4: tasks 1-2: Killed
"""


def test_what_srun_ended_since_its_first_task_was_over_is_told_by_that_task() -> None:
    verdict = judged(WAITED, code=137)
    assert (verdict.label, verdict.category, verdict.rank) == (STOP, "dist_config", "0")
    assert "rank 0 ended first" in verdict.summary
    assert "--wait" in verdict.summary


def test_the_first_tasks_own_words_say_more() -> None:
    crashed = judged("srun: error: n4: task 0: Segmentation fault (core dumped)\n" + WAITED, code=137)
    assert crashed.category == "native_crash"
    raised = judged(f"0: Traceback (most recent call last):\n0: KeyError: 'x'\n{WAITED}", code=137)
    assert raised.category == "index"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("./run.sh: line 3:  9023 Illegal instruction     (core dumped) ./solver", 132),
        ("srun: error: n1: task 3: Illegal instruction (core dumped)", 132),
        ("", 132),
    ],
)
def test_an_instruction_that_the_processor_lacks_is_no_matter_of_gpus(text: str, code: int) -> None:
    verdict = judged(text, code)
    assert "processor lacks" in verdict.summary
    assert (verdict.label, verdict.bound) == (UNSURE, Bound.NODE)
    assert judged("RuntimeError: CUDA error: an illegal instruction was encountered").category == "native_crash"


def test_a_commands_own_timeout_is_no_failure_of_the_network() -> None:
    verdict = judged("subprocess.TimeoutExpired: Command '['make', 'data']' timed out after 600 seconds")
    assert (verdict.category, verdict.label) == ("hang", UNSURE)
    assert judged("TimeoutError: no answer from the server in 5 s").category == "net"


def test_a_checkpoint_that_holds_classes_is_not_damaged() -> None:
    whole = judged(
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have"
    )
    assert "damaged" not in whole.summary
    assert "add_safe_globals" in whole.advice
    other = judged("_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default value")
    assert "damaged" in other.summary
    assert {whole.label, other.label} == {STOP}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RecursionError: maximum recursion depth exceeded", "calls itself"),
        ("NotImplementedError: sparse input", "does not do"),
        ("LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been"
         " disabled.", "runs offline"),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", "ssh could not log in"),
        ("SSLCertVerificationError: certificate verify failed: certificate has expired", "certificate of"),
        ("ExpiredToken: The provided token has expired.", "credentials"),
    ],
)  # fmt: skip
def test_the_words_are_of_what_happened(text: str, words: str) -> None:
    assert words in judged(text).summary


OWN = """task prolog: licence file missing
srun: error: n4: task 0: Exited with exit code 1
slurmstepd-n4: error: --task-prolog failed status=1
"""


def test_the_jobs_own_task_prolog_speaks_against_no_node() -> None:
    verdict = judged(OWN)
    assert (verdict.label, verdict.infrastructure, verdict.bound) == (STOP, False, Bound.NOTHING)
    site = judged(OWN.replace("--task-prolog", "TaskProlog"))
    assert (site.label, site.bound) == (RETRY, Bound.NODE)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: No CUDA GPUs are available",
        "NVIDIA-SMI has failed because it couldn't communicate with the driver",
    ],
)
def test_a_job_that_asked_for_no_gpu_finds_none_again(text: str) -> None:
    assert judged(text, gpus=0).label is STOP
    assert "asked for no GPU" in " ".join(each.text for each in judged(text, gpus=0).evidence)
    assert judged(text, gpus=1).label is not STOP
    assert judge(text.encode()).label is not STOP, "what a job asked for is not known of a log alone"
