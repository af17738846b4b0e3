"""The registry of placements: a name, perhaps with an argument, to the room of a cluster."""

from __future__ import annotations

from collections.abc import Callable

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.scheduling.placement.consolidate import Consolidate
from perdure.scheduling.placement.fit import BestFit, FirstFit, RandomFit
from perdure.scheduling.placement.ladder import Ladder
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.placement.placed import Placed
from perdure.scheduling.placement.resources import NodeResource, Stock
from perdure.scheduling.placement.room import Counted, Room
from perdure.scheduling.placement.skew import Skew

COUNT = "count"
PLACEMENTS: dict[str, Callable[[float | None, int], Placement]] = {
    "first-fit": lambda argument, seed: FirstFit(),  # noqa: ARG005
    "best-fit": lambda argument, seed: BestFit(),  # noqa: ARG005
    "consolidate": lambda argument, seed: Consolidate(),  # noqa: ARG005
    "ladder": lambda argument, seed: _ladder(argument, spreads=False),  # noqa: ARG005
    "spread-ladder": lambda argument, seed: _ladder(argument, spreads=True),  # noqa: ARG005
    "skew": lambda argument, seed: Skew(seed=seed) if argument is None else Skew(argument, seed),
    "random": lambda argument, seed: RandomFit(seed),  # noqa: ARG005
}
WITH_ARGUMENT = {"ladder": "seconds a rung", "spread-ladder": "seconds a rung", "skew": "a share of the jobs"}


def placement_named(text: str, seed: int = 0) -> Placement | None:
    """The placement that "best-fit", "ladder:600" or "skew:0.3" names; None for "count". Raises `ConfigError`.

    What is behind a colon is in the unit of `WITH_ARGUMENT`. `seed` matters to placements that draw (``skew``,
    ``random``) and to no other.

    >>> placement_named("ladder:600").relax_s, placement_named("count")
    (600.0, None)
    """
    name, _, argument = text.partition(":")
    if name == COUNT and not argument:
        return None
    if name not in PLACEMENTS:
        known = ", ".join((COUNT, *PLACEMENTS))
        raise ConfigError(f"placement {text!r}", "no placement has that name", f"Use one of: {known}")
    if argument and name not in WITH_ARGUMENT:
        raise ConfigError(f"placement {text!r}", f"{name} takes no argument", f"Write {name}")
    return PLACEMENTS[name](_number(text, name, argument) if argument else None, seed)


def room_of(
    cluster: Cluster, placement: Placement | None, ticks_per_s: int, resources: tuple[NodeResource, ...] = ()
) -> Room:
    """An empty cluster; without a placement its GPUs are only counted, and no gang waits for a place.

    `resources` are those that it counts besides GPUs: a gang takes them with its GPUs, or waits.
    """
    if placement is None:
        return Counted(cluster.total_gpus, stock=Stock.counted(resources) if resources else None)
    room = Placed.on(cluster, placement, ticks_per_s)
    room.stock = Stock.of_nodes(resources) if resources else None
    return room


def _ladder(relax_s: float | None, spreads: bool) -> Placement:
    return Ladder(spreads=spreads) if relax_s is None else Ladder(relax_s, spreads)


def _number(text: str, name: str, argument: str) -> float:
    """The argument as a number above 0 (of ``skew`` up to 1). Raises `ConfigError`."""
    try:
        number = float(argument)
    except ValueError:
        number = -1.0
    if not (0 < number < 1e9 and (name != "skew" or number <= 1)):
        raise ConfigError(f"placement {text!r}", f"{argument!r} is not {WITH_ARGUMENT[name]}", f"Write {name} alone")
    return number
