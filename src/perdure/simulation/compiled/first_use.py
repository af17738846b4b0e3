"""Whether a replay must compile its loop first: nobody has on this machine yet, with this very source."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.policies import policy_named
from perdure.simulation.compiled.cache import code_folder
from perdure.simulation.compiled.registry import COMPILED
from perdure.simulation.policy_file import is_policy_file
from perdure.simulation.simulate import worth_compiling


def must_compile(jobs: int, policies: Iterable[str], placement: str) -> bool:
    """Whether replaying so many jobs, repeats counted, under one of these policies begins with compiling.

    That takes 10 to 30 s. Raises `ConfigError` for an unknown placement or policy.
    """
    placed = placement_named(placement)
    named = [policy_named(policy.partition(":")[0]) for policy in policies if not is_policy_file(policy)]
    loops = {COMPILED.get(type(policy), "") for policy in named if worth_compiling(jobs, policy.name, placed)} - {""}
    folder = code_folder() if loops else None
    return any(folder is None or next(folder.rglob(f"{loop}.advance-*.nbi"), None) is None for loop in loops)
