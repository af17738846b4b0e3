"""``--model-file net.onnx``: layers are those of the graph's shapes, and a file that has none is one line."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perdure.cli.main import main
from perdure.cli.model_file import layers_in
from perdure.errors import InputError
from perdure.throughput.layers import layers_of
from tests.cli.conftest import Ran

onnx = pytest.importorskip("onnx")

from perdure.cli.onnx_graph import GraphError  # noqa: E402
from perdure.cli.onnx_layers import read_layers  # noqa: E402

helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def table(name: str, *shape: int, kind: type = np.float32) -> Any:
    return numpy_helper.from_array(np.arange(np.prod(shape)).reshape(shape).astype(kind), name)


def taken(name: str, *shape: int | str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: Sequence[Any], inputs: Sequence[Any], tables: Sequence[Any] = (), functions: Any = ()) -> Any:
    out = helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    graph = helper.make_graph(nodes, "net", inputs, [out], tables)
    imports = [
        helper.make_opsetid("", 20),
        *(helper.make_opsetid(each, 1) for each in {one.domain for one in functions}),
    ]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def written(home: Path, made: Any) -> str:
    path = home / "net.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return str(path)


def read(home: Path, made: Any, shape: str = "") -> NDArray[np.float64]:
    """Parameters, operations and elements written, of all layers, as this process reads them."""
    return np.array(read_layers(written(home, made), shape)[0]).T


def node(kind: str, inputs: str, out: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), out.split(), **attributes)


X, ROWS = taken("x", "batch", 3, 32, 32), taken("x", "batch", 8, 16)


@pytest.mark.parametrize(
    ("nodes", "inputs", "tables", "parameters", "flops"),
    [
        ([node("Conv", "x w b", "y", pads=[1] * 4, strides=[2, 2])], X, [table("w", 8, 3, 3, 3), table("b", 8)],
         224, 2 * 8 * 16 * 16 * 27),
        ([node("Conv", "x w", "y", group=3)], X, [table("w", 6, 1, 1, 1)], 6, 2 * 6 * 1024),
        ([node("ConvTranspose", "x w", "y", strides=[2, 2])], X, [table("w", 3, 5, 2, 2)], 60, 2 * 3 * 1024 * 20),
        ([node("Flatten", "x", "f"), node("Gemm", "f w b", "y", transB=1)], X, [table("w", 10, 3072), table("b", 10)],
         30730, 2 * 30720),
        ([node("MatMul", "x w", "m"), node("Add", "m b", "y")], ROWS, [table("w", 16, 4), table("b", 4)],
         68, 2 * 8 * 16 * 4),
        ([node("MatMul", "x w", "q"), node("Transpose", "q", "k", perm=[0, 2, 1]), node("MatMul", "q k", "s")], ROWS,
         [table("w", 16, 16)], 256, 2 * 8 * 16 * 16 + 2 * 8 * 8 * 16),
        ([node("Einsum", "x w", "y", equation="bij,jk->bik")], ROWS, [table("w", 16, 4)], 64, 2 * 8 * 16 * 4),
        ([node("Einsum", "x w", "y", equation="...j, jk -> ...k")], ROWS, [table("w", 16, 4)], 64, 2 * 8 * 16 * 4),
        ([node("LSTM", "x w r b", "y", hidden_size=5, layout=1)], ROWS,
         [table("w", 1, 20, 16), table("r", 1, 20, 5), table("b", 1, 40)], 460, 2 * 8 * (320 + 100)),
        ([node("GRU", "x w r", "y", hidden_size=5, layout=1)], ROWS, [table("w", 1, 15, 16), table("r", 1, 15, 5)],
         315, 2 * 8 * 315),
        ([node("Gather", "w i", "e"), node("MatMul", "e m", "y")], taken("i", "batch", 7, kind=INT64),
         [table("w", 100, 16), table("m", 16, 4)], 1664, 2 * 7 * 64),
        ([node("Conv", "x w", "c"), node("BatchNormalization", "c s o m v", "n"), node("Relu", "n", "y")], X,
         [table("w", 8, 3, 1, 1), *(table(each, 8) for each in "somv")], 24 + 16, 2 * 8 * 1024 * 3),
        ([node("LayerNormalization", "x s o", "y")], ROWS, [table("s", 16), table("o", 16)], 32, 0),
        ([node("PRelu", "x s", "y")], ROWS, [table("s", 1)], 1, 0),
        ([node("Mul", "x s", "y")], ROWS, [table("s")], 0, 0),
        ([node("Transpose", "w", "t"), node("MatMul", "x t", "y")], ROWS, [table("w", 4, 16)], 64, 2 * 8 * 64),
        ([node("DequantizeLinear", "w s z", "f", axis=0), node("Conv", "x f", "y")], X,
         [table("w", 8, 3, 1, 1, kind=np.int8), table("s", 8), table("z", 8, kind=np.int8)], 24, 2 * 8 * 1024 * 3),
    ],
)  # fmt: skip
def test_layers_have_the_parameters_and_operations_of_their_shapes(
    home: Path, nodes: list[Any], inputs: Any, tables: list[Any], parameters: int, flops: int
) -> None:
    made = model(nodes, [inputs], [*tables, table("unused", 50, 50)])
    assert read(home, made)[:2].sum(axis=1).tolist() == [parameters, flops]


def test_a_layer_begins_at_what_has_weights_and_what_follows_counts_to_it(home: Path) -> None:
    nodes = [
        node("Conv", "x w", "c"), node("BatchNormalization", "c s o m v", "n"), node("Relu", "n", "r"),
        node("GlobalAveragePool", "r", "p"), node("Flatten", "p", "f"), node("Gemm", "f g", "y"),
    ]  # fmt: skip
    tables = [table("w", 8, 3, 1, 1), *(table(each, 8) for each in "somv"), table("g", 8, 4)]
    parameters, flops, activations = read(home, model(nodes, [X], tables)).tolist()
    assert parameters == [24 + 16, 32]
    assert flops == [2 * 24 * 1024, 64]
    assert activations == [3 * 8 * 1024 + 8, 4]


def test_weights_that_two_nodes_share_are_sent_once(home: Path) -> None:
    """An exporter writes them twice where one node needs them transposed."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(100, 16)).astype(np.float32)
    nodes = [
        node("Gather", "w i", "e"),
        node("MatMul", "e t", "a"),
        node("Gather", "w i", "b"),
        node("Add", "a a", "y"),
    ]
    taken_ids = taken("i", "batch", 7, kind=INT64)
    for turned, expected in ((weights.T, 1600), (rng.permutation(weights.T) + 1, 3200)):
        tables = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.ascontiguousarray(turned), "t")]
        assert read(home, model(nodes, [taken_ids], tables))[0].sum() == expected


