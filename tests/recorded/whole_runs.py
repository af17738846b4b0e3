"""What whole runs answer, case by case: a line is a case, the beginning of its answer, and a hash of all of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

from perdure.errors import PerdureError
from tests.recorded.drawn import in_words
from tests.recorded.line import Line, hash_of

NETS = (
    "elastic_replays", "emulated", "figures", "live_queues", "parts", "schedules", "small_studies", "speeds",
    "suspects",
)  # fmt: skip
HEAD = 60  # characters of an answer that are written down, before a hash of it
_FRACTION = re.compile(r"-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)")
Case = tuple[str, Callable[[], object]]


def names() -> Iterable[str]:
    return NETS


def lines_of(net: str) -> Iterator[Line]:
    """The cases of a net, each with the beginning of its answer."""
    for name, answer in import_module(f"tests.recorded.nets.{net}").cases():
        said = words(answer)
        yield Line(f"{name}: {said[:HEAD]} {hash_of(said, 12)}".replace("\n", " "), f"## {name}\n{said}")


def words(answer: Callable[[], object]) -> str:
    """The whole answer; what is refused is the refusal."""
    try:
        said = answer()
    except PerdureError as err:
        return f"{type(err).__name__}: {err}"
    return said if isinstance(said, str) else rounded(in_words(said))


def rounded(text: str, digits: int = 6) -> str:
    """With fractions to so many digits, so that no processor's last digit changes it; next to nothing is nothing."""

    def shorter(found: re.Match[str]) -> str:
        value = float(found[0])
        return f"{value if abs(value) > 1e-9 else 0.0:.{digits}g}"

    return _FRACTION.sub(shorter, text)
