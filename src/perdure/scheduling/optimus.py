"""Optimus with an oracle: one GPU after the other to the job whose remaining time it cuts most.

Source: Y. Peng et al., "Optimus: an efficient dynamic resource scheduler for deep learning clusters", EuroSys 2018,
as the public simulator of A. Qiao et al., "Pollux", OSDI 2021, has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from perdure.scheduling.elastic import ElasticJob, ElasticView, Plan, Share, only_type, place_on_freest


@dataclass(frozen=True, slots=True)
class Optimus:
    """Each job has its batch; how long its steps take on more GPUs, and how many are left, is known.

    A rigid job has the GPUs that it asks for, or none.
    """

    name: str = "optimus"
    round_s: float = 60.0
    adaptive: bool = False
    shrinks: bool = True

    def check(self, view: ElasticView) -> None:
        only_type(view, self.name)
        for job in view.jobs.values():
            assert job.oracle is not None
            job.oracle.steps_left()

    def plan(self, view: ElasticView) -> Plan:
        kind = only_type(view, self.name)
        gpus = self._counts(view, kind.gpus)
        kept = {row: job.share for row, job in view.jobs.items() if job.share and job.share.gpus == gpus[row]}
        free = [kind.gpus_per_node] * kind.nodes
        for share in kept.values():
            for node, taken in share.where:
                free[node] -= taken
        found = dict[int, Share](kept)
        for row in sorted(view.jobs, key=gpus.__getitem__):
            if row not in kept and gpus[row]:
                where = place_on_freest(free, gpus[row])
                found[row] = Share(0, len(where), gpus[row], where)
        return found

    def _counts(self, view: ElasticView, left: int) -> dict[int, int]:
        """GPUs of each job: the fewest for each as long as they last, then by what another one is worth."""
        gpus, gain = dict.fromkeys(view.jobs, 0), dict.fromkeys(view.jobs, 0.0)
        for row, job in view.jobs.items():
            fewest = job.asked_gpus if job.rigid else 1
            if fewest <= left:
                left -= fewest
                gpus[row] = fewest
                gain[row] = _gain(job, 1) if left and not job.rigid else 0.0
        while left and max(gain.values()) > 0:
            row = max(gain, key=gain.__getitem__)
            gpus[row] += 1
            gain[row] = _gain(view.jobs[row], gpus[row])
            left -= 1
        return gpus


def _gain(job: ElasticJob, gpus: int) -> float:
    """Seconds by which one more GPU shortens what is left; 0 where the job cannot use it."""
    assert job.oracle is not None
    if gpus + 1 > job.oracle.most_gpus():
        return 0.0
    gain = (job.oracle.step_s(0, gpus) - job.oracle.step_s(0, gpus + 1)) * job.oracle.steps_left()
    return gain if isfinite(gain) else 0.0
