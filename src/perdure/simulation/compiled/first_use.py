"""Whether a replay must compile its loop first: nobody has on this machine yet, with this very source."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.policies import ALIASES
from perdure.simulation.compiled.cache import code_folder
from perdure.simulation.simulate import worth_compiling

LOOPS = {
    "once": ("fifo", "fjf", "sjf", "capacity", "drf"),
    "anew": ("fewest-gpus", "srtf", "srsf", "las", "las-2d", "gittins-2d"),
    "backfill": ("easy", "conservative"),
    "philly": ("philly",),
}
"""The module of each compiled loop, and the policies that it replays (`drive.compiled`)."""


def must_compile(jobs: int, policies: Iterable[str], placement: str) -> bool:
    """Whether replaying so many jobs, repeats counted, under one of these policies begins with compiling.

    That takes 10 to 30 s. Raises `ConfigError` for an unknown placement.
    """
    placed = placement_named(placement)
    names = [_name(policy) for policy in policies]
    loops = {_LOOP_OF[name] for name in names if name in _LOOP_OF and worth_compiling(jobs, name, placed)}
    folder = code_folder() if loops else None
    return any(folder is None or next(folder.rglob(f"{loop}.advance-*.nbi"), None) is None for loop in loops)


def _name(policy: str) -> str:
    name = policy.partition(":")[0]
    return "las-2d" if name.startswith("dlas-gpu-") and name not in ALIASES else ALIASES.get(name, name)


_LOOP_OF = {name: loop for loop, names in LOOPS.items() for name in names}
