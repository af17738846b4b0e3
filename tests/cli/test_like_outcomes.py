"""Outcomes of forecasts for jobs like a successor: where they come from, what is kept, and what they may cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from perdure.cli import keep_outlook, like_outcomes, live_queue
from perdure.cli.keep_outlook import Outlook
from perdure.cli.kept import KeptFolder
from perdure.cli.kept_promises import write_promises
from perdure.cli.like_outcomes import MOST, outcomes_alike
from perdure.errors import InputError
from perdure.model.jobs import JobState
from perdure.model.table import JobTable
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.succession.chain_state import ChainSpec, JobChain
from perdure.succession.protocol import Forecast, ForecastOutcome
from perdure.waits.answer import AnswerBasis
from perdure.waits.calibration import Promise
from perdure.waits.forecast import LEVELS
from perdure.waits.hindcast import Fit
from perdure.waits.past import Past
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition

NOW_S, HOUR_S = 2_000_000_000.0, 3600.0
QUEUE = Queue(NOW_S, (), (QueuedNode("n1", ("main",), gpus=4, cpus=8),), (QueuedPartition("main"),))
JOB = QueuedJob("", "me", JobState.PENDING, ("main",), gpus=2, walltime_s=HOUR_S, submit_s=NOW_S)
N = 100


def past() -> Past:
    """A job of another user every five hours, each of which waited an hour."""
    submit = NOW_S - 5 * HOUR_S * np.arange(N, 0, -1)
    jobs = JobTable(
        np.arange(N).astype(str), submit, np.full(N, 2), np.full(N, 600.0), start_s=submit + HOUR_S,  # type: ignore[arg-type]
        end_s=submit + HOUR_S + 600, user=np.full(N, "other"), partition=np.full(N, "main"),  # type: ignore[arg-type]
        walltime_s=np.full(N, HOUR_S),
    )  # fmt: skip
    return Past(jobs, NOW_S)


SITE = AnswerBasis(SchedulerSettings(), past())


@pytest.fixture
def kept(tmp_path: Path) -> KeptFolder:
    return KeptFolder(tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which jobs of the past are asked about; of each ten minutes are said."""
    found = []

    def say(row: int, past: Past, *_: object) -> Promise:
        found.append(row)
        said_s = (600.0,) * len(LEVELS)
        jobs = past.jobs
        return Promise(
            str(jobs.job_id[row]), float(jobs.submit_s[row]), said_s, float(jobs.start_s[row]), said_s, "main 2"
        )

    monkeypatch.setattr(like_outcomes, "promise_then", say)
    return found


def alike(
    kept: KeptFolder,
    site: AnswerBasis = SITE,
    queue: Queue = QUEUE,
    but: set[Any] | tuple[()] = (),
    within_s: float = 60.0,
) -> tuple[ForecastOutcome, ...]:
    return outcomes_alike(JOB, queue, site, kept, but, within_s)


def test_others_jobs_of_the_past_are_outcomes_and_asked_about_once(kept: KeptFolder, asked: list[Any]) -> None:
    first = alike(kept)
    assert len(first) == len(asked) == N // 2  # of the later half
    assert {(each.said.at(0.5), each.wait_s, each.started) for each in first} == {(600.0, HOUR_S, True)}
    assert alike(kept) == first
    assert len(asked) == N // 2


def test_what_it_may_cost_is_bounded_and_it_goes_on_where_it_stopped(kept: KeptFolder, asked: list[Any]) -> None:
    assert [len(alike(kept, within_s=0.0)) for _ in range(3)] == [1, 2, 3]
    assert asked == [N - 1, N - 2, N - 3]


def test_links_of_the_chain_itself_are_left_out(kept: KeptFolder, asked: list[Any]) -> None:
    assert len(alike(kept, but={str(N - 1)})) == N // 2 - 1
    assert N - 1 not in asked


def test_kept_promises_are_outcomes_and_the_first_answer_about_a_job_counts(kept: KeptFolder, asked: list[Any]) -> None:
    said_s = (60.0,) * len(LEVELS)
    site = AnswerBasis(SchedulerSettings(), Past())
    jobs = [
        ("1", NOW_S - 900, "main 2"),
        ("1", NOW_S - 300, "main 2"),
        ("2", NOW_S - 60, "main 2"),
        ("3", NOW_S - 60, "main 4"),
    ]
    write_promises(kept, [Promise(id_, at, said_s, None, said_s, kind) for id_, at, kind in jobs])
    waiting = tuple(structs.replace(JOB, job_id=id_) for id_ in ("1", "3"))
    assert [(each.wait_s, each.started) for each in alike(kept, site, structs.replace(QUEUE, jobs=waiting))] == [
        (900.0, False)
    ]
    started = (structs.replace(JOB, job_id="2", state=JobState.RUNNING, start_s=NOW_S - 20),)
    assert [(each.wait_s, each.started) for each in alike(kept, site, structs.replace(QUEUE, jobs=started))] == [
        (40.0, True)
    ]


