"""A recurrent network as an ONNX model, and run by ONNX Runtime.

ONNX is a protocol buffer; the few messages that a network needs are written here, so that neither PyTorch nor a
package for ONNX is needed to make one. Field numbers: onnx.proto (https://github.com/onnx/onnx), IR version 8,
operator set 17.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from perdure.errors import MissingExtra
from perdure.installation import to_install
from perdure.triage.classifiers.network import UNITS, Array, Network

IR_VERSION, OPERATORS = 8, 17
FLOAT, INT64 = 1, 7  # TensorProto.DataType
INT, INTS = 2, 7  # AttributeProto.AttributeType
GATE_ORDER = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}
"""ONNX's gates (z, r, n; i, o, f, c) among PyTorch's (r, z, n; i, f, g, o)."""

Field = tuple[int, int | bytes]


def runtime_score(network: Network) -> Callable[[NDArray[np.int64]], float]:
    """What `network.score` computes, by ONNX Runtime. Raises `MissingExtra` where that is not installed."""
    try:
        import onnxruntime
    except ImportError as err:
        raise MissingExtra(network.cell, "ONNX Runtime is not installed", to_install("rnn")) from err
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # texts are short: threads would only wait
    session = onnxruntime.InferenceSession(onnx_bytes(network), options, providers=["CPUExecutionProvider"])
    return lambda words: float(session.run(["score"], {"words": words})[0])


def onnx_bytes(network: Network) -> bytes:
    """The network as an ONNX model: ``words``, int64 of shape (n,), to ``score``, a float32 scalar."""
    arrays, cell = network.arrays, network.cell
    initial = {
        "embedding": arrays["embedding"],
        "W": _reordered(arrays["input_weights"], cell)[None],
        "R": _reordered(arrays["hidden_weights"], cell)[None],
        "B": np.concatenate([_reordered(arrays[name], cell) for name in ("input_bias", "hidden_bias")])[None],
        "head": arrays["head"],
        "bias": arrays["bias"].reshape(()),
    }
    options = [_attribute("hidden_size", UNITS)]
    if cell == "gru":
        options.append(_attribute("linear_before_reset", 1))
    pooling = [_attribute("axes", (0, 1, 2)), _attribute("keepdims", 0)]
    nodes = (
        _node("Gather", ("embedding", "words"), "embedded"),
        _node("Unsqueeze", ("embedded", "one"), "sequence"),
        _node(cell.upper(), ("sequence", "W", "R", "B"), "outputs", options),
        _node("ReduceMax", ("outputs",), "largest", pooling),
        _node("ReduceMean", ("outputs",), "mean", pooling),
        _node("Concat", ("largest", "mean"), "pooled", [_attribute("axis", 0)]),
        _node("MatMul", ("pooled", "head"), "product"),
        _node("Add", ("product", "bias"), "score"),
    )
    tensors = [_tensor(name, array.astype(np.float32), FLOAT) for name, array in initial.items()]
    tensors.append(_tensor("one", np.array([1], dtype=np.int64), INT64))
    graph = _message(
        *((1, node) for node in nodes),
        (2, cell.encode()),
        *((5, tensor) for tensor in tensors),
        (11, _value("words", INT64, ("n",))),
        (12, _value("score", FLOAT, ())),
    )
    return _message((1, IR_VERSION), (2, b"perdure"), (7, graph), (8, _message((1, b""), (2, OPERATORS))))


def _reordered(array: Array, cell: str) -> Array:
    gates = np.split(array, len(GATE_ORDER[cell]))
    return np.concatenate([gates[i] for i in GATE_ORDER[cell]])


def _node(operator: str, inputs: Sequence[str], output: str, attributes: Sequence[bytes] = ()) -> bytes:
    names = ((1, name.encode()) for name in inputs)
    return _message(*names, (2, output.encode()), (4, operator.encode()), *((5, a) for a in attributes))


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _message((1, name.encode()), (3, value), (20, INT))
    return _message((1, name.encode()), *((8, each) for each in value), (20, INTS))


def _tensor(name: str, array: NDArray[np.float32] | NDArray[np.int64], kind: int) -> bytes:
    dims = ((1, size) for size in array.shape)
    return _message(*dims, (2, kind), (8, name.encode()), (9, array.astype(array.dtype.newbyteorder("<")).tobytes()))


def _value(name: str, kind: int, dims: Sequence[str]) -> bytes:
    shape = _message(*((1, _message((2, dim.encode()))) for dim in dims))
    return _message((1, name.encode()), (2, _message((1, _message((1, kind), (2, shape))))))


def _message(*fields: Field) -> bytes:
    """A protocol buffer of these fields: numbers as varints, bytes with their length."""
    return b"".join(_field(number, value) for number, value in fields)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
