"""How much of the limits of QOS and accounts is used while a policy plans: whose start the manager would refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from perdure.scheduling.slurm.site_limits import CPUS, GPUS, NODES, SiteLimits
from perdure.waits.limits import Counts, LimitOnJob, amount, counts_for, limits_on
from perdure.waits.queue import Queue, QueuedJob

_COUNTED = (GPUS, CPUS, NODES, "")


class LimitUse:
    """What is used by jobs that run. Most jobs are alike in which limits hold for them."""

    def __init__(self, queue: Queue, limits: SiteLimits) -> None:
        self._queue, self._limits = queue, limits
        self._known: dict[tuple[object, ...], tuple[list[Counts], list[LimitOnJob]]] = {}

    def refused(
        self, starts: Sequence[QueuedJob], waiting: Iterable[QueuedJob], yields: Iterable[QueuedJob]
    ) -> set[str]:
        """Whom a limit keeps from starting, where jobs would start in this order once those that make room are gone.

        Nobody, where all of them may; or else of the others that wait, too: they would be planned next.
        """
        if not self._limits.qos and not self._limits.associations:
            return set()
        used: Counter[tuple[Counts, str]] = Counter()
        gone = {job.job_id for job in yields}
        for job in self._queue.running():
            if job.job_id not in gone:
                self._count(used, job)
        found = set()
        for job in starts:
            if self._exceeds(used, job):
                found.add(job.job_id)
            else:
                self._count(used, job)
        first = {job.job_id for job in starts}
        others = (job for job in waiting if found and job.job_id not in first)
        return found.union(job.job_id for job in others if self._exceeds(used, job))

    def _exceeds(self, used: Counter[tuple[Counts, str]], job: QueuedJob) -> bool:
        on = self._of(job)[1]
        return any(used[each.counts, each.tres] + amount(job, each.tres) > each.most for each in on)

    def _count(self, used: Counter[tuple[Counts, str]], job: QueuedJob) -> None:
        for counts in self._of(job)[0]:
            for tres in _COUNTED:
                used[counts, tres] += amount(job, tres)

    def _of(self, job: QueuedJob) -> tuple[list[Counts], list[LimitOnJob]]:
        key = (job.partitions[:1], job.qos, job.account, job.user)
        if key not in self._known:
            counts = list(counts_for(job, self._queue, self._limits))
            self._known[key] = counts, list(limits_on(job, self._queue, self._limits))
        return self._known[key]
