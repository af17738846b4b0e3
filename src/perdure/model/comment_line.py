"""The one line that Perdure leaves in a job's record, and how it differs from what others write there."""

from __future__ import annotations

import re2

COMMENT_PREFIX = "perdure: "
_OURS = re2.compile(r'(?s)"?perdure: .{0,1000}\. perdure why \S{1,64} #([0-9a-f]{6})"?')


def mark_of(text: str) -> str:
    """The mark of the service that wrote a line; "" for a line of others. Slurm may keep a command's quotes.

    >>> mark_of("perdure: a wrong shape: it would fail again. perdure why 7 #0a1b2c"), mark_of("perdure: retry=never")
    ('0a1b2c', '')
    """
    found = _OURS.fullmatch(text.strip())
    return str(found[1]) if found else ""
