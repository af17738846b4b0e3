"""The watch on waiting jobs: every few minutes when each will start, and what became of what was said before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perdure.backends.protocol import PastJobs, Queued
from perdure.errors import PerdureError
from perdure.service.waits.order import ForecastOrder, Forecasts
from perdure.service.waits.process import forecasts_of
from perdure.service.waits.promise_store import PromiseStore
from perdure.service.waits.refit import Refit, write_whole
from perdure.waits.calibration import Calibration, Promise, calibration_of
from perdure.waits.own_errors import own_errors, promise_of
from perdure.waits.past import DAY_S
from perdure.waits.queue import QueueLook

FIRST_S = 5.0  # from one try to the next until the queue is known
PAST_DAYS = 28
PAST_EVERY_S = 3600.0
PROMISE_EVERY_S = 3600.0  # of a job one answer is kept so often


class WaitsWatch:
    """Makes forecasts in its own thread's turns; pages read `latest` and `calibration`."""

    def __init__(
        self,
        backend: Queued,
        store: PromiseStore,
        folder: Path,
        clock: Callable[[], float],
        forecast: Callable[[ForecastOrder], Forecasts] = forecasts_of,
    ) -> None:
        """`folder` is for the past that the process reads."""
        self._backend, self._store, self._clock, self._forecast = backend, store, clock, forecast
        self._file = folder / "past.txt"
        self.refit = Refit(folder / "fit.json", clock)
        self._past: tuple[float, PastJobs] | None = None
        self.latest: Forecasts | None = None
        self.calibration = Calibration()
        self.trouble = ""  # why the last try failed

    def turn(self) -> None:
        """Forecast once. Raises `PerdureError` where that fails: what was said before stays."""
        look = self._backend.queue()
        if look is None:
            return
        order = self._order(look)
        self.refit.note(order)
        try:
            self.latest = self._forecast(order)
        except PerdureError as err:
            self.trouble = f"{err.args[0]}: {err.args[1]}"
            raise
        self.trouble = ""
        self._store.note(self._promises(self.latest), look.queue.now_s)
        waiting = {answer.job.job_id for answer in self.latest.answers}
        late = [one for one in self._store.open_of(waiting) if one.is_late_at(look.queue.now_s)]
        self.calibration = calibration_of(self._store.kept(), len(late))

    def pause_s(self, every_s: float) -> float:
        """Until the next turn."""
        return every_s if self.latest or self.trouble else min(FIRST_S, every_s)

    def _order(self, look: QueueLook) -> ForecastOrder:
        past = self._fresh_past(look)
        file = str(self._file) if past.text is not None else ""
        waiting = frozenset(job.job_id for job in look.queue.jobs if job.is_waiting)
        told = [*self._store.kept(), *self._store.open_of(waiting)]
        fit = self.refit.latest
        own = own_errors(told, waiting, look.queue.now_s, fit)
        return ForecastOrder(look, file, past.form, past.remarks, fit=fit, own=own, limits=past.limits)

    def _fresh_past(self, look: QueueLook) -> PastJobs:
        """What is known of past weeks; the text of it is in the file alone."""
        now = self._clock()
        if self._past is not None and 0 <= now - self._past[0] < PAST_EVERY_S:
            return self._past[1]
        try:
            found = self._backend.past_jobs(look, look.queue.now_s - PAST_DAYS * DAY_S)
            if found.text is not None:
                write_whole(self._file, found.text)
                found = found._replace(text=b"")
        except (PerdureError, OSError) as err:
            return PastJobs(None, "", (f"no history: {err.args[1]}",))
        self._past = now, found
        return found

    def _promises(self, told: Forecasts) -> list[Promise]:
        """Of each job that may start one an hour; the waiting tasks of an array have no ids of their own yet."""
        known = self._store.promised_since(told.asked_s - PROMISE_EVERY_S)
        return [
            promise_of(each.job, each.forecast)
            for each in told.answers
            if each.forecast is not None and each.job.job_id not in known and each.job.tasks == 1
        ]
