"""A compiled simulation of Slurm that can be stopped, forked, and given one more job.

`perdure.simulation.live` says what that is for: many futures of one queue, each a fork that goes its own way. So a fork
must be cheap: its arrays are written over those of a fork that is not needed any more, and what never changes is
shared. The answers are those of the plain loop to the tick; `tests/simulation/test_live.py` compares them.
"""

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
"""In `State` and in the parts: what never changes, and what means nothing between two passes. Forks share these arrays,
so that two forks must not run at the same time in two threads."""


class CompiledLive(NamedTuple):
    """See `perdure.simulation.live.LiveSimulation`, whose methods these are.

    A named tuple of arrays, since that is what compiled code takes. It is changed in place by all methods but `fork`.
    """

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
        """A simulation before the first event; None for what only the plain loop models.

        Without a placement GPUs are only counted. With `AsAsked` nodes are simulated, and `held` is what the jobs that
        already run have of which nodes, by row; with any other placement the answer is None.
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
        """Handle all events before tick `until`; stop at the instant at which row `watched` starts, -1 for no row."""
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
        """The same simulation once more; `into`, a fork that is not needed any more, gives its memory."""
        fork = into if isinstance(into, CompiledLive) else CompiledLive(_room_for(self.state), _room_for(self.part))
        _copy_into(fork.state, self.state)
        _copy_into(fork.part, self.part)
        return fork


_COMPILED: dict[Any, Any] = {}


def _code(live: CompiledLive) -> Any:
    """The code of the loop, looked up once a process.

    numba would find out the types of all arrays at each call. They are the
    same for all simulations with this kind of part, so that the machine code found first serves all of them.
    """
    key = slurm.advance, type(live.part)
    if key not in _COMPILED:
        _COMPILED[key] = code_for(slurm.advance, live.state, live.part, False, False)
    return _COMPILED[key]


def _call(function: Any, *arguments: Any) -> None:
    """Call an entry by its machine code, as `_code` does; each is called with arguments of the same types always."""
    if function not in _COMPILED:
        _COMPILED[function] = code_for(function, *arguments)
    _COMPILED[function](*arguments)


def _room_for(arrays: Arrays) -> Arrays:
    """Arrays like these, nested as these are, to be copied into; those that are shared are the same ones."""
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
    """Submit a job at a tick that is not over, in addition to the trace's own arrivals.

    It goes through `returns`, the heap of jobs that come back: arrivals of the trace are read in order.
    """
    push(state.returns, row, tick)


@entry
def _resume(state, part, running, since, waiting, came, now):  # type: ignore[no-untyped-def]
    """Start from a queue as it is: make jobs run since their ticks, then jobs wait since theirs; then look at `now`.

    `running` and `waiting` are rows, `since` and `came` ticks of the same shapes, each in ascending order. The look is
    a whole main pass and a backfill cycle, whatever either would have waited for.
    """
    for i in range(len(running)):
        slurm.run_since(state, part, running[i], since[i])
    for i in range(len(waiting)):
        slurm.wait_since(state, part, waiting[i], came[i])
    slurm.look_at(state, part, now)


@entry
def _resume_on_nodes(state, part, running, since, waiting, came, now):  # type: ignore[no-untyped-def]
    """As `_resume`, on nodes: numba compiles an entry for one kind of part, so that there are two."""
    for i in range(len(running)):
        slurm_nodes.run_since(state, part, running[i], since[i])
    for i in range(len(waiting)):
        slurm.wait_since(state, part, waiting[i], came[i])
    slurm.look_at(state, part, now)
