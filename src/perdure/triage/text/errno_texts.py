"""The C library's error texts in other languages: a line that bears one is matched as if it were in English.

Source: the translations of GNU libc 2.36 in German, Spanish, French, Italian, Japanese, Korean, Polish, Portuguese,
Russian and Chinese, and what older releases had.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources

import re2

from perdure.triage.text.patterns import compiled


@lru_cache(maxsize=1)
def english_of() -> dict[bytes, bytes]:
    """The English text of each translated error message."""
    table = json.loads((resources.files("perdure.triage") / "data" / "errno_texts.json").read_text("utf-8"))
    return {text.encode(): english.encode() for english, texts in table.items() for text in texts}


@lru_cache(maxsize=1)
def any_translated() -> str:
    """A pattern that finds any of the translated texts, the longest first."""
    texts = sorted(english_of(), key=lambda text: (-len(text), text))
    return "|".join(re2.escape(text.decode()) for text in texts)


def in_english(line: bytes) -> bytes:
    """The line with the C library's error text in English.

    >>> in_english("cp: '/tmp/x': Keine Berechtigung".encode())
    b"cp: '/tmp/x': Permission denied"
    """
    found = compiled(any_translated()).search(line)
    return line[: found.start()] + english_of()[found.group()] + line[found.end() :] if found else line
