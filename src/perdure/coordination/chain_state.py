"""What the chain remembers between two batches of inputs, and what it asks the site."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct, field

from perdure.coordination.record import Component, ExceptionRecord
from perdure.coordination.ruling import Registration, Ruling


class HandlerSet(Protocol):
    """What the chain asks the site: its own handlers, its plans, and the state of jobs."""

    def levels(self, record: ExceptionRecord) -> Collection[Component]:
        """Those in which Perdure has a handler of its own for this."""

    def rule(self, record: ExceptionRecord, component: Component, chain: Chain) -> Ruling:
        """The answer of Perdure's own handler at one of these levels."""

    def fall_back(self, record: ExceptionRecord, chain: Chain) -> Ruling:
        """The answer of the default handler, where nobody took it in time."""

    def deadline_s(self, record: ExceptionRecord) -> float:
        """Seconds from the raising on that the chain has."""

    def window_s(self, record: ExceptionRecord) -> float:
        """How long equal faults are one exception."""

    def is_stale(self, record: ExceptionRecord) -> bool:
        """Whether it is about an incarnation that a newer one has replaced, or a job that is over."""

    def is_past(self, record: ExceptionRecord) -> bool:
        """Whether the job that it is about is over or has started again: no person is needed for it any more."""

    def owner_of(self, record: ExceptionRecord) -> str:
        """The user whose job it is about; "" where it is about none."""


class Turn(Struct, frozen=True):
    """Whom the chain waits for; `handler` "" is Perdure's own, which has put it off."""

    component: Component
    handler: str
    until_s: float
    note: str = ""  # why it is put off


class Chain(Struct, frozen=True):
    """All exceptions on their way and those that ended recently, and who may be asked. Never changed in place."""

    open: Mapping[str, ExceptionRecord] = field(default_factory=dict)
    ended: Mapping[str, ExceptionRecord] = field(default_factory=dict)  # oldest first, at most `MAX_ENDED`
    turns: Mapping[str, Turn] = field(default_factory=dict)  # by exception id
    handlers: Mapping[str, Registration] = field(default_factory=dict)
    equals: Mapping[tuple[object, ...], str] = field(default_factory=dict)  # what is being folded into which exception
    spent: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # when each budget was charged, oldest first

    def find(self, exception_id: str) -> ExceptionRecord | None:
        return self.open.get(exception_id) or self.ended.get(exception_id)
