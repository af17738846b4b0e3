"""Sibylla's protocol: who labels how much, and that true labels teach."""

from typing import Any

import numpy as np
import pytest

from benchmarks.sibylla_rounds import MODES, rounds
from perdure.triage.classifiers.linear import LINEAR
from perdure.triage.classifiers.protocol import Example, Reading
from perdure.triage.classifiers.registry import classifier_named

KINDS = {
    True: ("connection to the peer was lost", "the node stopped answering", "reset by the other side", "link is down"),
    False: ("wrong argument given", "no module of that name", "shapes do not fit together", "index out of range"),
}


def _stream(count: int, start: int = 0) -> list[Example]:
    """Four messages a kind, of which the first fifth of the stream shows the first two only."""
    found = []
    for i in range(start, start + count):
        transient, which = i % 2 == 0, (i // 2) % (2 if i < start + count // 5 else 4)
        text = f"Error: {KINDS[transient][which]}"
        found.append(Example(str(i), f"g{i}", transient, Reading(text)))
    return found


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    stream, aside = _stream(100), _stream(40, 1000)
    return {mode: rounds(stream, aside, [LINEAR] * 3, mode, np.random.default_rng(1)) for mode in MODES}


@pytest.mark.parametrize("mode", MODES)
def test_a_first_training_and_eight_rounds_of_a_tenth(told: dict[str, Any], mode: str) -> None:
    assert [r.number for r in told[mode]] == list(range(9))
    assert told[mode][0].labelled == 20
    assert all(r.labelled <= 10 for r in told[mode][1:])


def test_true_labels_are_all_and_right_and_teach(told: dict[str, Any]) -> None:
    assert [(r.labelled, r.wrong) for r in told["truth"][1:]] == [(10, 0)] * 8
    assert told["truth"][-1].metrics.balanced_accuracy > told["truth"][0].metrics.balanced_accuracy


def test_majority_labels_everything(told: dict[str, Any]) -> None:
    assert all(r.labelled == 10 for r in told["majority"][1:])


def test_what_outcomes_prove_is_little_and_right(told: dict[str, Any]) -> None:
    counts = [(r.labelled, r.wrong) for r in told["outcome"][1:]]
    assert 0 < sum(n for n, _ in counts) < 80
    assert sum(wrong for _, wrong in counts) == 0
    assert told["outcome"][-1].metrics.balanced_accuracy >= told["outcome"][0].metrics.balanced_accuracy


def test_an_ensemble_that_disagrees_labels_nothing_unanimously() -> None:
    pair = [classifier_named("always"), classifier_named("never")]
    told = rounds(_stream(50), _stream(10, 500), pair, "unanimous", np.random.default_rng(1))
    assert [r.labelled for r in told[1:]] == [0] * 8
