"""How often the intervals of ``perdure whatif`` hold the truth: many drawn traces, each compared by itself.

``python -m benchmarks.whatif_intervals`` (a minute). The truth is what all traces together say.
"""

from __future__ import annotations

import numpy as np

from perdure.model.cluster import Cluster
from perdure.simulation.by_day import MEASURES, DayTotals, day_totals
from perdure.simulation.difference import differences
from perdure.simulation.simulate import simulate
from perdure.traces.generate import generate

CLUSTER = Cluster.parse("8x8")
SETTINGS = ((0.6, 3_000, 60), (0.8, 3_000, 60), (0.8, 10_000, 40))  # load, jobs, traces
FIRST, OTHERS = "fjf", ("sjf", "srtf", "las-2d")


def main() -> None:
    """Print, for each load, length and policy: share of the intervals that hold the truth, that are sure, and wrong."""
    print(f"load  days  against {FIRST}  of         truth  hold  sure  sure and wrong")
    for load, jobs, traces in SETTINGS:
        found = [_totals(load, jobs, seed) for seed in range(traces)]
        days = np.mean([each[FIRST].jobs.shape[1] for each in found])
        for policy in OTHERS:
            for measure in ("jct_s", "log_jct", "slowdown"):
                truth, held, sure, wrong = _tried(found, policy, measure)
                shares = f"{truth:+.2f}  {held:.2f}  {sure:.2f}  {wrong:.2f}"
                print(f"{load:4}  {days:4.0f}  {policy:11}  {measure:9}  {shares}")


def _totals(load: float, jobs: int, seed: int) -> dict[str, DayTotals]:
    table = generate(jobs, CLUSTER, load, np.random.default_rng(seed))
    return {policy: day_totals(table, simulate(table, CLUSTER, policy), ()) for policy in (FIRST, *OTHERS)}


def _tried(found: list[dict[str, DayTotals]], policy: str, measure: str) -> tuple[float, float, float, float]:
    n = MEASURES.index(measure)
    mine, theirs = (sum(each[name].totals[n, 0].sum() for each in found) for name in (policy, FIRST))
    jobs = sum(each[FIRST].jobs[0].sum() for each in found)
    truth = float(np.expm1((mine - theirs) / jobs) if measure == "log_jct" else mine / theirs - 1)
    held = sure = wrong = 0
    for each in found:
        one = differences([each[policy]], [each[FIRST]])[(None, "")][measure]
        assert one.low is not None
        assert one.high is not None
        held += one.low <= truth <= one.high
        sure += one.is_sure
        wrong += one.is_sure and (one.low > 0) != (truth > 0)
    return truth, held / len(found), sure / len(found), wrong / len(found)


if __name__ == "__main__":
    main()
