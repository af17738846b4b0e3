"""The shapes of an ONNX graph's values, node by node: the library's own rules, and small tables calculated on the way.

Exporters write sizes that depend on the batch as arithmetic on shapes (`Shape`, `Gather`, `Div`, `Concat`, `Reshape`).
With numbers for all sizes of the inputs, such tables are numbers too; the library's inference by itself follows a few
operators only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, defs, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

SMALL = 1024  # elements of tables that shapes may depend on
Shape = tuple[int, ...]

_CALCULATED = frozenset(
    (
        "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Expand",
        "Flatten", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min",
        "Mod", "Mul", "Neg", "Not", "Or", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape",
        "ScatterND", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
    )
)  # fmt: skip


class InferredShapes:
    """What is known of the values of a graph whose inputs have numbers for all sizes."""

    def __init__(self, model: ModelProto, tables: Iterable[tuple[str, TensorProto]]) -> None:
        """`tables` come with the file; of large ones the numbers may be missing."""
        self.types: dict[str, TypeProto] = {each.name: each.type for each in model.graph.input}
        self._data = dict[str, TensorProto]()
        self._opsets = {_domain(each.domain): each.version for each in model.opset_import}
        self.opset = self._opsets.setdefault("", 1)
        self._imports = list(model.opset_import)
        self.unknown = ""  # why the first shape that is not known is not
        for name, table in tables:
            self.types[name] = helper.make_tensor_type_proto(table.data_type, list(table.dims))
            if prod(table.dims) <= SMALL and table.data_location != TensorProto.EXTERNAL:
                self._data[name] = table
            elif prod(table.dims) <= SMALL and table.data_type == TensorProto.INT64:
                self.unknown = f"{name[:60]!r} is kept outside the file"

    def shape(self, name: str) -> Shape | None:
        """None where a size is not known."""
        found = self.types.get(name)
        if found is None or not found.tensor_type.HasField("shape"):
            return None
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in found.tensor_type.shape.dim]
        return tuple(dims) if all(dim >= 0 for dim in dims) else None

    def kind(self, name: str) -> int:
        """The type of its elements, a number of `TensorProto.DataType`."""
        return int(self.types[name].tensor_type.elem_type) if name in self.types else 0

    def follow(self, node: NodeProto) -> None:
        """Tell the outputs of a node; nodes come in the order in which they run."""
        if node.op_type == "Constant" and node.output and node.output[0] in self.types:
            return
        used = [name for name in node.input if name]
        if any(name not in self.types for name in used):
            return
        try:
            domain = _domain(node.domain)
            schema = defs.get_schema(node.op_type, self._opsets.get(domain, self.opset), domain)
            inner = any(each.g.node or each.graphs for each in node.attribute)
            given = self.types if inner else {name: self.types[name] for name in used}
            data = {name: self._data[name] for name in used if name in self._data}
            self.types |= shape_inference.infer_node_outputs(schema, node, given, data, None, self._imports)
        except (shape_inference.InferenceError, defs.SchemaError, RuntimeError, ValueError) as err:
            self.unknown = self.unknown or str(err)
            return
        self._calculate(node, used)

    def _calculate(self, node: NodeProto, used: list[str]) -> None:
        """The numbers of small tables whose inputs are known numbers."""
        if any(_elements(self.shape(name)) > SMALL for name in node.output if name):
            return
        if node.op_type == "Shape":
            dims = self.shape(used[0])
            if dims is None:
                return
            cut = {each.name: each.i for each in node.attribute}
            found = [np.array(dims[cut.get("start", 0) : cut.get("end", len(dims))], np.int64)]
        elif node.op_type in _CALCULATED and all(name in self._data for name in used):
            if any(each.t.data_location == TensorProto.EXTERNAL for each in node.attribute):
                return  # the library would open that file
            try:
                arrays = {name: numpy_helper.to_array(self._data[name]) for name in used}
                with np.errstate(all="ignore"):
                    found = ReferenceEvaluator(node, opsets=self._opsets).run(None, arrays)
            except Exception:  # whatever a made-up table raises: its numbers are not known
                return
        else:
            return
        for name, array in zip((name for name in node.output if name), found, strict=False):
            array = np.asarray(array)
            if array.size <= SMALL:
                self._data[name] = numpy_helper.from_array(array)
                self.types[name] = helper.make_tensor_type_proto(self._data[name].data_type, array.shape)


def _domain(name: str) -> str:
    """ONNX's own has two names."""
    return "" if name == "ai.onnx" else name


def _elements(shape: Shape | None) -> float:
    """Those that are not known are too many."""
    return float("inf") if shape is None else prod(shape)


def infer(model: ModelProto, tables: Mapping[str, TensorProto]) -> InferredShapes:
    """Follow all nodes of a model; its inputs must have numbers for all sizes."""
    found = InferredShapes(model, tables.items())
    for node in model.graph.node:
        found.follow(node)
    return found
