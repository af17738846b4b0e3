"""The layers of an ONNX graph whose shapes are known: parameters, operations and elements written of each.

A layer begins at each convolution, product, recurrent layer or embedding that has weights; what follows it until the
next one (bias, normalisation, activation, attention between projections) counts to it, as in `throughput/layers`. A
weight that several nodes use counts once.

A weight is a table of floats that comes with the file and meets what comes from an input; what only turns, casts or
dequantises it passes it on. Scales, zero points, running means, states to begin with and single numbers are none, and
what a node of its own makes (`Constant`) is one only where work is done with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from onnx import NodeProto, TensorProto, defs, helper

from perdure.cli.onnx_shapes import InferredShapes
from perdure.cli.onnx_work import WORK, Shape

Row = tuple[int, float, float]

FLOATS = frozenset(
    value for name, value in TensorProto.DataType.items() if name.startswith(("FLOAT", "DOUBLE", "BFLOAT"))
)
_NOT_TRAINED: Mapping[str, Iterable[int]] = {  # inputs that are settings or statistics
    "BatchNormalization": (3, 4), "DequantizeLinear": (1, 2), "QuantizeLinear": (1, 2), "Resize": (1, 2), "Pad": (2,),
    "Upsample": (1,), "MatMulInteger": (2, 3), "ConvInteger": (2, 3), "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7), "LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5),
    "Clip": (1, 2), "Range": (0, 1, 2), "OneHot": (2,), "Dropout": (1,),
}  # fmt: skip
_QUANTISED: Mapping[str, Iterable[int]] = {  # inputs that hold weights as integers
    "ConvInteger": (1,), "DequantizeLinear": (0,), "MatMulInteger": (0, 1), "QLinearConv": (3, 8),
    "QLinearMatMul": (0, 3),
}  # fmt: skip
_FOLLOWED_FROM = 7  # opsets before it give some operators no shapes
_BEGINS = {*WORK, "Gather"}
_OF_ANY_SIZE = {
    *_BEGINS, "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "PRelu",
    "RMSNormalization",
}  # fmt: skip
_NOTHING_WRITTEN = {
    "Constant", "ConstantOfShape", "Dropout", "Flatten", "Identity", "Reshape", "Shape", "Size", "Slice", "Split",
    "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip


class GraphError(ValueError):
    """A graph whose layers cannot be told: what is wrong, and how to fix it."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers that come with the file; two of one `identity` are the same weights."""

    identity: int
    elements: int
    dimensions: int
    made: bool  # by a node


