"""Fitting recurrent networks with PyTorch: class-balanced log-loss, calibrated on groups that were held out.

The same for the same examples and seed on one machine: one thread, a generator of its own. Not from one machine to
another: the sums of floating-point numbers are in another order there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import MissingExtra
from perdure.installation import to_install
from perdure.triage.classifiers.network import BUCKETS, UNITS, Cell, Network, score, word_numbers
from perdure.triage.classifiers.protocol import Example
from perdure.triage.classifiers.regression import balanced, both_kinds, calibrate, group_folds

EPOCHS, BATCH, RATE, MIN_STEPS = 12, 16, 3e-3, 150
UPDATE_EPOCHS, UPDATE_RATE = 3, 3e-4
"""Low: what an update does not replay is forgotten the faster the larger its steps are."""
DROPOUT, WORD_DROPOUT = 0.3, 0.1
CALIBRATION_FOLDS = 2  # each costs a training
Words = NDArray[np.int64]


def fit(cell: Cell, examples: Sequence[Example], seed: int) -> tuple[Network, float, float]:
    """A network fitted to all examples; slope and offset of the calibration, from groups that were held out."""
    transient = both_kinds(examples)
    texts = [word_numbers(example.reading) for example in examples]
    held_out = np.zeros(len(examples))
    for test in group_folds([example.group for example in examples], CALIBRATION_FOLDS):
        train = ~test
        if transient[train].any() and not transient[train].all():
            network = _trained(cell, [texts[i] for i in np.flatnonzero(train)], transient[train], seed)
            held_out[test] = [score(network, texts[i]) for i in np.flatnonzero(test)]
    return _trained(cell, texts, transient, seed), *calibrate(held_out, transient)


def update(network: Network, examples: Sequence[Example], slope: float, offset: float) -> Network:
    """The network after a few epochs with small steps over the new examples; the calibration stays."""
    texts = [word_numbers(example.reading) for example in examples]
    transient = np.array([example.transient for example in examples])
    with _seeded(0) as torch:
        module = _module(torch, network.cell)
        module.load_state_dict(_state(torch, network))
        _descend(torch, module, texts, transient, UPDATE_EPOCHS, UPDATE_RATE, (slope, offset))
        return _network(network.cell, module)


def _trained(cell: Cell, texts: Sequence[Words], transient: NDArray[np.bool_], seed: int) -> Network:
    epochs = max(EPOCHS, -(-MIN_STEPS * BATCH // len(texts)))
    with _seeded(seed) as torch:
        module = _module(torch, cell)
        module.train()
        _descend(torch, module, texts, transient, epochs, RATE, (1.0, 0.0))
        return _network(cell, module)


def _descend(
    torch: Any,
    module: Any,
    texts: Sequence[Words],
    transient: NDArray[np.bool_],
    epochs: int,
    rate: float,
    calibration: tuple[float, float],
) -> None:
    """Adam over batches of texts of like length, in an order redrawn for each epoch."""
    slope, offset = calibration
    weights = torch.from_numpy((balanced(transient) * len(texts)).astype(np.float32))
    truth = torch.from_numpy(transient.astype(np.float32))
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    by_length = np.argsort([len(text) for text in texts], kind="stable")
    cuts = [*range(0, len(texts), BATCH), len(texts)]
    batches = [by_length[start:end] for start, end in pairwise(cuts)]
    for _ in range(epochs):
        for number in torch.randperm(len(batches)).tolist():
            rows = batches[number]
            words, lengths = _padded(torch, [texts[i] for i in rows])
            said = slope * _forward(torch, module, words, lengths) + offset
            loss = torch.nn.functional.binary_cross_entropy_with_logits(said, truth[rows], weight=weights[rows])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()


def _forward(torch: Any, module: Any, words: Any, lengths: Any) -> Any:
    """What `network.score` computes, of several texts at once; in training some words and outputs are dropped."""
    if module.training:
        words = words.masked_fill(torch.rand(words.shape) < WORD_DROPOUT, 0)
    outputs, _ = module["cell"](module["embedding"](words))
    inside = (torch.arange(words.shape[1]) < lengths[:, None])[:, :, None]
    largest = outputs.masked_fill(~inside, -2.0).amax(dim=1)  # an output is above -1
    mean = (outputs * inside).sum(dim=1) / lengths[:, None]
    pooled = torch.nn.functional.dropout(torch.cat([largest, mean], dim=1), DROPOUT, module.training)
    return module["head"](pooled)[:, 0]


def _padded(torch: Any, texts: Sequence[Words]) -> tuple[Any, Any]:
    words = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
    for row, text in zip(words, texts, strict=True):
        row[: len(text)] = text
    return torch.from_numpy(words), torch.tensor([len(text) for text in texts])


def _module(torch: Any, cell: Cell) -> Any:
    """The layers, for an update: nothing is dropped."""
    nn = torch.nn
    layers = {
        "embedding": nn.Embedding(BUCKETS, UNITS),
        "cell": (nn.GRU if cell == "gru" else nn.LSTM)(UNITS, UNITS, batch_first=True),
        "head": nn.Linear(2 * UNITS, 1),
    }
    module = nn.ModuleDict(layers)
    nn.init.normal_(module["embedding"].weight, std=0.1)  # a word that no example has says little
    return module.eval()


_PLACES = {
    "embedding": "embedding.weight",
    "input_weights": "cell.weight_ih_l0",
    "hidden_weights": "cell.weight_hh_l0",
    "input_bias": "cell.bias_ih_l0",
    "hidden_bias": "cell.bias_hh_l0",
    "head": "head.weight",
    "bias": "head.bias",
}


def _network(cell: Cell, module: Any) -> Network:
    """The arrays of the layers, rounded to what a model's file keeps."""
    state = {name: module.state_dict()[place].numpy() for name, place in _PLACES.items()}
    state["head"] = state["head"].reshape(-1)
    return Network(cell, {name: array.astype(np.float16).astype(np.float32) for name, array in state.items()})


def _state(torch: Any, network: Network) -> dict[str, Any]:
    arrays = {**network.arrays, "head": network.arrays["head"][None]}
    return {place: torch.from_numpy(arrays[name].copy()) for name, place in _PLACES.items()}


@contextmanager
def _seeded(seed: int) -> Iterator[Any]:
    """PyTorch with its generator at `seed`, on one thread; afterwards as it was. Raises `MissingExtra` without it."""
    try:
        import torch
    except ImportError as err:
        raise MissingExtra("training", "PyTorch is not installed", to_install("rnn")) from err
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield torch
        finally:
            torch.set_num_threads(threads)
