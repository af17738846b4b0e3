"""``--model-file``: layers are those that a model's shapes give, and a program that fails is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli.main import main
from perdure.cli.model_file import layers_in
from perdure.errors import InputError

pytest.importorskip("torch")

PROGRAM = """
import time

import torch
from torch import nn

class Convolutions(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 32 * 32, 10))

class Frozen(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 4))

class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.block = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
        self.out = nn.Linear(64, 1000, bias=False)
        self.out.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.block(self.words(words)))

class Huge(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*(nn.Linear(100_000, 100_000) for _ in range(10)))

class Sleeper(nn.Module):
    def __init__(self) -> None:
        time.sleep(60)

class Failing(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()

class Empty(nn.Module):
    pass

class Leaving(nn.Module):
    def __init__(self) -> None:
        raise SystemExit(7)

if __name__ == "__main__":
    time.sleep(60)
"""


@pytest.fixture
def program(home: Path) -> str:
    (home / "train.py").write_text(PROGRAM)
    return str(home / "train.py")


def test_layers_have_the_parameters_and_operations_of_their_shapes(program: str) -> None:
    layers = layers_in(f"{program}:Convolutions", "3,32,32")
    assert layers.parameters.tolist() == [3 * 8 * 9 + 8, 8 * 1024 * 10 + 10]
    assert layers.flops.tolist() == [2 * 3 * 9 * 8 * 1024, 2 * 8 * 1024 * 10]


def test_weights_that_two_layers_share_are_sent_once(program: str) -> None:
    layers = layers_in(f"{program}:Words", "int:16")
    block = 4 * 64 * 64 + 4 * 64 + 2 * 64 * 256 + 256 + 64 + 4 * 64
    assert layers.total_parameters == 1000 * 64 + block
    assert layers.flops.sum() > 2 * 16 * (4 * 64 * 64 + 2 * 64 * 256 + 64 * 1000) * 0.9


def test_a_model_that_fits_into_no_memory_is_read(program: str) -> None:
    assert layers_in(f"{program}:Huge").total_parameters == 10 * (100_000**2 + 100_000)


def test_the_speed_of_a_model_of_ones_own_is_told(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model-file", f"{program}:Huge", "--gpu", "a100", "--nodes", "4", "--json")
    assert main(["speed", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"].endswith("train.py:Huge")
    assert found["settings"][0]["bottleneck"].startswith("the network")


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("Failing", "8", "TypeError: "),
        ("Nowhere", "8", "AttributeError: module 'perdure_model' has no attribute 'Nowhere'"),
        ("Empty", "8", "ValueError: the model has no parameters"),
        ("Convolutions", "5,32,32", "RuntimeError: "),
        ("Convolutions", "x", "'x' is no shape"),
        ("Leaving", "8", "reading it ended with exit code 7"),
        ("a-b", "8", "is neither FILE:CLASS nor"),
    ],
)
def test_a_program_that_makes_no_model_is_told_of(program: str, name: str, shape: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")) as err:
        layers_in(f"{program}:{name}", shape)
    assert "\n" not in str(err.value)


def test_a_program_that_runs_forever_is_ended(program: str) -> None:
    with pytest.raises(InputError, match=r"it still runs after 0\.5 s"):
        layers_in(f"{program}:Sleeper", limit_s=0.5)


def test_a_file_that_is_not_there_is_named(home: Path) -> None:
    with pytest.raises(InputError, match=r"none\.py: is no file"):
        layers_in("none.py:Model")


def test_what_is_not_trained_is_not_sent(program: str) -> None:
    assert layers_in(f"{program}:Frozen", "8").total_parameters == 8 * 4 + 4


@pytest.mark.parametrize("row", ["[]", "[[1, 2, 3], [-1, 0, 0]]", "[[1, 1e300, 1]]", "[[0, 1, 1]]"])
def test_layers_that_a_program_makes_up_are_refused(home: Path, row: str) -> None:
    forger = home / "forger.py"
    forger.write_text(f"import os, sys\nopen(sys.argv[-1], 'w').write('{{\"layers\": {row}}}')\nos._exit(0)\n")
    with pytest.raises(InputError, match=r"its layers cannot be read|no parameters that are trained"):
        layers_in(f"{forger}:Model")


def test_what_a_program_has_started_ends_with_it(home: Path) -> None:
    parent = home / "parent.py"
    parent.write_text(
        "import subprocess\nchild = subprocess.Popen(['sleep', '300'])\n"
        f"open('{home}/child', 'w').write(str(child.pid))\nraise ValueError('done')\n"
    )
    with pytest.raises(InputError, match="ValueError: done"):
        layers_in(f"{parent}:Model")
    state = Path(f"/proc/{(home / 'child').read_text()}/stat")
    assert not state.exists() or state.read_text().split()[2] in "ZX"
