"""The exception record: one failure, the handlers that saw it, and the one that owns its recovery.

Severities as in Flux RFC 21 (0 is fatal). Order of the chain and the meaning of answers follow "Multi-level
cooperative exception model for HPC workflows" (LLNL, ROSS 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from perdure.model.identity import AttemptId


class Component(StrEnum):
    """Who may recover from a failure; listed from the nearest to the fault to the farthest."""

    RESOURCE_MANAGER = "resource_manager"
    JOB = "job"
    WORKFLOW = "workflow"
    SCHEDULER = "scheduler"  # Perdure's own seat in the chain


class Scope(StrEnum):
    LOCAL = "local"  # a fault inside one allocation: the nearest knows the repair
    GLOBAL = "global"  # a shared resource: only the farthest sees all who use it

    @property
    def order(self) -> tuple[Component, ...]:
        """The chain in the order in which it is asked."""
        nearest_first = tuple(Component)
        return nearest_first if self is Scope.LOCAL else nearest_first[::-1]


class ExceptionState(StrEnum):
    RAISED = "raised"
    HANDLED = "handled"  # it has an owner
    RECOVERED = "recovered"  # and the job got past it
    STOPPED = "stopped"  # and the owner chose that the job ends here
    ESCALATED = "escalated"  # an owner's action was refused: a person is needed
    WITHDRAWN = "withdrawn"  # its subject is no more


class AnswerKind(StrEnum):
    HANDLED = "handled"
    ANNOTATED = "annotated"
    DECLINED = "declined"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one handler said. `action_keys` are the actions that a HANDLED answer owns."""

    component: Component
    kind: AnswerKind
    time_s: float
    note: str
    action_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExceptionRecord:
    """One failure on its way through the chain. Answers are only ever appended; at most one is HANDLED."""

    id: str
    type: str  # dotted: "job.shape", "node.failure"
    severity: int
    scope: Scope
    subject: AttemptId
    time_s: float
    note: str = ""
    answers: tuple[Answer, ...] = ()
    state: ExceptionState = ExceptionState.RAISED

    @property
    def owner(self) -> Component | None:
        return next((a.component for a in self.answers if a.kind is AnswerKind.HANDLED), None)

    def with_answer(self, answer: Answer) -> ExceptionRecord:
        """Append an answer. Raises `ValueError` for a second owner."""
        if answer.kind is AnswerKind.HANDLED and self.owner is not None:
            raise ValueError(f"{self.id} is owned by {self.owner}; {answer.component} cannot own it too")
        state = ExceptionState.HANDLED if answer.kind is AnswerKind.HANDLED else self.state
        return replace(self, answers=(*self.answers, answer), state=state)
