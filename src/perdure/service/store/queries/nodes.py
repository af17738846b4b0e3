"""Nodes, their states, and what failed on them recently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, or_, select

from perdure.errors import NotFound
from perdure.model.clean_text import clean
from perdure.model.jobs import Attempt
from perdure.model.nodes import Node, NodeState
from perdure.service.store import codec
from perdure.service.store.queries.jobs import category_of, same_attempt, same_job
from perdure.service.store.queries.order import SortOrder
from perdure.service.store.queries.reader import MAX_LIMIT, Page, Reader, as_text
from perdure.service.store.schema import attempts, exceptions, jobs, nodes

MAX_FAILURES = 400  # attempts looked through for what failed recently
MAX_ON_ONE = 5_000  # failures looked through for those on one node
MAX_RUNNING = 20_000  # attempts looked through for the GPUs in use
OCCUPYING = ("running", "suspended")
_OUT = (NodeState.DRAINING.value, NodeState.DRAINED.value, NodeState.DOWN.value)
SORTED_BY = {"name": nodes.c.name, "state": nodes.c.state, "since": nodes.c.changed_s}


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
    decision: str = ""  # "" while open
    infrastructure: bool = False  # the site's, not the user's, as far as it was judged


def find_nodes(
    reader: Reader,
    *,
    states: Iterable[str] = (),
    partition: str = "",
    order: SortOrder | None = None,
    cursor: str | None = None,
    limit: int = MAX_LIMIT,
) -> Page[NodeRow]:
    """Nodes by name, or by another column and then by name; the cursor is the last name of the page before."""
    query = select(nodes.c.name, nodes.c.changed_s, as_text(nodes.c.payload).label("payload"))
    query = query.where(nodes.c.cluster == reader.cluster)
    query = _by_name(reader, query, clean(cursor or ""), order)
    if wanted := list(states):
        query = query.where(nodes.c.state.in_(wanted))
    rows = reader.all(query if partition else query.limit(limit + 1))  # partitions are in the payload alone
    found = [(codec.NODE.decode(row.payload), row.changed_s) for row in rows]
    fit = [(node, changed_s) for node, changed_s in found if not partition or partition in node.partitions]
    used = gpus_in_use(reader)
    items = tuple(NodeRow(node, changed_s, used.get(node.name, 0)) for node, changed_s in fit[:limit])
    return Page(items, items[-1].node.name if len(fit) > limit else None)


def _by_name(reader: Reader, query: Select[Any], last: str, order: SortOrder | None) -> Select[Any]:
    """The nodes that follow the one named `last`, "" before the first."""
    name = nodes.c.name
    if order is None or order.column not in SORTED_BY:
        return query.where(name > last).order_by(name)
    falling = order.falling
    if order.column == "name":
        found = query.where(name < last if falling else name > last) if last else query
        return found.order_by(name.desc() if falling else name)
    column = SORTED_BY[order.column]
    if last:
        value = select(column).where(nodes.c.cluster == reader.cluster, name == last).scalar_subquery()
        query = query.where(or_(column < value if falling else column > value, and_(column == value, name > last)))
    return query.order_by(column.desc() if falling else column, name)


def node(reader: Reader, name: str) -> Node:
    """One node. Raises `NotFound`."""
    row = reader.first(
        select(as_text(nodes.c.payload).label("payload")).where(
            nodes.c.cluster == reader.cluster, nodes.c.name == clean(name)
        )
    )
    if row is None:
        raise NotFound(f"node {name[:80]!r}", "no such node is known", "List the known ones: perdure nodes")
    return codec.NODE.decode(row.payload)


def node_row(reader: Reader, name: str) -> NodeRow:
    """One node, with what is held on it. Raises `NotFound`."""
    found = node(reader, name)
    here = and_(nodes.c.cluster == reader.cluster, nodes.c.name == found.name)
    changed_s = reader.first(select(nodes.c.changed_s).where(here)).changed_s
    return NodeRow(found, changed_s, gpus_in_use(reader).get(found.name, 0))


def all_nodes(reader: Reader) -> tuple[Node, ...]:
    """Every node, by name."""
    query = select(as_text(nodes.c.payload).label("payload")).where(nodes.c.cluster == reader.cluster)
    return tuple(codec.NODE.decode(row.payload) for row in reader.all(query.order_by(nodes.c.name)))


def out_of_service(reader: Reader, names: Iterable[str]) -> frozenset[str]:
    """Those of these nodes that take no new work."""
    query = select(nodes.c.name).where(
        nodes.c.cluster == reader.cluster, nodes.c.name.in_([clean(n) for n in names]), nodes.c.state.in_(_OUT)
    )
    return frozenset(row.name for row in reader.all(query))


def partitions(reader: Reader) -> tuple[str, ...]:
    """The partitions that any node belongs to, by name."""
    return tuple(sorted({name for node in all_nodes(reader) for name in node.partitions}))


def gpus_in_use(reader: Reader) -> Mapping[str, int]:
    """GPUs held on each node. The GPUs of a gang are spread evenly: that is as much as an attempt tells."""
    used: dict[str, int] = {}
    for attempt in _occupying(reader):
        for name in attempt.nodes:
            used[name] = used.get(name, 0) + attempt.gpus // len(attempt.nodes)
    return used


def recent_failures(reader: Reader, since_s: float) -> Mapping[str, tuple[NodeFailure, ...]]:
    """What failed on each node since an instant, the latest first, of the latest failures of the cluster."""
    found: defaultdict[str, list[NodeFailure]] = defaultdict(list)
    for attempt, failure in _failures(reader, since_s, MAX_FAILURES):
        for name in attempt.failed_nodes or attempt.nodes:
            found[name].append(failure)
    return {name: tuple(failures) for name, failures in found.items()}


def failures_on(reader: Reader, name: str, since_s: float) -> tuple[NodeFailure, ...]:
    """What failed on one node since an instant, the latest first, of the latest failures of the cluster."""
    found = _failures(reader, since_s, MAX_ON_ONE)
    return tuple(failure for attempt, failure in found if name in (attempt.failed_nodes or attempt.nodes))


def running_on(reader: Reader, name: str) -> tuple[Attempt, ...]:
    """The attempts that hold a node now."""
    return tuple(attempt for attempt in _occupying(reader) if name in attempt.nodes)


def _occupying(reader: Reader) -> list[Attempt]:
    query = (
        select(as_text(attempts.c.payload).label("payload"))
        .join_from(jobs, attempts, same_job(jobs, attempts))
        .where(reader.owns(jobs), jobs.c.state.in_(OCCUPYING), attempts.c.state.in_(OCCUPYING))
        .limit(MAX_RUNNING)
    )
    return [codec.ATTEMPT.decode(row.payload) for row in reader.all(query)]


def _failures(reader: Reader, since_s: float, limit: int) -> list[tuple[Attempt, NodeFailure]]:
    """The latest failures, each with its attempt."""
    e = exceptions.c
    payload, infrastructure = as_text(attempts.c.payload), attempts.c.verdict["infrastructure"].as_boolean()
    query = (
        select(
            e.job_id,
            e.incarnation,
            e.time_s,
            e.type,
            e.decision,
            payload.label("payload"),
            infrastructure.label("infrastructure"),
        )
        .join_from(exceptions, attempts, same_attempt(exceptions, attempts))
        .where(reader.owns(exceptions), e.time_s >= since_s, e.of_attempt)
        .order_by(e.time_s.desc())
        .limit(limit)
    )
    return [
        (
            codec.ATTEMPT.decode(row.payload),
            NodeFailure(
                row.job_id, row.incarnation, row.time_s, category_of(row.type), row.decision, bool(row.infrastructure)
            ),
        )
        for row in reader.all(query)
    ]
