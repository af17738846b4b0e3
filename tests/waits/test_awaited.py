"""For whom a job waits, and when it starts then: hand cases in which each job runs for its whole limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from perdure.model.jobs import JobState
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.waits import rollout
from perdure.waits.answer import AnswerBasis, WaitAnswer, answer
from perdure.waits.awaited import as_sbatch, awaited
from perdure.waits.holds import not_told
from perdure.waits.past import Past
from perdure.waits.queue import Queue, QueuedJob, QueuedReservation
from perdure.waits.rollout import scene_of
from perdure.waits.run_times import RunTimes
from tests.waits.test_past import NOW_S
from tests.waits.test_rollout import NODES, PARTITIONS, asking, running

LIMITS = np.full(20, 600.0)
WHOLE = Past(run_times=RunTimes.of(np.full(20, "any"), np.full(20, "any"), LIMITS, LIMITS))


@pytest.fixture(params=[10**6, 0], ids=["plain", "compiled"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By either loop."""
    if not request.param:
        pytest.importorskip("numba")
    monkeypatch.setattr(rollout, "SMALL_ON_NODES", request.param)


def queue(*jobs: QueuedJob) -> Queue:
    return Queue(NOW_S, jobs, NODES, PARTITIONS)


def start_s(job: QueuedJob, *others: QueuedJob) -> float:
    """Seconds from now."""
    there = scene_of(job, queue(*others, job), SchedulerSettings(), WHOLE, np.random.default_rng(0), 1)
    return float(there.starts([job])[0, 0] - NOW_S)


def ends_in(seconds: float, job_id: str, gpus: int = 4, **more: Any) -> QueuedJob:
    return running(job_id, gpus, 60.0, 60.0 + seconds, **more)


def asked(job: QueuedJob, *others: QueuedJob) -> WaitAnswer:
    return answer(job, queue(*others, job), AnswerBasis(SchedulerSettings(), WHOLE), np.random.default_rng(0))


@pytest.mark.usefixtures("small")
def test_no_more_tasks_of_an_array_run_at_once_than_it_lets() -> None:
    """Four GPUs are free all the time."""
    tasks = asking("12", 1, tasks=2, most_tasks=1, priority=9)
    behind = asking("20", 1, priority=1)
    assert start_s(tasks, ends_in(600, "12_1"), behind) == 600
    assert start_s(behind, ends_in(600, "12_1"), tasks) == 0
    assert start_s(structs.replace(tasks, most_tasks=2), ends_in(600, "12_1")) == 0


@pytest.mark.usefixtures("small")
def test_each_task_waits_for_one_before_it() -> None:
    """Tasks of ten minutes one after another, and a job for all of them."""
    tasks = asking("12", 1, tasks=3, most_tasks=1)
    after = asking("30", 1, dependency="afterany:12_*(unfulfilled)", reason="Dependency", eligible_s=None)
    assert start_s(after, tasks) == 1800


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("dependency", "seconds"),
    [
        ("afterok:12_*(unfulfilled)", 900),
        ("afterany:12(unfulfilled)", 900),
        ("afterok:12_1(unfulfilled)", 600),
        ("afterok:12_1(unfulfilled),afterany:40(unfulfilled)", 700),
        ("after:12_2(unfulfilled)", 0),
        ("afterany:99(unfulfilled)", 0),  # which nobody knows any more
        ("singleton(unfulfilled)", 700),
        ("afterok:12_1(unfulfilled)?afterok:12_2(unfulfilled)", 900),
    ],
)
def test_a_job_starts_when_those_that_it_waits_for_have_ended(dependency: str, seconds: float) -> None:
    there = ends_in(600, "12_1", 1), ends_in(900, "12_2", 1), ends_in(700, "40", 1, name="train")
    mine = asking("50", 1, dependency=dependency, reason="Dependency", eligible_s=None, name="train", user="tom")
    assert start_s(mine, *there) == seconds


