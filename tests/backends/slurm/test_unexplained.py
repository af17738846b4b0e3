"""Which jobs accounting is asked about."""

from collections.abc import Mapping
from typing import Any

import pytest

from perdure.backends.slurm.records import JobRecord, read_jobs
from perdure.backends.slurm.unexplained import ASK_AGAIN_S, Gap, gaps_between, open_gaps
from tests.backends.slurm.text import MARK, job
from tests.copying import replace


def record(**more: Any) -> JobRecord:
    (found,) = read_jobs(job(7, **more).encode(), MARK).whole
    return found


RUNS, WAITS = record(), record(state="PENDING", start="Unknown", nodes="")
FAILED = record(state="FAILED", end="110", exit_code="3:0")
AGAIN = record(state="PENDING", start="Unknown", nodes="", restarts=1, submit=120)


def asked(was: JobRecord | None, now: JobRecord | None) -> dict[Any, Any]:
    before, after = ({"7": one} if one else {} for one in (was, now))
    return {job_id: gap.start_s for job_id, gap in gaps_between({}, before, after, 200.0).items()}


@pytest.mark.parametrize(
    ("was", "now", "about"),
    [
        (None, WAITS, {}),
        (None, RUNS, {}),
        (WAITS, RUNS, {}),
        (RUNS, RUNS, {}),
        (RUNS, FAILED, {}),
        (FAILED, AGAIN, {}),  # the record told of that end
        (FAILED, None, {}),
        (RUNS, AGAIN, {"7": 100}),
        (RUNS, replace(AGAIN, state="RUNNING", start_s=130, nodes=("n2",)), {"7": 100}),
        (WAITS, AGAIN, {"7": None}),  # it ran in between
        (None, AGAIN, {"7": None}),  # the service was away
        (FAILED, replace(AGAIN, restarts=2), {"7": None}),
        (RUNS, record(state="COMPLETING"), {"7": 100}),
        (RUNS, None, {"7": 100}),
        (WAITS, None, {"7": None}),
        (WAITS, record(state="PENDING", start="Unknown", nodes="", reason="launch_failed_requeued_held"), {"7": None}),
        (RUNS, replace(RUNS, start_s=150), {"7": 100}),  # a crash of slurmctld: counted from 0 again
    ],
)
def test_what_the_records_do_not_tell(
    was: JobRecord | None, now: JobRecord | None, about: Mapping[str, int | None]
) -> None:
    assert asked(was, now) == about


def test_of_an_attempt_whose_end_is_known_nobody_is_asked() -> None:
    assert gaps_between({}, {}, {"7": AGAIN}, 200.0, {"7": 1}) == {}
    assert gaps_between({}, {}, {"7": replace(AGAIN, restarts=2)}, 200.0, {"7": 1}) == {"7": Gap(None, 230.0)}
    completing = record(state="COMPLETING")
    assert gaps_between({}, {"7": RUNS}, {"7": completing}, 200.0, asked_of=("7",)) == {}


def test_a_gap_is_put_until_it_is_answered_or_nobody_will() -> None:
    gaps = gaps_between({}, {"7": RUNS}, {"7": AGAIN}, 200.0)
    later = gaps_between(gaps, {"7": AGAIN}, {"7": AGAIN}, 210.0)
    assert later == gaps
    assert open_gaps(later, [("7", 99)]) == gaps
    assert open_gaps(later, [("7", 100)]) == {}
    of_any = {"7": Gap(None, 230.0)}  # nobody knows when it began: each end may be an earlier one
    assert open_gaps(of_any, [("7", 100)]) == of_any
    assert gaps_between(gaps, {"7": AGAIN}, {"7": AGAIN}, 200.0 + ASK_AGAIN_S) == {}


def test_the_rest_of_an_array_is_not_asked_about() -> None:
    rest = replace(WAITS, job_id="7")
    assert gaps_between({}, {"7": rest}, {"7_3": replace(WAITS, job_id="7_3")}, 200.0) == {}
