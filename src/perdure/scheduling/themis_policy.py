"""Themis as a policy: leased GPUs, auctioned among the jobs that are worst off; an arbiter, and an agent of each job.

Source: K. Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", NSDI 2020, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Plan, Share, only_type, place_on_freest
from perdure.scheduling.themis import Floats, partial_allocation

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


@dataclass(frozen=True, slots=True)
class JobAgent:
    """The agent of one job: it uses up to the GPUs that it asks for, with its batch, as fast as was profiled."""

    job: ElasticJob
    held: int  # on leases that go on

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
        wanted = max(self.job.asked_gpus - self.held, 0)
        return 0 if self.job.rigid and offered < wanted else min(offered, wanted)

    def sensitivity(self) -> float:
        return self._step_s(self.job.asked_gpus) * self.job.asked_gpus / self._step_s(1)

    def _left_s(self, gpus: int) -> float:
        if gpus == 0:
            return np.inf
        return float(self.job.left * self.job.alone_s[0] * self._step_s(gpus) / self._step_s(self.job.asked_gpus))

    def _step_s(self, gpus: int) -> float:
        assert self.job.oracle is not None
        return self.job.oracle.step_s(0, gpus)


@dataclass(frozen=True, slots=True)
class Arbiter:
    """Offers free GPUs to the worst ``1 - fairness`` of the apps that want some, and what is left to all."""

    fairness: float = 0.8

    def give(
        self, agents: Mapping[int, AppAgent], contending: Mapping[int, float], free: int, now_s: float, rng: Generator
    ) -> dict[int, int]:
        """GPUs more for each app that gets some."""
        rows = [row for row, agent in agents.items() if agent.usable(free)]
        if not rows:
            return {}
        bids = {row: agents[row].bid(now_s, contending[row], free) for row in rows}
        rho = {row: agents[row].rho(now_s, contending[row]) for row in rows}
        # Of those without any GPU, those first that could have least.
        ranked = sorted(rows, key=lambda row: (-rho[row], bids[row][-1]))
        asked = ranked[: max(1, ceil((1.0 - self.fairness) * len(ranked) - 1e-9))]
        award = partial_allocation(np.array([bids[row] for row in asked]))
        given = {
            row: _kept(agents[row], fair, gpus)
            for row, fair, gpus in zip(asked, award.fair.tolist(), award.gpus.tolist(), strict=True)
        }
        outside = [row for row in ranked if row not in given]
        free -= sum(given.values())
        for rows in (outside, asked):
            free = self._hand_out(rows, agents, given, free, rng)
        return {row: gpus for row, gpus in given.items() if gpus}

    def _hand_out(
        self, rows: Sequence[int], agents: Mapping[int, AppAgent], given: dict[int, int], free: int, rng: Generator
    ) -> int:
        """What is left, as little at a time as each can use; returns what nobody of these can."""
        drawn = [rows[at] for at in rng.permutation(len(rows))]
        drawn.sort(key=lambda row: -agents[row].sensitivity())
        before = free + 1
        while 0 < free < before:
            before = free
            for row in drawn:
                has = given.get(row, 0)
                more = _least(agents[row], has, free) - has
                given[row] = has + more
                free -= more
        return free


def _kept(agent: AppAgent, fair: int, gpus: int) -> int:
    """Of GPUs won, those that the payment leaves: rounding down must not take the only ones that are of use."""
    return agent.usable(gpus) or _least(agent, 0, fair)


def _least(agent: AppAgent, has: int, more: int) -> int:
    """The fewest GPUs above `has` that an app can use, of at most so many more; else what it has."""
    counts = (agent.usable(has + count) for count in range(1, more + 1))
    return next((count for count in counts if count > has), has)


@dataclass(slots=True)
class Themis:
    """Each round: what leases free is auctioned. A job whose leases end and that wins as much stays where it is."""

    name: str = "themis"
    round_s: float = 60.0
    adaptive: bool = False
    arbiter: Arbiter = field(default_factory=Arbiter)
    lease_s: float = 1200.0
    seed: int = 0
    _leases: dict[int, list[tuple[float, int]]] = field(default_factory=dict)  # until when, and GPUs
    _present: dict[int, tuple[int, int]] = field(default_factory=dict)  # rounds, and apps in them
    _rng: Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = default_rng(self.seed)

    def plan(self, view: ElasticView) -> Plan:
        kind = only_type(view, self.name)
        for row in view.jobs:
            rounds, apps = self._present.get(row, (0, 0))
            self._present[row] = rounds + 1, apps + len(view.jobs)
        self._leases = {
            row: [lease for lease in self._leases.get(row, []) if lease[0] > view.now_s]
            for row, job in view.jobs.items()
            if job.share is not None
        }
        held = {row: sum(gpus for _, gpus in self._leases.get(row, [])) for row in view.jobs}
        free = kind.gpus - sum(held.values())
        agents = {row: JobAgent(job, held[row]) for row, job in view.jobs.items()}
        contending = {row: self._present[row][1] / self._present[row][0] for row in view.jobs}
        given = self.arbiter.give(agents, contending, free, view.now_s, self._rng)
        for row, gpus in given.items():
            self._leases.setdefault(row, []).append((view.now_s + self.lease_s, gpus))
        return _placed(view, kind, {row: held[row] + given.get(row, 0) for row in view.jobs})


def _placed(view: ElasticView, kind: GpuType, gpus: Mapping[int, int]) -> Plan:
    """Shares of so many GPUs: who has as many stays, who has more keeps some, and who has fewer keeps all."""
    free, kept = [kind.gpus_per_node] * kind.nodes, dict[int, tuple[tuple[int, int], ...]]()
    for row, count in gpus.items():
        share = view.jobs[row].share
        if share is not None and count:
            kept[row] = _first(share.where, count)
            for node, taken in kept[row]:
                free[node] -= taken
    plan = dict[int, Share]()
    for row in sorted(gpus, key=lambda row: -gpus[row]):
        where = kept.get(row, ())
        missing = gpus[row] - sum(taken for _, taken in where)
        where = _merged(where, place_on_freest(free, missing))
        if where:
            plan[row] = Share(0, len(where), gpus[row], where)
    return plan


def _first(where: tuple[tuple[int, int], ...], gpus: int) -> tuple[tuple[int, int], ...]:
    """At most this many of these GPUs, of the nodes with most of them."""
    found = list[tuple[int, int]]()
    for node, count in sorted(where, key=lambda part: -part[1]):
        taken = min(count, gpus)
        if taken:
            found.append((node, taken))
        gpus -= taken
    return where if sorted(found) == sorted(where) else tuple(found)


def _merged(first: tuple[tuple[int, int], ...], second: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Both, each node once."""
    if not second:
        return first
    total = dict(first)
    for node, gpus in second:
        total[node] = total.get(node, 0) + gpus
    return tuple(total.items())
