"""Many emulated GPUs in virtual time: gangs that step together, the slowest of each setting its pace.

Between two events (a fault begins or ends, a checkpoint, a gang breaks) all steps of a gang are drawn at once, as a
matrix of steps by GPUs; so an hour of a thousand GPUs takes seconds. A gang that breaks goes back to its last
checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from perdure.emulation.faults import DeviceFault, FaultKind

BLOCK = 4096
"""Steps drawn at once."""


@dataclass(frozen=True, slots=True)
class GangPlan:
    """What the gangs of a fleet do; times in seconds."""

    gpus: int  # of one gang
    compute_s: float  # of a step on one GPU
    exchange_s: float  # that the gang then waits for gradients
    jitter: float = 0.0
    checkpoint_s: float = 600.0  # from one to the next
    restart_s: float = 60.0


@dataclass(frozen=True, slots=True)
class FleetCount:
    """What a fleet did until its end; steps are of GPUs, not of gangs."""

    gpu_steps: int
    kept_steps: int  # that no failure lost
    breaks: int
    slowed_s: float  # that gangs took longer than their own usual pace, in GPU seconds
    elapsed_s: float

    @property
    def goodput(self) -> float:
        """The share of steps that were kept."""
        return self.kept_steps / self.gpu_steps if self.gpu_steps else 0.0


def run_fleet(
    gangs: int, plan: GangPlan, faults: Sequence[DeviceFault], until_s: float, mtbf_s: float, rng: Generator
) -> FleetCount:
    """Run gangs for `until_s` seconds; each of their GPUs also breaks every `mtbf_s` seconds in the mean (inf: never).

    A fault's device counts through the fleet: gang ``g`` has the GPUs from ``g * plan.gpus`` on.
    """
    steps = kept = breaks = 0
    slowed = 0.0
    for gang in range(gangs):
        own = [each for each in faults if each.gpu is None or each.gpu // plan.gpus == gang]
        did, lost, broke, slow = _run_gang(gang * plan.gpus, plan, own, until_s, mtbf_s, rng)
        steps, kept, breaks = steps + did * plan.gpus, kept + (did - lost) * plan.gpus, breaks + broke
        slowed += slow * plan.gpus
    return FleetCount(steps, kept, breaks, slowed, until_s)


def _run_gang(
    first: int, plan: GangPlan, faults: Sequence[DeviceFault], until_s: float, mtbf_s: float, rng: Generator
) -> tuple[int, int, int, float]:
    now, steps, lost, breaks, slowed = 0.0, 0, 0, 0, 0.0
    saved_at, saved_steps = 0.0, 0
    hangs = sorted((each.at_s or 0.0, each.value) for each in faults if each.kind is FaultKind.HANG)
    planned = sorted(each.at_s or 0.0 for each in faults if each.breaks)
    edges = np.array(sorted({edge for each in faults for edge in _edges(each) if edge < until_s} | {until_s}))
    next_break = _next_break(planned, 0.0, plan.gpus, mtbf_s, rng)
    while now < until_s:
        edge = float(edges[np.searchsorted(edges, now, side="right")])  # the last is the end, which is not reached yet
        stop = min(edge, next_break, saved_at + plan.checkpoint_s)
        factor = np.array([_factor(faults, now, first + gpu, FaultKind.SLOW) for gpu in range(plan.gpus)])
        usual = plan.compute_s + plan.exchange_s
        exchange_s = plan.exchange_s * max(
            _factor(faults, now, first + gpu, FaultKind.LINK) for gpu in range(plan.gpus)
        )
        pace = plan.compute_s * factor.max() + exchange_s
        count = int(min(BLOCK, max(1.0, np.ceil((stop - now) / pace))))
        if plan.jitter:
            drawn = rng.standard_gamma(plan.jitter**-2, (count, plan.gpus)) * plan.jitter**2
            taken = plan.compute_s * (drawn * factor).max(axis=1) + exchange_s
        else:
            taken = np.full(count, pace)
        ends = now + np.cumsum(taken)
        done = min(count, int(np.searchsorted(ends, stop)) + 1)  # the step that crosses an event ends as it began
        steps, now = steps + done, float(ends[done - 1])
        slowed += max(0.0, float(taken[:done].sum()) - done * usual) if pace > usual else 0.0
        while hangs and now >= hangs[0][0]:
            now, slowed = now + hangs[0][1], slowed + hangs.pop(0)[1]
        if now >= saved_at + plan.checkpoint_s:
            saved_at, saved_steps = now, steps
        if now >= next_break and next_break < until_s:
            lost += steps - saved_steps
            breaks += 1
            now += plan.restart_s
            saved_at, saved_steps = now, steps
            next_break = _next_break(planned, now, plan.gpus, mtbf_s, rng)
    return steps, lost, breaks, slowed


def _edges(fault: DeviceFault) -> list[float]:
    begin = fault.at_s or 0.0
    return [begin] if fault.lasts_s is None else [begin, begin + fault.lasts_s]


def _factor(faults: Sequence[DeviceFault], now: float, gpu: int, kind: FaultKind) -> float:
    found = 1.0
    for each in faults:
        if each.kind is kind and each.active(now, 0, gpu):
            found *= each.value
    return found


def _next_break(planned: Sequence[float], now: float, gpus: int, mtbf_s: float, rng: Generator) -> float:
    drawn = now + float(rng.exponential(mtbf_s / gpus)) if np.isfinite(mtbf_s) else np.inf
    return min([drawn, *(each for each in planned if each >= now)])
