"""How well the throughput model fits steps measured on a GPU: python -m benchmarks.throughput_fit

`gpu_profiles/steps.csv` holds training steps of nine models in two precisions by batch, on one H100. Each is fitted by
every other batch and judged by those between: the model takes a step's time for a line in the batch.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from perdure.throughput.fit import StepTimes, fit

STEPS = Path(__file__).with_name("gpu_profiles") / "steps.csv"


def read_profiles(path: Path = STEPS) -> dict[tuple[str, str], StepTimes]:
    """The measured steps by model and precision, smallest batch first; what was not measured is left out."""
    rows = defaultdict(list)
    with path.open() as file:
        for record in csv.DictReader(file):
            if record["state"] == "ok":
                gradient_ms = float(record["forward_ms"]) + float(record["backward_ms"])
                rows[record["model"], record["precision"]].append(
                    (float(record["batch"]), gradient_ms / 1000, float(record["step_ms"]) / 1000)
                )
    return {name: _steps(np.array(sorted(each))) for name, each in rows.items()}


def _steps(columns: np.ndarray) -> StepTimes:
    one = np.ones(len(columns), np.int64)
    return StepTimes(one, one, columns[:, 0], columns[:, 1], columns[:, 2])


def part(steps: StepTimes, first: int) -> StepTimes:
    """Every other step, from `first` on."""
    return StepTimes(*(getattr(steps, name)[first::2] for name in StepTimes.__slots__))


def table(profiles: dict[tuple[str, str], StepTimes]) -> Iterator[str]:
    """One row a model and precision."""
    yield "| model | precision | batches | error between, median | most | in the 90 % interval |"
    yield "|---" * 6 + "|"
    for (model, precision), steps in profiles.items():
        found, between = fit(part(steps, 0)), part(steps, 1)
        told = found.model.step_s(1, 1, between.local_batch)
        error = np.abs(told / between.step_s - 1)
        low, high = found.interval(1, 1, between.local_batch)
        inside = np.mean((low <= between.step_s) & (between.step_s <= high))
        yield (
            f"| {model} | {precision} | {len(steps.step_s)} | {np.median(error):.0%} | {error.max():.0%} "
            f"| {inside:.0%} |"
        )


def main() -> None:
    """Print the table."""
    for line in table(read_profiles()):
        print(line)


if __name__ == "__main__":
    main()
