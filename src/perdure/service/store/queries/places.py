"""What befell others on the nodes of a failed attempt: evidence for or against the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from perdure.model.jobs import Attempt, AttemptState
from perdure.service.store import codec
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.schema import attempts

MAX_LOOKED_AT = 1_000  # failed attempts, the latest
LAST = 10  # failures of a node that are counted
MAX_PLACES = 3
_FAILED = tuple(state.value for state in AttemptState if state.is_failure)


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """A node, and its last failures of other jobs: how many there were, and how many of them infrastructure."""

    node: str
    failures: int
    infrastructure: int
    users: int  # whose failures those of infrastructure were


def places_of(reader: Reader, attempt: Attempt) -> tuple[NodeFailures, ...]:
    """The nodes of a failed attempt that failed others too, the worst first; a few of them."""
    wanted = frozenset(attempt.failed_nodes or attempt.nodes)
    seen: dict[str, list[tuple[bool, str]]] = {}
    for other, infrastructure in _failed(reader):
        if other.id.job_id != attempt.id.job_id:
            for node in wanted & frozenset(other.failed_nodes or other.nodes):
                seen.setdefault(node, []).append((infrastructure, other.user))
    places = (_place(node, found[:LAST]) for node, found in seen.items())
    told = [place for place in places if place.failures > 1]
    return tuple(sorted(told, key=lambda place: (-place.infrastructure, place.node))[:MAX_PLACES])


def in_words(place: NodeFailures) -> str:
    """One sentence.

    >>> in_words(NodeFailures("gpu03", 4, 3, 2))
    '3 of the last 4 failures of other jobs on gpu03 were failures of infrastructure, of 2 users'
    >>> in_words(NodeFailures("gpu03", 9, 1, 1))
    '1 of the last 9 failures of other jobs on gpu03 was a failure of infrastructure, of 1 user'
    >>> in_words(NodeFailures("gpu03", 10, 0, 0))
    'none of the last 10 failures of other jobs on gpu03 is known to be one of infrastructure'
    """
    others = f"failures of other jobs on {place.node}"
    if not place.infrastructure:
        return f"none of the last {place.failures} {others} is known to be one of infrastructure"
    users = f"{place.users} user{'s' if place.users != 1 else ''}"
    were = "was a failure" if place.infrastructure == 1 else "were failures"
    return f"{place.infrastructure} of the last {place.failures} {others} {were} of infrastructure, of {users}"


def _place(node: str, found: Sequence[tuple[bool, str]]) -> NodeFailures:
    users = {user for infrastructure, user in found if infrastructure}
    return NodeFailures(node, len(found), sum(infrastructure for infrastructure, _ in found), len(users))


def _failed(reader: Reader) -> list[tuple[Attempt, bool]]:
    """The latest failed attempts that were judged, and whether each was infrastructure's fault."""
    a = attempts.c
    query = (
        select(as_text(a.payload).label("payload"), as_text(a.verdict).label("verdict"))
        .where(reader.owns(attempts), a.end_s.is_not(None), a.state.in_(_FAILED), a.verdict.is_not(None))
        .order_by(a.end_s.desc())
        .limit(MAX_LOOKED_AT)
    )
    return [
        (codec.ATTEMPT.decode(row.payload), codec.VERDICT.decode(row.verdict).infrastructure)
        for row in reader.all(query)
    ]
