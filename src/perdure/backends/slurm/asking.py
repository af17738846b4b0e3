"""What ``scontrol`` says of one job or one node: the questions, and what an answer means."""

from __future__ import annotations

import re2

from perdure.backends.slurm.config import Config, read_config
from perdure.backends.slurm.dependants import MAX_TASKS
from perdure.backends.slurm.het import read_one_job, whole_of
from perdure.backends.slurm.node_records import read_nodes
from perdure.backends.slurm.records import JobRecord
from perdure.backends.slurm.tools import Dialog
from perdure.backends.tool_process import ToolAnswer
from perdure.errors import ClusterBusy, InputError
from perdure.model.nodes import Node
from perdure.slurm_words.hostlist import expand, is_node_name

JOB_ID = re2.compile(r"\d{1,10}(?:[_+]\d{1,10})?")
_NO_SUCH = ("Invalid job id", "not found")


def answered(scontrol: Dialog, command: str) -> bytes:
    """Raises `ClusterBusy` with Slurm's own words where the controller did not answer."""
    answer = scontrol.ask(command)
    if answer.complaint and b"=" not in answer.out:
        raise ClusterBusy("scontrol", answer.complaint, "Run `scontrol ping`")
    return answer.out


class KnownConfig:
    """What slurm.conf says, asked for once; `known` is None before that."""

    def __init__(self) -> None:
        self.known: Config | None = None

    def ask(self, scontrol: Dialog) -> Config:
        """Raises `ClusterBusy`."""
        if self.known is None:
            self.known = read_config(answered(scontrol, "show config"), scontrol.mark)
        return self.known


def ask_job(scontrol: Dialog, job_id: str) -> ToolAnswer:
    """Raises `InputError` for what is no job id."""
    if not JOB_ID.fullmatch(job_id):
        raise InputError("job", f"{job_id[:80]!r} is not a job id of Slurm", "Use 7, 7_2 or 7+1")
    return scontrol.ask(f"show job {job_id}")


def job_record(scontrol: Dialog, job_id: str) -> JobRecord | None:
    """The job as it is now; None where the controller does not know it. Raises `ClusterBusy`."""
    return _read(scontrol, ask_job(scontrol, job_id), job_id)


def failed_record(scontrol: Dialog, job_id: str) -> JobRecord | None:
    """The job that an epilog asks about, which names a heterogeneous one by the number of a component."""
    answer = ask_job(scontrol, job_id)
    whole = whole_of(answer.out, scontrol.mark)
    return job_record(scontrol, whole) if whole else _read(scontrol, answer, job_id)


def _read(scontrol: Dialog, answer: ToolAnswer, job_id: str) -> JobRecord | None:
    record = read_one_job(answer.out, scontrol.mark, job_id)
    if record is None and not any(said in answer.complaint or said.encode() in answer.out for said in _NO_SUCH):
        raise ClusterBusy("scontrol", answer.complaint or "no answer", "Run `scontrol ping`")
    return record


def ask_node(scontrol: Dialog, name: str) -> Node | None:
    """The node as it is now; None where no node has that name. Raises `InputError` and `ClusterBusy`."""
    if not is_node_name(name):
        raise InputError("node", f"{name[:80]!r} is not a node name", "Use a name from `perdure nodes`")
    answer = scontrol.ask(f"show node {name}")
    found = [record.node for record in read_nodes(answer.out, scontrol.mark) if record.node.name == name]
    if not found and answer.complaint and not any(said in answer.complaint for said in _NO_SUCH):
        raise ClusterBusy("scontrol", answer.complaint, "Run `scontrol ping`")
    return found[0] if found else None


def tasks_of(scontrol: Dialog, array: str) -> tuple[int, ...]:
    """The tasks of an array that the controller knows; none where they are too many to be named one by one."""
    line = re2.compile(rf"(?m)^JobId=\d+ ArrayJobId={array} ArrayTaskId=([\d,-]+)".encode())
    lists = (match[1].decode() for match in line.finditer(scontrol.ask(f"show job {array}").out))
    found = {int(name[1:]) for tasks in lists for name in expand(f"t[{tasks}]")}
    return tuple(sorted(found)) if len(found) <= MAX_TASKS else ()
