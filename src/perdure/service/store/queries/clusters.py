"""All clusters of a database: who has each, and how it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import func, select

from perdure.model.jobs import JobState
from perdure.model.nodes import NodeState
from perdure.model.observation import MANAGER
from perdure.service.store import codec, rows
from perdure.service.store.queries.jobs import LIVE
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.schema import exceptions, jobs, memory, nodes, owners

LATE_S = 180.0
_USABLE = NodeState.UP.value


class ClusterState(StrEnum):
    """How a cluster is served."""

    WATCHED = "watched"
    SILENT = "silent"  # its resource manager does not answer
    LATE = "late"  # not looked at for long
    FREE = "free"  # nobody serves it


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster as the database shows it."""

    name: str
    state: ClusterState
    owner: str = ""  # "host:pid" of the one that had it last
    looked_s: float | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)  # that are not over, by state
    nodes: int = 0
    nodes_out: int = 0  # that take no new work
    escalated: int = 0  # exceptions that wait for a person

    @property
    def running(self) -> int:
        return self.jobs.get(JobState.RUNNING.value, 0)

    @property
    def waiting(self) -> int:
        return sum(self.jobs.get(state.value, 0) for state in (JobState.PENDING, JobState.HELD))


def find_clusters(reader: Reader, names: Iterable[str], held: frozenset[str], now: float) -> tuple[ClusterRow, ...]:
    """The clusters of these names; `held` are those that anybody serves now."""
    known = {row.cluster: row for row in reader.all(select(owners))}
    jobs_by = _counts(reader, select(jobs.c.cluster, jobs.c.state, func.count()).where(jobs.c.state.in_(LIVE))
                      .group_by(jobs.c.cluster, jobs.c.state))  # fmt: skip
    nodes_by = _counts(reader, select(nodes.c.cluster, nodes.c.state, func.count())
                       .group_by(nodes.c.cluster, nodes.c.state))  # fmt: skip
    open_ = select(exceptions.c.cluster, exceptions.c.state, func.count()).where(
        exceptions.c.is_open, exceptions.c.state == "escalated"
    )
    escalated_by = _counts(reader, open_.group_by(exceptions.c.cluster, exceptions.c.state))
    unseen = select(memory.c.cluster, as_text(memory.c.payload).label("text")).where(memory.c.name == rows.UNSEEN)
    silent = {row.cluster for row in reader.all(unseen) if MANAGER in codec.UNSEEN.decode(row.text)}
    found = []
    for name in names:
        owner = known.get(name)
        looked_s = owner.looked_s if owner else None
        state_ = _state(looked_s, now, is_held=name in held, is_silent=name in silent)
        nodes_, jobs_ = nodes_by.get(name, Counter()), jobs_by.get(name, Counter())
        all_nodes = nodes_.total()
        standing = (jobs_, all_nodes, all_nodes - nodes_[_USABLE], escalated_by.get(name, Counter()).total())
        found.append(ClusterRow(name, state_, owner.owner if owner else "", looked_s, *standing))
    return tuple(found)


def _counts(reader: Reader, query: object) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for cluster, state, number in reader.all(query):  # type: ignore[arg-type]
        found.setdefault(cluster, Counter())[state] = number
    return found


def _state(looked_s: float | None, now: float, *, is_held: bool, is_silent: bool) -> ClusterState:
    if not is_held:
        return ClusterState.FREE
    if is_silent:
        return ClusterState.SILENT
    return ClusterState.LATE if looked_s is None or now - looked_s > LATE_S else ClusterState.WATCHED
