"""What a job survived is not what ended it; the same words are the cause where they did end it."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.evidence.outlived import without_outlived
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import CauseRole, Label, Verdict
from tests.copying import replace

FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 60.0, exit_code=1)
RETRY, STOP, UNSURE = Label.TRANSIENT, Label.DETERMINISTIC, Label.UNSURE

HEADER = "Traceback (most recent call last):\n"
FRAME = '  File "train.py", line 7, in <module>\n    run()\n'
STEPS = "".join(f"step {i} loss 0.3\n" for i in range(8))
SRUN = "srun: error: n1: task 0: Exited with exit code {}\n"
MISSING = "/var/spool/slurmd/job7/slurm_script: line 2: {}: command not found\n"
WAITS = (
    "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
    "srun: Job 7 step creation still disabled, retrying (Requested nodes are busy)\nsrun: Step created for job 7\n"
)


def raised(message: str) -> str:
    return HEADER + FRAME + message + "\n"


RESET = raised("ConnectionResetError: [Errno 104] Connection reset by peer")
KEY = raised("KeyError: 'labels'")
VALUE = raised("ValueError: could not convert string to float: 'abc'")


def judged(log: str, code: int = 1) -> Verdict:
    return judge(log.encode(), replace(FAILED, exit_code=code))


@pytest.mark.parametrize(
    ("log", "code", "label", "category"),
    [
        (MISSING.format("module") + STEPS + RESET, 1, RETRY, "net"),
        (MISSING.format("conda") + RESET + SRUN.format(1), 1, RETRY, "net"),
        ("job.sh: Zeile 2: module: Kommando nicht gefunden.\n" + RESET, 1, RETRY, "net"),
        (MISSING.format("nvidia-smi") + STEPS, 75, RETRY, "unknown"),
        (MISSING.format("pythn"), 127, STOP, "missing_file"),
        (MISSING.format("pythn") + SRUN.format(127), 127, STOP, "missing_file"),
        (STEPS + MISSING.format("evaluate"), 1, STOP, "missing_file"),
        ("job.sh: line 4: ulimit: open files: cannot modify limit: Operation not permitted\n" + RESET, 1, RETRY, "net"),
        (WAITS + VALUE + SRUN.format(1), 1, STOP, "data"),
        (WAITS + RESET + SRUN.format(1), 1, RETRY, "net"),
        (WAITS + STEPS, 1, UNSURE, "unknown"),
        ("srun: error: Unable to allocate resources: Requested nodes are busy\n", 1, RETRY, "launcher"),
    ],
)
def test_a_notice_that_the_script_survived_is_no_cause(log: str, code: int, label: Label, category: str) -> None:
    verdict = judged(log, code)
    assert (verdict.label, verdict.category) == (label, category)


DASH = "/var/spool/slurmd/job7/slurm_script: 4: pythn: not found\n"


@pytest.mark.parametrize("log", [MISSING.format("pythn"), DASH, MISSING.format("pythn") + SRUN.format(127)])
def test_exit_code_127_shows_the_line_that_says_what_is_not_found(log: str) -> None:
    verdict = judged(MISSING.format("module") + STEPS + log, 127)
    (root,) = (each.text for each in verdict.evidence if each.role is CauseRole.ROOT)
    assert "pythn" in root
    assert verdict.summary.startswith("a command of the script is not there")
    assert judged(STEPS, 127).summary == "the program was not found (exit code 127)"


EXECVE = "slurmstepd-n1: error: execve(): /home/a/{}\n"


@pytest.mark.parametrize(
    ("log", "label", "category", "says"),
    [
        (EXECVE.format("run.sh: Permission denied") + SRUN.format(13), STOP, "permission", "not executable"),
        (EXECVE.format("run.sh: Exec format error") + SRUN.format(8), STOP, "config", "cannot run the program"),
        ("cp: cannot open '/etc/x' for reading: Permission denied\n", STOP, "permission", "may not touch"),
        ("srun: error: Invalid MPI type 'pmi9', --mpi=list for acceptable types\n", STOP, "config", "MPI plugin"),
        ("OSError: [Errno 5] Input/output error: '/local/x.pt'\n", RETRY, "fs", "disk of the node itself"),
        ("proceed? " + raised("EOFError: EOF when reading a line"), STOP, "config", "asks for input"),
        (
            "srun: error: Unable to create step for job 7: Memory required by task is not available\n",
            STOP, "config", "Memory required by task is not available",
        ),
        (
            "srun: error: Unable to create step for job 7: Socket timed out on send/recv operation\n",
            RETRY, "launcher", "could not start a task",
        ),
        ("FATAL: cannot reach the licence proxy\n" + SRUN.format(7), RETRY, "lock", "cannot reach the licence proxy"),
    ],
)  # fmt: skip
def test_a_cause_has_its_own_name(log: str, label: Label, category: str, says: str) -> None:
    verdict = judged(log)
    assert (verdict.label, verdict.category) == (label, category)
    assert says in (verdict.quoted or verdict.summary)


LOGGED = "".join(f"2025-01-02 03:04:0{i},000 INFO step {i} loss 0.3\n" for i in range(8))
CAUGHT = "2025-01-02 03:04:00,000 ERROR no fused kernels, going on without\n" + KEY
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
PEER = raised("RuntimeError: Connection closed by peer [10.0.0.1]:3").replace("train.py", "torch/distributed/c10d.py")
THREAD = "Exception in thread monitor:\n" + KEY
NONE = "TypeError: 'NoneType' object is not callable"
IGNORED = "Exception ignored in: <function A.__del__ at 0x7f>\n" + raised(NONE)
OOM = "Batch size 64 failed: CUDA out of memory. Tried to allocate 2.00 GiB\n"
NCCL = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77) ran for 600123 milliseconds\n"


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("log", "code", "label", "category"),
    [
        # caught, and the program went on
        (KEY + STEPS + RESET, 1, RETRY, "net"),
        (CAUGHT + LOGGED + "TimeoutError: [Errno 110] Connection timed out\n", 1, RETRY, "net"),
        (LOGGED[:180] + CAUGHT + LOGGED + raised("OSError: [Errno 116] Stale file handle: 'x'"), 1, RETRY, "fs"),
        (CAUGHT + "saved checkpoint ckpt/1.pt\n" + RESET, 1, RETRY, "net"),
        (KEY + "going on\n" + RESET + STEPS, 1, RETRY, "net"),  # the steps stood in a buffer
        (OOM + "Epoch 0: 10%| 1/9\nEpoch 1: 10%| 1/9\nConnectionResetError: [Errno 104] x\n", 1, RETRY, "net"),
        ("Config: {'on_oom': 'CUDA out of memory -> halve it'}\n" + STEPS + RESET, 1, RETRY, "net"),
        (of_rank(0, KEY) + of_rank(0, RESET) + of_rank(1, RESET), 1, RETRY, "net"),
        ("world_size: 4\n" + CAUGHT + LOGGED + PEER, 1, RETRY, "net"),
        (KEY + STEPS + "saved checkpoint ckpt-8.pt\n", 75, RETRY, "unknown"),
        # a step of the script that it went on from
        (KEY + SRUN.format(1) + "going on\n" + RESET + SRUN.format(1), 1, RETRY, "net"),
        (KEY + SRUN.format(1) + "going on\n" + PEER + SRUN.format(1), 1, RETRY, "net"),
        # beside the program
        (THREAD + RESET, 1, RETRY, "net"),
        (IGNORED + STEPS + RESET, 1, RETRY, "net"),
        (RESET + IGNORED, 1, RETRY, "net"),
        (STEPS + IGNORED, 75, RETRY, "unknown"),
        ("--- Logging error ---\n" + KEY + RESET, 1, RETRY, "net"),
        (NCCL, 134, RETRY, "nccl_timeout"),
    ],
)
def test_what_the_job_survived_is_not_the_cause(log: str, code: int, label: Label, category: str) -> None:
    verdict = judged(log, code)
    assert (verdict.label, verdict.category) == (label, category)


@pytest.mark.parametrize(
    ("log", "code", "category"),
    [
        (KEY + "cleaning up\nbye\n", 1, "index"),
        (KEY + STEPS, 1, "index"),  # they stood in a buffer
        (KEY + STEPS + "Error: training failed\n", 1, "index"),
        (KEY + raised("RuntimeError: the training failed"), 1, "index"),
        (KEY + CHAIN + RESET, 1, "index"),
        (KEY + "ConnectionResetError: [Errno 104] Connection reset by peer\n", 1, "index"),
        (STEPS + KEY, 75, "index"),
        (KEY + PEER, 1, "index"),
        (KEY + STEPS + PEER, 1, "index"),
        ("Process Process-1:\n" + KEY + RESET, 1, "index"),
        (of_rank(1, KEY) + of_rank(0, RESET) + of_rank(2, RESET), 1, "index"),
        (of_rank(1, KEY) + STEPS + of_rank(0, RESET), 1, "index"),
        (KEY + RESET + SRUN.format(1) + SRUN.format(1).replace("task 0", "task 1"), 1, "index"),
        (KEY + RESET + SRUN.format(1).replace("task 0", "tasks 0-1"), 1, "index"),
        (KEY + IGNORED, 1, "index"),
        (THREAD, 1, "index"),
        (KEY + "Exception in thread Thread-2:\n" + RESET, 1, "index"),
        (STEPS + raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), 1, "gpu_oom"),
        (OOM, 1, "gpu_oom"),
    ],
)
def test_the_same_words_are_the_cause_where_they_ended_it(log: str, code: int, category: str) -> None:
    verdict = judged(log, code)
    assert (verdict.label, verdict.category) == (STOP, category)


def test_an_interruption_does_not_hide_what_had_failed() -> None:
    assert judged(RESET + raised("KeyboardInterrupt")).category == "net"


def test_a_report_of_a_step_that_was_survived_names_nobody() -> None:
    assert "failed first" not in judged(KEY + SRUN.format(1) + "going on\n" + RESET).summary
    assert "rank 0 on n1 failed first" in judged(KEY + SRUN.format(1) + RESET + SRUN.format(1)).summary


DATA = raised("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)")


@pytest.mark.parametrize(
    ("log", "label", "category"),
    [
        ("sample 12: 'Three men were Killed. CUDA out of memory. Connection reset by peer'\n" + DATA, STOP, "data"),
        ("Config: {'on_oom': 'CUDA out of memory -> halve it', 'lr': 0.1}\n" + RESET, RETRY, "net"),
        ("classes = ['Disk quota exceeded', 'x']\n" + RESET, RETRY, "net"),
        ("{'level': 'error', 'message': 'CUDA out of memory. Tried to allocate 2 GiB'}\n" + RESET, STOP, "gpu_oom"),
        ("trainer failed: 'CUDA out of memory. Tried to allocate 2 GiB'\n" + RESET, STOP, "gpu_oom"),
        ("RuntimeError: ('CUDA out of memory. Tried to allocate 2 GiB', 3)\n" + RESET, STOP, "gpu_oom"),
        ("result: 'CUDA out of memory. Tried to allocate 2 GiB'\n", STOP, "gpu_oom"),
    ],
)
def test_a_printed_value_yields_to_what_happened(log: str, label: Label, category: str) -> None:
    verdict = judged(log)
    assert (verdict.label, verdict.category) == (label, category)


def test_lines_of_the_kernel_before_an_error_of_the_own_code_are_past_whatever_follows_that() -> None:
    xid = "[1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n"
    full, left = "OSError: [Errno 28] No space left on device: '/x'\n", []
    for log in (xid + KEY + full, xid + full):
        kept, _ = without_outlived(own_rules().hits(LogText.of(log.encode())))
        left.append(any(hit.cause.of_kernel for hit in kept))
    assert left == [False, True]
