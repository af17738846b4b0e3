"""Faults of nodes: the node is taken out of service; its jobs are recovered by exceptions of their own."""

from __future__ import annotations

from perdure.coordination.record import AnswerKind, ExceptionRecord
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.coordination.site import SiteFacts
from perdure.model.actions import Down, Drain

SECOND_LOOK_S = 5.0
WARNING = 3  # faults of a greater severity, which is less of a fault, take no node out of service


def drain(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """Give the nodes no new work. A user's word alone does not: it waits for a second, independent source."""
    return _out_of_service(record, site, now, Drain, "to get no new work")


def set_down(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """Give the nodes up: what runs there fails now and is recovered elsewhere, not when its manager notices."""
    return _out_of_service(record, site, now, Down, "to be set down")


def _out_of_service(
    record: ExceptionRecord, site: SiteFacts, now: float, act: type[Drain] | type[Down], what: str
) -> Ruling:
    """Act on every node that is known, also on what was out of service at the last look: somebody may have returned it.

    Whether it is, the action's end tells: that is read back from the resource manager.
    """
    names = [name for name in record.subject.nodes if site.node(name) is not None]
    if not names:
        return declined("it names no node that is known")
    if record.severity > WARNING:
        return handled("no more than a warning: written down")
    if not is_vouched_for(record):
        return second_look(record, now)
    actions = tuple(act(name, f"perdure: {record.type}", record.id) for name in names)
    return handled(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {what}", *actions, forbids=("undrain",))


def second_look(record: ExceptionRecord, now: float) -> Ruling:
    """Wait for a second source."""
    note = f"only {record.detected_by or 'an unknown source'} says so"
    return Ruling(AnswerKind.DEFERRED, note, until_s=now + SECOND_LOOK_S)


def is_vouched_for(record: ExceptionRecord) -> bool:
    """Whether the site itself, or two sources that do not know of each other, say so."""
    return len(record.sources) > 1 or record.is_of_the_site
