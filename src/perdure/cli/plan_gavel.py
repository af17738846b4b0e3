"""The rounds of Gavel that ``perdure plan`` decides: fractions of time, for one objective each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.scheduling.gavel import Allocation, Floats, GavelRound
    from perdure.scheduling.themis import Counts

MOST = 1 << 31  # GPUs, nodes and places of jobs
State = Mapping[str, Any]


def _las(state: State) -> dict[str, Any]:
    from perdure.scheduling.gavel import least_attained

    cluster = _round(state)
    return _fair(cluster, least_attained(cluster))


def _water(state: State) -> dict[str, Any]:
    from perdure.scheduling.gavel import water_filling

    cluster = _round(state)
    return _fair(cluster, water_filling(cluster))


def _packed(state: State) -> dict[str, Any]:
    import numpy as np

    from perdure.scheduling.gavel import Allocation
    from perdure.scheduling.gavel_packed import PackedRound, least_attained

    cluster = _round(state)
    pairs = counts("pairs", state["pairs"]).reshape(-1, 2)
    together = np.array(state["pair_throughputs"], float).reshape(len(pairs), 2, len(cluster.workers))
    found, jobs = least_attained(PackedRound(cluster, pairs, together)), len(cluster.throughput)
    answer = _fair(cluster, Allocation(found.value, found.fractions[:jobs]))
    return {**answer, "pair_allocation": found.fractions[jobs:].tolist()}


def _makespan(state: State) -> dict[str, Any]:
    from perdure.scheduling.gavel import makespan

    cluster = _round(state)
    found = makespan(cluster, _column(state, "steps_left", len(cluster.throughput)))
    return {"makespan_s": 1.0 / found.value, "allocation": found.fractions.tolist()}


def _finish_time(state: State) -> dict[str, Any]:
    from perdure.scheduling.gavel import finish_time_fairness

    cluster = _round(state)
    left, alone_s = (_column(state, name, len(cluster.throughput)) for name in ("steps_left", "alone_s"))
    found = finish_time_fairness(cluster, _column(state, "spent_s", len(left), zero=True), left, alone_s)
    return {"max_rho": found.value, "allocation": found.fractions.tolist()}


def _fifo(state: State) -> dict[str, Any]:
    import numpy as np

    from perdure.scheduling.gavel import first_come

    cluster = _round(state)
    return _sum(first_come(cluster, np.arange(len(cluster.throughput))))


def _cost(state: State) -> dict[str, Any]:
    from perdure.scheduling.gavel import total_throughput

    cluster = _round(state)
    return _sum(total_throughput(cluster, _column(state, "prices", len(cluster.workers))))


def _round(state: State) -> GavelRound:
    import numpy as np

    from perdure.scheduling.gavel import GavelRound

    def column(name: str) -> Any:
        return np.array(state[name], float) if state.get(name) is not None else None

    throughput, workers = np.array(state["throughputs"], float), np.array(state["workers"], float)
    return GavelRound.of(throughput, workers, column("scale_factors"), column("weights"))


def counts(name: str, values: object, least: int = 0) -> Counts:
    """Whole numbers from `least` on."""
    import numpy as np

    found = np.array(values, float)
    wrong = found[~((found >= least) & (found <= MOST) & (found == np.floor(found)))]
    if wrong.size:
        raise ValueError(f"{name} has {wrong[0]:g}, which is no whole number from {least} to {MOST}")
    return found.astype(np.int64)


def _column(state: State, name: str, count: int, *, zero: bool = False) -> Floats:
    """So many numbers above 0, or from 0 on."""
    import numpy as np

    found = np.array(state[name], float)
    if found.shape != (count,):
        raise ValueError(f"{name} has not {count} numbers")
    if not (np.isfinite(found) & ((found > 0) | (zero & (found == 0)))).all():
        raise ValueError(f"{name} has a value that is no number {'from 0 on' if zero else 'above 0'}")
    return found


def _fair(cluster: GavelRound, found: Allocation) -> dict[str, Any]:
    from perdure.scheduling.gavel import equal_share

    norm, fractions = equal_share(cluster).tolist(), found.fractions.tolist()
    return {"opt_min_normalised": found.value, "norm": norm, "allocation": fractions}


def _sum(found: Allocation) -> dict[str, Any]:
    return {"objective": found.value, "allocation": found.fractions.tolist()}


GAVEL: Mapping[str, Callable[[State], dict[str, Any]]] = {
    "gavel-las": _las,
    "gavel-las-packed": _packed,
    "gavel-water": _water,
    "gavel-ftf": _finish_time,
    "gavel-makespan": _makespan,
    "gavel-fifo": _fifo,
    "gavel-cost": _cost,
}
