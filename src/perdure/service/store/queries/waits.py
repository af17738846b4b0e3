"""For jobs that wait: what for, and who took the nodes that they wait for out of service."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node
from perdure.service.core.messages import PERDURE
from perdure.service.core.waiting import blocked_by, waits_in_words
from perdure.service.store.journal import ActionState
from perdure.service.store.queries import actions, jobs, nodes
from perdure.service.store.queries.reader import MAX_LIMIT, Reader


def waits_of(reader: Reader, listed: Sequence[Job]) -> dict[str, str]:
    """What those of these jobs that wait do wait for, in words, by job id; nothing where that is not known."""
    waiting = [job for job in listed if job.state.is_waiting]
    known = nodes.all_nodes(reader) if waiting else ()
    blocking = {job.job_id: found for job in waiting if (found := blocked_by(job, known))}
    out = {node.name: node for found in blocking.values() for node in found}.values()
    by = drained_by(reader, out) if out else {}
    held = held_by(reader, [job.job_id for job in waiting if job.state is JobState.HELD])
    said = {
        job.job_id: waits_in_words(job, blocking.get(job.job_id, ()), by, held.get(job.job_id, "")) for job in waiting
    }
    return {job_id: words for job_id, words in said.items() if words}


def held_by(reader: Reader, job_ids: Sequence[str]) -> dict[str, str]:
    """Who had Perdure hold these jobs and why, in words, by job id; others' holds are not named."""
    found: dict[str, str] = {}
    for row in actions.holding(reader, job_ids) if job_ids else ():
        who = "Perdure" if row.by == PERDURE else row.by
        if row.kind == "hold" and row.state == ActionState.DONE:
            found[row.job_id] = f"is held by {who}: {row.reason}"
        elif row.kind == "requeue" and row.state == ActionState.STARTED:
            found[row.job_id] = f"is held by {who} while it is put back: {row.reason}"
        elif row.state == ActionState.DONE:
            found.pop(row.job_id, None)
    return found


def waits_for(reader: Reader, name: str) -> list[Job]:
    """The jobs that wait for this node to come back, of the latest that wait at all."""
    listed = [row.job for row in jobs.find_jobs(reader, states=["pending", "held"], limit=MAX_LIMIT).items]
    known = nodes.all_nodes(reader) if listed else ()
    return [job for job in listed if any(node.name == name and not node.is_usable for node in blocked_by(job, known))]


def drained_by(reader: Reader, known: Collection[Node]) -> dict[str, str]:
    """Who had Perdure drain these nodes, by node; one that somebody else drained, or that is back, is not named."""
    reasons = {node.name: node.reason for node in known if not node.is_usable}
    found: dict[str, str] = {}
    for row in actions.actions_on_nodes(reader, reasons):
        is_it = row.kind == "drain" and row.state == ActionState.DONE and row.reason in reasons[row.node]
        if is_it:
            found.setdefault(row.node, "Perdure" if row.by == PERDURE else row.by)
    return found
