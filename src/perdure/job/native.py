"""Whose code a process's first thread waits in, by the return addresses on its stack.

A lock and a collective are the same system call. What called it is not: the innermost return addresses point into
Python's own code, or into a library that waits for peers or for a GPU. Read from /proc, without a debugger; nobody
notices. Needs the right to trace the process, as its parent or as the same user where the system allows that.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from perdure.hangs.rank_state import PYTHON

STACK_BYTES, MAX_MAPS = 16 * 1024, 8 << 20
INNERMOST = 3  # return addresses that decide, by their majority: between frames old ones may be left
_PLAIN = re.compile(r"(?:libc|libpthread|libstdc\+\+|libgcc_s|libm|ld-[\w-]+|libc-[\d.]+|libpthread-[\d.]+)\.so|\[")
_PEERS = re.compile(
    r"(?:^|/|lib|_)(?:torch|c10|gloo|nccl|rccl|oneccl|mpi|uc[pstx]|cuda|amdhip|hsa|horovod|deepspeed|jaxlib|xla)"
)
"""Libraries that a rank is in while it waits for others, or for a GPU that does."""


class Area(NamedTuple):
    """Where a file's code lies in a process's memory."""

    begin: int
    end: int
    path: str


def waits_in(pid: int) -> str:
    """`PYTHON`, or the name of a library that waits for peers; "" where it is neither, or nobody can tell."""
    if struct.calcsize("P") != 8:
        return ""
    with suppress(OSError, ValueError, IndexError, OverflowError):
        process = Path("/proc") / str(pid)
        stack_pointer = int((process / "syscall").read_text().split()[-2], 16)
        with (process / "maps").open("rb") as maps:
            areas = areas_of(maps.read(MAX_MAPS).decode("utf-8", "replace"))
        with (process / "mem").open("rb", buffering=0) as memory:
            memory.seek(stack_pointer)
            stack = memory.read(STACK_BYTES)
        return code_of(struct.unpack(f"={len(stack) // 8}Q", stack[: len(stack) // 8 * 8]), areas)
    return ""


def areas_of(maps: str) -> list[Area]:
    """The areas of code in what /proc shows of a process's memory, in their order."""
    found = []
    for line in maps.splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and "x" in words[1]:
            begin, _, end = words[0].partition("-")
            found.append(Area(int(begin, 16), int(end, 16), words[5]))
    return sorted(found)


def code_of(stack: Iterable[int], areas: Sequence[Area]) -> str:
    """What most of the innermost return addresses belong to; the innermost comes first in `stack`."""
    begins = [area.begin for area in areas]
    names: list[str] = []
    for word in stack:
        area = areas[at] if (at := bisect_right(begins, word) - 1) >= 0 else None
        if area is not None and word < area.end and not _PLAIN.match(area.path.rpartition("/")[2]):
            names.append(_name(area.path))
            if len(names) == INNERMOST:
                break
    if 2 * names.count(PYTHON) > len(names):
        return PYTHON
    peers = [name for name in names if name not in ("", PYTHON)]
    return peers[0] if 2 * len(peers) > len(names) else ""


def _name(path: str) -> str:
    file = path.rpartition("/")[2]
    if file.startswith(("python", "libpython")) or "/lib-dynload/" in path:
        return PYTHON
    package = path.rpartition("-packages/")[2] if "-packages/" in path else file
    return file if _PEERS.search(package) else ""
