"""What the launcher says counts: of the walltime where the times agree, of a hang where the log does not say so."""

from collections.abc import Mapping
from typing import Any

import pytest

from perdure.coordination.record import ExceptionRecord, Scope, Subject
from perdure.model.exits import OURS, RETRY_ME, WALLTIME_SAID, WALLTIME_TOLD
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import Output, OutputFile
from perdure.retry.history import WALLTIME_FINGERPRINT
from perdure.service.core.launcher_notes import HANG, notes_of, of_hang, of_walltime
from perdure.triage.evidence.reached import reached
from perdure.triage.judge import judge
from perdure.triage.verdict import CauseRole, Evidence, Label, Reached, Verdict
from tests.copying import replace

HOUR_S = 3600.0
ENDED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 2 * HOUR_S - 100, exit_code=1, user="ada")
UNSURE = Verdict(Label.UNSURE, 0.5, "unknown", "nobody knows", fingerprint="u")
SHAPE = Verdict(
    Label.DETERMINISTIC,
    0.03,
    "shape",
    "shapes do not match",
    (Evidence(3, "mat1", CauseRole.ROOT, "r"),),
    fingerprint="d",
)
LINE = f"{WALLTIME_SAID}118 s, last at step 39: TERM {WALLTIME_TOLD} 2 of its processes"
LOG = Output.of(f"step 40 loss 0.1\n{LINE}\nstep 41 loss 0.1\n".encode())


def judged(
    verdict: Verdict = UNSURE, output: Output = LOG, attempt: Attempt = ENDED, walltime_s: float | None = 2 * HOUR_S
) -> Verdict:
    return of_walltime(replace(verdict, reached=reached(output)), output, attempt, walltime_s)


@pytest.mark.parametrize("exit_code", [1, 75, 143])
def test_who_was_told_and_ended_in_time_ran_out_of_walltime(exit_code: int) -> None:
    found = judged(attempt=replace(ENDED, exit_code=exit_code))
    assert (found.category, found.label, found.steps) == ("time_limit", Label.TRANSIENT, 41)
    assert found.first_step == 40
    assert found.fingerprint == WALLTIME_FINGERPRINT
    assert found.evidence[0].text == LINE
    assert "118 s" in found.summary


def test_where_the_log_is_out_of_reach_what_the_launcher_raised_counts() -> None:
    note = LINE.removeprefix(OURS)
    assert of_walltime(UNSURE, Output(), ENDED, 2 * HOUR_S, [note]).category == "time_limit"
    assert of_walltime(SHAPE, Output(), ENDED, 2 * HOUR_S, [note]).category == "shape"
    assert of_walltime(UNSURE, Output(), ENDED, 9 * HOUR_S, [note]).category == "unknown"


def test_of_several_warnings_the_last_one_is_told() -> None:
    early = LINE.replace("118 s", "598 s")
    assert judged(output=Output.of(f"{early}\nstep 40\n{LINE}\n".encode())).summary.endswith("told 118 s before")


def test_ranks_lines_are_read_behind_their_prefix() -> None:
    assert judged(output=Output.of(f"0: step 3\n0: {LINE}\n".encode())).category == "time_limit"


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": replace(ENDED, end_s=HOUR_S)},  # an hour was left, whatever the log says
        {"attempt": replace(ENDED, state=AttemptState.NODE_FAIL)},
        {"attempt": replace(ENDED, state=AttemptState.CANCELLED)},
        {"walltime_s": None},
        {"verdict": SHAPE},
        {"output": Output.of(b"step 40\n")},
        {"output": Output.of(f"{WALLTIME_SAID}118 s: no process of the program listens to TERM\n".encode())},
        {"output": Output.of(f"{WALLTIME_SAID}1e9 s: TERM {WALLTIME_TOLD} 2".encode())},
        {"output": Output.of(f"{WALLTIME_SAID}{'9' * 4000} s: TERM {WALLTIME_TOLD} 2".encode())},
        {"output": Output((OutputFile("log", LINE.encode(), doubt="another attempt's"),))},
    ],
)
def test_otherwise_the_verdict_stays(change: Mapping[str, Any]) -> None:
    assert replace(judged(**change), reached=None) == change.get("verdict", UNSURE)


