"""Recurrent networks: what is served equals what PyTorch computes, with and without ONNX Runtime."""

import json
import re
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from perdure.errors import InputError, MissingExtra
from perdure.installation import to_install
from perdure.triage.classifiers.model_file import array_bytes, pack
from perdure.triage.classifiers.network import BUCKETS, MAX_WORDS, SHAPES, Network, score, word_numbers
from perdure.triage.classifiers.onnx import onnx_bytes, runtime_score
from perdure.triage.classifiers.protocol import Example, Reading
from perdure.triage.classifiers.recurrent import FORMAT, SCALARS, Recurrent
from perdure.triage.classifiers.registry import classifier_named, load_model
from tests.triage.classifiers.recurrent_scores import drawn_network, drawn_texts, torch_scores

RECORDED = json.loads(Path(__file__).with_name("recurrent_scores.json").read_text())
LOST = Reading("rank 3: Connection reset by peer\n" * 3)


@pytest.fixture(scope="module", params=sorted(SHAPES))
def cell(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def network(cell: Literal["gru", "lstm"]) -> Network:
    return drawn_network(cell)


def test_numpy_computes_what_pytorch_does(cell: Literal["gru", "lstm"], network: Network) -> None:
    assert [score(network, words) for words in drawn_texts()] == pytest.approx(RECORDED[cell], abs=2e-5)


def test_onnx_runtime_computes_what_pytorch_does(cell: Literal["gru", "lstm"], network: Network) -> None:
    pytest.importorskip("onnxruntime")
    served = runtime_score(network)
    assert [served(words) for words in drawn_texts()] == pytest.approx(RECORDED[cell], abs=2e-5)


def test_the_recorded_scores_are_of_pytorch(cell: Literal["gru", "lstm"], network: Network) -> None:
    pytest.importorskip("torch")
    assert torch_scores(network) == pytest.approx(RECORDED[cell], abs=2e-5)


def test_equal_networks_are_equal_onnx_models(cell: Literal["gru", "lstm"], network: Network) -> None:
    assert onnx_bytes(network) == onnx_bytes(drawn_network(cell))


def test_a_saved_model_says_the_same_without_onnx_runtime(
    cell: Literal["gru", "lstm"], network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=re.escape(to_install("rnn"))):
        runtime_score(network)
    data = Recurrent(network, 0.5, -0.25).save()
    loaded = load_model(data, "m")
    assert isinstance(loaded, Recurrent)
    expected = 0.5 * score(loaded.network, word_numbers(LOST)) - 0.25
    assert loaded.log_odds(LOST) == pytest.approx(expected, abs=1e-6)
    assert loaded.save() == data


def test_the_last_words_count_and_numbers_in_them_do_not() -> None:
    long = word_numbers(Reading("first " + "word " * MAX_WORDS))
    assert (long == word_numbers(Reading("word " * MAX_WORDS))).all()
    assert (word_numbers(Reading("step 7 lost")) == word_numbers(Reading("step 12345 lost"))).all()
    assert word_numbers(Reading("")).tolist() == [0]
    assert 0 < long.min() <= long.max() < BUCKETS


def test_arrays_of_other_shapes_are_refused(cell: Literal["gru", "lstm"]) -> None:
    parts = {f"{name}.npy": array_bytes(np.zeros(3, dtype=np.float16)) for name in SHAPES[cell]}
    data = pack(cell, FORMAT, {**parts, SCALARS: array_bytes(np.ones(2))})
    with pytest.raises(InputError, match="shapes"):
        classifier_named(cell).load(data, "m.npz")


def test_teaching_without_pytorch_names_what_to_install(
    cell: Literal["gru", "lstm"], network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    examples = [Example(str(i), f"g{i}", bool(i % 2), LOST) for i in range(4)]
    with pytest.raises(MissingExtra, match=re.escape(f"PyTorch is not installed. {to_install('rnn')}")):
        classifier_named(cell).fit(examples)
    with pytest.raises(MissingExtra, match="PyTorch"):
        Recurrent(network, 1.0, 0.0).update(examples)
