"""All figures of a comparison as one CSV file: a row for each run, and each group of jobs and each day of it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from perdure.simulation.comparison import PolicyComparison
from perdure.simulation.groups import GroupKind
from perdure.simulation.metrics import GroupMetrics, Metrics, MetricSpread
from perdure.simulation.sweep import Run

_SPREAD = ("mean", "p50", "p90", "p95", "p99")
_SPREADS = ("jct_s", "wait_s", "slowdown", "rho")
_ONES = (
    "gpu_h",
    "used",
    "used_in_window",
    "restart_gpu_h",
    "goodput",
    "wasted_gpu_h",
    "success_rate",
    "preemptions",
    "makespan_s",
)
COLUMNS = (
    "trace", "policy", "retry", "seed", "of", "name", "jobs", *(f"{name}_{at}" for name in _SPREADS for at in _SPREAD),
    *_ONES,
)  # fmt: skip


def write_csv(path: Path, found: PolicyComparison) -> None:
    """Write the file; cells of what is not known of a group or day are empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        rows.writeheader()
        for run in (*found.was, *found.runs):
            case = run.case
            names = {"trace": found.traces[case.trace], "policy": case.policy, "retry": case.retry, "seed": case.seed}
            rows.writerows(names | row for row in _rows(run))


def _rows(run: Run) -> Iterator[dict[str, object]]:
    found = run.metrics
    ones = {"used": found.utilisation, "used_in_window": found.used_in_window, "restart_gpu_h": found.restart_gpu_h}
    ones |= {"preemptions": found.preemptions, "makespan_s": found.makespan_s}
    yield _figures(found) | ones | {"of": "all jobs", "name": ""}
    kinds = (GroupKind.CLUSTER, found.groups), (GroupKind.USER, found.users), (GroupKind.GPUS, found.sizes)
    for kind, groups in kinds:
        for name, group in groups.items():
            yield _figures(group) | {"gpu_h": group.gpu_h, "of": kind.value, "name": name}
    first, shares = run.use_by_day
    for place, share in enumerate(shares):
        yield {"of": "day", "name": first + place, "used": share}


def _figures(found: Metrics | GroupMetrics) -> dict[str, object]:
    spreads: dict[str, MetricSpread] = {name: getattr(found, name) for name in _SPREADS}
    cells: dict[str, object] = {f"{name}_{at}": getattr(each, at) for name, each in spreads.items() for at in _SPREAD}
    ones = {name: getattr(found, name) for name in ("jobs", "goodput", "wasted_gpu_h", "success_rate")}
    return cells | ones
