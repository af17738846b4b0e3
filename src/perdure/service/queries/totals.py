"""Totals since the journal began, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from perdure.service.queries.jobs import category_of
from perdure.service.queries.reader import Reader
from perdure.service.queries.summary import load
from perdure.service.schema import actions, exceptions


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts by the few values that may become labels."""

    decisions: Mapping[tuple[str, str], int]  # (kind, category)
    failures: Mapping[str, int]  # by category
    actions: Mapping[tuple[str, str], int]  # (kind, state)
    jobs: Mapping[str, int]  # that are not over, by state
    wasted_gpu_h: float
    saved_gpu_h: float


def totals(reader: Reader) -> Totals:
    """Count it all. Reads every exception and action: do not ask more often than every few seconds."""
    e, a = exceptions.c, actions.c
    judged = reader.all(
        select(e.decision, e.type, func.count(), func.sum(e.wasted_gpu_h), func.sum(e.saved_gpu_h))
        .where(e.cluster == reader.cluster, e.of_attempt)
        .group_by(e.decision, e.type)
    )
    decisions: Counter[tuple[str, str]] = Counter()
    failures: Counter[str] = Counter()
    for decision, kind, number, _, _ in judged:
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
        sum(row[3] for row in judged),
        sum(row[4] for row in judged),
    )
