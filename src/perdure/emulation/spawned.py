"""Processes that an emulated program spawns (``torch.multiprocessing.spawn``, loaders) have emulated GPUs too.

Python tells a new process how to prepare before anything of the program is imported there; among that is an object
which begins the emulation as it is read. A forked process has it from its parent.
"""

from __future__ import annotations

import multiprocessing.spawn
import re
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.util import Finalize, register_after_fork
from typing import Any

from perdure.emulation.node import EmulatedNode

Change = tuple[Any, str, Any]

_LAST = -100
"""The priority of what multiprocessing does at a process's end: after what others have it do."""


class _Beginning:
    """What a process reads; `number` counts those that its parent has spawned."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return begin, (self._number,)


def spawn_changes(node: EmulatedNode) -> Iterator[Change]:
    """Where Python finds what a new process is told, and what that is."""
    prepare = multiprocessing.spawn.get_preparation_data

    def preparation(name: str) -> dict[str, Any]:
        node.spawned += 1
        found = re.search(r"(\d+)$", name)
        return {**prepare(name), "perdure": _Beginning(int(found[1]) if found else 1)}

    yield multiprocessing.spawn, "get_preparation_data", preparation


def begin(number: int) -> ExitStack:
    """Emulate in this process for as long as what it was told is kept, which is to its end."""
    from perdure.emulation.program import emulation  # needs PyTorch, and all else of the emulation

    stack = ExitStack()
    stack.enter_context(emulation(number))
    register_after_fork(stack, lambda kept: Finalize(None, kept.close, exitpriority=_LAST))
    return stack
