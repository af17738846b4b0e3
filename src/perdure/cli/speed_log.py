"""``perdure speed --from-log``: a job's own step times, and what they tell of other layouts and batches."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import text, word
from perdure.errors import InputError
from perdure.throughput.layout_speed import Prior
from perdure.throughput.option_values import digits, milliseconds

if TYPE_CHECKING:
    from perdure.throughput.layout_speed import LayoutFit
    from perdure.throughput.step_log import StepLog

_GIVEN = re.compile(r"(.+?)((?:,(?:(?:nodes|gpus|batch)=[0-9]{1,8}|waiting=[0-9]{1,8}(?:\.[0-9]{1,6})?))*)", re.DOTALL)
_NOT_KNOWN = re.compile(r".+,([^,=/]{1,40}=[^,/]{0,40})", re.DOTALL)
_MOST_LOGS = 100
COLUMNS = (
    word("NODES"), word("GPUS"), word("BATCH"), word("STEP"), word("80 %", leave=2), word("EXAMPLES/S"),
    word("SCALING"), text("KNOWN BY", leave=1),
)  # fmt: skip
LayersPrior = Callable[[int, float | None], Prior]
"""What a model's layers say, with the batch of the logs and the step on one GPU, if they have one."""
HOW = "Add it to the log's name: --from-log train.log,nodes=2,gpus=8,batch=32"


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A log with where it ran: as it was given, or else as the log says."""

    source: str
    log: StepLog
    nodes: int
    gpus: int
    batch: int
    waiting_s: float = nan  # of a step, for gradients; NaN where it was not given

    @property
    def step_s(self) -> float:
        """The median step, seconds."""
        import numpy as np

        return float(np.median(self.log.step_s(self.gpus, self.batch)))

    @property
    def said(self) -> str:
        """What was read, in one line."""
        import numpy as np

        step = self.log.step_s(self.gpus, self.batch)
        low, middle, high = np.quantile(step, [0.1, 0.5, 0.9])
        noun = "report" if self.log.per_second else "step"
        many = f"{self.log.count:,} {noun}{'s' * (self.log.count > 1)}"
        spread = f", 80 % of them {milliseconds(low)} to {milliseconds(high)}" if len(step) > 1 else ""
        where = f"{self.gpus} GPU{'s' * (self.gpus > 1)} of {self.nodes} node{'s' * (self.nodes > 1)}"
        return (
            f"{self.source}: {many} ({self.log.form}), {milliseconds(middle)} ms a step{spread}; {where}, "
            f"batch {self.batch} a GPU"
        )


def read_run(given: str) -> LoggedRun:
    """Read a log named as ``FILE[,nodes=N][,gpus=N][,batch=N][,waiting=MS]``.

    What neither says is one node, and one GPU.
    """
    from perdure.throughput.step_log import read_step_log
    from perdure.triage.text.packed import CutShort, unpacked
    from perdure.triage.text.regular_file import open_regular

    found = _GIVEN.fullmatch(given)
    if found is None:
        raise InputError("--from-log", "it is empty", "Name a log file")
    path, values = found[1], dict(part.split("=") for part in found[2].split(",")[1:])
    waiting_s = float(values.pop("waiting", nan)) / 1e3
    told = {name: int(value) for name, value in values.items()}
    if 0 in told.values():
        raise InputError(path, f"{next(n for n, v in told.items() if v == 0)}=0 is no number of them", HOW)

    def pieces() -> Iterator[bytes]:
        try:
            yield from unpacked(file.read, path)
        except CutShort:
            return

    if (wrong := _NOT_KNOWN.fullmatch(path)) and not os.path.exists(path):
        raise InputError("--from-log", f"{wrong[1]!r} is not nodes=N, gpus=N, batch=N or waiting=MS", HOW)
    with open_regular(path) as file:
        log = read_step_log(pieces(), path)
    nodes = told.get("nodes", log.nodes or 1)
    gpus = told.get("gpus", log.gpus or nodes)
    if gpus < nodes:
        raise InputError(path, f"{gpus} GPUs are fewer than its {nodes} nodes", HOW)
    batch = told.get("batch", log.batch or (log.global_batch or 0) // gpus)
    if not batch:
        raise InputError(path, "it does not say its batch", HOW)
    run = LoggedRun(path, log, nodes, gpus, batch, waiting_s)
    if not isnan(waiting_s) and not 0 < waiting_s < run.step_s:
        what = f"{waiting_s * 1e3:g} ms of waiting are not within its steps of {milliseconds(run.step_s)} ms"
        raise InputError(path, what, "Give the milliseconds of a step that pass after the backward pass, for gradients")
    return run


def read_runs(given: Sequence[str]) -> list[LoggedRun]:
    """Read all logs."""
    if len(given) > _MOST_LOGS:
        raise InputError("--from-log", f"{len(given)} logs", f"Give at most {_MOST_LOGS}")
    return [read_run(each) for each in given]


def fitted_to(runs: Sequence[LoggedRun], prior: LayersPrior | None) -> LayoutFit:
    """The model of the job that its runs tell, and its layers where these say nothing."""
    import numpy as np

    from perdure.throughput.layout_fit import fit_layouts
    from perdure.throughput.layout_speed import USUAL, SeenSteps

    seen = SeenSteps(
        np.array([run.nodes for run in runs]), np.array([run.gpus for run in runs]),
        np.array([run.batch for run in runs], float), np.array([run.step_s for run in runs]),
        np.array([run.waiting_s for run in runs]),
    )  # fmt: skip
    if prior is None:
        return fit_layouts(seen, USUAL)
    alone = next((run for run in runs if run.gpus == 1), None)
    first = alone or runs[0]
    return fit_layouts(seen, prior(first.batch, alone.step_s if alone else None))


def steps_on(
    given: Sequence[str], prior: LayersPrior | None, batch: int, per_node: int
) -> tuple[int, Callable[[int], tuple[float, float, float]]]:
    """The batch of a GPU, and the seconds of a step on so many GPUs: low, middle, high. 0 of either is the logs'."""
    runs = read_runs(given)
    fitted = fitted_to(runs, prior)
    size, each = batch or runs[0].batch, per_node or _each(runs)

    def on(gpus: int) -> tuple[float, float, float]:
        nodes = -(-gpus // each)
        low, high = fitted.interval(nodes, gpus, size)
        return float(low), float(fitted.model.step_s(nodes, gpus, size)), float(high)

    return size, on


def _each(runs: Sequence[LoggedRun]) -> int:
    return max(-(-run.gpus // run.nodes) for run in runs)


def answer(
    given: Sequence[str], nodes: Sequence[int], gpus_per_node: Sequence[int] | None, batch: Sequence[int] | None,
    prior: LayersPrior | None, as_json: bool, wide: bool,
) -> int:  # fmt: skip
    """Read the logs, fit the model to them, and say how the job trains on other layouts."""
    runs = read_runs(given)
    fitted = fitted_to(runs, prior)
    each = gpus_per_node or [_each(runs)]
    batches = batch or sorted({run.batch for run in runs})
    rows = [_row(fitted, *asked) for asked in product(nodes, each, batches)]
    if as_json:
        logs = [
            {"source": run.source, "form": run.log.form, "steps": run.log.count, "step_s": run.step_s,
             "nodes": run.nodes, "gpus": run.gpus, "batch": run.batch}
            for run in runs
        ]  # fmt: skip
        print_json("speed-from-log", 1, logs=logs, settings=rows)
        return 0
    for run in runs:
        print_line(run.said)
    print_table(COLUMNS, map(_cells, rows), wide=wide)
    return 0


def _row(fitted: LayoutFit, nodes: int, each: int, batch: int) -> Mapping[str, Any]:
    gpus = nodes * each
    step = float(fitted.model.step_s(nodes, gpus, batch))
    low, high = (float(value) for value in fitted.interval(nodes, gpus, batch))
    alone, waiting = float(fitted.model.step_s(1, 1, batch)), float(fitted.model.waiting_s(nodes, gpus, batch))
    return {
        "nodes": nodes, "gpus": gpus, "batch": batch, "step_s": step, "step_s_80_percent": [low, high],
        "waiting_s": waiting, "examples_per_s": gpus * batch / step, "scaling_efficiency": alone / step,
        "known_by": fitted.known_by(nodes, gpus, batch),
    }  # fmt: skip


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    low, high = row["step_s_80_percent"]
    return (
        str(row["nodes"]), str(row["gpus"]), str(row["batch"]), f"{milliseconds(row['step_s'])} ms",
        f"{milliseconds(low)}-{milliseconds(high)}", digits(row["examples_per_s"]), f"{row['scaling_efficiency']:.0%}",
        row["known_by"],
    )  # fmt: skip
