"""Philly's study of delays again: jobs wait for their quota or for a place, and the wider the more often for a place.

Source: M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import PolicyOptions
from perdure.simulation.executors.processes import spread
from perdure.simulation.occupancy import occupancy
from perdure.simulation.result import Result
from perdure.simulation.simulate import simulate
from perdure.studies.estimate import Estimate, Progress, estimates, stream
from perdure.studies.wait_causes import SIZES, Delays, delays, quotas_by_demand
from perdure.traces.arrivals import PHILLY
from perdure.traces.generate import generate

PUBLISHED: Mapping[str, Any] = {
    "source": "published: M. Jeon et al., USENIX ATC 2019, table 2",
    "fragmentation_tries": {"2-4": 0.594, "5-8": 0.742, ">8": 0.979},
    "nodes_in_use": 0.739,  # mean of the log's node activity, October to December 2017
    "free_nodes_at_two_thirds": 0.045,  # at most
    "wait_s": {"mean": 3761.0, "p50": 189.0},  # of all jobs of the log, as the Acme trace summarises it
}
_TWO_THIRDS = 0.60, 0.73
_A_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class DelayFigures:
    """Jobs of one size: how long they waited, and the share of fragmentation in it, counted in three ways.

    Fragmentation is all that is not a fair-share delay, as in the paper: the virtual cluster had quota left.
    `scattered` is the part of the seconds in which GPUs enough were free, but no place.
    """

    gpus: str
    jobs: Estimate
    wait_s: Estimate
    fragmentation_tries: Estimate  # of the tries that did not start a job; the published count
    fragmentation_jobs: Estimate  # of the jobs that waited for over a minute: those that most of the time waited for it
    fragmentation_seconds: Estimate
    scattered: Estimate


@dataclass(frozen=True, slots=True)
class DelayStudy:
    """What `delay` found, and with which jobs; use is counted until the last submit."""

    jobs: int
    cluster: str
    rack_nodes: int
    placement: str
    load: float
    slack: float
    vc_days: float
    borrowing: float | None
    seeds: int
    gpus_in_use: Estimate
    nodes_in_use: Estimate
    free_nodes_at_two_thirds: Estimate  # share of wholly free nodes while some two thirds of the GPUs are in use
    wait_s: Estimate
    median_wait_s: Estimate
    figures: tuple[DelayFigures, ...]
    published: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def delay(
    n_jobs: int = 60_000,
    load: float = 0.65,
    seeds: int = 10,
    cluster: str = "321x2+231x8",
    rack_nodes: int = 24,
    placement: str = "spread-ladder",
    slack: float = 1.0,
    whole_gang: bool = False,
    vc_days: float = 0.0,
    borrowing: float | None = None,
    progress: Progress = lambda done, runs: None,  # noqa: ARG005
    workers: int = 1,
) -> DelayStudy:
    """Philly's study of delays, on drawn jobs without failures, on its machines and under its scheduler.

    Set by what is published: the machines, the mix of jobs, the tries two to three minutes apart. The load is such
    that as many nodes are in use as in the log, and racks and nodes are tried the emptiest first, since so few
    were wholly free. Not published are the racks, for which `rack_nodes` consecutive nodes stand, after how many tries
    locality is relaxed, and the quotas: each virtual cluster has its share in the GPU time asked for, times `slack`.
    The share of fragmentation follows the slack, from little to nearly all; that it rises with size does not.

    `whole_gang`: see `delays`. `vc_days` is how unevenly the jobs of a virtual cluster come from day to day, see
    `Arrivals`; `borrowing` caps how many times its quota a virtual cluster may hold, without one it borrows what is
    idle. Seeds are spread over this many processes as `workers` says. Raises `InputError` for
    numbers out of their range.
    """
    nodes = Cluster.parse(cluster, rack_nodes)
    case = _DelayCase(n_jobs, load, nodes, placement, slack, whole_gang, vc_days, borrowing)
    found: dict[int, _Rows] = {}
    for seed, rows in spread(_of_seed, (case,), range(seeds), workers):
        found[seed] = rows
        progress(len(found), seeds)
    in_order = [found[seed] for seed in range(seeds)]
    figures = tuple(DelayFigures(name, **estimates([rows[name] for _, rows in in_order])) for name, _, _ in SIZES)
    said = n_jobs, cluster, rack_nodes, placement, load, slack, vc_days, borrowing, seeds
    return DelayStudy(*said, **estimates([whole for whole, _ in in_order]), figures=figures, published=PUBLISHED)


class _DelayCase(NamedTuple):
    """What all seeds share; see `delay`."""

    n_jobs: int
    load: float
    nodes: Cluster
    placement: str
    slack: float
    whole_gang: bool
    vc_days: float
    borrowing: float | None


_Rows = tuple[dict[str, float], dict[str, dict[str, float]]]  # figures of the cluster, and of the jobs of each size


def _of_seed(case: _DelayCase, seed: int) -> _Rows:
    arrivals = replace(PHILLY, vc_days=case.vc_days)
    table = generate(case.n_jobs, case.nodes, case.load, stream(seed), failures=False, arrivals=arrivals)
    quotas = {name: case.slack * gpus for name, gpus in quotas_by_demand(table, case.nodes.total_gpus).items()}
    options = PolicyOptions(quotas=quotas)
    policy = "philly" if case.borrowing is None else f"philly:{case.borrowing:g}"
    result = simulate(table, case.nodes, policy, case.placement, seed=seed, options=options, spans=True)
    split = delays(table, result, quotas, case.whole_gang)
    wait_s = result.start_s - table.submit_s
    by_size = {
        name: _of_size((table.gpus >= least) & (table.gpus <= most), wait_s, split) for name, least, most in SIZES
    }
    whole = {"wait_s": float(wait_s.mean()), "median_wait_s": float(np.median(wait_s))}
    return _of_cluster(table, result, case.nodes) | whole, by_size


def _of_cluster(table: JobTable, result: Result, nodes: Cluster) -> dict[str, float]:
    assert result.spans is not None
    use = occupancy(result.spans, nodes, float(table.submit_s[-1]))
    return {
        "gpus_in_use": use.mean_gpus(),
        "nodes_in_use": use.mean_nodes(),
        "free_nodes_at_two_thirds": use.free_nodes_while(*_TWO_THIRDS),
    }


def _of_size(rows: NDArray[np.bool_], wait_s: NDArray[np.float64], split: Delays) -> dict[str, float]:
    seconds, tries = split.seconds, split.tries
    mostly = seconds.fragmentation > seconds.fair_share
    return {
        "jobs": float(rows.sum()),
        "wait_s": _mean(wait_s[rows]),
        "fragmentation_tries": _share(tries.fragmentation[rows], tries.fair_share[rows]),
        "fragmentation_jobs": _mean(mostly[rows & (wait_s > _A_WAIT_S)]),
        "fragmentation_seconds": _share(seconds.fragmentation[rows], seconds.fair_share[rows]),
        "scattered": _share(seconds.scattered[rows], (seconds.shortage + seconds.fair_share)[rows]),
    }


def _share(part: NDArray[np.float64], rest: NDArray[np.float64]) -> float:
    """What `part` sums up to in both together; NaN where there is nothing to share."""
    whole = float(part.sum() + rest.sum())
    return float(part.sum()) / whole if whole else np.nan


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else np.nan
