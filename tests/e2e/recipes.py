"""The recipes of the docs for going on after the walltime, as real programs."""

import importlib.util
import sys
from pathlib import Path

from tests.conftest import ROOT, require

RECIPES = ROOT / "docs" / "recipes"
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ACCELERATE = (
    "accelerate.commands.launch", "--cpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
)  # fmt: skip
WITH = {  # recipe: what it needs, module that launches it, program, arguments behind steps and seconds
    "torchrun": ("torch", TORCHRUN, "with_torchrun.py", ()),
    "lightning": ("lightning", TORCHRUN, "with_lightning.py", ("2", "ddp")),
    "accelerate": ("accelerate", TORCHRUN, "with_accelerate.py", ()),
    "accelerate-launch": ("accelerate", ACCELERATE, "with_accelerate.py", ()),
}


def is_installed(recipe: str) -> bool:
    return importlib.util.find_spec(WITH[recipe][0]) is not None


def command(recipe: str, steps: int, step_s: float) -> tuple[object, ...]:
    """The words that run a recipe; skips where what it needs is not installed."""
    needs, launcher, program, more = WITH[recipe]
    require(needs, is_installed(recipe), f"{needs} is not installed")
    return (sys.executable, "-m", *launcher, RECIPES / program, steps, step_s, *more)


def steps_done(directory: Path) -> list[int]:
    """What a recipe has done, in order."""
    return [int(line) for line in (directory / "steps.txt").read_text().split()]
