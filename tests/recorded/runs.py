"""What the whole service does in some seeds of the simulation, step by step.

A line is one event, what it had done, and a hash of all of that in words. ``python -m tests.recorded.runs`` chooses the
seeds again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Act, Effect, Event, Journalled, Noted
from perdure.service.core.settings import ControllerSettings
from tests.dst.simulation import Simulation
from tests.recorded.drawn import in_words
from tests.recorded.line import Line, hash_of
from tests.recorded.path_taken import path_taken

PLACE = Path(__file__).parent / "answers" / "runs"
CANDIDATES, MOST_KEPT = range(400), 25  # seeds
DECIDES = tuple(f"/perdure/{part}/" for part in ("service/core", "service/workers", "retry", "coordination"))


def names() -> list[str]:
    """The seeds whose runs are written down."""
    return sorted((path.stem for path in PLACE.glob("*.txt")), key=int)


def lines_of(seed: str) -> Iterator[Line]:
    """The steps of a seed. Raises `AssertionError` where it breaks a law."""
    with _noted() as steps:
        told = _simulation().run(int(seed))
    assert not told.broken, str(told)
    for event, effects in steps:
        said, name = in_words(effects), type(event).__name__
        yield Line(f"{name}: {', '.join(map(_name, effects))} {hash_of(said, 10)}", f"{name}: {said}")


_simulation = cache(Simulation)  # one for all of them


def _name(effect: Effect) -> str:
    match effect:
        case Act(action=action):
            return action.key
        case Journalled(event=event):
            return type(event).__name__
        case Noted(record=record):
            return f"{record.id} {record.outcome}"
    return type(effect).__name__


@contextmanager
def _noted() -> Iterator[list[tuple[Event, list[Effect]]]]:
    """The steps of the controller that had effects."""
    steps: list[tuple[Event, list[Effect]]] = []

    def noting(
        state: ControllerState, event: Event, settings: ControllerSettings
    ) -> tuple[ControllerState, list[Effect]]:
        after, effects = step(state, event, settings)
        if effects:
            steps.append((event, effects))
        return after, effects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.service.workers.engine.step", noting)
        yield steps


def choose() -> None:
    """Keep other seeds: those that together go all ways, each the one that adds most."""
    ways = {}
    for seed in CANDIDATES:
        with path_taken(DECIDES) as path:
            told = _simulation().run(seed)
        if not told.broken:
            ways[seed] = frozenset(path)
    chosen: list[int] = []
    left = frozenset().union(*ways.values())
    while left and len(chosen) < MOST_KEPT:
        best = max(ways, key=lambda seed: (len(ways[seed] & left), -seed))
        if not ways[best] & left:
            break
        chosen.append(best)
        left -= ways[best]
    for old in PLACE.glob("*.txt"):
        old.unlink()
    for seed in chosen:
        (PLACE / f"{seed}.txt").touch()


if __name__ == "__main__":
    choose()
