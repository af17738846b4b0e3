"""How far answers that were given were off, and later ones corrected by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from perdure.model.jobs import JobState
from perdure.waits import own_errors as own_errors_module
from perdure.waits.calibration import ENOUGH, Promise
from perdure.waits.forecast import LEVELS, WaitForecast
from perdure.waits.hindcast import Fit
from perdure.waits.own_errors import GUARD_S, OwnErrors, kind_of, own_errors, promise_of
from perdure.waits.queue import QueuedJob

NOW_S = 1_790_000_000.0
HOUR_S = 3600.0
RAW = tuple(HOUR_S * (0.5 + level) for level in LEVELS)


def job(partition: str = "main", gpus: int = 1, job_id: str = "9") -> QueuedJob:
    return QueuedJob(job_id, "mira", JobState.PENDING, (partition,), gpus, gpus, submit_s=NOW_S - 60)


def kept(
    waits_s: Sequence[float], kind: str = "main 1", ago_s: float = 86_400.0, said: tuple[float, ...] = RAW
) -> list[Promise]:
    """Answers of some time ago, each about a job of its own."""
    asked_s = NOW_S - ago_s
    return [Promise(f"{kind}-{i}", asked_s, said, asked_s + wait_s, RAW, kind) for i, wait_s in enumerate(waits_s)]


def draws(times: float, n: int = 300) -> list[float]:
    """Waits that come as raw quantiles say, times a factor."""
    return [times * HOUR_S * (0.5 + level) for level in np.linspace(0, 1, n).tolist()]


def corrected(own: OwnErrors, asked: QueuedJob) -> WaitForecast:
    return own.corrected(WaitForecast(NOW_S, RAW), asked)


def test_answers_that_came_as_said_change_nothing_and_none_leave_all_as_it_is() -> None:
    assert corrected(OwnErrors(), job()).wait_s == RAW
    found = corrected(own_errors(kept(draws(1.0)), frozenset(), NOW_S, None), job())
    assert found.wait_s == pytest.approx(RAW, rel=0.05)
    assert found.remarks == ()


def test_later_answers_are_moved_by_as_much_as_the_last_ones_were_off() -> None:
    found = corrected(own_errors(kept(draws(3.0)), frozenset(), NOW_S, None), job())
    assert found.median_s == pytest.approx(3 * HOUR_S, rel=0.15)


def test_those_of_another_kind_of_job_count_for_little_where_its_own_are_known() -> None:
    told = [*kept(draws(1.0), "main 1"), *kept(draws(4.0), "low 8")]
    own = own_errors(told, frozenset(), NOW_S, None)
    assert corrected(own, job("main", 1)).median_s == pytest.approx(HOUR_S, rel=0.2)
    assert corrected(own, job("low", 8)).median_s > 3 * HOUR_S
    assert corrected(own, job("low", 1)).median_s > 2 * HOUR_S  # the same partition says more than all others


def test_a_few_answers_correct_by_little() -> None:
    few, many = (own_errors(kept(draws(4.0, n)), frozenset(), NOW_S, None) for n in (3, 300))
    assert HOUR_S < corrected(few, job()).median_s < 2 * HOUR_S < corrected(many, job()).median_s


def test_what_the_fit_corrects_is_not_corrected_twice() -> None:
    fit = Fit(NOW_S, 100, shifts=(float(np.log10(3)),) * len(LEVELS))
    by_fit = fit.corrected(WaitForecast(NOW_S, RAW))
    own = own_errors(kept(draws(3.0), said=by_fit.wait_s), frozenset(), NOW_S, fit)
    assert own.corrected(by_fit, job()).wait_s == pytest.approx(by_fit.wait_s, rel=0.05)


def test_a_job_that_waits_still_is_known_to_take_no_less() -> None:
    early = kept([0.6 * HOUR_S] * 40)
    stuck = [Promise(f"w{i}", NOW_S - 5 * HOUR_S, RAW, None, RAW, "main 1") for i in range(40)]
    names = frozenset(one.job_id for one in stuck)
    with_them = corrected(own_errors([*early, *stuck], names, NOW_S, None), job())
    gone = corrected(own_errors([*early, *stuck], frozenset(), NOW_S, None), job())  # cancelled: nothing is known
    assert with_them.interval_s[1] > 3 * HOUR_S > gone.interval_s[1]


def test_a_week_that_held_too_little_widens_intervals_and_says_so() -> None:
    narrow = tuple(HOUR_S * (0.95 + 0.1 * level) for level in LEVELS)
    recent = own_errors(kept(draws(1.0), said=narrow), frozenset(), NOW_S, None)
    older = own_errors(kept(draws(1.0), ago_s=GUARD_S + 86_400, said=narrow), frozenset(), NOW_S, None)
    wide, usual = corrected(recent, job()), corrected(older, job())
    assert (older.widened, usual.remarks) == (1.0, ())
    assert recent.widened > 1
    assert wide.interval_s[1] > 1.2 * usual.interval_s[1]
    assert wide.remarks[0].startswith(f"the intervals of the last week held {recent.held:.0%} of the starts, not 80%")
    assert own_errors(kept(draws(1.0, ENOUGH - 1), said=narrow), frozenset(), NOW_S, None).widened == 1.0


def test_many_answers_about_one_job_count_as_one() -> None:
    one = [Promise("1", NOW_S - 86_400 + i, RAW, NOW_S - 86_400 + 6 * HOUR_S, RAW, "main 1") for i in range(300)]
    found = corrected(own_errors([*one, *kept(draws(1.0, 60))], frozenset(), NOW_S, None), job())
    assert found.median_s == pytest.approx(HOUR_S, rel=0.2)


def test_what_is_kept_of_an_answer_is_what_it_said_before_any_correction_too() -> None:
    told = WaitForecast(NOW_S, tuple(2 * wait_s for wait_s in RAW), raw_s=RAW)
    assert promise_of(job("main", 6), told) == Promise("9", NOW_S, told.wait_s, None, RAW, "main 4")
    assert [kind_of((), gpus) for gpus in (0, 1, 8, 15)] == [" 0", " 1", " 8", " 8"]


def test_answers_of_an_older_version_count_for_nothing() -> None:
    assert own_errors([Promise("1", NOW_S - 60, RAW, NOW_S)], frozenset(), NOW_S, None) == OwnErrors()


def test_an_answer_of_this_instant_tells_nothing_of_how_far_it_is_off() -> None:
    for asked_s, known in ((NOW_S - 1, 1), (NOW_S, 0), (NOW_S + 60, 0)):
        told = [Promise("1", asked_s, RAW, None, RAW, "main 1"), Promise("2", asked_s, RAW, None, RAW, "main 1")]
        assert own_errors(told, frozenset({"1"}), NOW_S, None).answers == known


def test_of_more_answers_than_are_looked_at_the_newest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_errors_module, "MOST", 30)
    new, old = kept(draws(4.0, 30)), kept(draws(1.0, 30), ago_s=2 * 86_400.0)
    assert own_errors([*new, *old], frozenset(), NOW_S, None) == own_errors(new, frozenset(), NOW_S, None)


def test_a_job_is_corrected_by_its_kind_then_its_partition_then_any() -> None:
    shifts = {name: (by,) * len(LEVELS) for name, by in (("main 4", 0.1), ("main", 0.2), ("", 0.3))}
    own = OwnErrors(ENOUGH, shifts)
    found = [corrected(own, job(*kind)).median_s for kind in (("main", 4), ("main", 1), ("far", 4))]
    assert found == sorted(found)
    assert len(set(found)) == 3
