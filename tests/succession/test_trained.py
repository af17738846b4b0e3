"""Trained planners as files: they decide the same afterwards without what trained them; damage is said in a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from perdure.errors import InputError
from perdure.succession.planners import checks
from perdure.succession.planners.agents.agent import SuccessionAgent
from perdure.succession.planners.agents.networks import Encoder, ServedNetwork
from perdure.succession.planners.agents.observation import width_of
from perdure.succession.planners.features import WIDTH
from perdure.succession.planners.flat_trees import FlatTrees
from perdure.succession.planners.registry import AGENTS, planner_named
from perdure.succession.protocol import Planner, Trainable
from perdure.succession.trained import KIND, VERSION, TrainedFor, packed, unpacked
from perdure.triage.classifiers.model_file import array_bytes, pack

TRAINING = TrainedFor(4, 86_400.0, 3600.0, "a trace", 120)
VIEWS = checks.made_up_views(60)


def network(looks: int, seed: int = 0) -> ServedNetwork:
    """One of random numbers, as training hands it out."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.3, shape)

    d = 8
    names = {
        "embed.weight": (d, width_of()), "embed.bias": (d,), "place": (looks, d), "norm1.weight": (d,),
        "norm1.bias": (d,), "norm2.weight": (d,), "norm2.bias": (d,), "linear1.weight": (16, d), "linear1.bias": (16,),
        "linear2.weight": (d, 16), "linear2.bias": (d,), "self_attn.in_proj_weight": (3 * d, d),
        "self_attn.in_proj_bias": (3 * d,), "self_attn.out_proj.weight": (d, d), "self_attn.out_proj.bias": (d,),
    }  # fmt: skip
    encoder = Encoder(2, {name: weights(*shape) for name, shape in names.items()}) if looks > 1 else None
    first = d if looks > 1 else width_of()
    return ServedNetwork(encoder, ((weights(6, first), weights(6)), (weights(2, 6), weights(2))), tanh=looks == 1)


def trained(name: str) -> Planner:
    planner = planner_named(name)
    if isinstance(planner, SuccessionAgent):
        return SuccessionAgent(planner.name, planner.algorithm, planner.looks, network=network(planner.looks))
    pytest.importorskip({"forest": "sklearn", "boosted": "lightgbm"}.get(name, "numpy"))
    assert isinstance(planner, Trainable)
    return planner.train(checks.made_up_lessons(), np.random.default_rng(0))


@pytest.fixture(scope="module", params=["forest", "boosted", "stopping", *AGENTS])
def planner(request: pytest.FixtureRequest) -> Planner:
    return trained(request.param)


def test_what_was_written_decides_the_same(planner: Planner) -> None:
    data = packed(planner, TRAINING)
    found = unpacked(data, "file")
    assert found.training == TRAINING
    assert [found.planner.decide(view) for view in VIEWS] == [planner.decide(view) for view in VIEWS]
    assert packed(found.planner, TRAINING) == data
    if "transformer" not in planner.name:  # random ones prefer one of the two
        assert len({found.planner.decide(view).submit for view in VIEWS}) == 2


def test_a_planner_that_has_learned_nothing_is_not_written(planner: Planner) -> None:
    for one in (planner_named(planner.name), planner_named("conformal")):
        with pytest.raises(InputError, match="has learned nothing"):
            packed(one, TRAINING)


