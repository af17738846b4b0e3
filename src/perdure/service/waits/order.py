"""What the service and the process that makes forecasts say to each other."""

from __future__ import annotations

from msgspec import Struct

from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.waits.answer import MOST_JOBS, WaitAnswer
from perdure.waits.board import BoardRow
from perdure.waits.hindcast import Fit
from perdure.waits.own_errors import OwnErrors
from perdure.waits.queue import QueueLook


class ForecastOrder(Struct, frozen=True):
    """Forecast all waiting jobs of a queue; or hold answers about its past against what came."""

    look: QueueLook
    past: str = ""  # the file that holds the jobs of past weeks; "" where there is none
    past_form: str = ""
    remarks: tuple[str, ...] = ()
    most: int = MOST_JOBS
    fit: Fit | None = None  # how far answers about the past were off: these are corrected by it
    own: OwnErrors = OwnErrors()  # and by how far those that were given are off still
    limits: SiteLimits = SiteLimits()


class Forecasts(Struct, frozen=True):
    """What was found. Instants are of the manager's clock, in seconds since the epoch."""

    asked_s: float
    answers: tuple[WaitAnswer, ...]  # those that came first, first
    board: tuple[BoardRow, ...]
    waiting: int  # jobs in all, those that are held too
    remarks: tuple[str, ...] = ()  # what could not be had, one sentence each
    took_s: float = 0.0

    @property
    def left_out(self) -> int:
        """Jobs that came last, and for which there is no answer."""
        return self.waiting - len(self.answers)

    def of(self, job_id: str) -> WaitAnswer | None:
        """The answer for a job; for an array, that for its first task that waits."""
        exact = next((each for each in self.answers if each.job.job_id == job_id), None)
        return exact or next((each for each in self.answers if each.job.job_id.partition("_")[0] == job_id), None)
