"""Laws that a schedule obeys whatever the policy: run them against a policy or placement of your own.

Each takes a `Replay`, which names everything that a simulation depends on, and raises `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.nodes import Ask, Nodes, Placement, has_place
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.protocol import Policy
from perdure.simulation.faults import NodeFault, NodeFaults
from perdure.simulation.result import Result
from perdure.simulation.retry_hook import Again, FailedRun, Retry
from perdure.simulation.simulate import simulate


@dataclass(frozen=True, slots=True)
class Replay:
    """A simulation that can be run again."""

    table: JobTable
    cluster: Cluster
    policy: str | Policy
    placement: str | Placement = "count"
    seed: int = 0
    retry: Callable[[], Retry] | None = None  # makes the policy for one run
    faults: NodeFaults | None = None

    def run(self, listen: Callable[[FailedRun, Again | None], None] = lambda failed, answer: None) -> Result:  # noqa: ARG005
        """Run it; `listen` hears what its retry policy is asked and answers."""
        retry = self.retry() if self.retry else None

        def heard(failed: FailedRun) -> Again | None:
            assert retry is not None
            answer = retry(failed)
            listen(failed, answer)
            return answer

        return simulate(
            self.table, self.cluster, self.policy, self.placement, heard if retry else None, self.seed, spans=True,
            faults=self.faults,
        )  # fmt: skip


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


def an_avoided_node_is_never_given(replay: Replay) -> None:
    """A job is kept off the nodes that its retry policy has named, unless it then had no place at all."""
    kept_off: dict[tuple[int, int], set[int]] = {}

    def listen(failed: FailedRun, answer: Again | None) -> None:
        if answer is not None:
            barred = failed.avoided | set(answer.avoid)
            kept_off[failed.row, failed.number] = set(
                barred if _has_place(replay, failed.row, barred) else failed.avoided
            )

    spans = replay.run(listen).spans
    assert spans is not None
    for job, number, shares in zip(spans.job.tolist(), spans.number.tolist(), spans.shares, strict=True):
        assert not kept_off.get((job, number - 1), set()) & {node for node, _ in shares}


def a_fault_is_met_on_its_node_alone(replay: Replay) -> None:
    """An attempt ends by a fault that its job met before exactly if it last started on that node, before its repair."""
    found, faults = replay.run(), replay.faults
    spans, log, tries = found.spans, found.attempts, replay.table.attempts
    assert spans is not None
    assert faults is not None
    assert tries is not None
    last = {key: i for i, key in enumerate(zip(spans.job.tolist(), spans.number.tolist(), strict=True))}
    known: dict[int, list[NodeFault]] = {}
    own = dict(enumerate(tries.first[:-1].tolist()))
    columns = log.job, log.number, log.record, log.ran_s, log.end_s
    for job, number, record, ran_s, end_s in zip(*(column.tolist() for column in columns), strict=True):
        span = last[job, number]
        nodes = [node for node, _ in spans.shares[span]]
        lasted_s = end_s - spans.start_s[span]
        left_s = tries.duration_s[own[job]] - (ran_s - lasted_s)
        there = [f for f in known.get(job, []) if f.node in nodes and spans.start_s[span] < f.until]
        first = min(there, key=lambda f: f.after, default=None)
        if first is not None and first.after < left_s:
            assert (record, lasted_s) == (first.record, first.after)
            continue
        assert (record, lasted_s) == (own[job], left_s)
        if faults.bound[record]:
            node = nodes[int(faults.pick[record] * len(nodes))]
            fault = NodeFault(record, node, end_s + round(faults.repair_s[record]), max(1, ran_s))
            known.setdefault(job, []).append(fault)
        own[job] += 1
        while own[job] < tries.first[job + 1] and faults.again[own[job]]:
            own[job] += 1


def _has_place(replay: Replay, row: int, barred: Collection[int]) -> bool:
    named = replay.placement
    placement = placement_named(named, replay.seed) if isinstance(named, str) else named
    assert placement is not None
    size = replay.cluster.gpus.tolist()
    ask = Ask(row, int(replay.table.gpus[row]), 0, 0)
    return has_place(placement, Nodes(size, size, replay.cluster.rack.tolist()), ask, barred)


LAWS: tuple[Callable[[Replay], None], ...] = (
    no_gpu_is_used_twice,
    gangs_are_whole,
    no_work_is_lost,
    the_same_seed_gives_the_same_schedule,
    time_may_start_anywhere,
    names_do_not_matter,
    an_empty_cluster_keeps_nobody_waiting,
)

FAULT_LAWS: tuple[Callable[[Replay], None], ...] = (
    no_gpu_is_used_twice,
    gangs_are_whole,
    the_same_seed_gives_the_same_schedule,
    an_avoided_node_is_never_given,
    a_fault_is_met_on_its_node_alone,
)
"""For replays on nodes with a retry policy and faults; times of the table are whole seconds."""
