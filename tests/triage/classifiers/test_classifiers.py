"""What holds for every classifier."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.errors import ConfigError, InputError
from perdure.triage.classifiers import descent
from perdure.triage.classifiers.model_file import pack
from perdure.triage.classifiers.protocol import Classifier, Example, Model, Reading
from perdure.triage.classifiers.registry import NAMES, classifier_named, load_model

WORDS = {
    True: ("connection to the peer was lost", "the node stopped answering", "reset by the other side"),
    False: ("wrong argument given to the call", "no module of that name", "shapes do not fit together"),
}
FEW_STEPS = 40  # enough for six sentences
UNTAUGHT = ("always", "never", "rules")
NEEDS = {"gru": "torch", "lstm": "torch"}  # to be taught; serving is tested in test_classifier_recurrent.py


def _examples(count: int = 36) -> list[Example]:
    return [
        Example(str(i), f"g{i % 9}", i % 2 == 0, Reading(f"step {i}\nError: {WORDS[i % 2 == 0][i % 3]} {i}"))
        for i in range(count)
    ]


READINGS = [example.reading for example in _examples(6)] + [Reading(""), Reading("\x00\ufffd" * 5000)]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def taught(name: str) -> Iterator[Classifier]:
    """The classifier, where what it needs to teach is installed; networks take fewer steps than in earnest."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(descent, "MIN_STEPS", FEW_STEPS)
        yield classifier_named(name)


@pytest.fixture(scope="module")
def model(taught: Classifier) -> Model:
    return taught.fit(_examples())


def test_log_odds_are_finite_for_any_reading(model: Model) -> None:
    assert all(math.isfinite(model.log_odds(reading)) for reading in READINGS)


def test_fitting_again_gives_the_same_bytes(taught: Classifier, model: Model) -> None:
    assert taught.fit(_examples()).save() == model.save()


def test_a_loaded_model_says_the_same(name: str, model: Model) -> None:
    data = model.save()
    for loaded in (classifier_named(name).load(data, "m"), load_model(data, "m")):
        assert [loaded.log_odds(r) for r in READINGS] == pytest.approx([model.log_odds(r) for r in READINGS], abs=1e-6)
        assert loaded.save() == data


def test_what_was_taught_was_learnt(name: str, model: Model) -> None:
    if name in UNTAUGHT:
        return
    right = [(model.log_odds(e.reading) > 0) == e.transient for e in _examples()]
    assert sum(right) >= 0.9 * len(right)


def test_an_update_learns_and_leaves_the_old_model_as_it_was(name: str, model: Model) -> None:
    before, surprise = model.save(), Reading("Error: the frobnicator has jammed")
    lessons = [Example(f"n{i}", "new", model.log_odds(surprise) < 0, surprise) for i in range(8)]
    updated = model.update(lessons)
    assert model.save() == before
    moved = updated.log_odds(surprise) - model.log_odds(surprise)
    assert moved == 0 if name in UNTAUGHT else moved * (1 if lessons[0].transient else -1) > 0


def test_an_update_with_nothing_changes_nothing(model: Model) -> None:
    assert model.update([]).save() == model.save()


def test_one_kind_alone_teaches_nothing(name: str) -> None:
    if name not in UNTAUGHT:
        with pytest.raises(InputError, match="one label"):
            classifier_named(name).fit([example for example in _examples() if example.transient])


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", pack("another", 1, {}), pack("linear", 0, {})])
def test_other_files_are_refused_in_one_line(name: str, data: bytes) -> None:
    with pytest.raises(InputError, match=r"^m\.npz: ") as caught:
        classifier_named(name).load(data, "m.npz")
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_refused(name: str, model: Model) -> None:
    data = model.save()
    for size in (len(data) // 3, len(data) - 5):
        with pytest.raises(InputError):
            classifier_named(name).load(data[:size], "m.npz")


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="linear"):
        classifier_named("oracle-of-delphi")
