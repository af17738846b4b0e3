"""What PyTorch's flight recorder dumps of a rank, as a `RankRecord`.

A dump is a pickle or JSON of ``{"version", "pg_config", "pg_status", "entries"}``, versions 2.x; an entry is an
operation in a ring of the last ones. Whether it has ended is told by ``state`` (NCCL) or ``retired`` (Gloo).
``pg_status`` is not used: it counts collectives together with sends and receives. Source: torch/csrc/distributed/c10d,
FlightRecorder; read from dumps that torch 2.9 (NCCL) and 2.13 (Gloo) made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.hangs.collectives import PendingOperation, RankRecord

WORLD = "default_pg"  # the description of the group of all ranks
UNDESCRIBED = "undefined"
MAX_TEXT = 120
_P2P = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")


class Dump(Struct, frozen=True):
    """What is kept of a dump: who meets whom is known once all of them are read."""

    rank: int
    groups: dict[str, list[int]]  # by name its global ranks, [] where the dump does not say
    pending: list[PendingOperation]  # with ranks in the group as ends
    completed: dict[str, int]
    where: str
    source: str
    world: str = ""  # the name of the group of all ranks


def read_dump(value: object, rank: int, source: str) -> Dump | None:
    """Read a decoded dump; None for any other value. Fields of unexpected types are left out."""
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list | tuple):
        return None
    entries = [each for each in value["entries"] if isinstance(each, dict)]
    groups = _groups(value.get("pg_config"))
    completed: dict[str, int] = {}
    pending = []
    world = ""
    for entry in entries:
        name, description = _group_of(entry)
        groups.setdefault(name, [])
        world = name if description == WORLD else world
        operation = _operation(entry, name, "" if description == UNDESCRIBED else description)
        if not _has_ended(entry):
            pending.append(operation)
        elif operation.ends is None:
            completed[name] = max(operation.seq, completed.get(name, -1))
    for name, first in _first(pending).items():  # what is before it has ended, and may have left the ring
        completed[name] = max(completed.get(name, -1), first - 1)
    last = max(entries, key=lambda entry: _whole(entry.get("time_created_ns")), default={})
    return Dump(rank, groups, pending, completed, _where(last), source, world)


def _first(pending: Sequence[PendingOperation]) -> dict[str, int]:
    """By group the first collective that has not ended."""
    found: dict[str, int] = {}
    for operation in pending:
        if operation.ends is None:
            found[operation.group] = min(operation.seq, found.get(operation.group, operation.seq))
    return found


def joined(dumps: Sequence[Dump]) -> tuple[list[RankRecord], dict[str, list[int]]]:
    """The records of all ranks, and the global ranks of each group.

    A group whose ranks no dump lists has those that took part in it; the group of all ranks has at least all that left
    a dump.
    """
    groups: dict[str, list[int]] = {}
    took_part: dict[str, set[int]] = {}
    for dump in dumps:
        for name, listed in dump.groups.items():
            if len(listed) > len(groups.get(name, ())):
                groups[name] = listed
            took_part.setdefault(name, set()).add(dump.rank)
    world = next((dump.world for dump in dumps if dump.world), "")
    of_world = groups.get(world) or groups.get("") or []
    for name, ranks in took_part.items():
        if not groups.get(name):
            groups[name] = sorted(ranks)
    if world:
        groups[world] = sorted({*of_world, *(dump.rank for dump in dumps)})
    records = [
        RankRecord(
            dump.rank,
            tuple(_with_global_ends(each, groups.get(each.group, ())) for each in dump.pending),
            dump.completed,
            dump.where,
        )
        for dump in dumps
    ]
    return records, groups


def _with_global_ends(operation: PendingOperation, ranks: Sequence[int]) -> PendingOperation:
    if operation.ends is None or not all(end < len(ranks) for end in operation.ends):
        return operation
    return replace(operation, ends=(ranks[operation.ends[0]], ranks[operation.ends[1]]))


def _groups(config: object) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, about in config.items() if isinstance(config, dict) else ():
        listed = about.get("ranks") if isinstance(about, Mapping) else None
        found[_text(name)] = _ranks(listed)
    return found


def _ranks(listed: object) -> list[int]:
    """A list, or its text: ``[0, 4, 8]``."""
    if isinstance(listed, str):
        try:
            listed = json.loads(listed)
        except ValueError:
            return []
    return [rank for rank in listed if isinstance(rank, int)] if isinstance(listed, list | tuple) else []


def _group_of(entry: Mapping[Any, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, list | tuple) and len(group) == 2:
        return _text(group[0]), _text(group[1])
    return str(_whole(entry.get("pg_id"))), ""


def _operation(entry: Mapping[Any, Any], group: str, description: str) -> PendingOperation:
    name = _text(entry.get("profiling_name")).rpartition(":")[2].lstrip("_")
    ends = None
    if entry.get("is_p2p") is True and (told := _P2P.fullmatch(name)):
        here, there = int(told[2]), int(told[3])
        ends = (here, there) if told[1] == "send" else (there, here)
        name = told[1]
    size = _text(f"{_plain(entry.get('input_dtypes'))} {_plain(entry.get('input_sizes'))}")
    return PendingOperation(
        group, name, _whole(entry.get("collective_seq_id")), ends, size.strip(), description, _where(entry)
    )


def _has_ended(entry: Mapping[Any, Any]) -> bool:
    return entry.get("state") == "completed" or entry.get("retired") is True


def _where(entry: Mapping[Any, Any]) -> str:
    """The innermost frame of the program's own code."""
    frames = entry.get("frames")
    for frame in frames if isinstance(frames, list | tuple) else ():
        file = _text(frame.get("filename")) if isinstance(frame, dict) else ""
        if file and "site-packages/" not in file and "/lib/python" not in file and not file.startswith("<"):
            return f"{file.rpartition('/')[2]}:{_whole(frame.get('line'))} in {_text(frame.get('name'))}"[:MAX_TEXT]
    return ""


def _plain(value: object) -> str:
    """Types and shapes on one line: ``Float [4, 8]``; of several the first."""
    while isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
        value = value[0]
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        return _text(value[0])
    return str(list(value)) if isinstance(value, list | tuple) and len(value) < 16 else ""


def _text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < 2**63 else -1
