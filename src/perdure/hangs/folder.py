"""A folder of what the ranks of a hung program left behind, sorted by what each file holds.

Flight recorder dumps, NCCL RAS answers, stack dumps and heartbeats are known by their content, a file's rank by its
name. The rest are logs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from perdure.errors import InputError, PerdureError
from perdure.hangs.flight_recorder import Dump, read_dump
from perdure.hangs.nccl_ras import RasFinding, read_ras
from perdure.hangs.pickled import MAX_FILE_BYTES, read_dumps
from perdure.hangs.rank_state import RankState
from perdure.hangs.stacks import read_stack, read_stack_json, state_of
from perdure.triage.text.filenames import numbers_after, parts_of, ranks_of
from perdure.triage.text.regular_file import open_regular

MAX_FILES = 16_384
MAX_COUNT = 1 << 63  # of ranks and steps: JSON holds numbers of thousands of digits
HEARTBEAT = "perdure.heartbeat/1"
_SNIFFED_BYTES = 64 * 1024
_PICKLE = b"\x80"


@dataclass(slots=True)
class Folder:
    """What was found."""

    dumps: list[Dump] = field(default_factory=list)
    ras: RasFinding | None = None
    stacks: list[RankState] = field(default_factory=list)
    steps: dict[int, int] = field(default_factory=dict)  # by rank the last step of its heartbeat
    nodes: dict[int, str] = field(default_factory=dict)
    logs: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what could not be read

    def take(self, other: Folder) -> None:
        """Add what another folder of the same ranks holds."""
        self.dumps += other.dumps
        self.stacks += other.stacks
        self.logs += other.logs
        self.notes += other.notes
        self.steps |= other.steps
        self.nodes = {**other.nodes, **self.nodes}
        self.ras = other.ras or self.ras

    def take_ras(self, answer: object) -> bool:
        """Add a decoded answer of RAS; False where it is none."""
        if (ras := read_ras(answer)) is None:
            return False
        self.ras = ras
        self.nodes = {**ras.hosts, **self.nodes}
        return True


def read_folder(directory: Path, read_apart: Collection[Path] = ()) -> Folder:
    """Nothing is said of what is `read_apart`. Raises `InputError` where it is not a folder that can be read."""
    try:
        paths = sorted(path for path in directory.iterdir() if not path.name.startswith(".") and path not in read_apart)
    except OSError as err:
        raise InputError(str(directory), f"cannot be read ({err.strerror})", "Name a folder of dumps") from err
    found = Folder()
    if len(paths) > MAX_FILES:
        found.notes.append(f"only the first {MAX_FILES} files were read")
    paths = paths[:MAX_FILES]
    pickles = []
    for path, rank in zip(paths, _ranks(paths), strict=True):
        try:
            start = _start(path)
            if start.startswith(_PICKLE):
                pickles.append(path)
            elif start.lstrip()[:1] in (b"{", b"["):
                _read_json(path, rank, found)
            else:
                _read_text(path, rank, start, found)
        except PerdureError as err:
            found.notes.append(f"{path.name}: {err.what}")
        except RecursionError:
            found.notes.append(f"{path.name}: is nested too deeply")
    _read_pickles(pickles, found)
    return found


def _read_pickles(paths: Sequence[Path], found: Folder) -> None:
    named = [(path, rank) for path, rank in zip(paths, _ranks(paths), strict=True) if rank is not None]
    found.notes += [f"{path.name}: its name tells no rank" for path in set(paths) - {path for path, _ in named}]
    for (path, _), dump in zip(named, read_dumps(named) if named else (), strict=True):
        if isinstance(dump, Dump):
            found.dumps.append(dump)
        else:
            found.notes.append(f"{path.name}: {dump}")


def _read_json(path: Path, rank: int | None, found: Folder) -> None:
    with open_regular(path) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        found.logs.append(path)  # a log of JSON lines
        return
    if rank is not None and (dump := read_dump(value, rank, str(path))):
        found.dumps.append(dump)
    elif found.take_ras(value):
        pass
    elif isinstance(value, dict) and value.get("schema") == HEARTBEAT:
        _take_heartbeat(value, found)
    elif rank is not None and (frames := read_stack_json(value)):
        found.stacks.append(state_of(rank, frames))
    else:
        found.logs.append(path)


def _take_heartbeat(value: dict[str, object], found: Folder) -> None:
    rank, step, node = value.get("rank"), value.get("step"), value.get("node")
    if not _is_count(rank):
        return
    if isinstance(node, str):
        found.nodes[rank] = node[:255]
    if _is_count(step):
        found.steps[rank] = step


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT


def _read_text(path: Path, rank: int | None, start: bytes, found: Folder) -> None:
    text = start.decode("utf-8", "replace")
    if rank is not None and (frames := read_stack(text)):
        found.stacks.append(state_of(rank, frames))
    else:
        found.logs.append(path)


def _start(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(_SNIFFED_BYTES)


def _ranks(paths: Sequence[Path]) -> Iterator[int | None]:
    """The rank that each name tells: behind the word rank, else the last number that differs, else the last number."""
    names = [path.name for path in paths]
    told = ranks_of(names) if len(names) > 1 else [""] * len(names)
    for name, rank in zip(names, told, strict=True):
        numbers = numbers_after("rank", name) or ([int(rank)] if rank.isdecimal() else [])
        last = [int(part) for part in parts_of(os.path.splitext(name)[0]) if part.isdecimal()]
        yield (numbers or last)[-1] if numbers or last else None
