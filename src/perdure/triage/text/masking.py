"""What changes from run to run, hidden: in one text by name, or in megabytes of lines by shape."""

from __future__ import annotations

import re

import numpy as np

from perdure.triage.text.patterns import compiled

_MASKS = (  # pattern, what it cannot do without one of, name
    (
        r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)?Z?\b|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b",
        (b"-", b":"),
        b" <time> ",
    ),
    (
        r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\[[0-9a-fA-F:]*::[0-9a-fA-F:]*\](?::\d+)?",
        (b".", b"::"),
        b" <ip> ",
    ),
    (r"https?://[^\s'\"<>)]+", (b"://",), b" <url> "),
    (r"(?:/[\w.+@%=,~-]+){2,}/?|\b[\w.-]+(?:/[\w.-]+){2,}", (b"/",), b" <path> "),
    (r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b|\b[0-9A-F]{12,}\b", (), b" <hex> "),
)
_NUMBER = re.compile(rb"[-+]?\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
"""Numbers are the commonest of all, and replacing them is nine times faster without the wrapper of re2. Nothing in it
is ever tried twice, so it is linear in the text, too.
"""


def mask(text: bytes) -> bytes:
    """Put names in the place of what changes from run to run: times, addresses, paths, hex and other numbers.

    >>> mask(b"OSError: [Errno 28] No space left on device: '/scratch/a1/x.pt'")
    b"OSError: [Errno <n>] No space left on device: ' <path> '"
    """
    for pattern, needed, name in _MASKS:
        if not needed or any(some in text for some in needed):
            text = compiled(pattern).sub(name, text)
    return _NUMBER.sub(b"<n>", text)


MAX_WORD = 64
"""What is farther than this many bytes behind a word's last digit is not cut off."""

_DIGIT, _LETTER = 1, 2
_KINDS = bytes(
    _DIGIT if chr(c).isdigit() and c < 128 else _LETTER if chr(c).isalnum() or c == ord("_") or c > 127 else 0
    for c in range(256)
)


def shapes(block: bytes) -> bytes:
    """The block with each word cut behind its first digit, and that digit 0: lines of one shape become equal.

    Coarser than `mask`, and hundreds of times faster; newlines stay, so lines stay lines.

    >>> shapes(b"step 1007 loss 2.345 of 9f86d081\\nnode17 0x7ffe")
    b'step 0 loss 0.0 of 0\\nnode0 0'
    """
    kinds = np.frombuffer(block.translate(_KINDS), dtype=np.uint8)
    word, seen = kinds != 0, kinds == _DIGIT
    # After each round: a digit is among the last `reach` bytes, and no word ended since; by doubling.
    unbroken, reach = word.copy(), 1
    while reach < MAX_WORD:
        seen[reach:] |= seen[:-reach] & unbroken[reach:]
        unbroken[reach:] &= unbroken[:-reach]
        reach *= 2
    keep = np.ones(len(kinds), dtype=bool)
    keep[1:] = ~(word[1:] & seen[:-1])
    return bytes(np.frombuffer(block.translate(_ZEROS), dtype=np.uint8)[keep])


_ZEROS = bytes(ord("0") if ord("0") <= c <= ord("9") else c for c in range(256))
