"""Whether an attempt hung, as ``perdure exec`` raised it while it ran: a witness where the log does not say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.coordination.record import ExceptionRecord
from perdure.model.exits import HANG_ENDED, RETRY_ME
from perdure.model.jobs import Attempt
from perdure.triage.judge import judge
from perdure.triage.verdict import CauseRole, Verdict

HANG, WALLTIME = "app.hang", "app.walltime"


def notes_of(kind: str, attempt: Attempt, records: Iterable[ExceptionRecord]) -> list[str]:
    """What was raised of this kind about an attempt, the latest last."""
    own = (attempt.id.cluster, attempt.id.job_id, attempt.id.incarnation)
    return [
        record.note
        for record in records
        if record.type == kind and (record.subject.cluster, record.subject.job_id, record.incarnation) == own
    ]


def of_hang(verdict: Verdict, attempt: Attempt, notes: Sequence[str]) -> Verdict:
    """The verdict, as one of a hang where the launcher raised one of this attempt and nothing else is its cause.

    It is the owner's word about the own job, and read as the same line would be in the log.
    """
    if not notes or attempt.exit_code != RETRY_ME or any(line.role is CauseRole.ROOT for line in verdict.evidence):
        return verdict
    found = judge(f"{HANG_ENDED}{notes[-1]}".encode("utf-8", "replace"), attempt)
    return replace(
        found, logs=verdict.logs, reached=verdict.reached, ending=verdict.ending, work_done=verdict.work_done
    )
