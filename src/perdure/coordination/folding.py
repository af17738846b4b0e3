"""Which exceptions are one: equal faults within a window are counted, and add their sources, not their number. Pure."""

from __future__ import annotations

from itertools import takewhile

from perdure.coordination.chain_state import Chain, HandlerSet
from perdure.coordination.record import ExceptionOutcome, ExceptionRecord, ExceptionState, Scope
from perdure.coordination.record_changes import is_of_a_guest

FRESH_S = 10.0  # what was read back of a node is believed so long


def equal_of(record: ExceptionRecord) -> tuple[object, ...]:
    """Faults that agree in this are one: ranks and GPUs of one start, and all users of one shared resource."""
    kind, is_over, about = record.type, record.is_all_clear, record.subject
    if record.scope is Scope.GLOBAL:
        return kind, is_over, about.cluster, about.resource, about.nodes if not about.resource else ()
    return kind, is_over, about.cluster, about.job_id, record.incarnation, about.nodes, about.resource


def open_equal(chain: Chain, record: ExceptionRecord) -> ExceptionRecord | None:
    """The worst of equal faults that the site has reported and that are open or hold jobs, whatever users say."""
    equal, hold_orders = equal_of(record), (ended for ended in chain.ended.values() if ended.is_hold_order)
    of_the_site = (known for known in (*chain.open.values(), *hold_orders) if not is_of_a_guest(known))
    equals = (known for known in of_the_site if equal_of(known) == equal)
    return min(equals, key=lambda known: known.severity, default=None)


def is_same(known: ExceptionRecord, again: ExceptionRecord) -> bool:
    """Whether one of the same id is told again, or another bears its id."""
    return (known.type, known.subject) == (again.type, again.subject)


def taken(exception_id: str) -> tuple[str, str]:
    """What to say of an id that another exception bears, and how that is fixed."""
    return f"the id {exception_id} is taken by another exception", "Leave the id out, or make a new one"


def is_nothing_new(
    known: ExceptionRecord, again: ExceptionRecord, chain: Chain, handlers: HandlerSet, now: float
) -> bool:
    """Whether `again` is nothing new: no worse than what is known, and that is being dealt with, or was recently.

    A fault that was escalated on one source's word is new when a second source reports it. So is a fault that recurs
    after it was fixed.
    """
    if again.severity < known.severity:
        return False
    if known.id in chain.open or known.is_hold_order:
        return True
    ended_s = known.verdicts[-1].time_s if known.verdicts else known.time_s
    if now - ended_s > handlers.window_s(known):
        return False
    match known.state:
        case ExceptionState.HANDLED:
            if known.read_back_s is not None and now - known.read_back_s > FRESH_S:
                return False  # somebody may have returned the node since: it is looked at again
            return known.outcome in (ExceptionOutcome.OPEN, ExceptionOutcome.STOPPED) and not _is_overtaken(
                known, ended_s, chain
            )
        case ExceptionState.ESCALATED:
            return again.detected_by in known.sources
        case _:
            return handlers.is_stale(again)


def _is_overtaken(known: ExceptionRecord, ended_s: float, chain: Chain) -> bool:
    """Whether its resource went down since: an all-clear from before does not speak of that."""
    resource = known.subject.resource
    if not resource:
        return False
    since = takewhile(lambda record: record.id != known.id, reversed(tuple(chain.ended.values())))
    is_held = any(record.is_hold_order and record.subject.resource == resource for record in since)
    return is_held or any(r.subject.resource == resource and r.time_s >= ended_s for r in chain.open.values())
