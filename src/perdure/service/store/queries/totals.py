"""Totals of what the journal holds, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import case, func, select, text

from perdure.coordination.playbook import Playbook
from perdure.service.store.queries import suspects
from perdure.service.store.queries.jobs import category_of
from perdure.service.store.queries.reader import Reader
from perdure.service.store.queries.summary import load
from perdure.service.store.schema import actions, exceptions

FATES = ("wasted", "saved", "lost_to_limits")
OTHER = "other"
_SIZE = {
    "sqlite": "SELECT page_count * page_size AS size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database()) AS size",
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts by the few values that may become labels."""

    decisions: Mapping[tuple[str, str], int]  # (kind, category)
    failures: Mapping[str, int]  # by category
    actions: Mapping[tuple[str, str], int]  # (kind, state)
    jobs: Mapping[str, int]  # that are not over, by state
    gpu_h: Mapping[str, float]  # of failed attempts, by result
    limited: int  # failures whose retry a limit refused or made later
    open_exceptions: Mapping[tuple[str, str], int]  # (entry of the playbook, how it stands)
    suspects: Mapping[str, int]  # that stand, by tier
    journal_bytes: int  # of the database, without SQLite's log


def totals(reader: Reader, playbook: Playbook) -> Totals:
    """Count it all. Reads every exception and action: do not ask more often than every few seconds.

    Types of exceptions are whatever programs call them, so they are counted by the entries of `playbook`.
    """
    e, a = exceptions.c, actions.c
    judged = reader.all(
        select(
            e.decision,
            e.type,
            func.count(),
            func.sum(e.wasted_gpu_h).label("wasted"),
            func.sum(e.saved_gpu_h).label("saved"),
            func.sum(e.limit_gpu_h).label("lost_to_limits"),
            func.sum(case((e.limited, 1), else_=0)).label("limited"),
        )
        .where(e.cluster == reader.cluster, e.of_attempt)
        .group_by(e.decision, e.type)
    )
    decisions: Counter[tuple[str, str]] = Counter()
    failures: Counter[str] = Counter()
    for decision, kind, number, *_ in judged:
        failures[category_of(kind)] += number
        if decision:
            decisions[decision, category_of(kind)] += number
    acted = reader.all(
        select(a.kind, a.state, func.count()).where(a.cluster == reader.cluster).group_by(a.kind, a.state)
    )
    return Totals(
        decisions,
        failures,
        {(kind, state): number for kind, state, number in acted},
        {state: load_.jobs for state, load_ in load(reader).items()},
        {fate: sum(getattr(row, fate) for row in judged) for fate in FATES},
        sum(row.limited for row in judged),
        _open_exceptions(reader, playbook),
        Counter(row.standing.first[0] for row in suspects.standing(reader)),
        int(reader.first(text(_SIZE[reader.engine.dialect.name])).size),
    )


def _open_exceptions(reader: Reader, playbook: Playbook) -> Mapping[tuple[str, str], int]:
    e = exceptions.c
    found: Counter[tuple[str, str]] = Counter()
    query = select(e.type, e.state, func.count()).where(e.cluster == reader.cluster, e.is_open)
    for kind, state, number in reader.all(query.group_by(e.type, e.state)):
        plan = playbook.plan_for(kind)
        found[plan.type if plan else OTHER, state] += number
    return found
