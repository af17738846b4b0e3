"""What the whole service does in some seeds of the simulation, step by step: ``python -m tests.recorded.runs``.

A line is one event, what it had done, and a hash of all of that in words. With ``--seed 17`` a seed is printed with all
its words, to be compared with what another version prints.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Act, Effect, Event, Journalled, Noted
from perdure.service.core.settings import ControllerSettings
from tests.dst.simulation import Simulation
from tests.recorded.drawn import in_words
from tests.recorded.path_taken import path_taken

PLACE = Path(__file__).parent / "answers" / "runs"
CANDIDATES, MOST_KEPT = range(400), 25  # seeds
DECIDES = tuple(f"/perdure/{part}/" for part in ("service/core", "service/workers", "retry", "coordination"))


def path_of(seed: int) -> Path:
    return PLACE / f"{seed}.txt"


def kept() -> list[int]:
    """The seeds whose runs are written down."""
    return sorted(int(path.stem) for path in PLACE.glob("*.txt"))


def run(simulation: Simulation, seed: int, *, whole: bool = False) -> Iterator[str]:
    """The lines of a seed. Raises `AssertionError` where it breaks a law."""
    with _noted() as steps:
        told = simulation.run(seed)
    assert not told.broken, str(told)
    for event, effects in steps:
        said = in_words(effects)
        yield f"{type(event).__name__}: {said}" if whole else _short(event, effects, said)


def _short(event: Event, effects: list[Effect], said: str) -> str:
    hashed = hashlib.sha256(said.encode()).hexdigest()[:10]
    return f"{type(event).__name__}: {', '.join(map(_name, effects))} {hashed}"


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.recorded.runs", description="write down what is done now")
    parser.add_argument("--seed", type=int, help="print this one with all its words instead")
    parser.add_argument("--choose", action="store_true", help="look for the seeds that are worth keeping")
    given = parser.parse_args()
    os.environ["TZ"] = "UTC"  # some words tell a time of day
    time.tzset()
    logging.getLogger("perdure").addHandler(logging.NullHandler())
    simulation = Simulation()
    if given.seed is not None:
        sys.stdout.writelines(f"{line}\n" for line in run(simulation, given.seed, whole=True))
        return
    seeds = _telling(simulation) if given.choose else kept()
    for path in PLACE.glob("*.txt"):
        path.unlink()
    PLACE.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        path_of(seed).write_text("".join(f"{line}\n" for line in run(simulation, seed)))


def _telling(simulation: Simulation) -> list[int]:
    """The seeds that together go all ways, each the one that adds most."""
    ways = {}
    for seed in CANDIDATES:
        with path_taken(DECIDES) as path:
            told = simulation.run(seed)
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
    return sorted(chosen)


if __name__ == "__main__":
    main()