def test_damage_anywhere_is_refused_in_a_line(planner: Planner) -> None:
    data = packed(planner, TRAINING)
    rng = np.random.default_rng(0)
    hurt = [b"", data[:100], data[: len(data) // 2], data[:-1], b"PK" + bytes(200)]
    for place in rng.integers(0, len(data), 40).tolist():
        hurt.append(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
    told = [refusal_of(each, planner) for each in hurt]
    assert all(text.startswith("DIR/forest.planner: ") and "\n" not in text for text in told if text)
    assert len([text for text in told if text]) > 30


def refusal_of(data: bytes, planner: Planner) -> str:
    """Why it is refused; "" where it decides the same, as a byte may say nothing, such as the date of an entry."""
    try:
        found = unpacked(data, "DIR/forest.planner")
    except InputError as err:
        return str(err)
    assert [found.planner.decide(view) for view in VIEWS[:9]] == [planner.decide(view) for view in VIEWS[:9]]
    return ""


def file_of(planner: str, shapes: dict[str, tuple[int, ...]], numbers: np.ndarray, width: int = WIDTH) -> bytes:
    about = {"planner": planner, "training": TRAINING, "width": width, "shapes": shapes}
    return pack(KIND, VERSION, {"about.json": msgspec.json.encode(about), "numbers.npy": array_bytes(numbers)})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (file_of("oracle", {}, np.zeros(0)), "no planner has that name"),
        (file_of("conformal", {}, np.zeros(0)), "learns nothing"),
        (file_of("forest", {"roots": (1,)}, np.zeros(2)), "not those that it tells of"),
        (file_of("forest", {"roots": (1,)}, np.array([np.nan])), "not those that it tells of"),
        (file_of("forest", {"roots": (1,)}, np.zeros(1)), "feature"),
        (file_of("forest", {"roots": (1,)}, np.zeros(1), width=3), "another version"),
        (file_of("stopping", {"step_s": (1,), "weight": (1, 1, 1)}, np.ones(2)), "by price, step and variable"),
        (file_of("dqn", {"heads": (1,), "tanh": (1,)}, np.zeros(2)), "two numbers"),
    ],
)
def test_a_whole_file_of_something_else_is_refused_in_a_line(data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says) as told:
        unpacked(data, "file")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"left": [0.0, 0.0, 2.0]}, "before its parent"),  # it would go around for ever
        ({"right": [2.0, 1.0, 9.0]}, "before its parent"),
        ({"roots": [7.0]}, "a root is not a node"),
        ({"feature": [99.0, 0.0, 0.0]}, "a number that there is not"),
        ({"value": [0.0, 1.0]}, "differ in length"),
    ],
)
def test_trees_that_are_none_are_refused(change: dict[str, list[float]], says: str) -> None:
    tree = {"roots": [0.0], "feature": [1.0, 0.0, 0.0], "threshold": [5.0, 0.0, 0.0], "left": [1.0, 1.0, 2.0],
            "right": [2.0, 1.0, 2.0], "value": [0.0, 10.0, 20.0]}  # fmt: skip
    arrays = {name: np.array(values) for name, values in tree.items()}
    found = FlatTrees.of_arrays(arrays, 2)
    assert [found.values(np.array([0.0, x])).tolist() for x in (5.0, 5.1)] == [[10.0], [20.0]]
    with pytest.raises(ValueError, match=says):
        FlatTrees.of_arrays(arrays | {name: np.array(values) for name, values in change.items()}, 2)


def test_flat_boosted_trees_say_what_lightgbm_says() -> None:
    pytest.importorskip("lightgbm")
    from perdure.waits.boosting import Trees

    rng = np.random.default_rng(1)
    rows = rng.normal(size=(400, 6)).astype(np.float32)
    model = Trees(num_iterations=20, min_data_in_leaf=5, extra_trees=False).grow(
        rows, rows[:, 0].astype(np.float64) ** 2, "quantile", 0.8, 3
    )
    flat = FlatTrees.of_lightgbm(model)
    asked = rng.normal(size=(50, 6))
    assert [float(flat.values(row).sum()) for row in asked] == pytest.approx(model.predict(asked).tolist(), abs=1e-12)


def test_trees_and_agents_are_served_without_the_libraries_that_train_them(tmp_path: Path, planner: Planner) -> None:
    (tmp_path / "file").write_bytes(packed(planner, TRAINING))
    code = (
        "import sys; from pathlib import Path; from perdure.succession.trained import unpacked;"
        "from perdure.succession.planners.checks import made_up_views;"
        f"one = unpacked(Path({str(tmp_path / 'file')!r}).read_bytes(), 'f').planner;"
        "[one.decide(view) for view in made_up_views(5)];"
        "print({'torch', 'sklearn', 'lightgbm', 'gymnasium', 'stable_baselines3'} & set(sys.modules))"
    )
    if planner.name in ("forest", "boosted", "dqn"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "set()\n"