def test_a_program_that_asks_to_go_on_is_believed_whatever_else_its_log_names() -> None:
    assert judged(SHAPE, attempt=replace(ENDED, exit_code=RETRY_ME)).category == "time_limit"


def test_what_was_ended_at_its_walltime_goes_on_where_it_was_told() -> None:
    timeout = Verdict(Label.DETERMINISTIC, 0.04, "time_limit", "the walltime was reached", fingerprint="t")
    ended = replace(ENDED, state=AttemptState.TIMEOUT, end_s=2 * HOUR_S + 10, exit_code=0)
    told, silent = (judged(timeout, output, ended) for output in (LOG, Output.of(b"step 41\n")))
    assert (told.summary, told.fingerprint, told.steps) == (timeout.summary, WALLTIME_FINGERPRINT, 41)
    assert replace(silent, reached=None) == replace(timeout, steps=41, first_step=41)


def test_a_newer_checkpoint_is_progress_more_than_a_newer_step() -> None:
    found = judged(output=Output.of(f"step 40\nsaved checkpoint ckpt/step_40.pt\nstep 49\n{LINE}\n".encode()))
    assert (found.steps, found.first_step) == (40, 40)


NOTE = "rank 1 on n2 stopped first: train.py:17 in load; rank 0 waits for it in backward; no sign of life for 22 s"
HUNG = Attempt(AttemptId("c", "7", 3), AttemptState.FAILED, ("n1", "n2"), 0.0, 90.0, exit_code=75)
RECORD = ExceptionRecord(
    "x1", "app.hang", 3, Scope.LOCAL, Subject("c", "7"), 60.0, note=NOTE, incarnation=3, detected_by="user:ada"
)


def told(log: str, record: ExceptionRecord = RECORD, attempt: Attempt = HUNG) -> Verdict:
    return of_hang(judge(log.encode(), attempt), attempt, notes_of(HANG, attempt, [record]))


def test_a_hang_that_was_raised_is_one_where_the_log_is_silent() -> None:
    verdict = told("step 5 loss 0.3")
    assert (verdict.category, verdict.rank, verdict.node) == ("hang", "1", "n2")


def test_what_the_log_shows_besides_is_kept_with_a_hang() -> None:
    """How far it came counts in the retry decision; which files were read, and how Slurm ended it, are shown."""
    shown = {"logs": ("log",), "reached": Reached(step=5), "ending": "ended", "work_done": True}
    verdict = of_hang(replace(judge(b"step 5", HUNG), **shown), HUNG, notes_of(HANG, HUNG, [RECORD]))
    assert verdict.category == "hang"
    assert {name: getattr(verdict, name) for name in shown} == shown


def test_what_the_log_names_as_a_cause_stays() -> None:
    assert told("ValueError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)").category != "hang"


@pytest.mark.parametrize(
    "record",
    [
        replace(RECORD, incarnation=2),
        replace(RECORD, subject=Subject("c", "8")),
        replace(RECORD, subject=Subject("other", "7")),
        replace(RECORD, type="app.walltime"),
    ],
)
def test_one_that_was_raised_of_something_else_does_not_count(record: ExceptionRecord) -> None:
    assert told("step 5 loss 0.3", record).category == "unknown"


def test_one_that_the_program_came_back_from_does_not_count() -> None:
    assert told("step 5 loss 0.3", attempt=replace(HUNG, exit_code=3)).category != "hang"


def test_of_several_that_were_raised_the_last_one_counts() -> None:
    """The launchers may have been called off, and have looked again."""
    records = [RECORD, replace(RECORD, id="x2", note=NOTE.replace("rank 1 on n2", "rank 3 on n1"))]
    verdict = of_hang(judge(b"step 5", HUNG), HUNG, notes_of(HANG, HUNG, records))
    assert (verdict.rank, verdict.node) == ("3", "n1")
