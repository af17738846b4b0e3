"""Setting the nice of waiting jobs: one ``scontrol``, and in it one command for all jobs of one nice."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.backends.slurm.tools import CallBatch, Tools

MOST_AT_ONCE = 50  # jobs in one command


def set_nice(tools: Tools, nice: Mapping[str, int]) -> dict[str, str]:
    """Set each job's nice; what Slurm complained of, by job. Raises `ClusterBusy` where no answer came."""
    by_nice: dict[int, list[str]] = {}
    for job_id, wanted in nice.items():
        by_nice.setdefault(wanted, []).append(job_id)
    complaints: dict[str, str] = {}
    with CallBatch(tools) as batch, batch.dialog() as scontrol:  # its own: another thread may talk meanwhile
        for wanted, job_ids in by_nice.items():
            for begin in range(0, len(job_ids), MOST_AT_ONCE):
                some = job_ids[begin : begin + MOST_AT_ONCE]
                said = scontrol.ask(f"update jobid={','.join(some)} nice={wanted}").complaint
                complaints |= dict.fromkeys(some, said) if said else {}
    return complaints
