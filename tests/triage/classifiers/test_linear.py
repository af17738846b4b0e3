"""The linear model: the same everywhere, calibrated in its sign, and refused when it is not what was saved."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.triage.classifiers.features import BUCKETS, features
from perdure.triage.classifiers.linear import LINEAR, own_model, read_model
from perdure.triage.classifiers.protocol import Example, Reading
from perdure.triage.evidence.rules import own_rules

SHIPPED = own_model().save()


def test_features_are_three_blocks_of_unit_length_that_differ() -> None:
    causes = [rule.cause for rule in own_rules().rules[:2]]
    vector = features(Reading("TypeError: x\nconnection refused", tuple(causes)))
    assert np.isclose((vector.values**2).sum(), 3.0)
    assert len(set(vector.columns)) == len(vector.columns)
    assert vector.columns.max() < BUCKETS


@given(st.text(max_size=300))
def test_any_text_has_features(text: str) -> None:
    vector = features(Reading(text))
    assert np.isfinite(vector.values).all()
    assert len(vector.columns) == len(vector.values)


def test_numbers_and_paths_do_not_count() -> None:
    first, second = (
        features(Reading(text)) for text in ("step 3 of /a/b/c at 10:00:00", "step 47 of /d/e/f at 11:22:33")
    )
    assert (first.columns == second.columns).all()


def test_save_and_load_give_the_same_model_and_the_same_bytes() -> None:
    model = LINEAR.load(SHIPPED, "x")
    assert model.save() == SHIPPED
    text = "ConnectionResetError: [Errno 104] Connection reset by peer"
    assert model.log_odds(Reading(text)) == own_model().log_odds(Reading(text))


def test_an_update_weighs_both_kinds_alike_however_few_there_are_of_one() -> None:
    lost, wrong = (
        Example(text, text, transient, Reading(text))
        for text, transient in (("the frobnicator has jammed", True), ("no such gizmo is known", False))
    )
    lopsided, even = (own_model().update([lost] * n + [wrong] * (10 - n)) for n in (1, 5))
    assert np.abs(even.weights - own_model().weights).max() > 0.01
    assert np.allclose(lopsided.weights, even.weights, atol=2e-3)


def test_the_shipped_model_is_small_and_leans_the_right_way() -> None:
    assert len(SHIPPED) < 2_000_000
    assert own_model().log_odds(Reading("ConnectionResetError: [Errno 104] Connection reset by peer")) > 0
    assert own_model().log_odds(Reading("AttributeError: 'NoneType' object has no attribute 'shape'")) < 0


@given(st.integers(0, len(SHIPPED) - 1), st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_a_mutated_file_is_refused_or_harmless(at: int, change: int) -> None:
    damaged = bytearray(SHIPPED)
    damaged[at] ^= change
    told = ""
    try:
        model = LINEAR.load(bytes(damaged), "model.npz")
    except InputError as err:
        told = str(err)
    if told:
        assert told.startswith("model.npz: ")
        assert "\n" not in told
    else:  # a byte that carries nothing, such as a time in the archive
        assert model.save() == SHIPPED


@pytest.mark.parametrize("size", [0, 1, 10, 100, len(SHIPPED) // 2, len(SHIPPED) - 1])
def test_a_truncated_file_is_refused(size: int) -> None:
    with pytest.raises(InputError, match="model file"):
        LINEAR.load(SHIPPED[:size], "model.npz")


def _archive(header: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("header.json", header)
        archive.writestr("weights.npy", pickle.dumps([1]))
        archive.writestr("scalars.npy", b"")
    return out.getvalue()


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b'{"kind": "linear", "format": 2, "sha256": "0"}', "its digest differs"),
        (b'{"kind": "linear", "format": 99, "sha256": ""}', "linear of format 99, not linear of format 2"),
        (b'{"format": 1}', "None of format 1"),
        (b"[]", "not a model file"),
        (b"{", "not a model file"),
    ],
)
def test_what_save_did_not_write_is_refused_unparsed(header: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        LINEAR.load(_archive(header), "model.npz")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_model(tmp_path / "none.npz")
