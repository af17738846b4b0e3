"""Faults of nodes: the node is taken out of service; its jobs are recovered by exceptions of their own."""

from __future__ import annotations

from perdure.coordination.record import AnswerKind, ExceptionRecord
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.coordination.site import Site
from perdure.model.actions import Drain

TRUSTED = ("perdure", "operator:")  # prefixes of `detected_by`: the service's own watch, and people of the site
SECOND_LOOK_S = 5.0


def drain(record: ExceptionRecord, site: Site, now: float) -> Ruling:
    """Give the nodes no new work. A user's word alone does not: it waits for a second, independent source."""
    nodes = [node for name in record.subject.nodes if (node := site.node(name)) is not None]
    if not nodes:
        return declined("it names no node that is known")
    usable = [node.name for node in nodes if node.is_usable]
    if not usable:
        return handled(f"{nodes[0].name} is out of service already", forbids=("undrain",))
    if not is_vouched_for(record):
        return second_look(record, now)
    reason = f"perdure: {record.type}"
    actions = tuple(Drain(name, reason, record.id) for name in usable)
    return handled(f"{', '.join(usable)} gets no new work", *actions, forbids=("undrain",))


def second_look(record: ExceptionRecord, now: float) -> Ruling:
    """Wait for a second source."""
    note = f"only {record.detected_by or 'an unknown source'} says so"
    return Ruling(AnswerKind.DEFERRED, note, until_s=now + SECOND_LOOK_S)


def is_vouched_for(record: ExceptionRecord) -> bool:
    """Whether the site itself, or two sources that do not know of each other, say so."""
    return len(record.sources) > 1 or any(source.startswith(TRUSTED) for source in record.sources)
