"""What a handler says of an exception, and who has asked to be one."""

from __future__ import annotations

from msgspec import Struct

from perdure.coordination.record import Annotation, Answer, AnswerKind, Budget, Component, ExceptionRecord
from perdure.model.actions import Action

OWNED = "+"  # separates a user from the name that they gave


class Ruling(Struct, frozen=True):
    """The answer of one handler, with its actions and further exceptions."""

    kind: AnswerKind
    note: str
    actions: tuple[Action, ...] = ()  # of a HANDLED one alone
    annotations: tuple[Annotation, ...] = ()
    forbids: tuple[str, ...] = ()
    until_s: float | None = None  # of a DEFERRED one
    children: tuple[ExceptionRecord, ...] = ()  # what others are to know or do now: raised at once, with this as cause
    clears: tuple[str, ...] = ()  # ids of exceptions whose all-clear it is
    ends_job: bool = False  # the owner chose that the job ends here
    budget: Budget | None = None  # out of which its actions go
    charges: tuple[str, ...] = ()  # the keys of all budgets that it is charged to

    def answer(self, component: Component, now: float, handler: str = "") -> Answer:
        """The answer as it is written into the record."""
        keys = tuple([action.key for action in self.actions]) if self.actions else ()
        return Answer(component, self.kind, now, self.note, keys, handler, self.forbids, self.until_s)


def declined(note: str) -> Ruling:
    return Ruling(AnswerKind.DECLINED, note)


def handled(note: str, *actions: Action, forbids: tuple[str, ...] = (), ends_job: bool = False) -> Ruling:
    return Ruling(AnswerKind.HANDLED, note, actions, forbids=forbids, ends_job=ends_job)


class Registration(Struct, frozen=True):
    """A program that asked to be asked: what about, at which level, and until when its lease runs."""

    id: str
    component: Component
    types: tuple[str, ...]  # dotted types and all below them; "" is every type
    by: str  # the user whose token it showed
    until_s: float
    owner: str = ""  # only exceptions of this user's jobs; "" is everybody's (operators)
    answer_s: float = 30.0  # how long it may take for one answer

    @property
    def name(self) -> str:
        """What it called itself: a user's id begins with its owner."""
        return self.id.removeprefix(f"{self.owner}{OWNED}") if self.owner else self.id

    def hears(self, record: ExceptionRecord, owner: str) -> bool:
        """Whether it is to be asked about this exception of a job of `owner`."""
        if self.owner and self.owner != owner:
            return False
        return is_kind_of(record.type, *self.types)


def is_kind_of(dotted: str, *kinds: str) -> bool:
    """Whether a type is one of `kinds` or below one.

    >>> is_kind_of("gpu.xid79", "gpu"), is_kind_of("gpux", "gpu"), is_kind_of("gpu", "")
    (True, False, True)
    """
    return "" in kinds or f"{dotted}.".startswith(tuple([f"{kind}." for kind in kinds]))
