"""Jobs that others than Perdure put back again and again, with the same end each time: a person is told. Pure.

Neither a site's rule for exit codes (RequeueExit) nor a script that runs ``scontrol requeue`` on itself has a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from perdure.coordination.chain_state import Chain
from perdure.coordination.messages import Settled
from perdure.coordination.record import REQUEUE_LOOP, ExceptionOutcome, ExceptionRecord, Scope, Subject
from perdure.model.jobs import Attempt, Job, JobState

SEVERITY = 3  # an error
NEAR_WALLTIME = 0.5  # of it: what ran longer may have saved its work and put itself back on purpose


class PutBack(Struct, frozen=True):
    """How the latest starts of a job ended that was put back, and how many of them were alike."""

    exit_code: int
    signal: int
    times: int

    @property
    def ended(self) -> str:
        return f"by signal {self.signal}" if self.signal else f"with exit code {self.exit_code}"


def counted(known: Mapping[str, PutBack], job: Job | None, attempt: Attempt, most: int) -> dict[str, PutBack]:
    """One more end that was put back; of more than `most` jobs the one that was counted first is forgotten."""
    job_id = attempt.id.job_id
    others = {other: found for other, found in known.items() if other != job_id}
    if job is not None and job.walltime_s and attempt.elapsed_s >= NEAR_WALLTIME * job.walltime_s:
        return others
    before = known.get(job_id)
    is_equal = before is not None and (before.exit_code, before.signal) == (attempt.exit_code, attempt.signal)
    times = before.times + 1 if before is not None and is_equal else 1
    while len(others) >= most:
        del others[next(iter(others))]
    return {**others, job_id: PutBack(attempt.exit_code, attempt.signal, times)}


def loop_of(
    attempt: Attempt, found: PutBack | None, limit: int, detected_by: str, now: float
) -> ExceptionRecord | None:
    """What is to be raised once a job was put back more often than Perdure itself ever would."""
    if found is None or found.times <= limit:
        return None
    job_id = attempt.id.job_id
    return ExceptionRecord(
        id=f"{attempt.id.cluster}/{job_id}:{REQUEUE_LOOP}",
        type=REQUEUE_LOOP,
        severity=SEVERITY,
        scope=Scope.LOCAL,
        subject=Subject(attempt.id.cluster, job_id),
        time_s=now,
        note=f"put back {found.times} times, and not by Perdure (RequeueExit, or `scontrol requeue`), each time"
        f" after it ended {found.ended}: read its log; unless that is meant, run scontrol hold {job_id} or"
        f" scancel {job_id}",
        detected_by=detected_by,
    )


def settled(chain: Chain, jobs: Mapping[str, Job]) -> Iterator[Settled]:
    """The ends of those whose jobs are over, or known no more."""
    for record in chain.ended.values():
        if record.type != REQUEUE_LOOP or record.outcome is not ExceptionOutcome.OPEN:
            continue
        job = jobs.get(record.subject.job_id)
        if job is None or job.state.is_over:
            good = job is not None and job.state is JobState.COMPLETED
            yield Settled(record.id, ExceptionOutcome.RECOVERED if good else ExceptionOutcome.WITHDRAWN)
