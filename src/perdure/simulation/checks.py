"""Laws that a schedule obeys whatever the policy: run them against a policy or placement of your own.

Each takes a `Replay`, which names everything that a simulation depends on, and raises `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.protocol import Policy
from perdure.simulation.result import Result
from perdure.simulation.simulate import simulate


@dataclass(frozen=True, slots=True)
class Replay:
    """A simulation that can be run again."""

    table: JobTable
    cluster: Cluster
    policy: str | Policy
    placement: str | Placement = "count"
    seed: int = 0

    def run(self) -> Result:
        return simulate(self.table, self.cluster, self.policy, self.placement, seed=self.seed, spans=True)


def no_gpu_is_used_twice(replay: Replay) -> None:
    """At no instant do jobs hold more GPUs of a node than it has; where GPUs are counted, of the cluster."""
    spans = replay.run().spans
    assert spans is not None
    size = dict(enumerate(replay.cluster.gpus.tolist())) | {-1: replay.cluster.total_gpus}
    changes = []
    for start, end, shares in zip(spans.start_s, spans.end_s, spans.shares, strict=True):
        for node, gpus in shares:
            changes += [(start, 1, node, gpus), (end, 0, node, -gpus)] if end > start else []
    held = dict.fromkeys(size, 0)
    for _, _, node, gpus in sorted(changes):
        held[node] += gpus
        assert 0 <= held[node] <= size[node], f"{held[node]} GPUs of node {node} are held"


def gangs_are_whole(replay: Replay) -> None:
    """A job that runs holds as many GPUs as it asked for, at all times."""
    spans = replay.run().spans
    assert spans is not None
    for job, shares in zip(spans.job, spans.shares, strict=True):
        assert sum(gpus for _, gpus in shares) == replay.table.gpus[job]
        assert len({node for node, _ in shares}) == len(shares)


def no_work_is_lost(replay: Replay) -> None:
    """Every job ends, after each recorded attempt ran exactly its time; no attempt runs before it is submitted."""
    table, found = replay.table, replay.run()
    log = found.attempts
    assert (found.start_s >= table.submit_s).all()
    assert (log.start_s >= log.submit_s).all()
    assert (log.end_s - log.start_s >= log.ran_s - 1e-6).all()
    asked = table.duration_s
    if table.attempts is not None:
        owner = np.repeat(np.arange(len(table)), np.diff(table.attempts.first))
        sums = np.bincount(owner, table.attempts.duration_s, len(table))
        asked = np.where(np.diff(table.attempts.first) > 0, sums, asked)
    ran = np.bincount(log.job, log.ran_s, len(table))
    assert np.allclose(ran, asked)
    assert np.isclose(found.busy_gpu_s, (ran * table.gpus).sum())
    assert found.spans is not None
    held = np.bincount(found.spans.job, found.spans.end_s - found.spans.start_s, len(table))
    assert np.allclose(held, ran)


def the_same_seed_gives_the_same_schedule(replay: Replay) -> None:
    """Running it again changes nothing, to the last bit."""
    assert replay.run().digest() == replay.run().digest()


def time_may_start_anywhere(replay: Replay) -> None:
    """All jobs submitted a day later run a day later, else as before."""
    day = 86_400.0
    late = replace(replay, table=replace(replay.table, submit_s=replay.table.submit_s + day)).run()
    found = replay.run()
    assert np.array_equal(late.start_s, found.start_s + day)
    assert np.array_equal(late.end_s, found.end_s + day)


def names_do_not_matter(replay: Replay) -> None:
    """What a job is called changes nothing."""
    renamed = replace(replay.table, job_id=np.array([f"x{i}" for i in range(len(replay.table))][::-1]))
    assert replace(replay, table=renamed).run().digest() == replay.run().digest()


def an_empty_cluster_keeps_nobody_waiting(replay: Replay) -> None:
    """With room for all jobs at once each ends as soon as it can; rounds may keep it to their next beginning."""
    cluster = Cluster(np.full(len(replay.table), max(8, int(replay.table.gpus.max())), np.int64))
    found = replace(replay, cluster=cluster).run()
    alone = np.zeros(len(replay.table))
    np.add.at(alone, found.attempts.job, found.attempts.ran_s)
    lost = found.end_s - replay.table.submit_s - alone
    round_s = getattr(replay.policy, "round_s", 0.0)
    tries = np.bincount(found.attempts.job, minlength=len(replay.table))
    assert (lost <= round_s * tries).all()


LAWS: tuple[Callable[[Replay], None], ...] = (
    no_gpu_is_used_twice,
    gangs_are_whole,
    no_work_is_lost,
    the_same_seed_gives_the_same_schedule,
    time_may_start_anywhere,
    names_do_not_matter,
    an_empty_cluster_keeps_nobody_waiting,
)