@dataclass(slots=True)
class _Layers:
    shapes: InferredShapes
    tables: Mapping[str, Table]
    constants: dict[str, frozenset[int]]  # what stands for a weight or is made of some alone: their identities
    sizes: dict[int, int]
    made: frozenset[int]  # by nodes
    known: set[str]  # that are written so far
    counted: set[int] = field(default_factory=set)
    rows: list[list[float]] = field(default_factory=list)

    def add(self, node: NodeProto) -> None:
        """Count a node that meets inputs of the model; remember what another makes of weights alone."""
        within = [node, *nodes_inside(node)]  # which may read what is written outside
        used = [name for each in within for name in each.input if name and name in self.known]
        constant = node.op_type == "Constant" or (bool(used) and all(name in self.constants for name in used))
        weights = frozenset[int]().union(*(found for each in within for found in self._weights_of(each, constant)))
        if constant:
            for name in node.output:  # what is no float any more is a comparison or a size
                kept = self.shapes.kind(name) in FLOATS or node.op_type == "QuantizeLinear"
                self.constants[name] = weights if kept else frozenset()
            return
        flops = self._work(node) if node.op_type in WORK else 0
        if not self.rows or (weights and node.op_type in _BEGINS):
            self.rows.append([0, 0.0, 0.0])
        row = self.rows[-1]
        row[0] += sum(self.sizes[each] for each in weights - self.counted)
        row[1] += flops
        row[2] += self._written(node)
        self.counted |= weights

    def _weights_of(self, node: NodeProto, constant: bool) -> Iterator[frozenset[int]]:
        """What each input brings; a `constant` node only passes it on."""
        kind = node.op_type
        for place, name in enumerate(node.input):
            if name not in self.constants or place in _NOT_TRAINED.get(kind, ()):
                continue
            if (table := self.tables.get(name)) is None:
                found = self.constants[name]
            elif place in _QUANTISED.get(kind, ()) or (
                self.shapes.kind(name) in FLOATS
                and (
                    table.elements > 1
                    or (constant and not table.made)
                    or kind in _OF_ANY_SIZE
                    or (kind == "Add" and table.dimensions > 0)
                )
            ):
                found = frozenset((table.identity,))
            else:
                continue
            yield found if constant or kind in _BEGINS else found - self.made

    def _work(self, node: NodeProto) -> int:
        inputs = [self._shape(node, name) if name else () for name in node.input]
        out = self._shape(node, next((name for name in node.output if name), ""))
        try:
            attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
            return WORK[node.op_type](inputs, out, attributes)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as err:
            raise GraphError(
                f"{_called(node)} cannot be counted ({err})", "Check it with onnx.checker, or write it with others"
            ) from err

    def _shape(self, node: NodeProto, name: str) -> Shape:
        if (shape := self.shapes.shape(name)) is None:
            why = f" ({self.shapes.unknown[:160]})" if self.shapes.unknown else ""
            fix = "Export it with fixed sizes, but for the batch, and without values that sizes depend on"
            if self.shapes.opset < _FOLLOWED_FROM:
                fix = f"Export it with a later opset than {self.shapes.opset}, or convert it: onnx.version_converter"
            raise GraphError(f"{_called(node)}: the shape of {name[:60]!r} is not known{why}", fix)
        return shape

    def _written(self, node: NodeProto) -> int:
        if node.op_type in _NOTHING_WRITTEN:
            return 0
        return sum(prod(self.shapes.shape(name) or (0,)) for name in node.output if name)


def layers_in_graph(
    nodes: Sequence[NodeProto], shapes: InferredShapes, tables: Mapping[str, Table], given: Iterable[str]
) -> list[Row]:
    """A row for each layer, in the order of the nodes; `given` are the names of the inputs.

    Raises `GraphError` where a node reads what no earlier one has written, is of an operator that is not known, or
    has work and no shape.
    """
    sizes = {table.identity: table.elements for table in tables.values()}
    constants = {name for node in nodes if node.op_type == "Constant" for name in node.output}
    known = {"", *given, *(tables.keys() - constants)}
    made = frozenset(tables[name].identity for name in constants & tables.keys())
    found = _Layers(shapes, tables, dict.fromkeys(tables, frozenset[int]()), sizes, made, known)
    for node in nodes:
        _check_operators(node)
        for name in node.input:
            if name not in known:
                what = f"{_called(node)} reads {name[:60]!r}, which no node before it writes"
                raise GraphError(what, "Its nodes go in a circle or in no order: export it again")
        if again := [name for name in node.output if name and name in known]:
            raise GraphError(f"{_called(node)} writes {again[0][:60]!r} a second time", "Export it again")
        found.add(node)
        known |= set(node.output)
    return [(int(row[0]), float(row[1]), float(row[2])) for row in found.rows]


def nodes_inside(node: NodeProto) -> Iterator[NodeProto]:
    """Those of its branches and loops, at any depth."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for each in graph.node:
                yield each
                yield from nodes_inside(each)


def _check_operators(node: NodeProto) -> None:
    """They must be known, and what runs an unknown number of times must have no work."""
    for each in (node, *nodes_inside(node)):
        if not defs.has(each.op_type, "" if each.domain == "ai.onnx" else each.domain):
            name = f"{each.domain}.{each.op_type}" if each.domain else each.op_type
            fix = "Export it with ONNX's own operators, before a runtime optimises it"
            raise GraphError(f"{_called(each)}: the operator {name[:60]!r} is not known", fix)
        if each is not node and each.op_type in WORK:
            what = f"{_called(node)} has {each.op_type} inside: how often it runs is not known"
            raise GraphError(what, "Export it without branches and loops")


def _called(node: NodeProto) -> str:
    return f"{node.op_type[:40]} {node.name[:60]!r}" if node.name else node.op_type[:40]
