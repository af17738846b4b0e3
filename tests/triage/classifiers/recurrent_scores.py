"""What PyTorch says of drawn texts by drawn networks: python -m tests.triage.classifiers.recurrent_scores > FILE

Made `recurrent_scores.json` with PyTorch 2.13.0; those who have no PyTorch compare with it.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from perdure.triage.classifiers.network import BUCKETS, SHAPES, UNITS, Cell, Network


def drawn_network(cell: Cell) -> Network:
    rng = np.random.default_rng(4)
    return Network(
        cell, {name: (0.3 * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES[cell].items()}
    )


def drawn_texts() -> list[NDArray[np.int64]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, BUCKETS, size) for size in (1, 2, 17, 300)]


def torch_scores(network: Network) -> list[float]:
    """The scores by PyTorch's own layers, in float32."""
    import torch

    arrays = {name: torch.from_numpy(array) for name, array in network.arrays.items()}
    layer = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[network.cell](UNITS, UNITS)
    names = {"weight_ih_l0": "input_weights", "weight_hh_l0": "hidden_weights"}
    names |= {"bias_ih_l0": "input_bias", "bias_hh_l0": "hidden_bias"}
    layer.load_state_dict({place: arrays[name] for place, name in names.items()})
    found = []
    with torch.no_grad():
        for words in drawn_texts():
            outputs = layer(arrays["embedding"][words])[0]
            pooled = torch.cat([outputs.max(dim=0).values, outputs.mean(dim=0)])
            found.append(float(pooled @ arrays["head"] + arrays["bias"][0]))
    return found


if __name__ == "__main__":
    print(json.dumps({cell: torch_scores(drawn_network(cell)) for cell in SHAPES}, indent=2))  # noqa: T201