@pytest.mark.parametrize(
    ("inputs", "shape", "rows"),
    [
        (("batch", 8, 16), "", 8), (("N", 8, 16), "", 8), ((4, 8, 16), "", 8), (("batch", "words", 16), "5,16", 5),
        (("words", "batch_size", 16), "5,16", 5), (("words", "batch_size", 16), "", None),
        ((1, 8, 16), "9,16", None), ((1, 8, 16), "8", None), ((1, 0, 16), "", None),
    ],
)  # fmt: skip
def test_one_example_is_counted_whatever_batch_the_file_holds(
    home: Path, inputs: tuple[int | str, ...], shape: str, rows: int | None
) -> None:
    made = model([node("MatMul", "x w", "y")], [taken("x", *inputs)], [table("w", 16, 4)])
    if rows is None:
        with pytest.raises(GraphError, match="its input 'x'"):
            read(home, made, shape)
    else:
        assert read(home, made, shape)[1].sum() == 2 * rows * 64


def test_sizes_that_depend_on_the_batch_are_calculated(home: Path) -> None:
    """As exporters write ``x.view(batch, words, heads, width // heads)``."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Gather", "s two", "d"),
        node("Div", "d four", "h"),
        node("Unsqueeze", "n at", "n1"), node("Unsqueeze", "h at", "h1"), node("Concat", "n1 rest h1", "to", axis=0),
        node("MatMul", "x w", "q"), node("Reshape", "q to", "v"), node("Transpose", "v", "k", perm=[0, 1, 3, 2]),
        node("MatMul", "v k", "y"),
    ]  # fmt: skip
    tables = [
        table("w", 16, 16), *(numpy_helper.from_array(np.array(value), name) for name, value in (
            ("zero", 0), ("two", 2), ("four", 4), ("at", [0]), ("rest", [8, 4])))
    ]  # fmt: skip
    assert read(home, model(nodes, [ROWS], tables))[1].sum() == 2 * 8 * 256 + 2 * 8 * 4 * 4 * 4


def chain(count: int, calls: int = 2) -> list[Any]:
    """Functions of which each calls the next one: all of them, or in a circle."""
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    found = []
    for at in range(count):
        after = f"f{at + 1}" if at + 1 < count else "f0" if calls == 1 else "Relu"
        domain = "" if after == "Relu" else "own"
        inner = [helper.make_node(after, [f"v{i}"], [f"v{i + 1}"], domain=domain) for i in range(calls)]
        found.append(helper.make_function("own", f"f{at}", ["v0"], [f"v{calls}"], inner, imports))
    return found


def away(location: str) -> Any:
    """Weights that lie in another file."""
    made = onnx.TensorProto(name="w", data_type=FLOAT, dims=[16, 4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", str(1 << 60))):
        made.external_data.add(key=key, value=value)
    return made


@pytest.mark.parametrize("location", ["/etc/passwd", "../../../etc/shadow", "nowhere.bin", "/dev/zero"])
def test_weights_outside_the_file_are_known_by_their_shapes(home: Path, location: str) -> None:
    assert read(home, model([node("MatMul", "x w", "y")], [ROWS], [away(location)]))[0].sum() == 64


def test_functions_of_the_model_are_followed(home: Path) -> None:
    nodes = [node("MatMul", "x w", "m"), helper.make_node("f0", ["m"], ["y"], domain="own")]
    assert read(home, model(nodes, [ROWS], [table("w", 16, 4)], chain(3)))[2].tolist() == [9 * 32.0]


def hostile() -> Mapping[str, tuple[Any, str]]:
    product, weights = node("MatMul", "x w", "y"), table("w", 16, 4)
    lying = table("w", 16, 4)
    lying.dims[0] = 1 << 40
    shapeless = helper.make_tensor_value_info("x", FLOAT, None)
    endless = away("w.bin")
    endless.dims[:] = [16, 1 << 61]
    below = helper.make_graph([node("MatMul", "x w", "y")], "g", [], [helper.make_tensor_value_info("y", FLOAT, None)])
    condition = numpy_helper.from_array(np.array(True), "c")
    doubled = [node("Concat", " ".join(f"s{i}" for _ in (0, 1)), f"s{i + 1}", axis=0) for i in range(60)]
    sizes = [node("Shape", "x", "s0"), *doubled, node("ConstantOfShape", "s60", "t"), node("MatMul", "t w", "y")]
    far = numpy_helper.from_array(np.array([1 << 62, 1 << 62, 16]), "to")
    return {
        "empty": (b"", "it has no nodes"),
        "text": (b"not a protocol buffer at all", "it is no ONNX file"),
        "cut": (model([product], [ROWS], [weights]).SerializeToString()[:-40], "it is no ONNX file|it has no"),
        "circle": (model([node("Add", "x z", "y"), node("Relu", "y", "z")], [ROWS]), "reads 'z', which no node before"),
        "again": (model([product, node("Relu", "y", "y")], [ROWS], [weights]), "writes 'y' a second time"),
        "unknown": (model([node("FusedGemm", "x w", "y", domain="com.microsoft")], [ROWS], [weights]),
                    "the operator 'com.microsoft.FusedGemm' is not known"),
        "escape": (model([node("\x1b[2J\nNo", "x", "y")], [ROWS]), r"the operator '\\x1b\[2J\\nNo' is not known"),
        "no shape": (model([product], [shapeless], [weights]), "'x' has no shape"),
        "no input": (model([node("Relu", "w", "y")], [], [weights]), "it has no input"),
        "misfit": (model([product], [taken("x", "batch", 5)], [weights]), r"shape of 'y' is not known \(.*ncompatible"),
        "lying": (model([product], [ROWS], [lying]), "the weights 'w' hold 256 bytes"),
        "endless": (model([product], [ROWS], [endless]), "more than 1e\\+18"),
        "functions": (model([helper.make_node("f0", ["x"], ["y"], domain="own")], [ROWS], [], chain(60)),
                      "more than 1,000,000 nodes"),
        "recursion": (model([helper.make_node("f0", ["x"], ["y"], domain="own")], [ROWS], [], chain(2, 1)),
                      "'f0' calls itself"),
        "branch": (model([node("If", "c", "y", then_branch=below, else_branch=below)], [ROWS], [weights, condition]),
                   "If has MatMul inside"),
        "doubled": (model(sizes, [ROWS], [weights]), "the shape of 't' is not known"),
        "expanded": (model([node("Expand", "x to", "t"), node("MatMul", "t w", "y")], [ROWS], [weights, far]),
                     "more than 1e\\+18|is not known"),
    }  # fmt: skip


@pytest.mark.parametrize("name", hostile())
def test_a_file_that_cannot_be_read_is_one_line(home: Path, name: str) -> None:
    made, said = hostile()[name]
    with pytest.raises(InputError, match=said) as err:
        layers_in(written(home, made))
    assert "\n" not in str(err.value)
    assert str(err.value).isprintable()


def branch(name: str, *nodes: Any) -> Any:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)])


def test_what_a_branch_reads_counts_however_its_condition_is_known(home: Path) -> None:
    true = numpy_helper.from_array(np.array(True), "true")
    choice = helper.make_node(
        "If", ["true"], ["z"],
        then_branch=branch("then", node("Add", "c b", "t")), else_branch=branch("else", node("Identity", "c", "e")),
    )  # fmt: skip
    nodes = [node("MatMul", "x w", "c"), choice, node("MatMul", "z m", "y")]
    tables = [table("w", 16, 20), table("b", 20), table("m", 20, 3), true]
    assert read(home, model(nodes, [ROWS], tables))[:2].tolist() == [[340, 60], [2 * 8 * 320, 2 * 8 * 60]]


@pytest.mark.parametrize(
    ("kind", "then"), [(np.float32, "Transpose"), (np.float16, "Cast"), (np.int8, "DequantizeLinear")]
)
def test_weights_of_a_constant_pass_through_what_only_turns_or_casts_them(home: Path, kind: type, then: str) -> None:
    made = [helper.make_node("Constant", [], ["c"], value=table("v", 16, 16, kind=kind))]
    made.append(helper.make_node("Constant", [], ["s"], value=table("t")))
    inputs = "c s" if then == "DequantizeLinear" else "c"
    made.append(node(then, inputs, "w", **({"to": FLOAT} if then == "Cast" else {})))
    nodes = [*made, node("MatMul", "x w", "m"), node("Add", "m c" if kind is np.float32 else "m m", "y")]
    assert read(home, model(nodes, [taken("x", "batch", 16, 16)]))[0].tolist() == [256]


@pytest.mark.parametrize(("equation", "flops"), [("bij,jk", 2 * 8 * 64), ("bij,jk->bik", 2 * 8 * 64)])
def test_products_may_leave_their_result_to_the_letters(home: Path, equation: str, flops: int) -> None:
    nodes = [node("Einsum", "x w", "y", equation=equation)]
    assert read(home, model(nodes, [ROWS], [table("w", 16, 4)]))[1].tolist() == [flops]


@pytest.mark.parametrize("open_as", [-1, 0])
def test_a_batch_that_older_exporters_leave_open_is_one_example(home: Path, open_as: int) -> None:
    made = model([node("MatMul", "x w", "y")], [taken("x", open_as, 16)], [table("w", 16, 4)])
    assert read(home, made)[1].tolist() == [2 * 64]


def test_the_batch_is_that_of_the_first_input_that_has_one(home: Path) -> None:
    made = model([node("Mul", "x t", "m"), node("MatMul", "m w", "y")], [taken("t"), taken("x", 8, 16)])
    made.graph.initializer.append(table("w", 16, 4))
    assert read(home, made)[1].sum() == 2 * 64


def test_sizes_of_one_name_are_one_size_in_all_inputs(home: Path) -> None:
    nodes = [node("Gather", "w i", "a"), node("Gather", "w j", "b"), node("MatMul", "b m", "y")]
    inputs = [taken("i", "B", "T", "K", kind=INT64), taken("j", "T", "B", kind=INT64)]
    found = read(home, model(nodes, inputs, [table("w", 100, 16), table("m", 16, 4)]), "7,3")
    assert found[1].sum() == 2 * 7 * 64


@pytest.mark.parametrize("written_as", ["", "ai.onnx"])
def test_onnx_own_operators_have_two_names(home: Path, written_as: str) -> None:
    made = model([node("Unsqueeze", "x a", "u"), node("MatMul", "u w", "y", domain=written_as)], [ROWS])
    made.graph.initializer.extend([table("w", 16, 4), numpy_helper.from_array(np.array([1]), "a")])
    made.opset_import[0].domain = "ai.onnx"
    assert read(home, made)[:2].sum(axis=1).tolist() == [64, 2 * 8 * 64]


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_transposed_twins_of_any_precision_are_sent_once(home: Path, kind: type) -> None:
    weights = np.random.default_rng(0).normal(size=(64, 40)).astype(kind)
    tables = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.ascontiguousarray(weights.T), "v")]
    of = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    made = model([node("MatMul", "x w", "m"), node("MatMul", "m v", "y")], [taken("x", "n", 64, kind=of)], tables)
    assert read(home, made)[0].sum() == 64 * 40


def test_no_file_is_opened_for_the_numbers_of_an_operator(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "shape.bin").write_bytes(np.array([128]).tobytes())
    monkeypatch.chdir(home)
    value = onnx.TensorProto(name="v", data_type=INT64, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="shape.bin")
    nodes = [node("ConstantOfShape", "one", "s", value=value), node("Reshape", "x s", "e"), node("MatMul", "e w", "y")]
    made = model(nodes, [ROWS], [numpy_helper.from_array(np.array([1]), "one"), table("w", 128, 4)])
    with pytest.raises(GraphError, match="the shape of"):
        read(home, made)


def test_sizes_kept_outside_the_file_are_said_to_be(home: Path) -> None:
    sizes = onnx.TensorProto(name="s", data_type=INT64, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    made = model([node("Reshape", "x s", "r"), node("MatMul", "r w", "y")], [ROWS], [sizes, table("w", 16, 4)])
    with pytest.raises(GraphError, match="'s' is kept outside the file"):
        read(home, made)


def test_functions_within_branches_count_towards_the_most_nodes(home: Path) -> None:
    """Each calls the one before it in two branches: forty of them come to a million millions."""
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "F0", ["x"], ["y"], [node("Relu", "x", "y")], imports)]
    for at in range(1, 40):
        call = f"F{at - 1}"
        sides = [branch(side, node(call, "x", side, domain="own")) for side in ("one", "other")]
        nodes = [
            helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
            helper.make_node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1]),
        ]
        functions.append(helper.make_function("own", f"F{at}", ["x"], ["y"], nodes, imports))
    with pytest.raises(GraphError, match="more than 1,000,000 nodes"):
        read(home, model([node("F39", "x", "y", domain="own")], [ROWS], functions=functions))


def test_an_old_opset_is_to_be_converted(home: Path) -> None:
    made = model([node("Reshape", "x", "r", shape=[1, 128]), node("MatMul", "r w", "y")], [taken("x", 1, 8, 16)])
    made.graph.initializer.append(table("w", 128, 4))
    made.opset_import[0].version = 1
    with pytest.raises(GraphError) as failed:
        read(home, made)
    assert "version_converter" in failed.value.fix


def test_a_batch_named_so_is_the_batch_wherever_it_stands(home: Path) -> None:
    nodes = [
        node("Transpose", "x", "q", perm=[1, 0, 2]), node("Transpose", "x", "k", perm=[1, 2, 0]),
        node("MatMul", "q k", "y"),
    ]  # fmt: skip
    assert read(home, model(nodes, [taken("x", "words", "batch", 16)]), "5,16")[1].tolist() == [2 * 5 * 5 * 16]


def test_work_and_elements_are_those_of_one_example_of_a_batch(home: Path) -> None:
    made = model([node("MatMul", "x w", "y")], [taken("x", 4, 16)], [table("w", 16, 3)])
    assert read(home, made).T.tolist() == [[48, 96, 3]]


def test_a_product_may_turn_its_first_factor(home: Path) -> None:
    made = model([node("Gemm", "x w", "y", transA=1)], [taken("x", 1, 6)], [table("w", 1, 20)])
    assert read(home, made)[1].tolist() == [2 * 6 * 20]


def test_a_part_of_a_shape_may_be_asked_for(home: Path) -> None:
    nodes = [node("Shape", "x", "s", start=1, end=2), node("Expand", "w s", "y0"), node("MatMul", "x y0", "y")]
    made = model(nodes, [taken("x", "batch", 7, 3)], [table("w", 3, 1)])
    assert read(home, made)[1].sum() == 2 * 7 * 3 * 7


def test_functions_without_nodes_come_to_many_too(home: Path) -> None:
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "F0", ["x"], ["y"], [], imports)]
    for at in range(1, 60):
        calls = [node(f"F{at - 1}", "x", out, domain="own") for out in "ay"]
        functions.append(helper.make_function("own", f"F{at}", ["x"], ["y"], calls, imports))
    with pytest.raises(GraphError, match="more than 1,000,000 nodes"):
        read(home, model([node("F59", "x", "y", domain="own")], [ROWS], functions=functions))


def test_what_lies_beside_the_file_is_not_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    for name in ("onnx.py", "numpy.py", "google.py"):
        (home / name).write_text(f"open('{home}/run', 'w')\n")
    path = written(home, model([node("MatMul", "x w", "y")], [ROWS], [table("w", 16, 4)]))
    assert layers_in(path).total_parameters == 64
    assert not (home / "run").exists()


def test_no_class_is_asked_of_a_file_that_has_none(home: Path) -> None:
    with pytest.raises(InputError, match=r"none\.onnx: is no file"):
        layers_in("none.onnx")
    with pytest.raises(InputError, match=r"is neither FILE:CLASS nor FILE\.onnx"):
        layers_in("net.pb")


def test_the_speed_of_an_onnx_file_is_told(home: Path, perdure: Any) -> None:
    path = written(home, model([node("MatMul", "x w", "y")], [ROWS], [table("w", 16, 4000)]))
    found: Ran = perdure("speed", "--model-file", path, "--gpu", "a100", "--nodes", "4", "--json")
    assert found.json["model"] == path
    assert main(["speed", "--model-file", "none.onnx", "--gpu", "a100"]) == 2


@pytest.mark.parametrize(
    ("batch", "held", "told"), [("batch", 0, "leaves the batch open"), (6, 6, "holds a batch of 6"), (0, 0, "open")]
)
def test_the_batch_of_an_onnx_file_and_the_one_taken_are_told(
    home: Path, perdure: Any, batch: int | str, held: int, told: str
) -> None:
    path = written(home, model([node("MatMul", "x w", "y")], [taken("x", batch, 8, 16)], [table("w", 16, 4000)]))
    found: Ran = perdure("speed", "--model-file", path, "--gpu", "a100", "--batch", "8,64")
    assert told in found.out
    assert "each GPU takes 8, 64 (--batch)" in found.out
    found = perdure("speed", "--model-file", path, "--gpu", "a100", "--json")
    assert found.json["file_batch"] == held


PROGRAM = """
from torch import nn

def convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))

class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = convolution(inputs, outputs, 3, stride), convolution(outputs, outputs, 3, 1)
        self.beside = nn.Identity() if inputs == outputs else convolution(inputs, outputs, 1, stride)

    def forward(self, x):
        return (self.second(self.first(x).relu()) + self.beside(x)).relu()

class Convolutions(nn.Sequential):
    def __init__(self) -> None:
        shapes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
                  (512, 512, 1)]
        first = convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        end = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)
        super().__init__(*first, *(Block(*shape) for shape in shapes), *end)

class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.block = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
        self.rows = nn.GRU(64, 32, bidirectional=True, batch_first=True)
        self.out = nn.Linear(64, 1000, bias=False)
        self.out.weight = self.words.weight

    def forward(self, words):
        return self.out(self.rows(self.block(self.words(words)))[0])
"""


@pytest.mark.parametrize(
    ("name", "shape", "known"), [("Convolutions", "3,224,224", "resnet18"), ("Words", "int:48", None)]
)
def test_a_model_that_pytorch_exports_has_the_layers_that_its_program_has(
    home: Path, name: str, shape: str, known: str | None
) -> None:
    torch = pytest.importorskip("torch")
    (home / "net.py").write_text(PROGRAM)
    names: dict[str, Any] = {}
    exec(PROGRAM, names)
    made, sizes = names[name](), [int(each) for each in shape.removeprefix("int:").split(",")]
    example = torch.zeros([1, *sizes], dtype=torch.long if shape.startswith("int") else torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            made, (example,), home / "net.onnx", dynamo=False, input_names=["x"], do_constant_folding=False,
            training=torch.onnx.TrainingMode.TRAINING, dynamic_axes={"x": {0: "batch"}},
        )  # fmt: skip
    found, told = layers_in(str(home / "net.onnx"), shape), layers_in(f"{home}/net.py:{name}", shape)
    assert found.total_parameters == told.total_parameters
    assert found.flops.sum() == pytest.approx(told.flops.sum(), rel=0.01)
    if known:
        for each in (found, told):
            assert each.parameters.tolist() == layers_of(known).parameters.tolist()
            assert each.flops.tolist() == layers_of(known).flops.tolist()
        assert told.activations.tolist() == layers_of(known).activations.tolist()
