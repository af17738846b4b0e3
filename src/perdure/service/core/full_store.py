"""File systems that are full, as a failed job and they themselves say: one exception for all of their users. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.coordination.chain_state import Chain
from perdure.coordination.playbook import Playbook
from perdure.coordination.record import ExceptionRecord, Scope, Subject
from perdure.model.identity import AttemptId

FULL = "storage.full"
RESTORED = "storage.restored"
SEVERITY = 1  # an alert
ENOUGH = 0.05  # of a file system, free again: below that it is full within minutes


def full_store(
    playbook: Playbook, chain: Chain, attempt: AttemptId, mount: str, detected_by: str, now: float
) -> Iterator[ExceptionRecord]:
    """What is to be raised as `attempt` failed on the full file system that is mounted at `mount`.

    Nothing while that is known: those who write there have been told once.
    """
    name = playbook.resource_at(mount).name
    if not any(_is_about(record, name) for record in (*chain.open.values(), *chain.ended.values())):
        yield ExceptionRecord(
            id=f"{attempt.cluster}{mount}:{FULL}:{now:.0f}",
            type=FULL,
            severity=SEVERITY,
            scope=Scope.GLOBAL,
            subject=Subject(attempt.cluster, resource=name),
            time_s=now,
            note=f"{mount} is full, on which job {attempt.job_id} could not write",
            detected_by=detected_by,
        )


def _is_about(record: ExceptionRecord, resource: str) -> bool:
    is_known = not record.state.is_over or record.is_in_force
    return is_known and record.type == FULL and record.subject.resource == resource


def full_now(chain: Chain, detected_by: str) -> list[ExceptionRecord]:
    """Those that the service raised and that are in force: their file systems are to be looked at."""
    found = [record for record in chain.ended.values() if record.type == FULL and record.is_in_force]
    return [record for record in found if record.detected_by == detected_by]


def room_again(full: ExceptionRecord, free: float, detected_by: str, now: float) -> ExceptionRecord | None:
    """The all-clear of a full file system of which the share `free` can be written; None where that is too little."""
    if free < ENOUGH:
        return None
    return ExceptionRecord(
        id=f"{full.id}/restored",
        type=RESTORED,
        severity=SEVERITY,
        scope=Scope.GLOBAL,
        subject=full.subject,
        time_s=now,
        note=f"{free:.0%} of it are free",
        detected_by=detected_by,
        cause=full.id,
    )
