"""Tiresias in rounds, with jobs that were tuned before: two queues by GPU time, on whichever nodes have most free.

Source: J. Gu et al., "Tiresias", NSDI 2019, as the public simulator of A. Qiao et al., "Pollux", OSDI 2021, has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.scheduling.elastic import ElasticView, Plan, Share, only_type, place_on_freest


@dataclass(slots=True)
class Tiresias:
    """A job runs on the GPUs that it asks for; after `limit_gpu_s` it stands behind all that have had less."""

    name: str = "tiresias"
    round_s: float = 60.0
    adaptive: bool = False
    limit_gpu_s: float = 16 * 3600.0
    _queues: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    _ran_s: dict[int, float] = field(default_factory=dict)  # those that run, and have run
    _last_s: float = 0.0

    def check(self, view: ElasticView) -> None:
        only_type(view, self.name)

    def plan(self, view: ElasticView) -> Plan:
        kind, (first, second) = only_type(view, self.name), self._queues
        for queue in self._queues:
            queue[:] = [row for row in queue if row in view.jobs]
        known = {*first, *second}
        first += [row for row in view.jobs if row not in known]
        for row, job in view.jobs.items():
            if job.share is None:
                continue
            self._ran_s[row] = self._ran_s.get(row, 0.0) + view.now_s - self._last_s
            if row in first and self._ran_s[row] * job.asked_gpus >= self.limit_gpu_s:
                first.remove(row)
                second.append(row)
        self._last_s = view.now_s
        left, plan, begin = kind.gpus, dict[int, Share](), list[int]()
        for row in (*first, *second):
            job = view.jobs[row]
            if job.asked_gpus > left:
                continue
            left -= job.asked_gpus
            if job.share is None:
                begin.append(row)
            else:
                plan[row] = job.share
        return {**plan, **_begun(view, plan, begin)}


def _begun(view: ElasticView, kept: Plan, begin: list[int]) -> Plan:
    """Shares for jobs that begin, beside those that are kept."""
    kind = view.types[0]
    free = [kind.gpus_per_node] * kind.nodes
    for share in kept.values():
        for node, gpus in share.where:
            free[node] -= gpus
    found = dict[int, Share]()
    for row in begin:
        gpus = view.jobs[row].asked_gpus
        where = place_on_freest(free, gpus)
        found[row] = Share(0, len(where), gpus, where)
    return found
