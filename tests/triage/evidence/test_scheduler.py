"""The resource manager's word: what it knows at first hand is decisive, what it guesses is faint."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import IS_NOT_THERE, Absent, Output, Why
from perdure.model.signals import SENT_BY_PERSONS
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.rule import Force
from perdure.triage.evidence.scheduler import facts
from perdure.triage.judge import judge
from perdure.triage.verdict import CauseRole, Label
from tests.copying import replace

FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 10.0, exit_code=1)


@pytest.mark.parametrize(
    ("state", "category", "transient"),
    [
        (AttemptState.NODE_FAIL, "node_loss", True),
        (AttemptState.BOOT_FAIL, "node_loss", True),
        (AttemptState.PREEMPTED, "preempt", True),
        (AttemptState.OUT_OF_MEMORY, "host_oom", False),
        (AttemptState.TIMEOUT, "time_limit", False),
        (AttemptState.DEADLINE, "time_limit", False),
    ],
)
def test_a_state_known_at_first_hand_is_decisive(state: AttemptState, category: str, transient: bool) -> None:
    (fact,) = facts(replace(FAILED, state=state))
    assert (fact.cause.category, fact.cause.force) == (category, Force.DECISIVE)
    assert (fact.cause.p_transient > 0.9) == transient
    assert (fact.cause.p_transient < 0.1) != transient


@pytest.mark.parametrize("state", [AttemptState.RUNNING, AttemptState.COMPLETED, AttemptState.REQUEUED])
def test_what_did_not_fail_has_no_facts(state: AttemptState) -> None:
    assert facts(replace(FAILED, state=state)) == ()


def test_a_plain_exit_says_nothing() -> None:
    assert facts(FAILED) == ()


@pytest.mark.parametrize(
    ("code", "signal", "name"),
    [
        (75, 0, "exit-75"),
        (78, 0, "exit-78"),
        (93, 0, "exit-93"),
        (124, 0, "exit-124"),
        (126, 0, "exit-126"),
        (127, 0, "exit-127"),
        (137, 0, "signal-kill"),
        (143, 0, "signal-term"),
        (139, 0, "signal-segv"),
        (0, 9, "signal-kill"),
        (0, 11, "signal-segv"),
        (0, 25, "signal-xfsz"),
    ],
)
def test_exit_codes_and_signals_are_faint_evidence(code: int, signal: int, name: str) -> None:
    (fact,) = facts(replace(FAILED, exit_code=code, signal=signal))
    assert (fact.cause.name, fact.cause.role) == (name, CauseRole.CASCADE)


@pytest.mark.parametrize(
    "attempt",
    [
        replace(FAILED, exit_code=0, signal=53),
        replace(FAILED, reason="JobLaunchFailure"),
        replace(FAILED, state=AttemptState.LAUNCH_FAILED),
    ],
)
def test_a_failed_launch_is_the_sites(attempt: Attempt) -> None:
    fact = facts(attempt)[0]
    assert fact.cause.category == "launcher"
    assert fact.cause.infrastructure


def test_a_missing_working_directory_is_said_in_the_managers_words_and_is_not_tried_elsewhere() -> None:
    told = "launch failed: working directory '/nope' does not exist"
    attempt = replace(FAILED, state=AttemptState.LAUNCH_FAILED, exit_code=0, reason=told)
    absent = Absent("/state/logs/63-3.log", Why.MISSING, IS_NOT_THERE)
    verdict = judge(Output((), (absent,)), attempt)
    assert (verdict.label, verdict.category, verdict.infrastructure) == (Label.DETERMINISTIC, "missing_file", False)
    assert [line.text for line in verdict.evidence] == [f"state LAUNCH_FAILED: {told}"]
    assert verdict.summary == "the job was not started, as its working directory does not exist"
    other = judge(Output((), (absent,)), replace(attempt, reason="launch failed: [Errno 11] Try again"))
    assert (other.category, other.label) == ("launcher", Label.TRANSIENT)


def test_a_signal_is_told_without_an_exit_code_that_there_was_not() -> None:
    (fact,) = facts(replace(FAILED, exit_code=0, signal=9))
    assert fact.text == "signal 9"


def test_a_log_directory_that_went_during_a_run_is_no_reason_to_start_again() -> None:
    gone = Absent("/home/ada/my logs/9.out", Why.NO_DIRECTORY, "its directory /home/ada/my logs does not exist")
    verdict = judge(Output((), (gone,)), replace(FAILED, exit_code=1))
    assert verdict.label is Label.DETERMINISTIC
    assert "mkdir -p '/home/ada/my logs'," in verdict.advice
    assert not facts(replace(FAILED, exit_code=1), (replace(gone, why=Why.MISSING),))


@pytest.mark.parametrize("number", sorted(SENT_BY_PERSONS))
def test_a_signal_that_a_person_sent_to_the_script_outranks_any_log(number: int) -> None:
    """Slurm 22.05 calls it JobLaunchFailure, later ones RaisedSignal."""
    for reason in ("JobLaunchFailure", f"RaisedSignal:{number}(Terminated)"):
        attempt = replace(FAILED, exit_code=0, signal=number, reason=reason)
        (fact,) = facts(attempt)
        assert (fact.cause.category, fact.cause.force) == ("cancelled", Force.DECISIVE)
        verdict = judge(b"step 10\nRuntimeError: NCCL error: unhandled system error\n", attempt)
        assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "cancelled")
        assert f"ended by signal {number} (" in verdict.summary


INTERRUPTED = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    time.sleep(600)
KeyboardInterrupt
srun: error: node3: task 0: Interrupt
"""


