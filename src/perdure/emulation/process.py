"""One process of an emulated program: it begins by its settings, and tells at its end what was emulated."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from typing import Any

from perdure.emulation.clocks import RealClock, VirtualClock, programs_time
from perdure.emulation.framework import emulated
from perdure.emulation.node import EmulatedNode, make_node
from perdure.emulation.profiles import ProfileOrigin
from perdure.emulation.settings import given
from perdure.emulation.spawned import spawning

LAST = -100
"""The priority of what multiprocessing does at a process's end: after what others have it do."""


@contextmanager
def emulation(spawned: int = 0) -> Iterator[None]:
    """Inside the block, this process has the GPUs of its settings; what was emulated is told at its end.

    `spawned` counts the processes that a program has spawned, from 1; 0 is the program's own.
    """
    settings = given()
    clock = VirtualClock() if settings.virtual else RealClock()
    rank, process = int(os.environ.get("RANK", max(0, spawned - 1))), os.getpid()
    node = make_node(settings, clock, rank)
    started = clock.now
    try:
        with (
            programs_time(clock) if isinstance(clock, VirtualClock) else nullcontext(),
            emulated(node),
            spawning(node, begin),
        ):
            yield
    finally:
        did = any(gpu.busy_s for gpu in node.gpus)
        if os.getpid() == process and (did or not (spawned or node.spawned)):
            _tell(node, clock.now - started, rank)


def begin(spawned: int) -> ExitStack:
    """Emulate in a spawned process for as long as what is returned is kept, which is to its end."""
    stack = ExitStack()
    stack.enter_context(emulation(spawned))
    register_after_fork(stack, lambda kept: Finalize(None, kept.close, exitpriority=LAST))
    return stack


def _tell(node: EmulatedNode, taken_s: float, rank: int) -> None:
    """What was emulated, on stderr and in the report."""
    busy, steps = sum(gpu.busy_s for gpu in node.gpus), sum(gpu.steps for gpu in node.gpus)
    done, used = sum(gpu.done_s for gpu in node.gpus), max(1, sum(gpu.busy_s > 0 for gpu in node.gpus))
    found: dict[str, Any] = {
        "rank": rank, "gpu": node.gpu.name, "model": node.settings.model, "gpus": len(node.gpus), "steps": steps,
        "numbers": [node.settings.number(gpu.index) for gpu in node.gpus],
        "taken_s": taken_s, "busy_s": busy, "busy_share": done / taken_s / used if taken_s else 0.0,
        "peak_mib": max(gpu.peak_mib for gpu in node.gpus), "capacity_mib": node.gpu.capacity_mib,
        "origins": sorted(node.origins), "virtual": node.settings.virtual,
    }  # fmt: skip
    if node.settings.report:
        path = Path(node.settings.report)
        path = path if rank == 0 else path.with_suffix(f".{rank}{path.suffix}")
        path.write_text(json.dumps(found) + "\n", "utf-8")
    sys.stdout.flush()  # what the program said comes first
    for line in _lines(node, found):
        print(f"perdure: {line}", file=sys.stderr)  # noqa: T201 - what the command says


def _lines(node: EmulatedNode, found: dict[str, Any]) -> Iterator[str]:
    if not found["steps"] and not found["busy_s"] and not any(gpu.is_broken for gpu in node.gpus):
        yield "the program did nothing on a GPU, so nothing was emulated; move its model and its data to cuda"
        return
    kind = "virtual" if found["virtual"] else "real"
    yield (
        f"{found['steps']:,} steps of {found['model']} on {found['gpu']}: {found['taken_s']:,.3f} s ({kind} time), GPU "
        f"busy {found['busy_share']:.0%}, {found['peak_mib']:,.0f} of {found['capacity_mib']:,.0f} MiB at most"
    )
    if ProfileOrigin.ESTIMATED in node.origins:
        yield "times are estimated from layers and the data sheet; give --profiles for measured ones"
    if ProfileOrigin.EXTRAPOLATED in node.origins:
        yield f"a batch lies beyond the table of {found['model']}: its times lie on the line through the last two"
    if node.table is not None and node.table.holes:
        yield f"{node.table.source}: {node.table.holes:,} rows with holes are left out"