def test_what_of_a_dependency_is_not_simulated_is_said() -> None:
    def said(dependency: str, *others: QueuedJob) -> tuple[str, ...]:
        mine = asking("50", 1, dependency=dependency, reason="Dependency", eligible_s=None)
        told = asked(mine, ends_in(600, "12", 1), *others)
        assert told.forecast is not None
        return tuple(each for each in told.forecast.remarks if "wait" in each or "delay" in each)

    elsewhere = ends_in(600, "13", 1, partitions=("other",), running_on=("o0",))
    assert said("afterok:12(unfulfilled)") == ()
    assert "job 13, for which it waits, is on other nodes and not simulated" in said("afterok:13", elsewhere)[0]
    assert "one of the jobs for which it waits is enough" in said("afterok:12?afterok:14")[0]
    assert "the delay after the start of another job is not simulated" in said("after:12+30(unfulfilled)")[0]
    assert "tasks that wait together are not told apart" in said("aftercorr:12_*(unfulfilled)")[0]


@pytest.mark.parametrize(
    ("dependency", "why"),
    [
        ("afternotok:12(unfulfilled)", "not forecast: whether a job fails is not simulated"),
        ("afterok:13(unfulfilled)", "not forecast: job 13, for which it waits, is held"),
    ],
)
def test_no_start_is_told_where_nothing_tells_when_a_dependency_is_met(dependency: str, why: str) -> None:
    held = structs.replace(asking("13", 1), state=JobState.HELD)
    mine = asking("50", 1, dependency=dependency, reason="Dependency", eligible_s=None)
    told = asked(mine, ends_in(600, "12", 1), held)
    assert told.forecast is None
    assert not_told(told.hold) == why


def test_the_parts_of_a_heterogeneous_job_start_together_which_is_said() -> None:
    """Its first part would find its GPUs at once."""
    told = asked(asking("12", 8, nodes=2, parts=2), ends_in(600, "1"))
    assert told.forecast is not None
    assert told.forecast.median_s == pytest.approx(600)
    assert any("its 2 parts are simulated as one job" in each for each in told.forecast.remarks)


def test_a_reservation_that_comes_before_the_job_would_have_ended_is_named() -> None:
    kept = QueuedReservation("maint", NOW_S + 9000, NOW_S + 12_600, ("n1",))
    long, short = (asking("9", 8, walltime_s=limit_s) for limit_s in (10_000.0, 600.0))
    remarks: list[list[str]] = []
    for job in (long, short):
        there = structs.replace(queue(ends_in(600, "1"), job), reservations=(kept,))
        told = answer(job, there, AnswerBasis(SchedulerSettings(), WHOLE), np.random.default_rng(0))
        assert told.forecast is not None
        remarks.append([each for each in told.forecast.remarks if "reservation" in each])
    assert [len(each) for each in remarks] == [1, 0]
    assert remarks[0][0].startswith("reservation maint of n1 begins in 2.5 h, which is not simulated: ")


OTHERS = st.lists(
    st.builds(
        asking,
        job_id=st.sampled_from(("8", "12_1", "12_2", "13", "51", "112_1")),
        gpus=st.just(1),
        user=st.sampled_from(("ada", "bob")),
        name=st.sampled_from(("train", "eval")),
    ),
    unique_by=lambda job: job.job_id,
)
MEANT = {
    "singleton": lambda job: (job.user, job.name) == ("ada", "train") and int(job.array) < 50,
    "afterok:12_*": lambda job: job.job_id.startswith("12_"),
    "afterany:12_2": lambda job: job.job_id == "12_2",
    "after:13+30": lambda job: job.job_id == "13",
    "afternotok:8": lambda job: job.job_id == "8",
    "afterok:51": lambda job: job.job_id == "51",
}


@given(OTHERS, st.lists(st.tuples(st.sampled_from([*MEANT]), st.booleans()), min_size=1, max_size=3))
@example([asking("8", 1, user="bob", name="train")], [("singleton", True)])
@example([asking("51", 1, user="ada", name="train")], [("singleton", True)])  # which came later
def test_it_waits_for_all_that_its_dependency_means_and_for_nobody_else(
    others: list[QueuedJob], parts: list[Any]
) -> None:
    """In what is said of it as in what is simulated; a part that is fulfilled means nobody."""
    dependency = ",".join(f"{part}({'unfulfilled' if is_left else 'fulfilled'})" for part, is_left in parts)
    mine = asking("50", 1, dependency=dependency, user="ada", name="train")
    left = [part for part, is_left in parts if is_left]
    wanted = {job.job_id for job in others if any(MEANT[part](job) for part in left)}
    assert {job.job_id for job in awaited(mine, queue(*others, mine))} == wanted
    words = as_sbatch([*others, mine])["50"]
    assert {job_id for condition in words.split(",") for job_id in condition.split(":")[1:]} == wanted
