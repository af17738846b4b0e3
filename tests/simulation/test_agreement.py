"""Comparing simulated starts with recorded ones, on records that the simulation made itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.slurm_agreement import agreement, report, settings_of
from benchmarks.slurm_recording import GPUS, NODES, SITES, RecordedJob, Recording, drawn
from perdure.model.cluster import Cluster
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.live import LiveQueue, PlainLive

CONF = (
    f"NodeName=node[1-{NODES}] CPUs=8 Gres=gpu:h100:{GPUS}\nPartitionName=main Nodes=ALL Default=YES\n"
    "PartitionName=urgent Nodes=ALL PriorityTier=9\n"
)


def recorded(jobs: list[RecordedJob], site: str) -> Recording:
    """What a Slurm would have recorded that does exactly what the simulation says."""
    for job in jobs:
        job.submit_s = job.asked_s = 1000.0 + round(job.asked_s)
        job.start_s, job.end_s = np.nan, np.nan
    made = Recording(site, SITES[site] + CONF, "made up", jobs, 1000.0)
    table = replace(made.table, duration_s=np.array([job.run_s for job in jobs], float), start_s=np.empty(0))
    queue = LiveQueue.replaying(
        table, Cluster.parse(f"{NODES}x{GPUS}"), Slurm(settings_of(made)), engine="plain",
        placement=placement_named("consolidate"), began_s=1000.0,
    )  # fmt: skip
    queue.advance(10_000)
    assert isinstance(queue.simulation, PlainLive)
    for row, _, start, end, shares in queue.simulation.loop.world.trail.spans:
        job = jobs[row]
        job.start_s, job.end_s = queue.jobs.seconds(start), queue.jobs.seconds(end)
        job.nodes = tuple(node for node, _ in shares)
    return made


def test_a_record_of_the_simulation_agrees_with_it() -> None:
    found = agreement(recorded(drawn(np.random.default_rng(3), 25, "builtin"), "builtin"))
    assert (found.differs, found.free, found.elsewhere) == ({}, {}, set())
    assert set(found.apart_s) == {0.0}


def test_a_job_that_starts_late_counts_once_and_is_told_with_its_cause() -> None:
    made = recorded(drawn(np.random.default_rng(3), 25, "builtin"), "builtin")
    last = max(range(25), key=lambda row: made.jobs[row].start_s)
    made.jobs[last].start_s += 30
    made.jobs[last].end_s += 30
    found = agreement(made)
    assert found.differs == {last: "unknown"}
    assert found.early == {last}
    assert "step by step                            1    4.0%" in report([found])


def test_what_nodes_that_complete_explain_is_told_so() -> None:
    """With the nodes busy for a second more, the cycle that starts the second job is the next one, 3 s later."""
    first, second = (RecordedJob(f"j{row}", 16, row, 20, 1, 0, "main") for row in range(2))
    made = recorded([first, second], "fifo")
    assert second.start_s == first.end_s
    second.start_s += 3.5
    second.end_s += 3.5
    assert agreement(made).differs == {1: "COMPLETING nodes"}
