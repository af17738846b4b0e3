"""The demonstration workload: which programs arrive when, what is done to the nodes, and what each shows.

The scenarios are in ``workload.toml``, with the fields of `Scenario`, `Arrival` and `PlannedFault`.
A scenario is a short story of jobs and faults that need one another. A round tells all scenarios once: the first
within minutes, so that there is much to see, the later ones slowly, without end. Programs that fail next to a
companion (a port taken, a lock held) truly meet it: the companion holds the thing while they run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from typing import Literal

from msgspec import convert
from numpy.random import Generator

from perdure.model.jobs import RetryPreference


class Truth(StrEnum):
    """What is known of a program, because it was written to be so."""

    GOOD = "good"  # nothing is wrong with it
    DETERMINISTIC = "deterministic"  # it fails however often it is tried
    TRANSIENT = "transient"  # it fails by what happens around it; a later try, elsewhere, passes


class End(StrEnum):
    """How a job should end."""

    COMPLETED = "completed"
    STOPPED = "stopped"  # failed, explained, and not tried again


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that arrives `after_s` seconds into its scenario."""

    after_s: float
    name: str
    user: str
    program: str  # a file of `perdure.demo.programs`
    truth: Truth
    shows: str  # a text that its first attempt's log holds
    args: tuple[str, ...] = ()  # "{key}" becomes a word that is the same within a scenario and new in each round
    category: str = ""  # of the cause that should be found; "" where nothing fails, or nothing tells
    tells: bool = True  # False where no reader of the log could be sure; one probing retry can
    gpu_quarters: int = 0  # GPUs on each node, in quarters of what a node has
    node_count: int = 1
    least_nodes: int = 1  # a smaller site is left without it
    pin: int | None = None  # the node it must start on, counted from 0; unpinned ones crowd on the first that fits
    walltime_s: float = 120.0
    early_signal_s: float = 0.0  # USR1 comes this long before the walltime is over; 0 is never
    memory_mib: int | None = None
    file_size_mib: int | None = None
    may_requeue: bool = True
    requeue_on_node_fail: bool = True  # by the cluster itself
    wish: RetryPreference = RetryPreference.AUTO
    priority: int = 0
    preemptible: bool = False
    fenced: bool = False  # runs under ``perdure exec``

    @property
    def end(self) -> End:
        """How it should end: only transient failures are recovered, and only where the owner lets us."""
        refused = not self.may_requeue or self.wish is RetryPreference.NEVER
        stops = self.truth is Truth.DETERMINISTIC or (self.truth is Truth.TRANSIENT and refused)
        return End.STOPPED if stops else End.COMPLETED


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Something that is done to a node, `after_s` seconds into a scenario."""

    after_s: float
    node: int  # counted from 0
    what: Literal["fail", "freeze", "thaw", "return"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs and faults that belong together, `at_s` seconds into a round."""

    at_s: float
    tells: str
    jobs: tuple[Arrival, ...]
    faults: tuple[PlannedFault, ...] = ()

    @property
    def steps(self) -> tuple[Arrival | PlannedFault, ...]:
        return (*self.jobs, *self.faults)


@dataclass(frozen=True, slots=True)
class Timed:
    """One step of a round, at its instant in seconds since the demonstration began."""

    at_s: float
    step: Arrival | PlannedFault
    key: str  # the same for all steps of one scenario in one round


ROUND_S = 300.0
STRETCH = 6.0
"""How much slower the later rounds are: their retries stay within what a small cluster is allowed in an hour."""

JITTER_S = 15.0

_PLAN = tomllib.loads(files(__package__).joinpath("workload.toml").read_text("utf-8"))

SCENARIOS: tuple[Scenario, ...] = convert(_PLAN["scenarios"], tuple[Scenario, ...])

LONG_RUN = convert(_PLAN["long_run"], Arrival)
"""What runs between the scenarios of the later rounds, of which there is one a minute or none."""
LONG_RUN_EVERY_S = 230.0


def round_start_s(number: int) -> float:
    """When round `number` (from 0) begins, in seconds since the demonstration began."""
    return 0.0 if number == 0 else ROUND_S + (number - 1) * ROUND_S * STRETCH


def a_round(number: int, rng: Generator, scenarios: Sequence[Scenario] = SCENARIOS) -> tuple[Timed, ...]:
    """The steps of round `number` (from 0), by time.

    The first round tells the scenarios as they stand. Later ones take `STRETCH` times as long, though within a
    scenario nothing slows down, and long runs fill the time between them; scenarios without a fault change places and
    shift by up to `JITTER_S` seconds.
    """
    told = list(scenarios) if number == 0 else _mixed(scenarios, rng)
    steps = []
    for scenario in told:
        key = f"{number}-{int(rng.integers(1 << 30)):08x}"
        start_s = round_start_s(number) + scenario.at_s
        steps += [Timed(start_s + step.after_s, step, key) for step in scenario.steps]
    if number:
        runs = range(int(ROUND_S * STRETCH // LONG_RUN_EVERY_S) + 1)
        steps += [Timed(round_start_s(number) + run * LONG_RUN_EVERY_S, LONG_RUN, f"{number}-{run}") for run in runs]
    return tuple(sorted(steps, key=lambda timed: timed.at_s))


def _mixed(scenarios: Sequence[Scenario], rng: Generator) -> list[Scenario]:
    free = [scenario for scenario in scenarios if not scenario.faults]
    places = [scenario.at_s for scenario in free]
    moved = [
        replace(free[int(i)], at_s=at_s * STRETCH + float(rng.uniform(0, JITTER_S)))
        for at_s, i in zip(places, rng.permutation(len(free)), strict=True)
    ]
    return [*moved, *(replace(s, at_s=s.at_s * STRETCH) for s in scenarios if s.faults)]
