"""Slurm's short form of many node names, ``gpu-a[01-03,7]b,login1``, written out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

import re2

from perdure.errors import InputError

MAX_NODES = 1 << 16

_NAME = re2.compile(r"[A-Za-z0-9._\-]+")
_RANGE = re2.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NOTHING = frozenset({"", "(null)", "N/A", "None", "None assigned", "Unknown"})


def is_node_name(text: str) -> bool:
    """True for what may be handed to a tool as the name of one node."""
    return _NAME.fullmatch(text) is not None and not text.startswith("-")


@lru_cache(maxsize=4096)
def expand(text: str, limit: int = MAX_NODES) -> tuple[str, ...]:
    """Return the names in order, each once.

    Raises `InputError` for anything that is not a node list, and for more than `limit` names, doubles counted.

    >>> expand("node[1-3,7],gpu-a[01-02]b")
    ('node1', 'node2', 'node3', 'node7', 'gpu-a01b', 'gpu-a02b')
    """
    if text in _NOTHING:
        return ()
    names: dict[str, None] = {}
    written_out = (name for part in _parts(text) for name in _expand_part(part))
    for count, name in enumerate(written_out):
        if count >= limit:
            raise InputError("node list", f"{text[:80]!r} names more than {limit} nodes", "Name fewer nodes")
        if not is_node_name(name):
            raise InputError("node list", f"{name[:80]!r} is not a node name", "Use letters, digits, '.', '_', '-'")
        names[name] = None
    return tuple(names)


def _parts(text: str) -> Iterator[str]:
    """Split at the commas that are outside brackets."""
    depth = start = 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            break
        if char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if depth != 0:
        raise InputError("node list", f"brackets of {text[:80]!r} do not match", "Write node[1-3,7]")
    yield text[start:]


def _expand_part(part: str) -> Iterator[str]:
    """Write out one item; a name may hold several brackets (``rack[1-2]node[1-4]``)."""
    pieces: list[tuple[str, ...] | _Numbers] = []
    rest = part
    while "[" in rest:
        fixed, _, rest = rest.partition("[")
        inside, _, rest = rest.partition("]")
        pieces += [(fixed,), _Numbers(inside)]
    pieces.append((rest,))
    if len(pieces) > 9:  # four brackets: each more multiplies
        raise InputError("node list", f"too many brackets in {part[:80]!r}", "Write node[1-3,7]")
    first, *others = pieces
    for combination in _product(first, others):
        yield "".join(combination)


def _product(first: tuple[str, ...] | _Numbers, others: list[tuple[str, ...] | _Numbers]) -> Iterator[tuple[str, ...]]:
    """Like `itertools.product`, but lazy: the first names come before the last range is looked at."""
    if not others:
        yield from ((item,) for item in first)
        return
    for item in first:
        for rest in _product(others[0], others[1:]):
            yield (item, *rest)


class _Numbers:
    """The inside of brackets: ``01-03,7``. Iterates lazily over the numbers, padded as they were written."""

    def __init__(self, text: str) -> None:
        self._ranges: list[tuple[int, int, int]] = []
        for item in text.split(","):
            found = _RANGE.fullmatch(item)
            if found is None:
                raise InputError("node list", f"[{item[:80]}] is not a range of numbers", "Write node[1-3,7]")
            low, high = found[1], found[2] or found[1]
            if int(high) < int(low):
                raise InputError("node list", f"[{item[:80]}] runs backwards", "Write node[1-3,7]")
            self._ranges.append((int(low), int(high), len(low)))

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(
            (f"{number:0{width}d}" for number in range(low, high + 1)) for low, high, width in self._ranges
        )
