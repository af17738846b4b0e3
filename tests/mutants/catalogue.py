"""Deliberate bugs: small changes of the product, each with the promise that it breaks and the tests that must notice.

They stand in ``catalogue/*.toml``, one file for each part of the product: first ``tests``, what is run for all of the
file, then one ``[[bug]]`` each. ``tests`` of a bug itself are run instead. What is run is an argument of pytest, or
``dst:300``: three hundred seeds of the deterministic simulation.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).with_name("catalogue")


@dataclass(frozen=True, slots=True)
class Bug:
    """Replace the one place in `file` that reads `was`."""

    name: str  # part.words-with-hyphens
    promise: str  # what a user loses by it
    file: str  # below src/perdure
    was: str
    now: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Below the root of a copy of the project."""
        return Path("src/perdure") / self.file

    def put_into(self, text: str) -> str:
        """The file's text with the bug. Raises `ValueError` where the place is not there, or there more than once."""
        if (times := text.count(self.was)) != 1:
            raise ValueError(f"{self.name}: what it replaces is in {self.path} {times} times, not once")
        return text.replace(self.was, self.now)


def bugs() -> list[Bug]:
    """All of them, in the order of the files."""
    return [bug for path in sorted(FILES.glob("*.toml")) for bug in _read(path)]


def _read(path: Path) -> list[Bug]:
    part = tomllib.loads(path.read_text())
    return [
        Bug(
            name=f"{path.stem}.{entry['name']}",
            promise=entry["promise"],
            file=entry["file"],
            was=entry["was"],
            now=entry["now"],
            tests=tuple(entry.get("tests", part["tests"])),
        )
        for entry in part["bug"]
    ]
