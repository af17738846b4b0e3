"""What a job survived is not what ended it; the same words are the cause where they did end it."""

from dataclasses import replace

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.judge import judge
from perdure.triage.verdict import Label, Verdict

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
            STOP, "config", "asks for what it does not have",
        ),
        (
            "srun: error: Unable to create step for job 7: Socket timed out on send/recv operation\n",
            RETRY, "launcher", "could not start a task",
        ),
        ("FATAL: cannot reach the licence proxy\n" + SRUN.format(7), UNSURE, "unknown", "exit code 7; rank 0 on n1"),
    ],
)  # fmt: skip
def test_a_cause_has_its_own_name(log: str, label: Label, category: str, says: str) -> None:
    verdict = judged(log)
    assert (verdict.label, verdict.category) == (label, category)
    assert says in verdict.summary
