"""Apps of several jobs that search for one model, and the tuners that stop those of them early that do worse.

What a job's model is worth is seen when its tuner looks, in the same order at each time: curves do not cross here.

Source: L. Li et al., "Hyperband: a novel bandit-based approach to hyperparameter optimization", JMLR 18, 2018, of which
this is the successive halving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from types import MappingProxyType
from typing import NamedTuple, Protocol

from perdure.throughput.speed import Floats

ALMOST = 1e-9  # of a job's work: rounding


class SearchJob(Protocol):
    """What an app knows of one of its jobs; for policies it is an `ElasticJob`."""

    @property
    def submit_s(self) -> float: ...

    @property
    def asked_gpus(self) -> int: ...

    @property
    def alone_s(self) -> Floats:
        """Of all of its work, on the GPUs asked for, on each type (n_types,)."""

    @property
    def left(self) -> float:
        """The part of its work that is still to be done."""


class Tuner(Protocol):
    """When an app's jobs are compared, and how many then go on."""

    def rung(self, total: int, going: int) -> float:
        """The part of their work after which those that still go on are compared next; 1: they are not."""

    def keeps(self, total: int, going: int) -> int:
        """How many of them then go on, at least 1."""

    def is_over(self, ended: int) -> bool:
        """Whether all others stop, with so many of the jobs at the end of their work."""


@dataclass(frozen=True, slots=True)
class Halving:
    """At `first`, `first * eta` and so on of their work the best go on, one in `eta` of those that were compared."""

    eta: int = 3
    first: float = 1 / 9

    def rung(self, total: int, going: int) -> float:
        return 1.0 if going == 1 else min(self.first * self.eta ** self._level(total, going), 1.0)

    def keeps(self, total: int, going: int) -> int:
        return 1 if going == 1 else self._left(total, self._level(total, going) + 1)

    def is_over(self, ended: int) -> bool:  # noqa: ARG002
        return False

    def _level(self, total: int, going: int) -> int:
        level = 0
        while self._left(total, level + 1) >= going:
            level += 1
        return level

    def _left(self, total: int, level: int) -> int:
        return max(1, ceil(total / float(self.eta) ** level))


@dataclass(frozen=True, slots=True)
class Together:
    """All go on to their end; with `first` only until one of them is there."""

    first: bool = False

    def rung(self, total: int, going: int) -> float:  # noqa: ARG002
        return 1.0

    def keeps(self, total: int, going: int) -> int:  # noqa: ARG002
        return going

    def is_over(self, ended: int) -> bool:
        return self.first and ended > 0


TUNERS: Mapping[str, Tuner] = MappingProxyType(
    {"halving": Halving(), "halving-81": Halving(first=1 / 81), "first": Together(first=True), "all": Together()}
)
"""By their names in a trace."""


class SearchStage(NamedTuple):
    """A part of a search, up to the next time that jobs are compared or to its end."""

    longest_s: float  # of one job, on the GPUs that it asks for
    gpu_s: float  # of all of them


@dataclass(slots=True)
class App:
    """Jobs that search for one model together: all of them, those to come and those that are over as well."""

    name: str
    tuner: Tuner
    jobs: Mapping[int, SearchJob]
    score: Mapping[int, float]  # more is better
    lost: set[int] = field(default_factory=set)

    @property
    def submit_s(self) -> float:
        """When the first came."""
        return min(job.submit_s for job in self.jobs.values())

    def going(self) -> list[int]:
        """Those that go on, or are at their end and were not beaten."""
        return [row for row in self.jobs if row not in self.lost]

    def rung(self) -> float:
        """The part of their work that those that go on are to have done next."""
        return self.tuner.rung(len(self.jobs), len(self.going()))

    def due(self) -> list[int]:
        """Those that have not."""
        rung = self.rung()
        return [row for row in self.going() if 1.0 - self.jobs[row].left < rung - ALMOST]

    def stop(self) -> list[int]:
        """Compare them where that is due; the jobs to be stopped now, none of which is at its end."""
        stopped = list[int]()
        while beaten := self._beaten():
            self.lost.update(beaten)
            stopped += [row for row in beaten if self.jobs[row].left > ALMOST]
        return stopped

    def _beaten(self) -> list[int]:
        going = self.going()
        ended = [row for row in going if self.jobs[row].left <= ALMOST]
        if self.tuner.is_over(len(ended)):
            return [row for row in going if row not in ended]
        keeps = self.tuner.keeps(len(self.jobs), len(going))
        if keeps == len(going) or self.due():
            return []
        return sorted(going, key=lambda row: (-self.score[row], row))[keeps:]

    def stages(self, *, from_start: bool = False) -> Sequence[SearchStage]:
        """What is left of the search, or all of it, where those that have done most go on."""
        total, found = len(self.jobs), list[SearchStage]()
        rows = list(self.jobs) if from_start else self.going()
        done = {row: 0.0 if from_start else 1.0 - self.jobs[row].left for row in rows}
        while rows:
            rung, keeps = self.tuner.rung(total, len(rows)), self.tuner.keeps(total, len(rows))
            takes = {row: max(rung - done[row], 0.0) * float(self.jobs[row].alone_s.min()) for row in rows}
            if self.tuner.is_over(1):
                takes = dict([min(takes.items(), key=lambda entry: entry[1])])
            gpu_s = sum(seconds * self.jobs[row].asked_gpus for row, seconds in takes.items())
            found.append(SearchStage(max(takes.values()), gpu_s))
            if rung >= 1.0:
                break
            done = {row: max(rung, part) for row, part in done.items()}
            rows = sorted(rows, key=lambda row: (-done[row], row))[:keeps]
        return found


def search_s(stages: Sequence[SearchStage], gpus: float) -> float:
    """How long a search takes on so many GPUs, each job on those that it asks for.

    Nine jobs of 90 s on a GPU each, of which three go on after 10 s, and one after 30 s:

    >>> search_s([SearchStage(10, 90), SearchStage(20, 60), SearchStage(60, 60)], 3)
    110.0
    """
    return sum(max(stage.longest_s, stage.gpu_s / gpus) for stage in stages) if gpus > 0 else float("inf")
