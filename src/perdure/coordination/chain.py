"""The chain of handlers: each exception is offered in order until one owns it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.coordination.record import Answer, AnswerKind, Component, ExceptionRecord

Handler = Callable[[ExceptionRecord], Answer]


def offer(record: ExceptionRecord, handlers: Mapping[Component, Handler]) -> ExceptionRecord:
    """Ask the handlers in the order of the record's scope; stop at the first that handles it.

    A component without a handler is passed over. Handlers see the answers given before theirs.
    """
    for component in record.scope.order:
        if record.owner is not None:
            break
        if component in handlers:
            record = record.with_answer(handlers[component](record))
    return record


def declined(component: Component, now: float, note: str) -> Answer:
    """The answer of a component that leaves the exception to the next."""
    return Answer(component, AnswerKind.DECLINED, now, note)
