"""What is said before the simulator is compiled: that is once on a machine, and longer than people wait in silence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec


def tell_of_compiling(jobs: int, policies: Sequence[str], placement: str) -> None:
    """Say on stderr that the replay of this many jobs, repeats counted, compiles first, where it does."""
    from perdure.simulation.warm import must_compile

    if must_compile(jobs, policies, placement):
        _tell()


def tell_of_compiling_queue(jobs: int) -> None:
    """The same of the first fork of a live queue of so many jobs; the plain loop simulates short ones."""
    from perdure.waits.rollout import SMALL

    if jobs > SMALL and must_compile_queue():
        _tell()


def must_compile_queue() -> bool:
    """Whether the first fork of a live queue on nodes begins with compiling."""
    if find_spec("numba") is None:
        return False
    from perdure.simulation.compiled.cache import is_kept

    return not is_kept("live._resume_on_nodes")


def _tell() -> None:
    sys.stderr.write("perdure: compiling the simulator, once on this machine: 5 to 20 s.\n")
