"""A line of what is written down, beside all the words that it stands for."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class Line(NamedTuple):
    """What is kept, and what it was made from."""

    short: str
    whole: str


def hash_of(words: str, digits: int = 8) -> str:
    return hashlib.sha256(words.encode()).hexdigest()[:digits]
