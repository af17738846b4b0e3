"""Nodes, how they stand, and what failed on them lately."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select

from perdure.errors import NotFound
from perdure.model.nodes import Node
from perdure.service import codec
from perdure.service.queries.jobs import category_of, same_attempt, same_job
from perdure.service.queries.reader import MAX_LIMIT, Page, Reader, as_text
from perdure.service.schema import attempts, exceptions, jobs, nodes

MAX_FAILURES = 400  # attempts looked through for what failed lately
MAX_PER_NODE = 4
MAX_RUNNING = 20_000  # attempts looked through for the GPUs in use
OCCUPYING = ("running", "suspended")


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as it was last written down, and the GPUs that attempts hold on it now."""

    node: Node
    changed_s: float
    gpus_used: int


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A failure that a node was part of; it need not be to blame."""

    job_id: str
    incarnation: int
    time_s: float
    category: str


def find_nodes(reader: Reader, *, cursor: str | None = None, limit: int = MAX_LIMIT) -> Page[NodeRow]:
    """Nodes by name; the cursor is the last name of the page before."""
    query = (
        select(nodes.c.name, nodes.c.changed_s, as_text(nodes.c.payload).label("payload"))
        .where(nodes.c.cluster == reader.cluster, nodes.c.name > codec.clean(cursor or ""))
        .order_by(nodes.c.name)
        .limit(limit + 1)
    )
    rows = reader.all(query)
    used = gpus_in_use(reader)
    items = tuple(NodeRow(codec.NODE.decode(row.payload), row.changed_s, used.get(row.name, 0)) for row in rows[:limit])
    return Page(items, rows[limit - 1].name if len(rows) > limit else None)


def node(reader: Reader, name: str) -> Node:
    """One node. Raises `NotFound`."""
    row = reader.first(
        select(as_text(nodes.c.payload).label("payload")).where(
            nodes.c.cluster == reader.cluster, nodes.c.name == codec.clean(name)
        )
    )
    if row is None:
        raise NotFound(f"node {name[:80]!r}", "no such node is known", "List those there are: perdure nodes")
    return codec.NODE.decode(row.payload)


def gpus_in_use(reader: Reader) -> Mapping[str, int]:
    """GPUs held on each node. The GPUs of a gang are spread evenly: that is as much as an attempt tells."""
    query = (
        select(as_text(attempts.c.payload).label("payload"))
        .join_from(jobs, attempts, same_job(jobs, attempts))
        .where(reader.owns(jobs), jobs.c.state.in_(OCCUPYING), attempts.c.state.in_(OCCUPYING))
        .limit(MAX_RUNNING)
    )
    used: dict[str, int] = {}
    for row in reader.all(query):
        attempt = codec.ATTEMPT.decode(row.payload)
        for name in attempt.nodes:
            used[name] = used.get(name, 0) + attempt.gpus // len(attempt.nodes)
    return used


def recent_failures(reader: Reader, since_s: float) -> Mapping[str, tuple[NodeFailure, ...]]:
    """What failed on each node since an instant, the latest first; a few of each."""
    query = (
        select(
            exceptions.c.job_id,
            exceptions.c.incarnation,
            exceptions.c.time_s,
            exceptions.c.type,
            as_text(attempts.c.payload).label("payload"),
        )
        .join_from(exceptions, attempts, same_attempt(exceptions, attempts))
        .where(reader.owns(exceptions), exceptions.c.time_s >= since_s, exceptions.c.of_attempt)
        .order_by(exceptions.c.time_s.desc())
        .limit(MAX_FAILURES)
    )
    found: dict[str, tuple[NodeFailure, ...]] = {}
    for row in reader.all(query):
        attempt = codec.ATTEMPT.decode(row.payload)
        failure = NodeFailure(row.job_id, row.incarnation, row.time_s, category_of(row.type))
        for name in attempt.failed_nodes or attempt.nodes:
            if len(found.get(name, ())) < MAX_PER_NODE:
                found[name] = (*found.get(name, ()), failure)
    return found
