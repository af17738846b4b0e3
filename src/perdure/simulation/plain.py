"""The event loop in plain Python: the definition of the system, and the door for a user's own policy.

At one instant attempts end first, then jobs come, then GPUs are given out once.
"""

from __future__ import annotations

from perdure.scheduling.placement.room import Room
from perdure.scheduling.protocol import Policy
from perdure.simulation.allocation import PolicyError, giver_of
from perdure.simulation.faults import NodeFaults
from perdure.simulation.retry_hook import Retry
from perdure.simulation.workload import Workload
from perdure.simulation.world import Trail, world_of


def replay(jobs: Workload, room: Room, policy: Policy, retry: Retry | None, faults: NodeFaults | None = None) -> Trail:
    """Replay all jobs; `retry` None goes through the recorded attempts as they are. Raises `PolicyError`."""
    world = world_of(jobs, room, retry, faults)
    giver = giver_of(world, policy)
    while (now := _next(world.next_event(), giver.next_change(), room.next_change(world.view.now))) is not None:
        world.view.now, events = now, world.trail.events
        world.end_attempts()
        world.admit()
        world.trail.events += world.trail.events == events
        giver.give()
    if world.view.waiting:
        row = next(iter(world.view.waiting))
        why = giver.reason(row)
        what = f"it never starts {jobs.name(row)}" + ("" if why is None else f", which waits for: {why}")
        fix = "Fix the policy, or take a larger cluster" if why is None else "Leave such jobs out, or change that limit"
        raise PolicyError(f"policy {policy.name}", what, fix)
    return world.trail


def _next(*ticks: int | None) -> int | None:
    return min((t for t in ticks if t is not None), default=None)
