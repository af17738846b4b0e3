"""Shortest first: by duration, by what remains of it, by service that remains, or by size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.scheduling.keyed import AllByKey
from perdure.scheduling.protocol import StatelessPolicy
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class ShortestJob(StatelessPolicy):
    """Start the job with the least running time, known beforehand; nobody is preempted.

    With `blocks` a job that does not fit holds up all longer ones; else it is passed over.
    """

    blocks: bool = True
    name: str = "sjf"

    def order(self, view: View) -> Iterable[int]:
        return sorted(view.waiting, key=view.work.__getitem__)


@dataclass(frozen=True, slots=True)
class ShortestRemaining:
    """Run the jobs with the least running time left (SRTF), preempting others.

    `inert`: see `AllByKey`.
    """

    inert: bool = False
    blocks: bool = False
    preemptive: bool = True
    name: str = "srtf"

    def ranking(self, view: View) -> AllByKey:
        return AllByKey(view, View.remaining, self.inert)


@dataclass(frozen=True, slots=True)
class ShortestService:
    """Run the jobs with the least service, GPUs times running time, left (SRSF), preempting others."""

    inert: bool = False
    blocks: bool = False
    preemptive: bool = True
    name: str = "srsf"

    def ranking(self, view: View) -> AllByKey:
        return AllByKey(view, lambda view, row: view.gpus[row] * view.remaining(row), self.inert)


@dataclass(frozen=True, slots=True)
class FewestGpus:
    """Run the jobs with the fewest GPUs, preempting others."""

    inert: bool = False
    blocks: bool = False
    preemptive: bool = True
    name: str = "fewest-gpus"

    def ranking(self, view: View) -> AllByKey:
        return AllByKey(view, lambda view, row: view.gpus[row], self.inert)
