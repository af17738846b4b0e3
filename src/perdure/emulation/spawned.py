"""Processes that an emulated program spawns (``torch.multiprocessing.spawn``, loaders) have emulated GPUs too.

Python tells a new process how to prepare before anything of the program is imported there; among that is an object
which begins the emulation as it is read. A forked process has it from its parent.
"""

from __future__ import annotations

import multiprocessing.spawn
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perdure.emulation.node import EmulatedNode


class _Beginning:
    """What a process reads; `number` counts those that its parent has spawned."""

    def __init__(self, begin: Callable[[int], Any], number: int) -> None:
        self._begin, self._number = begin, number

    def __reduce__(self) -> tuple[Any, ...]:
        return self._begin, (self._number,)


@contextmanager
def spawning(node: EmulatedNode, begin: Callable[[int], Any]) -> Iterator[None]:
    """Inside the block, new processes call `begin`, a module's function, with their number and keep its answer."""
    prepare = multiprocessing.spawn.get_preparation_data

    def preparation(name: str) -> dict[str, Any]:
        node.spawned += 1
        found = re.search(r"(\d+)$", name)
        return {**prepare(name), "perdure": _Beginning(begin, int(found[1]) if found else 1)}

    setattr(multiprocessing.spawn, "get_preparation_data", preparation)  # noqa: B010 - the name is another's
    try:
        yield
    finally:
        setattr(multiprocessing.spawn, "get_preparation_data", prepare)  # noqa: B010
