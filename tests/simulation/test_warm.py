"""What `make setup` compiles in the background is all that replays run."""

import pytest

from perdure.model.cluster import Cluster
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.simulation.workload import Workload
from tests.simulation.tables import jobs as table_of

pytest.importorskip("numba")


def test_every_compiled_loop_is_warmed():
    from perdure.simulation.compiled import anew, backfill, drive, once, philly
    from perdure.simulation.compiled.warm import POLICIES

    jobs = Workload.of(table_of((1, 0.0, 5.0)))
    loops = (drive.compiled(jobs, Cluster.parse("1x8"), policy_named(name, PolicyOptions()), None) for name in POLICIES)
    assert {loop.advance for loop in loops} == {anew.advance, backfill.advance, once.advance, philly.advance}
