"""An update stands only where it is not worse, and what is unlearnt is gone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from perdure.triage.classifiers.linear import own_model
from perdure.triage.classifiers.protocol import Example, Reading
from perdure.triage.learning.examples import LabelSource
from perdure.triage.learning.update import evaluate, update_model
from tests.triage.learning.test_examples import lesson

# of the two groups the first is rehearsed, the second examines
KNOWN = [
    Example("a", "g1", True, Reading("ConnectionResetError: [Errno 104] Connection reset by peer")),
    Example("b", "g1", False, Reading("AttributeError: 'NoneType' object has no attribute 'shape'")),
]
FIXED = [Example(e.id, "g4", e.transient, e.reading) for e in KNOWN]


@dataclass(frozen=True)
class Fixed:
    """A model that says the same of everything."""

    z: float

    def log_odds(self, reading: Reading) -> float:
        return self.z

    def update(self, examples: Sequence[Example]) -> Fixed:
        return self

    def save(self) -> bytes:
        raise NotImplementedError


def test_marks_are_those_of_a_coin_for_a_model_that_leans_nowhere() -> None:
    found = evaluate(Fixed(0.0), KNOWN)
    assert found.balanced_accuracy == 0.5
    assert found.log_loss == pytest.approx(math.log(2), abs=1e-4)


def test_marks_weigh_both_kinds_alike() -> None:
    nine_to_one = [KNOWN[1]] * 9 + [KNOWN[0]]
    assert evaluate(Fixed(-3.0), nine_to_one).balanced_accuracy == 0.5


def test_good_lessons_are_learnt() -> None:
    base = own_model()
    lessons = [lesson(n, transient=True, user=f"u{n}", fingerprint=f"jam {n}") for n in range(12)]
    model, term = update_model(base, base, lessons, KNOWN + FIXED)
    assert term.adopted
    assert term.site_after.log_loss <= term.site_before.log_loss + 0.01
    assert np.mean([model.log_odds(one.reading) - base.log_odds(one.reading) for one in lessons]) > 0


def test_what_makes_it_worse_on_the_fixed_set_is_rolled_back() -> None:
    base = own_model()
    poison = [
        lesson(n, transient=not example.transient, fingerprint=f"{n}", source=LabelSource.PERSON)
        for n in range(12)
        for example in [KNOWN[n % 2]]
    ]
    poison = [
        type(one)(one.attempt, one.time_s, one.user, one.fingerprint, KNOWN[n % 2].reading, one.transient, one.source)
        for n, one in enumerate(poison)
    ]
    model, term = update_model(base, base, poison, FIXED)
    assert model is base
    assert not term.adopted
    assert "the fixed set" in term.reason


@dataclass(frozen=True)
class ByHeart:
    """Knows all; once it is taught it forgets what it was not taught, but for the fixed set."""

    kept: frozenset[str] | None = None

    def update(self, examples: Sequence[Example]) -> ByHeart:
        return ByHeart(frozenset(e.reading.excerpt for e in [*examples, *FIXED]))

    def log_odds(self, reading: Reading) -> float:
        right = 3.0 if reading.excerpt != KNOWN[1].reading.excerpt else -3.0
        return right if self.kept is None or reading.excerpt in self.kept else -right

    def save(self) -> bytes:
        raise NotImplementedError


def test_what_makes_it_worse_on_lessons_that_were_held_back_is_rolled_back() -> None:
    model, lessons = ByHeart(), [lesson(n, user=f"u{n}") for n in range(40)]
    after, term = update_model(model, model, lessons, KNOWN + FIXED)
    assert 0 < term.lessons < 40
    assert after is model
    assert not term.adopted
    assert "the site's own examples" in term.reason


def test_without_lessons_the_model_is_the_one_that_came() -> None:
    base = own_model()
    model, term = update_model(base, base, [], KNOWN + FIXED)
    assert model.save() == base.save()
    assert (term.lessons, term.adopted) == (0, True)


def test_every_fifth_round_each_part_is_held_out() -> None:
    model, lessons = ByHeart(), [lesson(n, user=f"u{n}", fingerprint=f"f{n}") for n in range(40)]
    trained = [update_model(model, model, lessons, KNOWN + FIXED, turn=turn)[1].lessons for turn in range(6)]
    assert sum(40 - count for count in trained[:5]) == 40
    assert trained[5] == trained[0]


def test_a_few_voices_block_no_round() -> None:
    base = own_model()
    honest = [lesson(n, transient=True, user=f"u{n}", fingerprint=f"jam {n}") for n in range(12)]
    hostile = [
        replace(lesson(n, not known.transient, f"eve{n % 2}", f"x{n}"), reading=known.reading)
        for n, known in enumerate([*KNOWN, *KNOWN] * 3, 100)
    ]
    _, alone = update_model(base, base, [*honest, *hostile], FIXED)
    assert alone.adopted
    assert alone.offered == 24
    assert alone.reason.endswith("without the examples of eve0 and eve1")
