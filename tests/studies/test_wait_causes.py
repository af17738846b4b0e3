"""Why jobs waited, by hand and as laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import PolicyOptions
from perdure.simulation.simulate import simulate
from perdure.studies.wait_causes import TRY_S, Causes, delays, quotas_by_demand
from tests.simulation.tables import jobs, tables

ONE, TWO = Cluster.parse("1x8"), Cluster.parse("2x4")
TRIED = 2 * TRY_S - 10  # a wait of that long is tried twice


def told(causes: Causes) -> list[Any]:
    return [np.round(part, 6).tolist() for part in (causes.fair_share, causes.shortage, causes.scattered)]


def test_a_used_quota_is_a_fair_share_delay() -> None:
    table = jobs((4, 0, TRIED + 10), (4, 0, 5000), (4, 10, 10), vc=["a", "b", "a"])
    quotas = {"a": 4.0, "b": 4.0}
    found = simulate(table, ONE, "philly", options=PolicyOptions(quotas=quotas), spans=True)
    split = delays(table, found, quotas)
    assert told(split.seconds) == [[0, 0, TRIED], [0, 0, 0], [0, 0, 0]]
    assert told(split.tries) == [[0, 0, 2], [0, 0, 0], [0, 0, 0]]


def test_a_quota_that_others_hold_is_a_shortage() -> None:
    table = jobs((8, 0, TRIED + 10), (4, 10, 10), vc=["a", "b"])
    split = delays(table, simulate(table, ONE, "fifo"), {"a": 4.0, "b": 4.0})
    assert told(split.seconds) == [[0, 0], [0, TRIED], [0, 0]]
    assert told(split.tries) == [[0, 0], [0, 2], [0, 0]]
    assert split.seconds.fragmentation[1] == TRIED


def test_free_gpus_on_two_nodes_are_scattered() -> None:
    table = jobs((3, 0, 100), (3, 0, 100), (2, 10, 5), vc=["a", "a", "a"])
    split = delays(table, simulate(table, TWO, "fifo", "consolidate"), {"a": 8.0})
    assert told(split.seconds) == [[0, 0, 0], [0, 0, 0], [0, 0, 90]]
    assert told(split.tries) == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_a_quota_is_used_up_when_nothing_is_left_or_less_than_the_gang_needs() -> None:
    table = jobs((3, 0, 100), (3, 0, 100), (2, 10, 5), vc=["a", "a", "a"])
    found = simulate(table, TWO, "fifo", "consolidate")
    assert delays(table, found, {"a": 7.0}).seconds.scattered[2] == 90
    assert delays(table, found, {"a": 7.0}, whole_gang=True).seconds.fair_share[2] == 90
    assert delays(table, found, {"a": 6.9}).seconds.fair_share[2] == 90


def test_causes_change_while_a_job_waits() -> None:
    """Its virtual cluster uses up its quota until 50; then the other one's job holds the only node until 100."""
    table = jobs((4, 0, 50), (4, 0, 100), (8, 10, 5), vc=["a", "b", "a"])
    split = delays(table, simulate(table, ONE, "fifo"), {"a": 4.0, "b": 4.0})
    assert told(split.seconds) == [[0, 0, 40], [0, 0, 50], [0, 0, 0]]


@settings(deadline=None, max_examples=60)
@given(
    tables(), st.sampled_from(["fifo", "philly", "srtf", "drf", "maxmin"]),
    st.sampled_from(["count", "best-fit", "ladder", "spread-ladder"]), st.booleans(),
)  # fmt: skip
def test_causes_of_a_wait_sum_to_it(table: JobTable, policy: Any, placement: Any, whole_gang: bool) -> None:
    cluster = Cluster.parse("2x8", rack_nodes=1)
    found = simulate(table, cluster, policy, placement, spans=True)
    split = delays(table, found, quotas_by_demand(table, 16), whole_gang)
    wait_s = found.start_s - table.submit_s
    for causes, whole in ((split.seconds, wait_s), (split.tries, np.ceil(wait_s / TRY_S))):
        assert np.allclose(causes.fair_share + causes.fragmentation, whole)
        assert min(part.min() for part in (causes.fair_share, causes.shortage, causes.scattered)) >= -1e-9


@settings(deadline=None, max_examples=60)
@given(tables(), st.sampled_from(["philly", "fjf", "srtf"]))
def test_nothing_is_scattered_where_gpus_are_only_counted(table: JobTable, policy: Any) -> None:
    """These policies leave no free GPUs that a waiting gang could use."""
    split = delays(table, simulate(table, ONE, policy, spans=True), quotas_by_demand(table, 8))
    assert split.seconds.scattered.max() == pytest.approx(0)
    assert split.tries.scattered.max() == 0


@settings(deadline=None, max_examples=40)
@given(tables(), st.floats(1.0, 3.0))
def test_larger_quotas_are_used_up_less(table: JobTable, slack: float) -> None:
    found = simulate(table, Cluster.parse("2x8"), "fifo", "best-fit")
    quotas = quotas_by_demand(table, 16)
    more = {name: slack * gpus for name, gpus in quotas.items()}
    tight, loose = delays(table, found, quotas).seconds, delays(table, found, more).seconds
    assert (loose.fair_share <= tight.fair_share + 1e-9).all()


@given(tables())
@settings(deadline=None)
def test_quotas_by_demand_share_the_cluster_out(table: JobTable) -> None:
    assert sum(quotas_by_demand(table, 24).values()) == pytest.approx(24)


def test_what_cannot_be_split_is_refused() -> None:
    table = jobs((8, 0, 100), (8, 10, 5), vc=["a", "b"])
    with pytest.raises(ValueError, match="quota for virtual cluster 'b'"):
        delays(table, simulate(table, ONE, "fifo"), {"a": 8.0})
    with pytest.raises(ValueError, match="spans"):
        delays(table, simulate(table, ONE, "srtf"), {"a": 4.0, "b": 4.0})
