"""Terminal escape sequences taken out of a log, at the same speed however many kinds of them there are."""

from __future__ import annotations

from itertools import islice

import numpy as np
from numpy.typing import NDArray

from perdure.triage.text.patterns import compiled

FEW_KINDS, LOOKED_AT = 8, 24
"""A log holds many sequences, but mostly of few kinds: of these the first are looked at, and taken out kind by kind."""

AT_ONCE = 1 << 20
"""So many bytes are gone over at once, and up to the next sequence: the places of all would need many times the log."""

_ESC = 0x1B
_STRINGS = b"]PX^_"  # OSC, DCS, SOS, PM, APC: a text follows, up to BEL or ESC


def without_escapes(block: bytes) -> bytes:
    """Take out control sequences, strings and two-byte escapes; none reaches over a newline.

    >>> without_escapes(b"\\x1b[1;31mred\\x1b[0m \\x1b]0;title\\x07plain")
    b'red plain'
    """
    if b"\x1b" not in block:
        return block
    kinds = {found.group() for found in islice(compiled(_CONTROL).finditer(block), LOOKED_AT)}
    if len(kinds) > FEW_KINDS:
        return _without_any(block)
    rest, left = block, block.count(b"\x1b")
    for kind in kinds:
        left -= block.count(kind)
        rest = rest.replace(kind, b"")
    return _without_any(block) if left else rest  # what is next to a malformed one would join it


_CONTROL = r"\x1b\[[0-?]*[ -/]*[@-~]"


def _without_any(block: bytes) -> bytes:
    """The same for all kinds at once; a sequence ends at the next ESC at the latest, so there the block can be cut."""
    pieces, at = [], 0
    while at < len(block):
        found = block.find(b"\x1b", at + AT_ONCE)
        end = found if found >= 0 else len(block)
        pieces.append(_without_those(block[at:end]))
        at = end
    return b"".join(pieces)


def _without_those(block: bytes) -> bytes:
    """A piece without sequences, by finding where each of them ends."""
    codes = np.frombuffer(block + b"\n", dtype=np.uint8)  # so that each sequence has an end
    starts = np.flatnonzero(codes == _ESC)
    second = codes[starts + 1]
    control = second == ord("[")
    text = np.isin(second, np.frombuffer(_STRINGS, dtype=np.uint8))
    ends = np.empty_like(starts)  # no two sequences overlap: each holds one ESC, its first byte
    for ends_of, part in ((_ends_of_control, control), (_ends_of_string, text), (_ends_of_short, ~(control | text))):
        if part.any():
            ends[part] = ends_of(codes, starts[part])
    borders = np.column_stack((starts, ends)).ravel()
    lengths = np.diff(borders, prepend=0, append=len(codes))
    kept = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    return bytes(codes[kept][:-1])


def _next(wanted: NDArray[np.bool_], froms: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each of `froms` the first place, not before it, at which `wanted` is true."""
    before = np.cumsum(wanted, dtype=np.int32)[froms] - wanted[froms]
    return np.flatnonzero(wanted)[before]


def _ends_of_short(codes: NDArray[np.uint8], starts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Behind intermediate bytes and one final byte; behind ESC alone where that does not follow."""
    final = _next((codes < 0x20) | (codes > 0x2F), starts + 1)
    return np.where((codes[final] >= 0x30) & (codes[final] <= 0x7E), final + 1, starts + 1)


def _ends_of_control(codes: NDArray[np.uint8], starts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Behind parameters, intermediate bytes and one final byte; behind ``ESC [`` alone where it is malformed."""
    final = _next((codes < 0x30) | (codes > 0x3F), starts + 2)
    if len(
        more := np.flatnonzero((codes[final] >= 0x20) & (codes[final] <= 0x2F))
    ):  # intermediate bytes, which are rare
        final[more] = _next((codes < 0x20) | (codes > 0x2F), final[more])
    return np.where((codes[final] >= 0x40) & (codes[final] <= 0x7E), final + 1, starts + 2)


def _ends_of_string(codes: NDArray[np.uint8], starts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Behind the BEL that ends it; before a newline, or the next escape, which its terminator is."""
    end = _next((codes == 0x07) | (codes == _ESC) | (codes == 0x0A), starts + 2)
    return np.where(codes[end] == 0x07, end + 1, end)
