"""A compiled simulation of Slurm that can be stopped, forked, and given one more job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.placement.room import Shares
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.compiled import slurm, slurm_nodes
from perdure.simulation.compiled.event_heap import push
from perdure.simulation.compiled.gpu_places import COUNT, empty_places
from perdure.simulation.compiled.kernel import code_for, entry
from perdure.simulation.compiled.slurm_nodes import NodePart, node_part_of
from perdure.simulation.compiled.slurm_part import SlurmPart, part_of
from perdure.simulation.compiled.state import State, state_of
from perdure.simulation.workload import Workload

Arrays = TypeVar("Arrays", bound=tuple[Any, ...])
Ticks = NDArray[np.int64]

_SHARED = {"submit", "first", "work", "passed", "how", "plan", "mine", "wanted"}
"""In `State` and in the parts: what never changes, and what means nothing between two passes."""


class CompiledLive(NamedTuple):
    """See `perdure.simulation.live.LiveSimulation`."""

    state: State
    part: SlurmPart | NodePart

    @classmethod
    def of(
        cls,
        jobs: Workload,
        cluster: Cluster,
        policy: Slurm,
        placement: Placement | None = None,
        held: Mapping[int, Shares] | None = None,
    ) -> CompiledLive | None:
        """Before the first event; None for what only the plain loop knows.

        `held` is what running jobs have of which nodes, where there is a placement.
        """
        part: SlurmPart | NodePart | None = None
        if placement is None:
            part = part_of(policy, jobs, cluster.total_gpus)
        elif isinstance(placement, AsAsked):
            part = node_part_of(policy, jobs, cluster, placement, held or {})
        if part is None:
            return None
        return cls(state_of(jobs, empty_places(cluster, COUNT, 0, len(jobs)), None), part)

    def go_on(self, until: int, watched: int) -> None:
        self.state.tally["until"], self.state.tally["watched"] = until, watched
        _code(self)(self.state, self.part, False, False)

    def submit(self, row: int, tick: int) -> None:
        _call(_submit, self.state, row, tick)

    def resume(self, running: Ticks, since: Ticks, waiting: Ticks, came: Ticks, now: int) -> None:
        self.state.tally["arrived"] = len(running) + len(waiting)
        resume = _resume if isinstance(self.part, SlurmPart) else _resume_on_nodes
        _call(resume, self.state, self.part, running, since, waiting, came, now)

    def start(self, row: int) -> int:
        return int(self.state.job[row]["start"])

    def fork(self, into: object = None) -> CompiledLive:
        fork = into if isinstance(into, CompiledLive) else CompiledLive(_room_for(self.state), _room_for(self.part))
        _copy_into(fork.state, self.state)
        _copy_into(fork.part, self.part)
        return fork


_COMPILED: dict[Any, Any] = {}


def _code(live: CompiledLive) -> Any:
    """The code of the loop, looked up once a process: the types of all simulations with such a part are the same."""
    key = slurm.advance, type(live.part)
    if key not in _COMPILED:
        _COMPILED[key] = code_for(slurm.advance, live.state, live.part, False, False)
    return _COMPILED[key]


def _call(function: Any, *arguments: Any) -> None:
    if function not in _COMPILED:
        _COMPILED[function] = code_for(function, *arguments)
    _COMPILED[function](*arguments)


def _room_for(arrays: Arrays) -> Arrays:
    """Arrays like these, to be copied into; those that never change are the same ones."""
    fields: dict[str, Any] = arrays._asdict()  # type: ignore[attr-defined]
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            fields[name] = value if name in _SHARED else np.empty_like(value)
        elif isinstance(value, tuple) and name not in _SHARED:
            fields[name] = _room_for(value)
    return type(arrays)(**fields)


def _copy_into(target: tuple[Any, ...], source: tuple[Any, ...]) -> None:
    """Copy all that changes. Records are copied as they lie in memory: field by field takes eight times as long."""
    for name, old, new in zip(source._fields, target, source, strict=True):  # type: ignore[attr-defined]
        if isinstance(new, np.ndarray):
            if name not in _SHARED:
                np.copyto(old.view(np.uint8), new.view(np.uint8))
        elif isinstance(new, tuple) and name not in _SHARED:
            _copy_into(old, new)


@entry
def _submit(state, row, tick):  # type: ignore[no-untyped-def]
    """Let a job come at a tick that is not over, next to those that come by themselves."""
    push(state.returns, row, tick)


@entry
def _resume(state, part, running, since, waiting, came, now):  # type: ignore[no-untyped-def]
    """Let jobs run that do already, then jobs wait; then look at them all at `now`."""
    for i in range(len(running)):
        slurm.run_since(state, part, running[i], since[i])
    for i in range(len(waiting)):
        slurm.wait_since(state, part, waiting[i], came[i])
    slurm.look_at(state, part, now)


@entry
def _resume_on_nodes(state, part, running, since, waiting, came, now):  # type: ignore[no-untyped-def]
    """The same on nodes."""
    for i in range(len(running)):
        slurm_nodes.run_since(state, part, running[i], since[i])
    for i in range(len(waiting)):
        slurm.wait_since(state, part, waiting[i], came[i])
    slurm.look_at(state, part, now)
