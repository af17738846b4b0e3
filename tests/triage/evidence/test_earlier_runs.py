"""Of a log that several runs of a job wrote, the last run is judged; a run that was ended has one cause."""

import pytest

from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText, Source, TextWindow
from perdure.triage.verdict import Label

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    run()\n'
KEY = FRAMES + "KeyError: 'labels'\n"
TYPE = FRAMES + "TypeError: 'int' object is not subscriptable\n"
RESET = FRAMES + "ConnectionResetError: [Errno 104] Connection reset by peer\n"
WORKER = FRAMES + "RuntimeError: DataLoader worker (pid 77) is killed by signal: Terminated.\n"
OPENING = "Running on host gpu{n} in partition long\nPython 3.11.9 in /opt/envs/train\n"
CANCELLED = "slurmstepd: error: *** JOB 9 ON gpu1 CANCELLED AT 2025-09-01T10:00:00 DUE TO {} ***\n"
NODE_FAILURE = CANCELLED.format("NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
PREEMPTED, TIME_LIMIT = CANCELLED.format("PREEMPTION"), CANCELLED.format("TIME LIMIT")


def steps(first: int, count: int, form: str = "step {} loss 0.5\n") -> str:
    return "".join(form.format(step) for step in range(first, first + count))


@pytest.mark.parametrize(
    ("log", "label", "category"),
    [
        (steps(0, 20) + NODE_FAILURE + steps(0, 20) + KEY, Label.DETERMINISTIC, "index"),
        (steps(0, 40) + PREEMPTED + steps(30, 20) + TYPE, Label.DETERMINISTIC, "api"),
        (steps(0, 20) + TIME_LIMIT + "resuming from checkpoint ckpt/20.pt\n" + TYPE, Label.DETERMINISTIC, "api"),
        (steps(0, 20) + TIME_LIMIT + steps(10, 20) + RESET, Label.TRANSIENT, "net"),
        (OPENING.format(n=1) + NODE_FAILURE + OPENING.format(n=2) + KEY, Label.DETERMINISTIC, "index"),
        (steps(0, 20) + KEY + PREEMPTED + steps(0, 20) + RESET, Label.TRANSIENT, "net"),
        (steps(0, 20) + NODE_FAILURE * 50 + steps(0, 20) + KEY, Label.DETERMINISTIC, "index"),  # of each of its nodes
    ],
)
def test_the_last_of_several_runs_is_judged(log: str, label: Label, category: str) -> None:
    verdict = judge(log.encode())
    assert (verdict.label, verdict.category) == (label, category)


@pytest.mark.parametrize(
    ("log", "category"),
    [
        (steps(0, 20) + TIME_LIMIT + steps(20, 2) + WORKER, "time_limit"),
        (steps(0, 20) + TIME_LIMIT + WORKER, "time_limit"),
        # ranks without labels, one a step behind
        (steps(0, 20) + TIME_LIMIT + steps(18, 2) + RESET, "time_limit"),
        (steps(0, 20) + NODE_FAILURE + RESET, "node_loss"),
        (steps(0, 20) + PREEMPTED + "saving checkpoint of step 19\n" + RESET, "preempt"),
        # the later run has no failure of its own yet
        (steps(0, 20) + NODE_FAILURE + steps(0, 20), "node_loss"),
        # said several times by one run, so that it begins nothing
        (OPENING.format(n=1) * 3 + TIME_LIMIT + OPENING.format(n=1) + WORKER, "time_limit"),
    ],
)
def test_what_is_said_while_a_run_is_ended_begins_no_other(log: str, category: str) -> None:
    assert judge(log.encode()).category == category


def test_a_task_that_was_behind_the_others_starts_nothing_over() -> None:
    taken = steps(0, 40, "[rank0]: step {} loss 0.5\n") + steps(0, 11, "[rank1]: step {} loss 0.5\n")
    goes_on = steps(11, 3, "[rank1]: step {} loss 0.5\n")
    assert judge((taken + TIME_LIMIT + goes_on + RESET).encode()).category == "time_limit"


def test_a_run_that_begins_below_the_failure_is_not_the_one_that_failed() -> None:
    log = steps(0, 20) + TIME_LIMIT + RESET + "resuming from checkpoint ckpt/20.pt\n"
    assert judge(log.encode()).category == "time_limit"


def test_lines_in_the_middle_of_a_log_are_not_its_opening() -> None:
    log = (OPENING.format(n=1) + TIME_LIMIT + OPENING.format(n=2) + WORKER).encode()
    assert judge(LogText((TextWindow(log),))).category != "time_limit"
    assert judge(LogText((TextWindow(log, first_line=500),))).category == "time_limit"


def test_a_failure_in_another_file_ends_no_later_run_of_this_one() -> None:
    ended = steps(0, 20) + TIME_LIMIT + "resuming from checkpoint ckpt/20.pt\n"
    logs = (ended, steps(0, 40) + RESET)
    sources = [Source(f"r{n}.log", str(n), 100.0) for n in range(2)]
    windows = (TextWindow(log.encode(), source=source) for log, source in zip(logs, sources, strict=True))
    assert judge(LogText(tuple(windows))).category == "time_limit"


def test_of_an_ended_run_only_lines_of_the_same_file_are_forgotten() -> None:
    logs = (steps(0, 20) + NODE_FAILURE + steps(0, 20) + RESET, steps(0, 3) + KEY)
    sources = [Source(f"r{n}.log", str(n), 100.0 - n) for n in range(2)]
    windows = (TextWindow(log.encode(), source=source) for log, source in zip(logs, sources, strict=True))
    assert any("labels" in line.text for line in judge(LogText(tuple(windows))).evidence)
