"""Pollux: which GPUs of which nodes each job gets, by a population search for the best goodput of all, shared fairly.

Source: A. Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning", OSDI 2021, section
4.2; the changes and the limits of the search are those of its public code, without its second objective. Rigid jobs,
which have all of their GPUs or none, are ours: its own experiments have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from perdure.scheduling import pollux_compiled
from perdure.scheduling.elastic import ElasticJob, ElasticView, Plan, Share, only_type
from perdure.throughput.learned import goodput_on
from perdure.throughput.speed import Floats

States = NDArray[np.int16]  # GPUs of each node to each job (n_states, n_jobs, n_nodes)
MOST_NODES = 16  # of one job
MANY_GPUS = 1 << 30
COMPILED_FROM = 100  # plans of a run: to load the compiled loops takes as long as they save in so many
_BARELY = 1e-3  # keeps the mean of a job without GPUs finite


@dataclass(frozen=True, slots=True)
class Worth:
    """What states are worth: the harmonic mean of the jobs' speed-ups over a fair share, less where they restart."""

    base: NDArray[np.int16]  # as it is (n_jobs, n_nodes)
    speed_up: Floats  # (n_jobs, 2, most GPUs + 1), on one node and across nodes; 0 where that cannot be
    kept: Floats  # of the time of a job that restarts (n_jobs,)

    def __call__(self, states: States, *, compiled: bool = False) -> Floats:
        """(n_states,); more is better."""
        if compiled:
            speed_up = pollux_compiled.speed_ups(states, self.base, self.speed_up, self.kept)
        else:
            gpus, across = states.sum(axis=2), np.count_nonzero(states, axis=2) > 1
            speed_up = self.speed_up[np.arange(states.shape[1]), across.astype(int), gpus]
            speed_up = np.where((states != self.base).any(axis=2), speed_up * self.kept, speed_up)
        return np.asarray(states.shape[1] / (1.0 / (speed_up + _BARELY)).sum(axis=1), float)


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """GPUs of a node, the most of each job (n_jobs,), and which jobs have these or none: None for none of them."""

    node: int
    most: NDArray[np.int64]
    rigid: NDArray[np.bool_] | None = None

    def kept(self, states: States, rng: Generator) -> States:
        """The states without what goes beyond: a job of several nodes shares none with another such job."""
        return self.whole(self._kept(states, rng))

    def whole(self, states: States) -> States:
        """The states, in place, without rigid jobs that have less than all of their GPUs."""
        if self.rigid is not None:
            states[self.rigid & (states.sum(axis=2) < self.most)] = 0
        return states

    def _kept(self, states: States, rng: Generator) -> States:
        there = states > 0
        across = there & (np.count_nonzero(there, axis=2, keepdims=True) > 1)
        states = np.where(across & (np.cumsum(across, axis=1, dtype=np.int16) > 1), 0, states)
        order = rng.permutation(states.shape[2])
        turned = states[:, :, order]
        if states.shape[2] > MOST_NODES:
            turned = np.where(np.cumsum(turned > 0, axis=2, dtype=np.int16) > MOST_NODES, 0, turned)
        turned = _capped(turned, self.most[:, None], 2)
        states = np.empty_like(turned)
        states[:, :, order] = turned
        return _capped(states, np.array(self.node), 1)


def search(
    worth: Worth,
    limits: GpuLimits,
    states: States,
    rng: Generator,
    population: int,
    generations: int,
    *,
    compiled: bool = False,
) -> States:
    """The best states found from those given, best first; the same ones `compiled`, which needs numba."""
    states = np.ascontiguousarray(limits.kept(states, rng))
    value = worth(states)
    for _ in range(generations):
        parents = _parents(states, value, population, rng)
        if compiled:
            most = limits.node, limits.most, MOST_NODES
            children = limits.whole(pollux_compiled.children(states, parents, worth.base, most, rng))
        else:
            children = limits.kept(mutated(_crossed(states, parents), worth.base, limits.node, rng), rng)
        children = with_gangs(children, limits, rng)
        found = np.concatenate([value, worth(children, compiled=compiled)])
        states, value = _fittest(np.concatenate([states, children]), found, population, rng)
    return states


