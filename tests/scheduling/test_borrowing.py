"""How much a virtual cluster may borrow: without a cap all that is idle, with one so many times its quota."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs, tables

EIGHT = Cluster.parse("1x8")
QUOTAS = PolicyOptions(quotas={"a": 4.0, "b": 4.0})


def starts(policy: str, *rows: tuple[int, int, int], vc: str) -> Any:
    return simulate(jobs(*rows, vc=list(vc)), EIGHT, policy, options=QUOTAS).start_s.tolist()


@pytest.mark.parametrize("name", ["capacity", "philly"])
def test_the_cap_holds_idle_gpus_back(name: str) -> None:
    """Eight jobs of a want one GPU each, its quota is four, nobody else is there."""
    eight = [(1, 0, 10)] * 8
    assert starts(name, *eight, vc="a" * 8) == [0] * 8
    assert starts(f"{name}:1.5", *eight, vc="a" * 8) == [0] * 6 + [10] * 2
    assert starts(f"{name}:1", *eight, vc="a" * 8) == [0] * 4 + [10] * 4


@pytest.mark.parametrize("name", ["capacity", "philly"])
def test_a_job_wider_than_the_cap_runs_by_itself(name: str) -> None:
    assert starts(f"{name}:1", (2, 0, 10), (7, 0, 10), (1, 0, 10), vc="aab") == [0, 10, 0]


@given(table=tables(), most=st.sampled_from([1, 1.5, 3]))
@settings(max_examples=30, deadline=None)
def test_nobody_holds_more_than_the_cap_where_all_borrow(table: JobTable, most: float) -> None:
    """Under `philly` a quota is a right besides, so that what was borrowed before may come on top."""
    quota = {"a": 3.0, "b": 3.0, "c": 2.0}
    found = simulate(table, EIGHT, f"capacity:{most}", options=PolicyOptions(quotas=quota), spans=True)
    spans = found.spans
    for group, gpus in quota.items():
        mine = table.vc[spans.job] == group
        widest = int(table.gpus[table.vc == group].max(initial=0))
        for at in spans.start_s[mine]:
            there = mine & (spans.start_s <= at) & (at < spans.end_s)
            assert table.gpus[spans.job[there]].sum() <= max(most * gpus, widest)


@pytest.mark.parametrize("text", ["capacity:0.5", "philly:x", "philly:inf", "capacity:nan", "capacity:-1"])
def test_a_cap_is_a_number_from_1_on(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a cap"):
        policy_named(text)


def test_a_policy_with_a_cap_is_named_with_it() -> None:
    assert policy_named("capacity:1.50").name == "capacity:1.5"
    assert policy_named("philly").name == "philly"
