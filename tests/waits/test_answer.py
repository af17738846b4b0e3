"""What is said of each job that waits, beside the forecast: the manager's plan, and from when on it may start."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.model.jobs import JobState
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.waits.answer import AnswerBasis, answer, answers
from perdure.waits.holds import HoldKind
from perdure.waits.past import Past
from perdure.waits.queue import QueuedJob
from tests.copying import replace
from tests.waits.test_queue import queue, waiting

SITE = AnswerBasis(SchedulerSettings(), Past())
NOW_S = 100.0


@pytest.mark.parametrize(("start_s", "planned_s"), [(NOW_S - 5, None), (NOW_S, None), (NOW_S + 5, NOW_S + 5)])
def test_a_plan_of_the_manager_is_of_what_is_to_come(start_s: float, planned_s: float | None) -> None:
    job = waiting("1", start_s=start_s, walltime_s=600.0)
    assert answer(job, queue(job), SITE, np.random.default_rng(0)).planned_s == planned_s


def test_of_many_jobs_those_that_came_first_are_answered() -> None:
    jobs = [waiting(str(at), submit_s=100.0 - at, walltime_s=600.0) for at in range(1, 6)]
    found = answers(queue(*jobs), SITE, np.random.default_rng(0), most=2)
    assert [each.job.job_id for each in found] == ["5", "4"]


def test_a_job_with_a_begin_time_starts_no_earlier() -> None:
    job = waiting("1", walltime_s=600.0, eligible_s=NOW_S + 5000, reason="BeginTime")
    found = answer(job, queue(job), SITE, np.random.default_rng(0))
    assert found.hold.kind is HoldKind.BEGIN_TIME
    assert found.forecast is not None
    assert min(found.forecast.wait_s) >= 5000.0


def test_no_alternatives_are_named_to_a_heterogeneous_job() -> None:
    busy = QueuedJob("9", "tom", JobState.RUNNING, ("main",), 12, nodes=3, walltime_s=90_000.0, start_s=NOW_S,
                     running_on=("n0", "n1", "n2"))  # fmt: skip
    late = replace(busy, running_on=("n0", "n1"), gpus=8, nodes=2)
    job = waiting("1", walltime_s=600.0, gpus=8, nodes=2, reason="Resources")
    one, several = (
        answer(each, queue(late, each), SITE, np.random.default_rng(0)) for each in (job, replace(job, parts=2))
    )
    assert one.sooner
    assert several.forecast is not None
    assert several.sooner == ()
