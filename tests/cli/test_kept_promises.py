"""Answers about waits that are kept: which of them, how many, and whose start is a job's."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.cli import kept_promises
from perdure.cli.kept import KeptFolder
from perdure.cli.kept_promises import EVERY_S, KEEP_S, MOST, keep_promise, read_promises, write_promises
from perdure.model.jobs import JobState
from perdure.waits.calibration import Promise
from perdure.waits.forecast import LEVELS
from perdure.waits.past import Past
from perdure.waits.queue import Queue, QueuedJob

NOW_S = 2_000_000_000.0
SAID_S = (60.0,) * len(LEVELS)


def promise(job_id: str, asked_s: float) -> Promise:
    return Promise(job_id, asked_s, SAID_S, None, SAID_S, "main 2")


@pytest.fixture
def kept(tmp_path: Path) -> KeptFolder:
    return KeptFolder(tmp_path)


def asked_of(kept: KeptFolder, now_s: float = NOW_S, jobs: tuple[QueuedJob, ...] = ()) -> list[tuple[str, float]]:
    return [(one.job_id, now_s - one.asked_s) for one in read_promises(kept, Queue(now_s, jobs, (), ()), Past())]


def test_of_too_many_answers_the_newest_are_kept(kept: KeptFolder) -> None:
    write_promises(kept, [promise(str(n), NOW_S - 1000 + n) for n in range(MOST + 3)])
    assert [name for name, _ in asked_of(kept)] == [str(n) for n in range(3, MOST + 3)]


@pytest.mark.parametrize(("later_s", "is_kept"), [(EVERY_S - 1, False), (EVERY_S, True)])
def test_of_one_job_an_answer_is_kept_every_ten_minutes_and_of_others_at_once(
    kept: KeptFolder, later_s: float, is_kept: bool
) -> None:
    for job_id, asked_s in (("1", NOW_S), ("2", NOW_S), ("1", NOW_S + later_s)):
        keep_promise(kept, promise(job_id, asked_s), Queue(asked_s, (), (), ()), Past())
    assert [one for one, _ in asked_of(kept)] == ["1", "2", *["1"] * is_kept]


def test_answers_are_forgotten_after_a_month(kept: KeptFolder) -> None:
    write_promises(kept, [promise(str(n), NOW_S - KEEP_S + n) for n in range(2)])
    keep_promise(kept, promise("9", NOW_S), Queue(NOW_S, (), (), ()), Past())
    assert [name for name, _ in asked_of(kept)] == ["1", "9"]


@pytest.mark.parametrize(("early_s", "is_its_own"), [(kept_promises.EARLY_S, True), (kept_promises.EARLY_S + 1, False)])
def test_a_start_before_the_answer_is_that_of_an_earlier_run(
    kept: KeptFolder, early_s: float, is_its_own: bool
) -> None:
    write_promises(kept, [promise("1", NOW_S)])
    runs = QueuedJob("1", "ada", JobState.RUNNING, ("main",), gpus=2, submit_s=0.0, start_s=NOW_S - early_s)
    (found,) = read_promises(kept, Queue(NOW_S, (runs,), (), ()), Past())
    assert found.start_s == (NOW_S - early_s if is_its_own else None)