def test_of_many_outcomes_the_newest_are_told(kept: KeptFolder, asked: list[Any]) -> None:
    said_s = (60.0,) * len(LEVELS)
    site = AnswerBasis(SchedulerSettings(), Past())
    ids = [str(n) for n in range(MOST + 5)]
    write_promises(kept, [Promise(id_, NOW_S - 900 + int(id_), said_s, None, said_s, "main 2") for id_ in ids])
    waiting = tuple(structs.replace(JOB, job_id=id_) for id_ in ids)
    found = alike(kept, site, structs.replace(QUEUE, jobs=waiting))
    assert [each.wait_s for each in found] == [900.0 - n for n in range(5, MOST + 5)]


def test_what_was_said_is_corrected_as_the_forecast_of_the_successor_is(kept: KeptFolder, asked: list[Any]) -> None:
    fit = Fit(NOW_S, 100, shifts=(1.0,) * len(LEVELS))
    found = alike(kept, AnswerBasis(SchedulerSettings(), past(), fit))
    assert {each.said.at(0.5) for each in found} == {6000.0}


def test_what_is_told_of_the_longest_waits_fits_in_a_pipe() -> None:
    """The keeper reads what the process has written once that has ended."""
    said = Forecast((345_600.0,) * 33)
    told = Outlook(
        said, (345_600.123456,) * keep_outlook.MOST_RECENT, (ForecastOutcome(said, 345_600.0, False),) * MOST
    )
    assert len(msgspec.json.encode(told)) < 65_536


def test_the_waits_of_jobs_alike_are_those_that_started_last() -> None:
    many = keep_outlook.MOST_RECENT + 5
    came = NOW_S + np.arange(many, dtype=float)
    waited = 100.0 + np.arange(many)
    columns = {"user": np.full(many, "ada"), "partition": np.full(many, "main"), "walltime_s": np.full(many, HOUR_S)}
    ids, gpus, ran = np.arange(many).astype(str), np.full(many, 2), np.full(many, 60.0)
    began = came + waited
    table = JobTable(ids, came, gpus, ran, start_s=began, end_s=began + 60, **columns)  # type: ignore[arg-type]
    found = keep_outlook.waits_of_alike(table.take(np.arange(many)[::-1]), JOB)
    assert found == pytest.approx(waited[5:])
    assert keep_outlook.waits_of_alike(table, structs.replace(JOB, gpus=4)) == ()
    assert keep_outlook.waits_of_alike(table, structs.replace(JOB, partitions=("other",))) == ()


def outlook_of_a_first_link(kept: KeptFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Outlook]:
    """Finds it out, on a full node, with what is kept in a folder."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n#SBATCH --gpus=2 --time=1:00:00\n")
    spec = ChainSpec("t-1", "t-1.ab", "t", "/w/t.sh", "/w", "me", NOW_S, HOUR_S)
    chain = SimpleNamespace(read=lambda: JobChain(spec), environment=dict, folder=SimpleNamespace(script=script))
    busy = tuple(
        structs.replace(
            JOB, job_id=f"r{place}", state=JobState.RUNNING, submit_s=NOW_S - 90, start_s=NOW_S - 60, running_on=("n1",)
        )
        for place in range(2)
    )
    partitions = (QueuedPartition("main", is_default=True),)
    queue = structs.replace(QUEUE, jobs=busy, partitions=partitions)
    monkeypatch.setattr(live_queue, "live_queue", lambda: (queue, SITE))
    monkeypatch.setattr(live_queue, "kept_of_slurm", lambda: kept)
    monkeypatch.setattr(keep_outlook, "LEARN_S", 0.0)
    return lambda: keep_outlook.find_out(chain)  # type: ignore[arg-type]


def test_the_outlook_of_a_first_link_has_outcomes(
    kept: KeptFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a real answer, and jobs of the past that are really asked about."""
    find_out = outlook_of_a_first_link(kept, monkeypatch, tmp_path)
    found = find_out()
    assert found.forecast is not None
    assert [(each.wait_s, each.started) for each in found.outcomes] == [(30.0, True)]
    again = find_out()
    assert [(each.wait_s, each.started) for each in again.outcomes] == [(HOUR_S, True), (30.0, True)]


def test_a_past_that_cannot_be_asked_about_costs_no_forecast(
    kept: KeptFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise InputError("job 7", "it started before it came", "Fix its times")

    monkeypatch.setattr(like_outcomes, "promise_then", refuse)
    assert outlook_of_a_first_link(kept, monkeypatch, tmp_path)().forecast is not None