def greedy(worth: Worth, limits: GpuLimits) -> NDArray[np.int16]:
    """One GPU after the other to the job with which it helps the mean most, on few nodes each (n_jobs, n_nodes)."""
    jobs, nodes = worth.base.shape
    count, rows = np.zeros(jobs, np.int64), np.arange(jobs)
    top = worth.speed_up.shape[2] - 1
    across = (np.arange(top + 1) > limits.node).astype(int)
    cost = 1.0 / (worth.speed_up[:, across, np.arange(top + 1)] + _BARELY)
    gain = np.concatenate([cost[:, :-1] - cost[:, 1:], np.zeros((jobs, 1))], axis=1)
    gain[np.arange(top + 1) >= limits.most[:, None]] = 0.0
    step = np.ones(jobs, np.int64)
    if limits.rigid is not None:  # all at once, or none
        step[limits.rigid] = limits.most[limits.rigid]
        gain[limits.rigid, 0] = (cost[rows, 0] - cost[rows, limits.most])[limits.rigid] / step[limits.rigid]
        gain[limits.rigid, 1:] = 0.0
    spare = nodes * limits.node
    while spare:
        at = np.where(step <= spare, gain[rows, count], 0.0)
        row = int(at.argmax())
        if not at[row] > 0:
            break
        count[row] += step[row]
        spare -= int(step[row])
    state, free = np.zeros((jobs, nodes), np.int16), np.full(nodes, limits.node)
    for row in np.argsort(-count, kind="stable").tolist():
        left = int(count[row])
        while left and free.any():
            enough = free >= min(left, limits.node)
            node = int(np.where(enough, free, limits.node + 1).argmin() if enough.any() else free.argmax())
            taken = min(left, int(free[node]))
            state[row, node] += taken
            free[node], left = free[node] - taken, left - taken
    return state


def mutated(states: States, base: NDArray[np.int16], node: int, rng: Generator) -> States:
    """Some jobs as they are now, some without some of their GPUs, and more GPUs of nodes that have some free."""
    count, jobs = states.shape[:2]
    states = np.where(rng.random((count, jobs, 1)) < 0.1, base, states)
    loses = rng.random((count, jobs, 1)) < 0.1
    states = np.where(loses & (rng.random(states.shape, np.float32) < 0.1), 0, states)
    room = node - states.sum(axis=1, keepdims=True) > 0
    there = (states > 0) & room
    one, two = room / jobs, there / np.maximum(there.sum(axis=1, keepdims=True), 1)
    grows = rng.random(states.shape, np.float32) < one + two - one * two
    more = states + (rng.random(states.shape, np.float32) * (node + 1 - states)).astype(np.int16)
    grown: States = np.where(grows, more, states).astype(np.int16)
    return grown


def with_gangs(states: States, limits: GpuLimits, rng: Generator) -> States:
    """The states, each with one rigid job more where there is room: which grow by chance hardly ever find it."""
    if limits.rigid is None:
        return states
    for state in states:
        out = np.flatnonzero(limits.rigid & ~state.any(axis=1))
        free = limits.node - state.sum(axis=0)
        across = np.count_nonzero(state, axis=1) > 1
        alone = np.where(state[across].any(axis=0), 0, free)  # of nodes without a job of several
        for row in rng.permutation(out):
            gpus = int(limits.most[row])
            whole = np.flatnonzero(free >= gpus)
            if len(whole):
                state[row, whole[free[whole].argmin()]] = gpus
                break
            order = np.argsort(-alone, kind="stable")[:MOST_NODES]
            taken = np.diff(np.minimum(np.cumsum(alone[order]), gpus), prepend=0)
            if taken.sum() == gpus:
                state[row, order] = taken
                break
    return states


def _parents(states: States, value: Floats, count: int, rng: Generator) -> pollux_compiled.Parents:
    """Of each child, each parent the better of two that are drawn."""
    drawn = rng.integers(0, len(states), (2, 2, count))
    first, second = np.where(value[drawn[0]] >= value[drawn[1]], drawn[0], drawn[1])
    return first, second, rng.integers(0, states.shape[1], count)


def _crossed(states: States, parents: pollux_compiled.Parents) -> States:
    """Children with the first jobs of one state and the others of another."""
    first, second, cut = parents
    crossed: States = np.where(np.arange(states.shape[1])[:, None] < cut[:, None, None], states[first], states[second])
    return crossed


def _fittest(states: States, value: Floats, count: int, rng: Generator) -> tuple[States, Floats]:
    """The best, each once."""
    marks = states.reshape(len(states), -1) @ rng.random(states[0].size)
    _, once = np.unique(marks, return_index=True)
    best = once[np.argsort(-value[once], kind="stable")[:count]]
    fittest: States = states[best]
    return fittest, value[best]


