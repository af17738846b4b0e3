"""Suspects over time: named after some windows in a row, cleared after some without.

One window may err, and a culprit at the edge of what can be seen comes and goes. Nobody is named for one weak window,
and nobody is cleared for one quiet one: the list that people act on does not flap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perdure.blame.accuse import Accusation
from perdure.blame.builders.named import Component


@dataclass(frozen=True, slots=True)
class SuspectPatience:
    """How many windows in a row it takes to name a suspect, and to clear it."""

    confirm: int = 2  # to be named; 1 where the evidence is overwhelming
    release: int = 3  # to be cleared
    at_once: float = 40.0  # nats of strength from which one window is enough


@dataclass(frozen=True, slots=True)
class Standing:
    """One suspect over time. Instants are the ends of windows, in seconds.

    `first` is its identity: the components that equal it may change from window to window, as attempts come and go.
    `seen` and `missed` are never both above 0.
    """

    first: Component  # that it was first accused as
    accusation: Accusation  # of the last window that accused it
    since_s: float  # the first of those windows
    last_s: float  # the last of them
    seen: int = 1  # windows in a row that accuse it
    missed: int = 0  # windows in a row that do not
    named: bool = False  # people were told


@dataclass(frozen=True, slots=True)
class WindowChange:
    """What one window changes."""

    standing: tuple[Standing, ...]  # all to be remembered
    named: tuple[Standing, ...] = ()  # now
    cleared: tuple[Standing, ...] = ()  # now: the verdict is taken back


def follow(
    before: Iterable[Standing],
    accusations: Iterable[Accusation],
    now: float,
    patience: SuspectPatience = SuspectPatience(),
) -> WindowChange:
    """Update the suspects with the accusations of the window that ends `now`.

    An accusation continues a suspect with which it shares a component; each continues one at most, in the order given.
    A suspect that was never named is forgotten in the first window without it. One that was named stays named, and a
    window that accuses it again resets its misses.
    """
    left = list(accusations)
    kept: list[Standing] = []
    cleared: list[Standing] = []
    for old in before:
        again = next((each for each in left if set(each.components) & set(old.accusation.components)), None)
        if again is not None:
            left.remove(again)
            kept.append(replace(old, accusation=again, last_s=now, seen=old.seen + 1, missed=0))
        elif old.named and old.missed + 1 < patience.release:
            kept.append(replace(old, seen=0, missed=old.missed + 1))
        elif old.named:
            cleared.append(old)
    kept += [Standing(each.components[0], each, now, now) for each in left]
    after = tuple(each if each.named else replace(each, named=_is_sure(each, patience)) for each in kept)
    was_named = {id(each) for each in kept if each.named}
    new = tuple(a for a, b in zip(after, kept, strict=True) if a.named and id(b) not in was_named)
    return WindowChange(after, new, tuple(cleared))


def _is_sure(standing: Standing, patience: SuspectPatience) -> bool:
    """Whether enough windows in a row accuse it, or one with overwhelming strength."""
    return standing.seen >= patience.confirm or standing.accusation.strength >= patience.at_once
