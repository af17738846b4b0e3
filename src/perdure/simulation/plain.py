"""The event loop in plain Python: the definition of the system, and the door for a user's own policy.

At one instant attempts end first, then jobs come, then GPUs are given out once.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.placement.room import Room
from perdure.scheduling.protocol import Policy
from perdure.simulation.allocation import Giver, PolicyError, giver_of
from perdure.simulation.faults import NodeFaults
from perdure.simulation.retry_hook import Retry
from perdure.simulation.workload import Workload
from perdure.simulation.world import Trail, World, world_of


@dataclass(slots=True)
class PlainLoop:
    """A simulation under way."""

    world: World
    giver: Giver

    @classmethod
    def of(
        cls, jobs: Workload, room: Room, policy: Policy, retry: Retry | None, faults: NodeFaults | None = None
    ) -> PlainLoop:
        """Before the first event. `retry` None goes through the recorded attempts as they are."""
        world = world_of(jobs, room, retry, faults)
        return cls(world, giver_of(world, policy))

    def next_instant(self) -> int | None:
        """The next tick at which anything happens."""
        world = self.world
        return _next(world.next_event(), self.giver.next_change(), world.room.next_change(world.view.now))

    def happen(self, now: int) -> None:
        """Handle all events of one instant."""
        world = self.world
        world.view.now, events = now, world.trail.events
        world.end_attempts()
        world.admit()
        world.trail.events += world.trail.events == events
        self.giver.give()


def replay(jobs: Workload, room: Room, policy: Policy, retry: Retry | None, faults: NodeFaults | None = None) -> Trail:
    """Replay all jobs; `retry` None goes through the recorded attempts as they are. Raises `PolicyError`."""
    loop = PlainLoop.of(jobs, room, policy, retry, faults)
    while (now := loop.next_instant()) is not None:
        loop.happen(now)
    if loop.world.view.waiting:
        row = next(iter(loop.world.view.waiting))
        why = loop.giver.reason(row)
        what = f"it never starts {jobs.name(row)}" + ("" if why is None else f", which waits for: {why}")
        fix = "Fix the policy, or take a larger cluster" if why is None else "Leave such jobs out, or change that limit"
        raise PolicyError(f"policy {policy.name}", what, fix)
    return loop.world.trail


def _next(*ticks: int | None) -> int | None:
    first = None
    for tick in ticks:
        if tick is not None and (first is None or tick < first):
            first = tick
    return first
