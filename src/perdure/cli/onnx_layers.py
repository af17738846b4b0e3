"""Reads the layers of an ONNX file: run by ``perdure speed --model-file net.onnx`` in a process of its own, as

    python -P -m perdure.cli.onnx_layers FILE INPUT OUT

Nothing is run, and no other file is opened: weights kept outside the file are known by their shapes. OUT gets the same
JSON as of `model_layers`, for one example, and the batch that the file holds (0: it leaves it open), by which
numbers are divided.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto, inliner

from perdure.cli.onnx_graph import FLOATS, GraphError, Row, Table, layers_in_graph, nodes_inside
from perdure.cli.onnx_shapes import SMALL, infer

MOST_BYTES = 2 << 30  # of a protocol buffer
MOST_NODES = 1_000_000  # that functions may come to
MOST = 10**18  # parameters, operations or elements of a model
WORDS, PIXELS = 128, 224  # of an example, where INPUT is empty
_SPARE_BYTES = 4 << 30
_EXPORT_AGAIN = "Export it again"


def main(path: str, shape: str, out: str) -> None:
    """Write the layers, or why there are none."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = _SPARE_BYTES + 4 * min(os.stat(path).st_size, MOST_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if most < 0 else min(limit, most), most))
    try:
        rows, batch = read_layers(path, shape)
        found: dict[str, Any] = {"layers": rows, "batch": batch}
    except GraphError as err:
        found = {"error": _one_line(err).rstrip("."), "fix": err.fix}
    except MemoryError:
        found = {"error": "its shapes need more memory than a model of its size should", "fix": _EXPORT_AGAIN}
    except Exception as err:  # whatever the library raises of a file that somebody made up
        found = {"error": f"{type(err).__name__}: {_one_line(err).rstrip('.')}", "fix": "Check it with onnx.checker"}
    Path(out).write_text(json.dumps(found))


def _one_line(err: object) -> str:
    """Foreign names may hold anything."""
    return " ".join("".join(each if each.isprintable() else " " for each in str(err)).split())[:300]


def read_layers(path: str, shape: str) -> tuple[list[Row], int]:
    """A row for each layer of an ONNX file, by the example, and its batch; 0 where it leaves it open.

    Raises `GraphError`, or what the library raises of a made-up file.
    """
    size = os.stat(path).st_size
    if size > MOST_BYTES:
        what, fix = f"it has {size:,} bytes", "An ONNX file has 2 GiB at most: keep the weights in external data"
        raise GraphError(what, fix)
    model = _parsed(Path(path).read_bytes())
    tables = _tables_of(model)
    batch = _set_sizes(model, shape)
    model = _inlined(model)
    shapes = infer(model, {name: table for name, table, _ in _tables(model)})
    rows = layers_in_graph(model.graph.node, shapes, tables, _inputs_of(model))
    if any(sum(column) > MOST for column in zip(*rows, strict=True)):
        raise GraphError(f"it comes to more than {MOST:.0e} numbers", "Check the shapes of its weights and inputs")
    each = batch or 1
    return [(parameters, flops / each, written / each) for parameters, flops, written in rows], batch


def _parsed(data: bytes) -> ModelProto:
    try:
        model = ModelProto.FromString(data)
    except DecodeError as err:
        raise GraphError("it is no ONNX file, or a part of one", _EXPORT_AGAIN) from err
    if not model.graph.node:
        raise GraphError("it has no nodes, so that it is no ONNX file or an empty one", _EXPORT_AGAIN)
    if model.graph.sparse_initializer:
        raise GraphError("it has sparse weights", "Export it with dense weights")
    return model


def _tables_of(model: ModelProto) -> dict[str, Table]:
    """Each table of the file. Data that no shape can depend on are dropped.

    Large ones that hold the same numbers, as they are or transposed, are one: an exporter writes weights that two
    layers share twice where one of them uses them transposed.
    """
    found, same = dict[str, Table](), dict[tuple[int, ...], int]()
    for name, table, made in _tables(model):
        dims = list(table.dims)
        if name in found or any(each < 0 for each in dims):
            raise GraphError(f"the weights {name[:60]!r} are there twice or have a negative size", _EXPORT_AGAIN)
        elements = prod(dims)
        _check_data(name, table, elements)
        identity = len(found)
        if (key := _fingerprint(table, elements)) is not None:
            identity = same.setdefault(key, identity)
        found[name] = Table(identity, elements, len(dims), made)
        if elements > SMALL:
            for each in ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data"):
                table.ClearField(each)
    return found


def _tables(model: ModelProto) -> Iterator[tuple[str, TensorProto, bool]]:
    yield from ((table.name, table, False) for table in model.graph.initializer)
    for node in model.graph.node:
        if node.op_type == "Constant" and len(node.output) == 1:
            yield from ((node.output[0], each.t, True) for each in node.attribute if each.name == "value")


def _check_data(name: str, table: TensorProto, elements: int) -> None:
    held = len(table.raw_data)
    bits = _BITS.get(table.data_type)
    if held and bits and held != ceil(elements * bits / 8):
        what = f"the weights {name[:60]!r} hold {held:,} bytes, and {elements:,} numbers by their shape"
        raise GraphError(what, _EXPORT_AGAIN)


_BITS = {
    value: 8 * np.dtype(kind).itemsize
    for value, kind in (
        (TensorProto.FLOAT, "f4"), (TensorProto.DOUBLE, "f8"), (TensorProto.FLOAT16, "f2"),
        (TensorProto.BFLOAT16, "u2"),
        (TensorProto.INT8, "i1"), (TensorProto.UINT8, "u1"), (TensorProto.INT16, "i2"), (TensorProto.UINT16, "u2"),
        (TensorProto.INT32, "i4"), (TensorProto.INT64, "i8"), (TensorProto.BOOL, "u1"),
    )
} | {TensorProto.INT4: 4, TensorProto.UINT4: 4}  # fmt: skip


