"""The main pass, made upon each submit and end, and without bound on its depth now and then.

Strict order: the first job of a partition that cannot start because resources are missing ends the pass for that
partition, and on its nodes for all others. One that a limit holds is passed over. A quick pass attempts
`default_queue_depth`.

Source: slurmctld/job_scheduler.c of SchedMD/slurm 284c3b9, ``schedule``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

from perdure.scheduling.slurm.pass_state import PassState
from perdure.scheduling.slurm.space import Space
from perdure.slurm_words.reasons import PRIORITY, RESOURCES


def main_pass(
    queue: Sequence[int], state: PassState, space: Space, depth: int, partition_depth: int
) -> Generator[int, None, bool]:
    """Name the jobs to start, in order; returns whether the depth ended it. A depth of 0 means no limit.

    A generator, as `Ranking.order`. `queue` has the eligible jobs in the order of tier and priority. Jobs behind a
    closed partition are not attempted and do not count for the depth. Every job that was looked at and not started gets
    its reason in the state.
    """
    closed: set[int] = set()
    attempts: Counter[int] = Counter()
    for ahead, row in enumerate(queue):
        partition = int(state.requests.partition[row])
        if partition in closed:
            state.wait(row, PRIORITY, ahead)
            continue
        limit = state.limited(row)
        if limit is not None:
            state.wait(row, limit, ahead)
            continue
        if depth and attempts.total() >= depth:
            return True
        if partition_depth and attempts[partition] >= partition_depth:
            state.wait(row, PRIORITY, ahead)
            continue
        attempts[partition] += 1
        if space.offer(row, partition, closed):
            yield row
        space.settle(row)
        if not state.take_note(row):
            closed |= space.closed_by(partition)
            state.wait(row, RESOURCES, ahead)
    return False
