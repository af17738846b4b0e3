"""Whom each solver blames on small windows with known culprits, and whom attempts of jobs lead to, window by window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from perdure.blame.accuse import accused_by
from perdure.blame.builders.attempts import AttemptRow
from perdure.blame.builders.probes import ProbeRow, probe_window
from perdure.blame.deepview import Deepview
from perdure.blame.flock import Flock
from perdure.blame.greedy import Greedy
from perdure.blame.grid import grid
from perdure.blame.netbouncer import NetBouncer
from perdure.blame.protocol import Solver
from perdure.blame.registry import SOLVERS
from perdure.blame.score import Score
from perdure.blame.sliding import Sliding
from perdure.blame.standing import Standing, SuspectPatience, follow
from perdure.blame.votes import Votes
from perdure.blame.window import Window
from perdure.studies.blame_windows import SCENARIOS, draw
from tests.recorded.drawn import in_words
from tests.recorded.whole_runs import Case, rounded

OTHERS: tuple[Solver, ...] = (
    Greedy(surcharge=8.0), Deepview(folds=3, penalties=9, level=0.2, weighted=True), Votes(0.2),
    NetBouncer(weight=1.0, threshold=0.1, sweeps=3), Flock(1e-3, 0.2, 5.0), Score(0.2, 0.6),
)  # fmt: skip
SIZES = ((3, 4), (4, 8))  # clusters and their ToRs
TIERS = ("tor", "agg", "spine", "storage", "leaf", "core", "node")


def cases() -> Iterator[Case]:
    for scenario in SCENARIOS:
        for seed, (clusters, tors) in enumerate(SIZES):
            found = draw(scenario, np.random.default_rng([seed, 3]), clusters=clusters, tors=tors)
            yield f"{scenario} {seed}", partial(replace, found)
            yield f"grid {scenario} {seed}", partial(_grids, found.window)
            for number, solver in enumerate((*SOLVERS.values(), *OTHERS)):
                yield f"{scenario} {seed} {solver.name} {number}", partial(_named, solver, found.window)
    for seed in range(9):
        yield f"attempts {seed}", partial(_followed, seed)
    for seed in range(6):
        yield f"probes {seed}", partial(_probed, seed)


def _named(solver: Solver, window: Window) -> str:
    """To four digits: steps of searches may end a little sooner on another processor."""
    return rounded(in_words(solver.solve(window)), 4) or "nobody"


def _grids(window: Window) -> object:
    tiers = [tier for tier in TIERS if tier in window.tiers]
    pairs = [(one, other) for one in (None, *tiers[:2]) for other in (None, *tiers[-2:]) if one != other or one is None]
    return [grid(window, (0, 5), one, other, most) for one, other in pairs for most in ((300, 120), (4, 2))]


def _followed(seed: int) -> object:
    """What ten windows in a row change: of jobs on eight nodes, one or two of which begin to fail jobs, and end it."""
    rng = np.random.default_rng([seed, 4])
    bad, begins, ends = f"n{rng.integers(1, 9)}", int(rng.integers(200, 500)), int(rng.integers(600, 1000))
    sliding, standing, told = Sliding(300.0, most=150), list[Standing](), list[object]()
    patience = SuspectPatience(int(rng.integers(1, 4)), int(rng.integers(1, 4)), float(rng.choice([10.0, 40.0])))
    rows = [(str(key), _attempt(key, bad, begins, ends, rng)) for key in range(400)]
    for turn in range(1, 11):
        now = 120.0 * turn
        new = [(key, row) for key, row in rows if now - 150.0 < row.end_s <= now]
        seen = sliding.slide(new, now)
        change = follow(standing, accused_by(now, 300.0, seen), now, patience)
        standing = list(change.standing)
        told.append((len(seen), change))
    return told


def _attempt(key: int, bad: str, begins: int, ends: int, rng: np.random.Generator) -> AttemptRow:
    nodes = tuple(f"n{node}" for node in sorted(rng.choice(np.arange(1, 9), rng.integers(1, 4), replace=False)))
    end_s = float(3 * key + rng.integers(0, 3))
    hit = bad in nodes and begins < end_s < ends and rng.random() < 0.9
    failed = hit or rng.random() < 0.08
    row = AttemptRow(end_s, f"user{rng.integers(4)}", f"job{rng.integers(3)}", nodes, failed)
    return replace(
        row,
        deterministic=bool(failed and rng.random() < 0.2),
        lacked=bool(failed and rng.random() < 0.3),
        down=(bad,) if hit and rng.random() < 0.1 else (),
        gpus=tuple(f"{node}:{rng.integers(4)}" for node in nodes),
        switches=tuple({("leaf", f"l{int(node[1:]) % 2}") for node in nodes[:1]}),
        storage=("scratch",) if rng.random() < 0.5 else (),
        image=str(rng.choice(["", "torch"])),
    )


def _probed(seed: int) -> object:
    rng = np.random.default_rng([seed, 5])
    rows = [
        ProbeRow((f"leaf{a}", f"core{rng.integers(2)}", f"leaf{b}"), int(rng.integers(50, 60)), int(rng.integers(0, 4)))
        for a in range(4)
        for b in range(4)
        if a != b
    ]
    return probe_window(rows)
