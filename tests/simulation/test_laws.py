"""Every policy on every placement obeys the laws of a schedule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.registry import COUNT, PLACEMENTS
from perdure.scheduling.policies import POLICIES, PolicyOptions, policy_named
from perdure.simulation.checks import LAWS, Replay
from perdure.simulation.simulate import simulate
from tests.copying import replace
from tests.simulation.tables import jobs, tables

OPTIONS = PolicyOptions(queue_limits=(20.0, 60.0))
NAMES = [*POLICIES, "sjf:skip", "las-2d:0.5"]
quick = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", NAMES)
@quick
@given(table=tables(attempts=True), placement=st.sampled_from([COUNT, *PLACEMENTS]), racks=st.sampled_from([0, 1, 2]))
def test_laws(name: str, law: Callable[[Replay], None], table: JobTable, placement: str, racks: int) -> None:
    cluster = Cluster.parse("3x4+1x8", rack_nodes=racks)
    law(Replay(table, cluster, policy_named(name, OPTIONS), placement, seed=7))


@quick
@given(table=tables())
def test_fifo_starts_in_the_order_of_submit(table: JobTable) -> None:
    assert (np.diff(simulate(table, Cluster.parse("2x4"), "fifo").start_s) >= 0).all()


@quick
@given(table=tables(attempts=True), name=st.sampled_from(["fifo", "sjf", "srtf", "srsf", "las-2d", "easy", "philly"]))
def test_twice_the_gpus_for_gangs_twice_as_wide_change_nothing(table: JobTable, name: str) -> None:
    limits = OPTIONS.queue_limits
    wide = jobs(
        *zip(table.gpus * 2, table.submit_s, table.duration_s, strict=True),
        vc=table.vc.tolist(),
        user=table.user.tolist(),
        attempts=table.attempts,
    )
    twice = PolicyOptions(queue_limits=(2 * limits[0], 2 * limits[1]))
    narrow = simulate(table, Cluster.parse("1x8"), name, options=OPTIONS)
    assert simulate(wide, Cluster.parse("1x16"), name, options=twice).digest() == narrow.digest()


@quick
@given(table=tables(max_gpus=1))
def test_srtf_is_optimal_on_one_machine(table: JobTable) -> None:
    best = simulate(table, Cluster.parse("1x1"), "srtf").end_s.sum()
    for name in NAMES:
        assert best <= simulate(table, Cluster.parse("1x1"), policy_named(name, OPTIONS)).end_s.sum()


@quick
@given(table=tables())
def test_conservative_backfilling_delays_nobody(table: JobTable) -> None:
    """With true running times no job starts later than in strict order; what takes no time is planned for a tick."""
    table = replace(table, duration_s=table.duration_s + 1)
    strict, filled = (simulate(table, Cluster.parse("1x8"), name) for name in ("fifo", "conservative"))
    assert (filled.start_s <= strict.start_s).all()


def test_waits_are_those_of_queueing_theory() -> None:
    """M/M/c: Erlang's formula, within four standard errors over independent seeds."""
    machines, load, n = 4, 0.7, 4000
    offered = machines * load
    terms = np.cumprod(np.concatenate([[1.0], offered / np.arange(1, machines + 1)]))
    queued = terms[-1] / (1 - load)
    wanted = queued / (terms[:-1].sum() + queued) / (machines * (1 - load))
    waits = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        submit = np.cumsum(rng.exponential(1 / offered, n))
        table = jobs(*zip(np.ones(n), submit, rng.exponential(1.0, n), strict=True))
        waits.append((simulate(table, Cluster.parse(f"1x{machines}"), "fifo").start_s - submit)[500:].mean())
    assert abs(np.mean(waits) - wanted) < 4 * np.std(waits, ddof=1) / np.sqrt(len(waits))
