"""The agents of Themis: what an app says of itself to the arbiter, and how it shares its GPUs among its jobs.

Source: K. Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", NSDI 2020, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.elastic import ElasticJob
from perdure.scheduling.themis import Floats
from perdure.scheduling.tuning import App, SearchStage, search_s

_NOTHING = 1e-9  # what no GPUs are worth: the products of an auction stay above 0


class AppAgent(Protocol):
    """Speaks for one app. All that it is asked and answers is numbers: it may live in another process."""

    def rho(self, now_s: float, contending: float) -> float:
        """Finish-time fairness as things are; `contending` is the mean number of apps since it came."""

    def bid(self, now_s: float, contending: float, offered: int) -> Floats:
        """``1 / rho`` with 0 to `offered` GPUs more than it has (offered + 1,); it does not fall."""

    def usable(self, offered: int) -> int:
        """How many of so many GPUs more it would use; a gang has all of its GPUs, or none."""

    def sensitivity(self) -> float:
        """How much its GPUs lose together: who loses more chooses first of what the auction leaves."""

    def split(self, gpus: int) -> Mapping[int, int]:
        """GPUs of each of its jobs, by row, of so many that it has."""


@dataclass(frozen=True, slots=True)
class JobAgent:
    """The agent of one job: it uses up to the GPUs that it asks for, with its batch, as fast as was profiled."""

    job: ElasticJob
    held: int  # on leases that go on
    row: int = 0

    def rho(self, now_s: float, contending: float) -> float:
        """With what it runs on now, leases that have just ended included."""
        gpus = self.job.share.gpus if self.job.share is not None else 0
        value = float(self._value(now_s, contending, np.array([gpus]))[0])
        return np.inf if value <= 0 else 1.0 / value

    def bid(self, now_s: float, contending: float, offered: int) -> Floats:
        gpus = self.held + np.array([self.usable(count) for count in range(offered + 1)])
        value = np.nan_to_num(self._value(now_s, contending, gpus))
        return np.maximum.accumulate(np.maximum(value, _NOTHING))

    def _value(self, now_s: float, contending: float, gpus: NDArray[np.int64]) -> Floats:
        left_s = np.array([self._left_s(int(count)) for count in gpus])
        return np.asarray(self.job.alone_s[0] * contending / (now_s - self.job.submit_s + left_s), float)

    def usable(self, offered: int) -> int:
        if self.job.sizes:
            return max((size - self.held for size in self.job.sizes if size <= self.held + offered), default=0)
        wanted = max(self.job.asked_gpus - self.held, 0)
        return 0 if self.job.rigid and offered < wanted else min(offered, wanted)

    def split(self, gpus: int) -> Mapping[int, int]:
        return {self.row: gpus}

    def sensitivity(self) -> float:
        return self._step_s(self.job.asked_gpus) * self.job.asked_gpus / self._step_s(1)

    def _left_s(self, gpus: int) -> float:
        if gpus == 0:
            return np.inf
        return float(self.job.left * self.job.alone_s[0] * self._step_s(gpus) / self._step_s(self.job.asked_gpus))

    def _step_s(self, gpus: int) -> float:
        assert self.job.oracle is not None
        return self.job.oracle.step_s(0, gpus)


@dataclass(frozen=True)
class SearchAgent:
    """The agent of an app: of the jobs that its tuner lets go on, those run that are to reach the next comparison.

    Each runs on the GPUs that it asks for, and fewer only where nothing else is left to it. The app is done when the
    search is, as it would go on with the GPUs that it has; which jobs will be stopped nobody knows, but how many.
    """

    app: App
    there: Mapping[int, ElasticJob]  # of its jobs those that can run now
    held: int  # on leases that go on

    def rho(self, now_s: float, contending: float) -> float:
        """As `AppAgent`: with what its jobs run on now."""
        gpus = sum(job.share.gpus for job in self.there.values() if job.share is not None)
        value = self._value(now_s, contending, gpus)
        return np.inf if value <= 0 else 1.0 / value

    def bid(self, now_s: float, contending: float, offered: int) -> Floats:
        used = [self.held + self.usable(count) for count in range(offered + 1)]
        known = {gpus: self._value(now_s, contending, gpus) for gpus in set(used)}
        return np.maximum.accumulate(np.maximum([known[gpus] for gpus in used], _NOTHING))

    def usable(self, offered: int) -> int:
        if not self._gangs:
            return max(min(offered, self._wanted - self.held), 0)
        return max(sum(self.split(self.held + offered).values()) - self.held, 0)

    def split(self, gpus: int) -> Mapping[int, int]:
        """As `AppAgent`: those that run go on, then those that have done most, so that few restart."""
        given = dict[int, int]()
        for row, job in self._due:
            count = job.asked_gpus if job.asked_gpus <= gpus else 0 if job.rigid else gpus
            if count:
                given[row] = count
                gpus -= count
        return given

    def sensitivity(self) -> float:
        return max((JobAgent(job, 0).sensitivity() for _, job in self._due), default=0.0)

    @cached_property
    def _due(self) -> Sequence[tuple[int, ElasticJob]]:
        due = [(row, self.there[row]) for row in self.app.due() if row in self.there]
        return sorted(due, key=lambda entry: (entry[1].share is None, entry[1].left, entry[0]))

    @cached_property
    def _wanted(self) -> int:
        return sum(job.asked_gpus for _, job in self._due)

    @cached_property
    def _gangs(self) -> bool:
        return any(job.rigid and job.asked_gpus > 1 for _, job in self._due)

    @cached_property
    def _stages(self) -> Sequence[SearchStage]:
        return self.app.stages()

    @cached_property
    def _alone_s(self) -> float:
        return sum(stage.longest_s for stage in self.app.stages(from_start=True))

    def _value(self, now_s: float, contending: float, gpus: int) -> float:
        left_s = search_s(self._stages, gpus)
        return self._alone_s * contending / (now_s - self.app.submit_s + left_s) if left_s < np.inf else 0.0
