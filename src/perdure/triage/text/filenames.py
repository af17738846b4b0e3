"""What the names of log files say of the tasks that wrote them."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path

STREAMS = frozenset({"stdout", "stderr", "out", "err", "output", "error"})


def parts_of(name: str) -> list[str]:
    """A name cut between digits and others."""
    return ["".join(run) for _, run in groupby(name, str.isdecimal)]


def numbers_after(word: str, name: str) -> list[int]:
    """The numbers that are behind a word."""
    pairs = pairwise(parts_of(name))
    return [int(part) for before, part in pairs if part.isdecimal() and before.lower().rstrip("._-/").endswith(word)]


def ranks_of(names: list[str]) -> list[str]:
    """The rank that each file's name tells: the number after the word rank, else the last one that tells them apart.

    Where numbers do not, the names themselves are taken; "" where they only tell a task's streams apart.

    >>> ranks_of(["job-17_rank0.err", "job-17_rank1.err"]), ranks_of(["17/0/stdout.log", "17/1/stdout.log"])
    (['0', '1'], ['0', '1'])
    """
    told = [numbers_after("rank", name) for name in names]
    if all(told):
        return [str(found[-1]) for found in told]
    numbers = [[int(part) for part in parts_of(name) if part.isdecimal()] for name in names]
    for back in range(1, 1 + min(map(len, numbers), default=0)):
        column = [str(found[-back]) for found in numbers]
        if len(set(column)) > 1:
            return column
    stems = [Path(name).stem for name in names]
    return [""] * len(names) if {stem.lower() for stem in stems} <= STREAMS else stems
