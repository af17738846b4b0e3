"""What a law that does not hold raises."""

from __future__ import annotations

from collections.abc import Iterable

HOUR_S = 3600.0


class Broken(AssertionError):
    """A law does not hold."""


def must(holds: object, law: str, *about: object) -> None:
    if not holds:
        raise Broken(f"{law}: {', '.join(map(str, about))}")


def must_fit(instants: Iterable[float], limit: int, law: str, but_for_s: float = 0.0) -> None:
    """No hour, wherever it begins, holds more than `limit`; some instants may be `but_for_s` off."""
    times = sorted(instants)
    for first, last in zip(times, times[limit:], strict=False):
        must(last - first > HOUR_S - but_for_s - 0.01, law, first, last, but_for_s)
