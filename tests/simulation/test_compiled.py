"""The compiled loop and the plain one make the same schedules."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.simulation.asking import Again, Failed
from perdure.simulation.compiled.drive import compiled
from perdure.simulation.faults import NodeFaults
from perdure.simulation.simulate import simulate
from perdure.simulation.workload import Workload
from tests.simulation.tables import faulty, tables

PLACES = ["count", "first-fit", "best-fit", "consolidate", "ladder:15"]
POLICIES = ["fifo", "fjf", "sjf", "sjf:skip", "capacity", "drf", "philly", "easy", "conservative"]
POLICIES += ["srtf", "srsf", "fewest-gpus", "las", "las-2d", "las-2d:0.5", "las-2d:2", "gittins-2d"]
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def answer(failed: Failed) -> Again | None:
    """A retry policy that depends on all that it is told."""
    chance = zlib.crc32(repr(failed).encode())
    return (None, Again(), Again(3.0), Again(avoid=failed.nodes), Again(1.0, (failed.bad,) if failed.bad >= 0 else ()))[
        chance % 5
    ]


@pytest.mark.parametrize("name", POLICIES)
@quick
@given(
    given_=faulty(max_jobs=25), placement=st.sampled_from(PLACES), racks=st.sampled_from([0, 1, 2]),
    asks=st.booleans(), compat=st.sampled_from([None, "tiresias"]),
)
def test_both_loops_agree(
    name: str, given_: tuple[JobTable, NodeFaults], placement: str, racks: int, asks: bool, compat: None
) -> None:
    table, faults = given_
    cluster = Cluster.parse("3x4+1x8", rack_nodes=racks)
    options = PolicyOptions(queue_limits=(20.0, 60.0))
    plain, fast = (
        simulate(
            table, cluster, name, placement, answer if asks else None, compat=compat, options=options, engine=engine,
            faults=faults,
        )
        for engine in ("plain", "compiled")
    )
    for column in ("start_s", "end_s", "preempted", "promoted", "passed"):
        assert np.array_equal(getattr(fast, column), getattr(plain, column)), column
    for column in ("job", "number", "submit_s", "start_s", "end_s", "ran_s", "passed", "node", "record"):
        assert np.array_equal(getattr(fast.attempts, column), getattr(plain.attempts, column)), column
    assert fast.digest() == plain.digest()
    assert fast.busy_gpu_s == plain.busy_gpu_s


@pytest.mark.parametrize("name", POLICIES)
@given(table=tables(max_jobs=1))
@settings(max_examples=1)
def test_these_policies_are_compiled(name: str, table: JobTable) -> None:
    assert compiled(Workload.of(table), Cluster.parse("1x8"), policy_named(name), None) is not None
