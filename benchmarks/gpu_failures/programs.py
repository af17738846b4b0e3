"""The failing programs: what each is, why it fails, and what happens around it, as the files in sources/ tell.

A file holds programs one after the other, with a line of ``@@@@`` between two: a head of ``key: value`` lines (a
value goes on in lines that begin with two blanks), then its sources, each after a line ``=== PATH``. Keys: ``id``,
``family``, ``retry`` (whether a retry passes; null: the program succeeds), ``category``, ``cause``; ``run``, a shell
command, in the folder ``as`` behind the prologue ``pro``; ``limit``, seconds; ``before`` and ``after``, done around
it; ``beside``, what runs meanwhile; ``event``, done once the log shows ``when``; ``ns``, done first in a mount
namespace of its own; ``group``: gpu (the default), cpu, alone (needs the whole card), tenant and tenant2
(`helpers/hold.py` holds the card).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("sources")


@dataclass(frozen=True)
class FailingProgram:
    """One program: the keys of its head, and its sources by path."""

    keys: dict[str, str]
    sources: dict[str, str]

    @property
    def group(self) -> str:
        """What it needs: see above."""
        return self.keys.get("group", "gpu")

    @property
    def limit_s(self) -> float:
        """After how many seconds it is ended."""
        return float(self.keys.get("limit", 60))


def read_programs(folder: Path = FOLDER) -> Iterator[FailingProgram]:
    """All programs, by file and place."""
    for path in sorted(folder.glob("*.txt")):
        for text in path.read_text("utf-8").split("\n@@@@\n"):
            if text.strip("\n"):
                yield _read_program(text.strip("\n"))


def _read_program(text: str) -> FailingProgram:
    head, *files = re.split(r"^=== (\S+)\n", "\n" + text, flags=re.MULTILINE)
    keys, key = dict[str, str](), ""
    for line in head.strip().splitlines():
        if line.startswith("  "):
            keys[key] += "\n" + line.strip()
        else:
            key, _, value = line.partition(":")
            keys[key] = value.strip()
    return FailingProgram(keys, dict(zip(files[::2], files[1::2], strict=True)))
