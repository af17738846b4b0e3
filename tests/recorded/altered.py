"""Texts a little unlike one another: a sample of a format with a part left out, doubled, emptied or renumbered."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

_PART = re.compile(r"\"[^\"\n]{1,60}\"(?:: ?)?|[\w.:/-]{2,}|\d|[{}\[\],=|]")
_NUMBER = re.compile(r"\d+")


def altered(text: str, many: int) -> Iterator[str]:
    """The text itself, and so many others that are made from it; always the same ones."""
    yield text
    for number in range(many):
        rng = random.Random(f"{number} {len(text)}")
        lines = text.split("\n")
        documents = [at for at, line in enumerate(lines) if line[:1] == "{" and line[-1:] == "}"]
        if documents and rng.random() < 0.8:
            at = rng.choice(documents)
            yield "\n".join([*lines[:at], _document(lines[at], rng), *lines[at + 1 :]])
        else:
            yield rng.choice((_without_part, _renumbered, _emptied, _by_lines))(text, rng)


def _document(line: str, rng: random.Random) -> str:
    """A JSON object of which one value is not there, is none, or is of another kind or size."""
    whole = json.loads(line)
    holder, name = rng.choice(list(_places(whole)))
    if rng.random() < 0.4:
        del holder[name]
    else:
        holder[name] = rng.choice((None, "", "x y", 0, 1, -1, 2**63, True, [], {}, [holder[name]] * 2))
    return json.dumps(whole)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each value within, as what holds it and under which name or number."""
    names = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for name in names:
        yield value, name
        yield from _places(value[name])


def _without_part(text: str, rng: random.Random) -> str:
    parts = list(_PART.finditer(text))
    part = rng.choice(parts)
    return text[: part.start()] + text[part.end() :]


def _renumbered(text: str, rng: random.Random) -> str:
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return text
    found = rng.choice(numbers)
    return (
        text[: found.start()] + rng.choice(("0", "1", "-1", "4294967294", "99999999999999999999")) + text[found.end() :]
    )


def _emptied(text: str, rng: random.Random) -> str:
    """What stands in quotation marks, or after an equals sign, is nothing."""
    values = list(re.finditer(r"(?<=: )\"[^\"\n]*\"|(?<==)[^\s|]+", text))
    if not values:
        return text
    found = rng.choice(values)
    return text[: found.start()] + ('""' if text[found.start()] == '"' else "") + text[found.end() :]


def _by_lines(text: str, rng: random.Random) -> str:
    """A line goes, comes twice, or comes last."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    line = lines.pop(at)
    match rng.randrange(3):
        case 0:
            pass
        case 1:
            lines[at:at] = [line, line]
        case _:
            lines.append(line)
    return "\n".join(lines)
