"""Each solver names whom it named before, on random windows: ``python -m tests.blame.test_recorded_suspects``.

That command writes down whom they name now. Nobody has judged these answers: they show a change that nobody meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from perdure.blame.registry import SOLVERS, localise
from perdure.blame.window import Window
from tests.blame.test_edges import window

RECORDED = Path(__file__).with_name("recorded_suspects.txt")
WINDOWS = 25


def drawn(seed: int) -> Window:
    """A few components, of which up to two are bad on some or all of their paths."""
    rng = np.random.default_rng(seed)
    many = int(rng.integers(3, 9))
    bad = rng.choice(many, size=int(rng.integers(0, 3)), replace=False)
    paths = []
    for _ in range(int(rng.integers(4, 25))):
        crossed = np.sort(rng.choice(many, size=int(rng.integers(1, 4)), replace=False))
        units = int(rng.integers(1, 60))
        rate = 0.5 if np.isin(crossed, bad).any() and rng.random() < 0.8 else 0.02
        paths.append((crossed, units, int(rng.binomial(units, rate))))
    return window(paths, ["node"] * many)


def answers(solver: str) -> Iterator[str]:
    for seed in range(WINDOWS):
        suspects = localise(drawn(seed), solver)
        named = [f"{each.component} {each.kind} {each.rate:.4f} {each.strength:.2f}" for each in suspects]
        yield f"{solver} {seed}: {', '.join(named) or 'nobody'}"


@pytest.mark.parametrize("solver", SOLVERS)
def test_whom_it_names_is_whom_it_named(solver: str) -> None:
    before = [line for line in RECORDED.read_text().splitlines() if line.split()[0] == solver]
    assert list(answers(solver)) == before


if __name__ == "__main__":
    RECORDED.write_text("".join(f"{line}\n" for solver in SOLVERS for line in answers(solver)))
