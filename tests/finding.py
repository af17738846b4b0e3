"""What a text says, by a pattern."""

import re


def found_in(text: str, pattern: str, flags: int = 0) -> str:
    """The first group of the first match; there must be one."""
    match = re.search(pattern, text, flags)
    assert match, f"nothing is like {pattern!r} in {text[:2000]!r}"
    return match[1]
