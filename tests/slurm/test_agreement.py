"""Random jobs on a real Slurm start when the simulation says, decision by decision.

A few jobs here; ``make slurm-agreement N=30`` takes more of them, and a Slurm without weights and backfill as well.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.slurm_agreement import agreement, report
from benchmarks.slurm_recording import drawn, record, scheduled
from tests.slurm.harness import require_slurm

pytestmark = pytest.mark.slurm
JOBS = int(os.environ.get("AGREEMENT_JOBS", "10"))


@pytest.mark.slow
def test_without_weights_and_backfill_a_real_slurm_is_fifo(tmp_path: Path) -> None:
    require_slurm()
    with scheduled(tmp_path / "c", "builtin") as cluster:
        found = record(cluster, drawn(np.random.default_rng(1), JOBS, "builtin", load=3.0))
    starts_s = np.array([job.start_s for job in found.jobs])
    assert not any(job.by_backfill for job in found.jobs)
    assert (np.diff(starts_s) >= 0).all(), starts_s.tolist()
    assert agreement(found).differs == {}


def test_most_decisions_of_a_real_slurm_are_those_of_the_simulation(tmp_path: Path) -> None:
    """Sites without weights as well: ``python -m benchmarks.slurm_agreement``.

    Of eight traces of 60 jobs 0 to 4 differed in each (3% of all), for what is not modelled: nodes that are
    completing, and when passes are made. A busy machine makes more of both, and one such difference often takes a
    second job with it: one of six is allowed. The order never differed. Few jobs come faster than those of the traces,
    so that nearly all of them wait.
    """
    require_slurm()
    with scheduled(tmp_path / "c", "weights") as cluster:
        found = agreement(record(cluster, drawn(np.random.default_rng(2), JOBS, "weights", load=3.0)))
    assert len(found.differs) <= -(-JOBS // 6), "\n".join([str(found.differs), *report([found])])
    assert "order" not in found.differs.values()
