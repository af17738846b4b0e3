"""Jobs that accounting does not tell of yet, beside the past."""

from __future__ import annotations

import numpy as np

from perdure.waits.past import DAY_S
from perdure.waits.unfinished import with_unfinished
from tests.waits.test_past import NOW_S, past
from tests.waits.test_queue import waiting


def test_jobs_that_wait_or_run_count_among_those_that_came() -> None:
    known = past(14)
    there = [waiting("new", submit_s=NOW_S - 1800, gpus=3), waiting("0", submit_s=NOW_S - 60)]
    whole = with_unfinished(known, there, np.array([50.0, 60.0]))
    assert len(whole.jobs) == len(known.jobs) + 1  # accounting tells of job 0 already
    row = int(np.flatnonzero(whole.jobs.job_id == "new")[0])
    assert (whole.jobs.gpus[row], whole.jobs.duration_s[row]) == (3, 50.0)
    assert (np.diff(whole.jobs.submit_s) >= 0).all()
    assert np.isnan(whole.jobs.end_s[row])
    assert whole.run_times is known.run_times


def test_those_that_came_before_or_after_all_that_is_known_are_left_out() -> None:
    known = past(14)
    there = [waiting("old", submit_s=NOW_S - 40 * DAY_S), waiting("late", submit_s=NOW_S + 1)]
    assert with_unfinished(known, there) is known


def test_the_first_job_of_a_partition_may_come_again() -> None:
    """Its partition has no past jobs, over days that are known."""
    nobody = past(14).only_in(("main",))
    whole = with_unfinished(nobody, [waiting("new", submit_s=NOW_S - 1800)], np.array([50.0]))
    assert whole.jobs.job_id.tolist() == ["new"]
    assert whole.days == 14
