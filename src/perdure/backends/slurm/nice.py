"""Setting the nice and the size of waiting jobs: one ``scontrol``, and in it one command for all jobs alike."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.backends.slurm.tools import CallBatch, Tools
from perdure.backends.tool_process import ToolAnswer
from perdure.model.jobs import JobSize

MOST_AT_ONCE = 50  # jobs in one command
_NO_COMPLAINT = (b": No error", b": Job has already finished")
"""What Slurm says of parts of an array, some of whose tasks have ended: the others were changed."""


def set_nice(tools: Tools, nice: Mapping[str, int]) -> dict[str, str]:
    """Set each job's nice; what Slurm complained of, by job. Raises `ClusterBusy` where no answer came."""
    return _set(tools, {job_id: f"nice={wanted}" for job_id, wanted in nice.items()})


def set_sizes(tools: Tools, sizes: Mapping[str, tuple[JobSize, JobSize]]) -> dict[str, str]:
    """See `Resizable.set_sizes`."""
    return _set(tools, {job_id: _request(size, seen) for job_id, (size, seen) in sizes.items()})


def _request(size: JobSize, seen: JobSize) -> str:
    words = []
    if (size.nodes, size.most_nodes) != (seen.nodes, seen.most_nodes):
        tasks = size.nodes * size.tasks_per_node
        words = [f"NumNodes={size.nodes}-{size.most_nodes} NumTasks={tasks} NumCPUs={tasks * size.cpus_per_task}"]
    if size.gpus_per_node != seen.gpus_per_node:
        words.append(f"TresPerNode=gres:gpu:{size.gpus_per_node}")
    return " ".join(words)


def _set(tools: Tools, requests: Mapping[str, str]) -> dict[str, str]:
    by_request: dict[str, list[str]] = {}
    for job_id, wanted in requests.items():
        by_request.setdefault(wanted, []).append(job_id)
    complaints: dict[str, str] = {}
    with CallBatch(tools) as batch, batch.dialog() as scontrol:  # its own: another thread may talk meanwhile
        for wanted, job_ids in by_request.items():
            for begin in range(0, len(job_ids), MOST_AT_ONCE):
                some = job_ids[begin : begin + MOST_AT_ONCE]
                said = _complaint(scontrol.ask(f"update jobid={','.join(some)} {wanted}"))
                complaints |= dict.fromkeys(some, said) if said else {}
    return complaints


def _complaint(answer: ToolAnswer) -> str:
    lines = (line for line in answer.err.splitlines() if not line.rstrip().endswith(_NO_COMPLAINT))
    return ToolAnswer(b"", b"\n".join(lines)).complaint
