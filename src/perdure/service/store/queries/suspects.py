"""Suspects as they were written down, and the attempts that they are found by."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import and_, select

from perdure.blame.builders.attempts import AttemptRow
from perdure.blame.builders.topology import NO_SWITCHES, Topology
from perdure.blame.standing import Standing
from perdure.model.jobs import Attempt, AttemptState
from perdure.retry.one_node import is_of_place
from perdure.service.store import codec
from perdure.service.store.codec import Codec
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.schema import attempts, jobs, suspects
from perdure.triage.evidence.deaths import HANG
from perdure.triage.verdict import Label, Verdict

STANDING: Codec[Standing] = Codec(Standing)
_SAYS_NOTHING = frozenset(
    {AttemptState.PREEMPTED, AttemptState.CANCELLED, AttemptState.REQUEUED, AttemptState.DEADLINE, AttemptState.LOST}
)


@dataclass(frozen=True, slots=True)
class SuspectRow:
    """A suspect that was named. `cleared_s` is None while it is a suspect."""

    standing: Standing
    cleared_s: float | None


def standing(reader: Reader) -> tuple[SuspectRow, ...]:
    """The suspects of now, the latest last."""
    open_ = and_(suspects.c.cluster == reader.cluster, suspects.c.cleared_s.is_(None))
    query = select(as_text(suspects.c.payload).label("payload"), suspects.c.cleared_s).where(open_)
    return tuple(SuspectRow(STANDING.decode(row.payload), None) for row in reader.all(query.order_by(suspects.c.seq)))


def cleared(reader: Reader, limit: int = 20) -> tuple[SuspectRow, ...]:
    """Who was named once and cleared since, the latest first."""
    closed = and_(suspects.c.cluster == reader.cluster, suspects.c.cleared_s.is_not(None))
    query = select(as_text(suspects.c.payload).label("payload"), suspects.c.cleared_s).where(closed)
    rows = reader.all(query.order_by(suspects.c.cleared_s.desc()).limit(limit))
    return tuple(SuspectRow(STANDING.decode(row.payload), row.cleared_s) for row in rows)


def ended_since(
    reader: Reader, since_s: float, topology: Topology = NO_SWITCHES, mounts: tuple[str, ...] = ()
) -> list[tuple[str, AttemptRow]]:
    """Attempts that ended after an instant, with their ids: those that passed, and those that were judged.

    `mounts` are the file systems that are told apart, each by the path where it is mounted.
    """
    a, j = attempts.c, jobs.c
    query = (
        select(j.name, j.user, as_text(a.payload).label("payload"), as_text(a.verdict).label("verdict"))
        .join_from(attempts, jobs, and_(a.cluster == j.cluster, a.job_id == j.job_id))
        .where(reader.owns(attempts), a.end_s > since_s)
        .order_by(a.end_s)
    )
    found = []
    for row in reader.all(query):
        attempt = codec.ATTEMPT.decode(row.payload)
        verdict = codec.VERDICT.decode(row.verdict) if row.verdict else None
        told = row_of(attempt, row.name, row.user, verdict, topology, mounts)
        if told is not None:
            found.append((str(attempt.id), told))
    return found


def row_of(
    attempt: Attempt,
    job: str,
    user: str,
    verdict: Verdict | None,
    topology: Topology = NO_SWITCHES,
    mounts: tuple[str, ...] = (),
) -> AttemptRow | None:
    """What an attempt shows of the places it ran on; None where it shows nothing, or nothing yet."""
    passed = attempt.state is AttemptState.COMPLETED
    if attempt.end_s is None or attempt.state in _SAYS_NOTHING:
        return None
    if not passed and verdict is None and not attempt.failed_nodes:
        return None
    judged = verdict is not None and verdict.label is Label.DETERMINISTIC and not attempt.failed_nodes
    lacked = verdict is not None and is_of_place(verdict)
    return AttemptRow(
        attempt.end_s, user, job, _nodes_of(attempt, verdict), not passed,
        deterministic=judged and not passed, lacked=lacked, down=attempt.failed_nodes,
        switches=topology.crossed(attempt.nodes), storage=storage_of(attempt, mounts),
    )  # fmt: skip


def _nodes_of(attempt: Attempt, verdict: Verdict | None) -> tuple[str, ...]:
    """Those that its end speaks of; of a hang that of the rank that stopped first, where it is known.

    That is the job's own word. It weighs as much as the failure of a job that asked for that node alone, and no more.
    """
    is_named = verdict is not None and verdict.category == HANG.category and not attempt.failed_nodes
    return (verdict.node,) if verdict is not None and is_named and verdict.node in attempt.nodes else attempt.nodes


def storage_of(attempt: Attempt, mounts: tuple[str, ...]) -> tuple[str, ...]:
    """The file system that an attempt writes its output to: of the mounts that lead there the longest.

    A path is its owner's word; it can only name one of the site's file systems.
    """
    paths = [path for path in (attempt.stdout, attempt.stderr) if path]
    found = {max((m for m in mounts if _is_below(path, m)), key=len, default="") for path in paths}
    return tuple(sorted(found - {""}))


def _is_below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(f"{mount.rstrip('/')}/")
