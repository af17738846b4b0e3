"""The directory of a chain, as its links and ``perdure keep`` share it.

``links/<number>.<kind>.json`` are the marks (`perdure.job.link_marks`), ``fence/`` the fence of all links together,
``script`` the user's script as it was when the chain began, and ``over`` is there once the chain is over.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.durable import write_whole
from perdure.job.link_marks import HandoverAsked, HandoverTold, LinkBegun, LinkEnded, LinkMarks

MAX_BYTES = 64 * 1024
_Mark = TypeVar("_Mark", LinkBegun, HandoverAsked, HandoverTold, LinkEnded)
_KINDS: dict[type, str] = {LinkBegun: "begun", HandoverAsked: "asked", HandoverTold: "told", LinkEnded: "ended"}


@dataclass(frozen=True, slots=True)
class ChainFolder:
    """One chain's directory."""

    path: Path

    @property
    def links(self) -> Path:
        return self.path / "links"

    @property
    def fence(self) -> Path:
        return self.path / "fence"

    @property
    def script(self) -> Path:
        return self.path / "script"

    @property
    def over(self) -> Path:
        return self.path / "over"

    def mark_path(self, number: int, kind: type) -> Path:
        return self.links / f"{number}.{_KINDS[kind]}.json"

    def write(self, number: int, mark: LinkBegun | HandoverAsked | HandoverTold | LinkEnded) -> None:
        """Leave a mark, in one step, written through to the disk. Raises `OSError`."""
        write_whole(self.mark_path(number, type(mark)), msgspec.json.encode(mark), 0o600)

    def take_back(self, number: int, kind: type) -> None:
        """Remove a mark. Raises `OSError`."""
        self.mark_path(number, kind).unlink(missing_ok=True)

    def marks(self, number: int) -> LinkMarks:
        """What a link has left so far."""
        return LinkMarks(
            self._read(number, LinkBegun),
            self._read(number, HandoverAsked),
            self._read(number, HandoverTold),
            self._read(number, LinkEnded),
        )

    def numbers(self) -> list[int]:
        """The links that have begun, in order."""
        with suppress(FileNotFoundError):
            names = os.listdir(self.links)
            return sorted(int(number) for name in names for number, _, kind in [name.partition(".")]
                          if kind == "begun.json" and number.isdecimal())  # fmt: skip
        return []

    def _read(self, number: int, kind: type[_Mark]) -> _Mark | None:
        try:
            with self.mark_path(number, kind).open("rb") as file:
                return msgspec.json.decode(file.read(MAX_BYTES), type=kind)
        except (OSError, msgspec.MsgspecError):
            return None


def progress_of(path: str) -> str:
    """What a progress file says, in one line; "" where there is none. Of a directory the newest name counts."""
    if not path:
        return ""
    with suppress(OSError):
        if os.path.isdir(path):
            return _newest_in(path)
        with open(path, "rb", opener=_without_waiting) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 200))
            return " ".join(file.read(200).decode("utf-8", "replace").split())
    return ""


def _newest_in(directory: str) -> str:
    """The newest name; one without a number, such as ``last.ckpt``, is written anew each time: then its time counts."""
    found = []
    for entry in os.scandir(directory):
        with suppress(OSError):  # it has been removed since, or is a link to what has
            found.append((entry.stat().st_mtime, entry.name))
    at_s, name = max(found, default=(0.0, ""))
    if not name or any(map(str.isdecimal, name)):
        return name
    return f"{name} of {datetime.fromtimestamp(at_s, UTC).isoformat()}"


def _without_waiting(path: str, flags: int) -> int:
    """A pipe in its place, which anybody may have put into a directory of many, holds no link up."""
    return os.open(path, flags | os.O_NONBLOCK)
