"""Themis as a policy: leased GPUs, auctioned among the apps that are worst off; an arbiter, and an agent of each app.

Source: K. Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", NSDI 2020, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
from numpy.random import Generator, default_rng

from perdure.scheduling.elastic import ElasticView, GpuType, Plan, Share, only_type, place_on_freest
from perdure.scheduling.themis import partial_allocation
from perdure.scheduling.themis_agents import AppAgent, JobAgent, SearchAgent


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
    """Each round: what leases free is auctioned. A job whose leases end and that wins as much stays where it is.

    What jobs of an app leave that end or are stopped, its other jobs get; what these cannot use is free at once.
    """

    name: str = "themis"
    round_s: float = 60.0
    adaptive: bool = False
    shrinks: bool = True
    arbiter: Arbiter = field(default_factory=Arbiter)
    lease_s: float = 1200.0
    seed: int = 0
    _leases: dict[int, list[tuple[float, int]]] = field(default_factory=dict)  # until when, and GPUs
    _present: dict[int, tuple[int, int]] = field(default_factory=dict)  # rounds, and apps in them
    _rng: Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = default_rng(self.seed)

    def check(self, view: ElasticView) -> None:
        only_type(view, self.name)

    def resume(self, rounds: int, contending: Mapping[int, float]) -> None:
        """Take up apps, by the first of their rows, after so many rounds in which so many were there on average."""
        self._present = {key: (rounds, round(rounds * apps)) for key, apps in contending.items()}

    def plan(self, view: ElasticView) -> Plan:
        kind, agents = only_type(view, self.name), self._agents(view)
        contending = {}
        for key in agents:
            rounds, apps = self._present.get(key, (0, 0))
            self._present[key] = rounds + 1, apps + len(agents)
            contending[key] = self._present[key][1] / self._present[key][0]
        free = kind.gpus - sum(agent.held for agent in agents.values())
        given = self.arbiter.give(agents, contending, free, view.now_s, self._rng)
        plan = dict[int, int]()
        for key, agent in agents.items():
            if key in given:
                self._leases.setdefault(key, []).append((view.now_s + self.lease_s, given[key]))
            plan |= agent.split(agent.held + given.get(key, 0))
        return _placed(view, kind, plan)

    def _agents(self, view: ElasticView) -> dict[int, JobAgent | SearchAgent]:
        """Of each app, and of each job without one, by the first of its rows; with what their leases hold."""
        app_of = {row: app for app in view.apps for row in app.jobs}
        jobs_of: dict[int, list[int]] = {}
        for row in view.jobs:
            jobs_of.setdefault(min(app_of[row].jobs) if row in app_of else row, []).append(row)
        leases, self._leases = self._leases, {}
        agents = dict[int, JobAgent | SearchAgent]()
        for key, rows in jobs_of.items():
            there = {row: view.jobs[row] for row in rows}
            if any(job.share is not None for job in there.values()) or key in app_of:
                self._leases[key] = [lease for lease in leases.get(key, []) if lease[0] > view.now_s]
            held = sum(gpus for _, gpus in self._leases.get(key, []))
            if key not in app_of:
                agents[key] = JobAgent(there[key], held, key)
                continue
            agent = SearchAgent(app_of[key], there, 0)
            used = agent.usable(held)
            self._leases[key] = _at_most(self._leases[key], used)
            agents[key] = replace(agent, held=used)
        return agents


def _at_most(leases: Sequence[tuple[float, int]], gpus: int) -> list[tuple[float, int]]:
    """Leases of so many GPUs, those that go on for longest."""
    found = list[tuple[float, int]]()
    for until_s, count in sorted(leases, reverse=True):
        if kept := min(count, gpus):
            found.append((until_s, kept))
            gpus -= kept
    return found


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
