"""Trained planners as files: the one that is named on the command line, and the copy that each chain keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from perdure.errors import ConfigError, InputError
from perdure.succession.planners.fallback import OrLikeJobs
from perdure.succession.planners.registry import DEFAULT, NAMES, planner_named
from perdure.succession.planners.terms import in_words
from perdure.succession.protocol import Decision, Planner, Trainable, View
from perdure.succession.trained import TrainedPlanner, unpacked

TRAINED = "planner"  # the copy of a chain
MOST_APART = 2.0  # of a link's walltime to those that a planner was trained for


def trained_planner(folder: Path) -> Planner:
    """The trained planner of the chain in a folder; where it cannot be read, the default one decides, and says so."""
    path = folder / TRAINED
    try:
        return unpacked(path.read_bytes(), str(path)).planner
    except (OSError, InputError) as err:
        what = err.what if isinstance(err, InputError) else err.strerror
        return Instead(OrLikeJobs(planner_named(DEFAULT)), f"its trained planner cannot be read ({what})")


@dataclass(frozen=True, slots=True)
class Instead:
    """A planner that stands for another, and says why."""

    planner: Planner
    why: str

    @property
    def name(self) -> str:
        return self.planner.name

    def decide(self, view: View) -> Decision:
        decision = self.planner.decide(view)
        return replace(decision, reason=f"{self.why}: {decision.reason}")


def checked_planner(name: str | None, trained: Path | None) -> tuple[str, TrainedFile | None]:
    """The name of a planner that can decide, and its training if it needs one. Raises `ConfigError`, `InputError`."""
    file = None if trained is None else read_trained(trained)
    found = planner_named(name or (DEFAULT if file is None else file.found.planner.name))
    if file is not None and found.name != file.found.planner.name:
        what = f"it is the training of {file.found.planner.name}, not of {found.name}"
        raise InputError(f"--trained {trained}", what, f"Use --planner {file.found.planner.name}")
    if file is None and isinstance(found, Trainable):
        ready = [each for each in NAMES if not isinstance(planner_named(each), Trainable)]
        raise ConfigError(
            f"--planner {found.name}",
            "it decides only once it has been trained",
            f"Name its file with --trained (see `perdure study successors --planners {found.name} --save DIR`), or use"
            f" one of: {', '.join(ready)}",
        )
    return found.name, file


@dataclass(frozen=True, slots=True)
class TrainedFile:
    """A trained planner, and the bytes that each chain keeps of it."""

    path: Path
    data: bytes
    found: TrainedPlanner

    def check(self, walltime_s: float) -> None:
        """Raises `InputError` where it was trained for links that are much longer or shorter."""
        limit_s = self.found.training.limit_s
        if max(limit_s, walltime_s) > MOST_APART * min(limit_s, walltime_s):
            what = f"it was trained for links of {in_words(limit_s)}, and these run for {in_words(walltime_s)}"
            fix = f"Train one: perdure study successors --save DIR --limit {max(1, round(walltime_s / 3600))}"
            raise InputError(f"--trained {self.path}", what, fix)


def read_trained(path: Path) -> TrainedFile:
    """Raises `InputError` for what is no trained planner."""
    try:
        data = path.read_bytes()
    except OSError as err:
        fix = "Name a file that perdure study successors --save has written"
        raise InputError(str(path), f"it cannot be read ({err.strerror})", fix) from err
    return TrainedFile(path, data, unpacked(data, str(path)))
