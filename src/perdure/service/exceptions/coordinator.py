"""Where programs and people reach the chain of exceptions: what they say is checked, decided, durable, answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from perdure.coordination.chain_state import Chain
from perdure.coordination.folding import equal_of, is_same, open_equal, taken
from perdure.coordination.messages import ExceptionRaised, Input, Left, Refused
from perdure.coordination.record import ExceptionRecord
from perdure.coordination.record_changes import is_of_a_guest
from perdure.coordination.ruling import Registration
from perdure.coordination.wire import MAX_DEPTH
from perdure.errors import ClusterError, InputError, NotFound, PerdureError
from perdure.model.clean_text import sendable
from perdure.service.access.auth import Identity
from perdure.service.core.view import SiteView
from perdure.service.exceptions.group_commit import GroupCommit, Tell
from perdure.service.exceptions.permissions import (
    annotated,
    answered,
    closed,
    enlisted,
    handler_id,
    may_see,
    may_speak_for,
    raised,
)

Recall = Callable[[Sequence[str]], Mapping[str, ExceptionRecord]]
Read = ExceptionRaised | ExceptionRecord | PerdureError


@dataclass(frozen=True, slots=True)
class Enlisting:
    """How a handler wants to be asked."""

    component: str  # coordination.record.Component
    types: tuple[str, ...]
    lease_s: float = 60.0
    answer_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Answering:
    """A handler's verdict."""

    verdict: str  # coordination.record.AnswerKind
    note: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    forbids: tuple[str, ...] = ()
    until_s: float | None = None


class Coordinator:
    """Each call returns once what it asks for is durable. Safe for any number of threads."""

    def __init__(self, tell: Tell, view: Callable[[], SiteView], recall: Recall, look: Callable[[], None]) -> None:
        """`recall` finds exceptions that ended long ago, by id.

        `look` has the cluster looked at soon: a job that is not known may have started since the last time.
        """
        self._intake = GroupCommit(tell)
        self._view = view
        self._recall = recall
        self._look = look

    def chain(self) -> Chain:
        """The exceptions on their way, and who is registered."""
        return self._view().state.chain

    def count_open(self, by: Identity, most: int) -> int:
        """How many exceptions `by` may see that are on their way or need a person; counted no further than `most`."""
        view = self._view()
        known = (*view.state.chain.open.values(), *view.state.chain.ended.values())
        return sum(1 for _ in islice((each for each in known if each.is_unanswered and may_see(each, by, view)), most))

    def raise_exceptions(self, values: Sequence[Any], by: Identity) -> list[ExceptionRecord | PerdureError]:
        """Raise exceptions as `coordination.wire` has them; for each the record it became, or why it was refused."""
        view = self._view()
        read = self._as_before([_read(value, by, view) for value in values], view.state.chain)
        if any(isinstance(given, NotFound) for given in read):
            self._look()
        refused = self._intake.tell(tuple([given for given in read if isinstance(given, ExceptionRaised)]))
        errors = {id(effect.given): _error_of(effect) for effect in refused}
        chain = self.chain()
        return [
            errors.get(id(given)) or _became(chain, given.record) if isinstance(given, ExceptionRaised) else given
            for given in read
        ]

    def _as_before(self, read: Sequence[Read], chain: Chain) -> Sequence[Read]:
        """Put what is told again in the place of what was told, where the chain has forgotten that by now."""
        named = [given.record.id for given in read if isinstance(given, ExceptionRaised) and given.is_named]
        forgotten = [name for name in named if name not in chain.open and name not in chain.ended]
        earlier = self._recall(forgotten) if forgotten else {}
        if not earlier:
            return read
        return [
            _again(earlier.get(given.record.id), given) if isinstance(given, ExceptionRaised) else given
            for given in read
        ]

    def annotate(self, exception_id: str, key: str, value: Any, by: Identity) -> None:
        """Say something about an exception. Raises `NotFound`, `InputError`, `ClusterError`."""
        view = self._view()
        _check_visible(exception_id, by, view)
        self._tell(annotated(exception_id, key, value, by, view.now))

    def close(self, exception_id: str, note: str, by: Identity) -> None:
        """Close an exception that waits for a person, who has dealt with it. Raises `NotFound`, `ClusterError`."""
        view = self._view()
        _check_visible(exception_id, by, view)
        self._tell(closed(exception_id, note, by, view.now))

    def answer(self, exception_id: str, handler: str, said: Answering, by: Identity) -> None:
        """Give a registered handler's verdict. Raises `NotFound`, `NotPermitted`, `ClusterError` out of turn."""
        view, handler = self._view(), handler_id(handler, by)
        registration = may_speak_for(view.state.chain.handlers.get(handler), handler, by)
        _check_visible(exception_id, by, view)
        notes, forbids, until_s = said.annotations, said.forbids, said.until_s
        self._tell(answered(exception_id, registration, said.verdict, said.note, notes, forbids, until_s, view.now))

    def enlist(self, handler: str, wish: Enlisting, by: Identity) -> Registration:
        """Register a handler, or renew its lease. Raises `NotPermitted`, `InputError`."""
        view, handler = self._view(), handler_id(handler, by)
        known = view.state.chain.handlers.get(handler)
        if known is not None:
            may_speak_for(known, handler, by)
        given = enlisted(handler, wish.component, wish.types, wish.lease_s, wish.answer_s, by, view.now)
        self._tell(given)
        return given.registration

    def dismiss(self, handler: str, by: Identity) -> None:
        """End a registration. Raises `NotFound`, `NotPermitted`."""
        handler = handler_id(handler, by)
        may_speak_for(self.chain().handlers.get(handler), handler, by)
        self._tell(Left(handler))

    def _tell(self, given: Input) -> None:
        for effect in self._intake.tell((sendable(given),)):
            raise _error_of(effect)


def _check_visible(exception_id: str, by: Identity, view: SiteView) -> None:
    """Another user's exception is as unknown as one that is not there."""
    record = view.state.chain.find(exception_id)
    if record is None or not may_see(record, by, view):
        raise NotFound(f"exception {exception_id}", "no such exception is known", "See `perdure events`")


def _again(earlier: ExceptionRecord | None, given: ExceptionRaised) -> Read:
    """The record that was written down long ago, if it is the same that is told again."""
    if earlier is None:
        return given
    if is_same(earlier, given.record):
        return earlier
    return ClusterError("exceptions", *taken(earlier.id))


def _read(value: Any, by: Identity, view: SiteView) -> Read:
    try:
        return raised(sendable(value), by, view)
    except PerdureError as err:
        return err
    except RecursionError:
        return InputError("exception", "is nested too deeply", f"Keep to {MAX_DEPTH} levels")


def _error_of(effect: Refused) -> PerdureError:
    where = getattr(effect.given, "exception_id", "") or "exceptions"
    return ClusterError(where, effect.what, effect.fix)


def _became(chain: Chain, record: ExceptionRecord) -> ExceptionRecord:
    """The record as it stands; one that was folded into an equal one is that."""
    known = chain.find(record.id) or chain.find(chain.equals.get(equal_of(record), "")) or record
    if is_of_a_guest(known) and not is_of_a_guest(record):
        return open_equal(chain, record) or record
    return known
