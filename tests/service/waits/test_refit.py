"""The fit in the service: made now and then in a process of its own, kept, and what forecasts are corrected by."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.backends.protocol import PastJobs
from perdure.errors import ForecastFailed
from perdure.service.waits import process, worker
from perdure.service.waits.order import ForecastOrder
from perdure.service.waits.process import fit_of
from perdure.service.waits.refit import AGAIN_S, EVERY_S, FIRST_S, Refit
from perdure.service.waits.worker import forecasts
from perdure.waits.forecast import LEVELS
from perdure.waits.hindcast import ENOUGH, FIT_DAYS, Fit
from perdure.waits.past import DAY_S
from perdure.waits.queue import QueueLook
from tests.copying import replace
from tests.service.waits_world import CONFIG, queue_at, watch_of, watched
from tests.service.web_world import Site, site

NOW_S = 1_790_000_000.0
LATER = Fit(NOW_S, ENOUGH, gpus_share=0.9, shifts=(0.5,) * len(LEVELS), median_error=0.3, covered=0.4)


@pytest.fixture
def place(tmp_path: Path) -> Site:
    return site(tmp_path)


class Clock:
    """A clock, and fits that are made at it."""

    def __init__(self, *made: Fit | Exception) -> None:
        self.now_s, self.made, self.asked = NOW_S, list(made), 0

    def __call__(self) -> float:
        return self.now_s

    def make(self, order: ForecastOrder) -> Fit:
        self.asked += 1
        found = self.made.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def order(past: str = "past.txt", **more: Any) -> ForecastOrder:
    return ForecastOrder(QueueLook(queue_at(NOW_S), CONFIG), past, "sacct", **more)


def test_forecasts_are_corrected_by_the_fit_of_the_order() -> None:
    plain, moved = forecasts(order("")), forecasts(order("", fit=LATER))
    for before, after in zip(plain.answers[:3], moved.answers[:3], strict=True):
        assert after.forecast.median_s == pytest.approx(max(before.forecast.median_s, 60) * 10**0.5, rel=0.2)


def test_a_fit_is_made_once_there_is_a_history_and_then_every_few_hours(tmp_path: Path) -> None:
    clock = Clock(LATER, replace(LATER, answers=99))
    refit = Refit(tmp_path / "waits" / "fit.json", clock, clock.make)
    refit.turn()
    refit.note(order(past=""))
    refit.turn()
    assert (clock.asked, refit.latest, refit.pause_s()) == (0, None, FIRST_S)
    refit.note(order())
    refit.turn()
    refit.turn()
    assert (clock.asked, refit.latest, refit.pause_s()) == (1, LATER, EVERY_S)
    clock.now_s += EVERY_S
    refit.turn()
    assert refit.latest.answers == 99


def test_too_little_to_learn_from_and_a_failure_leave_what_was_learnt(tmp_path: Path) -> None:
    clock = Clock(LATER, Fit(NOW_S, ENOUGH - 1), ForecastFailed("the fit", "failed", "Wait"))
    refit = Refit(tmp_path / "fit.json", clock, clock.make)
    refit.note(order())
    refit.turn()
    clock.now_s += EVERY_S
    refit.turn()
    assert (refit.latest, refit.pause_s()) == (LATER, AGAIN_S)
    clock.now_s += AGAIN_S
    with pytest.raises(ForecastFailed):
        refit.turn()
    assert (refit.latest, refit.pause_s(), clock.asked) == (LATER, AGAIN_S, 3)


def test_a_fit_outlasts_the_service_but_not_its_days(tmp_path: Path) -> None:
    clock, file = Clock(LATER), tmp_path / "fit.json"
    refit = Refit(file, clock, clock.make)
    refit.note(order())
    refit.turn()
    again = Refit(file, clock, clock.make)
    again.note(order())
    assert (again.latest, again.pause_s()) == (LATER, EVERY_S)
    for off_s in (FIT_DAYS * DAY_S + 1, -FIT_DAYS * DAY_S - 1):  # long ago, or under a clock that was ahead
        clock.now_s = NOW_S + off_s
        assert again.latest is None
        begun = Refit(file, clock, clock.make)
        begun.note(order())
        assert (begun.latest, begun.pause_s()) == (None, FIRST_S)  # another one is due at once


@pytest.mark.parametrize("kept", [b"", b"{}", msgspec.json.encode(replace(LATER, shifts=(0.1, 0.2)))])
def test_a_file_that_another_version_left_is_made_anew(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / "fit.json").write_bytes(kept)
    clock = Clock(LATER)
    refit = Refit(tmp_path / "fit.json", clock, clock.make)
    assert refit.latest is None
    refit.note(order())
    refit.turn()
    assert refit.latest == LATER


def test_a_process_of_its_own_makes_it() -> None:
    found = fit_of(order(past=""))
    assert (found.answers, found.is_known) == (0, False)


def test_it_may_take_so_much_processor_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGXCPU)"
    monkeypatch.setattr(process, "_COMMAND", (sys.executable, "-c", program))
    with pytest.raises(ForecastFailed, match="used up the processor time that it may take"):
        fit_of(order())


def test_the_process_ends_with_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(BaseException):
        pass

    def leave(code: int) -> None:
        raise Ended(code)

    parents = iter((7, 7, 1))
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(Ended):
        worker.end_with(7)


def test_the_watch_hands_its_order_on_and_forecasts_by_what_was_learnt(place: Site, tmp_path: Path) -> None:
    watch, cluster = watch_of(place.world, tmp_path)
    cluster.past = PastJobs(b"JobID|User\n", "sacct", ())
    seen: list[ForecastOrder] = []

    def made(asked: ForecastOrder) -> Fit:
        seen.append(asked)
        return replace(LATER, made_s=place.world.now)

    watch.refit._make = made
    watch.turn()
    before = watch.latest.of("11").forecast.median_s
    watch.refit.turn()
    assert seen[0].past.endswith("past.txt")
    watch.turn()
    assert watch.latest.of("11").forecast.median_s > before


def test_page_and_api_say_what_forecasts_are_corrected_by(place: Site, tmp_path: Path) -> None:
    watch = watched(place, tmp_path)
    client = place.client(place.mira)
    assert "Not yet corrected" in client.get("/waits").text
    assert client.get("/api/v1/waits").json()["fit"] is None
    watch.refit._made = replace(LATER, made_s=place.world.now)
    text = client.get("/waits").text
    assert "Not yet corrected" not in text
    assert f"by {ENOUGH} answers about the past" in text
    assert "less than a factor of 2.0" in text
    assert client.get("/api/v1/waits").json()["fit"] == {
        "made_s": place.world.now, "answers": ENOUGH, "within": 0.4, "median_off": pytest.approx(10**0.3),
        "gpus_share": 0.9,
    }  # fmt: skip
