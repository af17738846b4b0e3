"""Shortest first: by duration, by what remains of it, by service that remains, or by size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.scheduling.keyed import KeyedPolicy
from perdure.scheduling.protocol import StatelessPolicy
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class ShortestJob(StatelessPolicy):
    """Start the job with the least running time, known beforehand; nobody is preempted.

    With `blocks` a job that does not fit holds up all longer ones; else it is passed over. Running time is that of the
    present attempt, as the trace has it: a bound for what a predictor of running times can win, not a scheduler.
    """

    blocks: bool = True
    name: str = "sjf"

    def order(self, view: View) -> Iterable[int]:
        return sorted(view.waiting, key=view.work.__getitem__)


@dataclass(frozen=True, slots=True)
class ShortestRemaining(KeyedPolicy):
    """Run the jobs with the least running time left (SRTF), preempting others; among equals those that run, then by
    arrival.

    With jobs of one GPU on one GPU it has the least mean JCT of all policies; with gangs it need not, for a long narrow
    job may cost less than a short wide one (`ShortestService`). Clairvoyant; preemption costs nothing in the simulator.
    """

    name: str = "srtf"

    def key(self, view: View, row: int) -> float:
        return view.work[row] - view.executed(row)  # what remains, with a call less: keys are most of a replay's time


@dataclass(frozen=True, slots=True)
class ShortestService(KeyedPolicy):
    """Run the jobs with the least service, GPUs times running time, left (SRSF), preempting others.

    Among equals those that run, then by arrival.
    Clairvoyant; ``shortest-gpu`` in Tiresias' simulator. Long wide jobs starve while shorter ones keep coming.
    """

    name: str = "srsf"

    def key(self, view: View, row: int) -> float:
        return view.gpus[row] * view.remaining(row)


@dataclass(frozen=True, slots=True)
class FewestGpus(KeyedPolicy):
    """Run the jobs with the fewest GPUs, preempting others. Needs no running times; what Tiresias' simulator calls
    ``sjf``.
    """

    name: str = "fewest-gpus"

    def key(self, view: View, row: int) -> float:
        return view.gpus[row]