def _capped(states: States, most: NDArray[np.int64], axis: int) -> States:
    """Along an axis, what comes first is kept as long as the sum allows."""
    total = np.minimum(np.cumsum(states, axis=axis, dtype=np.int32), most.astype(np.int32)).astype(np.int16)
    capped: States = np.diff(total, axis=axis, prepend=np.int16(0))
    return capped


@dataclass(slots=True)
class Pollux:
    """Goodput is learned of each job as it runs; a job may at most double the most GPUs that it was seen on."""

    name: str = "pollux"
    round_s: float = 60.0
    adaptive: bool = True
    shrinks: bool = True
    population: int = 40
    generations: int = 30
    seed: int = 0
    _rng: Generator = field(init=False)
    _rows: list[int] = field(default_factory=list)
    _states: States = field(init=False)
    _plans: int = 0

    def __post_init__(self) -> None:
        self._rng = default_rng(self.seed)
        self._states = np.zeros((1, 0, 0), np.int16)

    def check(self, view: ElasticView) -> None:
        only_type(view, self.name)

    def plan(self, view: ElasticView) -> Plan:
        kind = only_type(view, self.name)
        rows = sorted(view.jobs, key=lambda row: (view.jobs[row].gpu_s, view.jobs[row].submit_s))
        jobs = [view.jobs[row] for row in rows]
        base = np.zeros((len(jobs), kind.nodes), np.int16)
        for at, job in enumerate(jobs):
            for node, gpus in job.share.where if job.share else ():
                base[at, node] = gpus
        rigid = np.array([job.rigid for job in jobs])
        most = np.array([max(1, min(2 * job.learned.most_gpus(), job.most_gpus)) for job in jobs])
        most = np.minimum(most, [job.reach[0] if job.reach else MANY_GPUS for job in jobs])
        most[rigid] = [job.asked_gpus for job in jobs if job.rigid]
        speed_up = _speed_ups(jobs, most, kind.gpus, kind.gpus_per_node)
        worth = Worth(base, speed_up, _kept(jobs, view.now_s))
        limits = GpuLimits(kind.gpus_per_node, most, rigid if rigid.any() else None)
        begin = np.concatenate([self._remembered(rows, kind.nodes), base[None], greedy(worth, limits)[None]])
        compiled = self._plans >= COMPILED_FROM and find_spec("numba") is not None
        settings = self.population, self.generations
        self._states = search(worth, limits, begin, self._rng, *settings, compiled=compiled)
        self._plans += 1
        self._rows = rows
        return {row: _share(state) for row, state in zip(rows, self._states[0], strict=True) if state.any()}

    def _remembered(self, rows: Sequence[int], nodes: int) -> States:
        """The last round's states, for the jobs of this one."""
        states = np.zeros((len(self._states), len(rows), nodes), np.int16)
        at = {row: place for place, row in enumerate(self._rows)}
        both = [(place, at[row]) for place, row in enumerate(rows) if row in at]
        if both:
            new, old = np.array(both).T
            states[:, new] = self._states[:, old]
        return states


def _speed_ups(jobs: Sequence[ElasticJob], most: NDArray[np.int64], gpus: int, node: int) -> Floats:
    """Goodput over that of a fair share, in GPUs of a node; of jobs never seen, and of rigid ones, as their GPUs."""
    top = int(most.max())
    fair = -(-gpus // len(jobs))
    inside, across = np.arange(1, min(top, node) + 1), np.arange(2, top + 1)
    asked = np.concatenate([inside, across, [fair]])
    nodes = np.repeat([1, 2, 1], [len(inside), len(across), 1])
    found = goodput_on([job.learned for job in jobs], [job.largest_batch for job in jobs], 0, nodes, asked)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = found / found[:, -1:]
    rigid = np.array([job.rigid for job in jobs])[:, None]  # whose batch goodput does not choose
    found = np.where(np.isfinite(found) & ~rigid, found, asked / fair) / node
    table = np.zeros((len(jobs), 2, top + 1))
    table[:, 0, inside], table[:, 1, across] = found[:, : len(inside)], found[:, len(inside) : -1]
    return table


def _kept(jobs: Sequence[ElasticJob], now_s: float) -> Floats:
    age_s = np.array([now_s - job.submit_s for job in jobs])
    lost_s = np.array([job.restart_s for job in jobs])
    worked_s = np.maximum(age_s - lost_s * np.array([job.restarts for job in jobs]), 0.0)
    return np.asarray(worked_s / (age_s + lost_s), float)


def _share(state: NDArray[np.int16]) -> Share:
    where = tuple((int(node), int(state[node])) for node in np.flatnonzero(state))
    return Share(0, len(where), int(state.sum()), where)