@pytest.mark.parametrize("last", ["", "RuntimeError: Connection closed by peer [10.0.0.2]:29500\n"])
def test_a_program_that_was_interrupted_is_not_started_again(last: str) -> None:
    for code in (130, 1):
        verdict = judge((INTERRUPTED + last).encode(), replace(FAILED, exit_code=code))
        assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "cancelled")
    silent = judge(b"step 1\n" + last.encode(), replace(FAILED, exit_code=130))
    assert (silent.label, silent.category) == (Label.DETERMINISTIC, "cancelled")
    assert "scancel -s INT does" in silent.summary
    crowded = judge(b"step 1\nKeyboardInterrupt\n", FAILED, Context(others_on_node=3))
    assert crowded.label is Label.DETERMINISTIC


def test_a_job_that_slurm_was_told_to_end_is_not_started_again() -> None:
    line = "slurmstepd: error: *** JOB 38 ON node3 CANCELLED AT 2026-11-22T16:43:28 ***\n"
    for after in ("caught TERM, saving\n", "srun: error: node3: task 0: Terminated\n", "Connection reset by peer\n"):
        verdict = judge(f"step 7\n{line}{after}".encode(), FAILED)
        assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "cancelled")
    step = line.replace("JOB 38", "STEP 38.0")  # srun -K and many others end steps
    assert judge(f"step 7\n{step}".encode(), FAILED).label is not Label.DETERMINISTIC


@pytest.mark.parametrize("word", ["Hangup", "Quit (core dumped)", "User defined signal 1", "User defined signal 2"])
def test_a_step_that_was_sent_a_signal_of_persons_is_not_started_again(word: str) -> None:
    log = f"step 1\nsrun: error: node1: tasks 0-1: {word}\n"
    verdict = judge(log.encode(), replace(FAILED, exit_code=1))
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "cancelled")
    assert "scancel -s" in verdict.summary
    failed = judge(b"RuntimeError: CUDA error: uncorrectable ECC error encountered\n" + log.encode(), FAILED)
    assert failed.category != "cancelled"  # a script may end its other ranks so


STEP = """slurmstepd: error: *** STEP 87.0 ON node4 CANCELLED AT 2026-11-22T16:44:50 DUE TO TIME LIMIT ***
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: node4: task 0: Terminated
"""


def test_the_time_limit_of_a_step_is_not_that_of_the_job() -> None:
    verdict = judge(STEP.encode(), replace(FAILED, exit_code=143))
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "time_limit")
    assert "srun -t" in verdict.summary
    both = STEP + "slurmstepd: error: *** JOB 87 ON node4 CANCELLED AT 2026-11-22T16:44:50 DUE TO TIME LIMIT ***\n"
    assert judge(both.encode(), FAILED).summary.startswith("the walltime was reached")
    assert judge(STEP.encode(), replace(FAILED, state=AttemptState.TIMEOUT)).summary == "the walltime was reached"


BAD_EXIT = """srun: error: node3: task 1: Exited with exit code 3
srun: launch/slurm: _step_signal: Terminating StepId=87.0
slurmstepd: error: *** STEP 87.0 ON node3 CANCELLED AT 2026-11-22T16:44:50 ***
srun: error: node3: task 0: Terminated
"""


def test_a_rank_whose_code_ended_the_others_was_not_ended_from_outside() -> None:
    """`srun -K`: the batch script ends as the rank that srun ended, by signal 15."""
    verdict = judge(BAD_EXIT.encode(), replace(FAILED, exit_code=143))
    alone = judge(BAD_EXIT.splitlines()[0].encode(), replace(FAILED, exit_code=3))
    assert verdict.category == alone.category != "preempt"
    assert verdict.label is alone.label is Label.UNSURE
    assert "rank 1 on node3" in verdict.summary


@pytest.mark.parametrize("number", [4, 6, 7, 8, 9, 11])
def test_a_script_that_a_signal_ended_did_run(number: int) -> None:
    attempt = replace(FAILED, exit_code=0, signal=number, reason="JobLaunchFailure")
    assert [fact.cause.name.split("-")[0] for fact in facts(attempt)] == ["signal"]


def test_the_nodes_that_went_down_are_named() -> None:
    (fact,) = facts(replace(FAILED, state=AttemptState.NODE_FAIL, failed_nodes=("n7",), reason="Not responding"))
    assert fact.text == "state NODE_FAIL on n7: Not responding"