def _fingerprint(table: TensorProto, elements: int) -> tuple[int, ...] | None:
    """What a large matrix of floats has in common with its transpose; None of others, and where all numbers are one."""
    if len(table.dims) != 2 or elements <= SMALL or table.data_type not in FLOATS or not table.raw_data:
        return None
    if (bits := _BITS.get(table.data_type)) is None:
        return None
    words = np.frombuffer(table.raw_data, f"<u{bits // 8}")
    if words.min() == words.max():
        return None
    wide = words.astype(np.uint64)
    return *sorted(table.dims), int(wide.sum()), int((wide * wide).sum()), int(np.bitwise_xor.reduce(words))


def _inlined(model: ModelProto) -> ModelProto:
    """The model without functions of its own."""
    if not model.functions:
        return model
    by_name = {(each.domain, each.name): each for each in model.functions}
    sizes = dict[tuple[str, str], int]()
    _sizes_of(model.graph.node, by_name, sizes, ())
    return inliner.inline_local_functions(model)


def _sizes_of(
    nodes: Iterable[NodeProto], functions: Mapping[tuple[str, str], FunctionProto], sizes: dict[tuple[str, str], int],
    within: tuple[tuple[str, str], ...],
) -> int:  # fmt: skip
    """Nodes that these come to with their functions written out: a few may come to any number."""
    total = 0
    for node in (each for outer in nodes for each in (outer, *nodes_inside(outer))):
        name = node.domain, node.op_type
        if name in within:
            raise GraphError(f"its function {name[1][:60]!r} calls itself", _EXPORT_AGAIN)
        if (body := functions.get(name)) is not None and name not in sizes:
            sizes[name] = _sizes_of(body.node, functions, sizes, (*within, name))
        total += 1 + (sizes[name] if body is not None else 0)  # a call is one too: functions may be empty
        if total > MOST_NODES:
            raise GraphError(f"its functions come to more than {MOST_NODES:,} nodes", _EXPORT_AGAIN)
    return total


def _inputs_of(model: ModelProto) -> list[str]:
    own = {table.name for table in model.graph.initializer}
    return [each.name for each in model.graph.input if each.name not in own]


def _set_sizes(model: ModelProto, shape: str) -> int:
    """Give every input's sizes a number, and return the batch that they hold: 0 where the file leaves it open."""
    sizes = [int(each) for each in shape.removeprefix("int:").split(",")] if shape else []
    names = set(_inputs_of(model))
    inputs = [each for each in model.graph.input if each.name in names]
    if not inputs:
        raise GraphError("it has no input", _EXPORT_AGAIN)
    told, batches = dict[str, int](), list[int]()  # the batch is the first size of what has any
    for each in inputs:
        tensor = each.type.tensor_type
        if not each.type.HasField("tensor_type") or not tensor.HasField("shape"):
            raise GraphError(f"its input {each.name[:60]!r} has no shape", "Export it with one example's shape")
        batch = _set_input(each.name, tensor, sizes if each is inputs[0] else [], told)
        if tensor.shape.dim:
            batches.append(batch)
    return batches[0] if batches else 0


def _set_input(name: str, tensor: TypeProto.Tensor, sizes: list[int], told: dict[str, int]) -> int:
    """The batch of this input, 0 where it is open; `told` remembers sizes that inputs share, by their names."""
    dims = list(tensor.shape.dim)
    batch_at = next((at for at, dim in enumerate(dims) if "batch" in dim.dim_param.lower()), 0)
    rest = [dim for at, dim in enumerate(dims) if at != batch_at]
    held = dims[batch_at].dim_value if dims and dims[batch_at].dim_value > 0 else 0
    if dims and not held:
        named = dims[batch_at].dim_param  # an older exporter writes -1 or 0 where it is open
        dims[batch_at].dim_value = told.setdefault(named, 1) if named else 1
    if sizes and len(sizes) != len(rest):
        what = f"its input {name[:60]!r} has {len(rest)} sizes beside the batch"
        raise GraphError(what, "Give as many with --input")
    for place, dim in enumerate(rest):
        if sizes and dim.HasField("dim_value") and dim.dim_value != sizes[place]:
            what = f"size {place + 1} of its input {name[:60]!r} is {dim.dim_value}, not {sizes[place]}"
            raise GraphError(what, "Leave --input out, or export it with this size left open")
        if not dim.HasField("dim_value"):
            named = dim.dim_param
            known = sizes[place] if sizes else told.get(named) or _usual(tensor, len(dims), place)
            if known is None:
                what = f"its input {name[:60]!r} leaves the size {named[:60]!r} open"
                fix = "Say what an example of the first input is with --input, or export it with this size fixed"
                raise GraphError(what, fix)
            dim.dim_value = known
            if named:
                told[named] = known
        if dim.dim_value < 1:
            raise GraphError(f"its input {name[:60]!r} has a size of {dim.dim_value}", _EXPORT_AGAIN)
    return held


def _usual(tensor: TypeProto.Tensor, rank: int, place: int) -> int | None:
    """Words of a text, pixels of a picture; None where nothing is usual."""
    if tensor.elem_type not in FLOATS and rank == 2:
        return WORDS
    return PIXELS if tensor.elem_type in FLOATS and rank == 4 and place > 0 else None


if __name__ == "__main__":
    main(*sys.argv[1:])
