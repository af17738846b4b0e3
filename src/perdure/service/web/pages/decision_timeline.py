"""An exception's way through the chain, laid out: level by level, what each said, when, and how long it took. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perdure.coordination.chain_state import Turn
from perdure.coordination.record import Answer, AnswerKind, Component, ExceptionRecord, ExceptionState

WIDTH = 1000.0
THINNEST = 3.0
DEFAULT = "default"  # the handler that acts where nobody took it
AFTER = "after"  # what is said once it has an owner


@dataclass(frozen=True, slots=True)
class Step:
    """One answer. `took_s` counts from the step before, or from the raising."""

    answer: Answer
    took_s: float


@dataclass(frozen=True, slots=True)
class DecisionStage:
    """A level in the order in which the chain asks, the default handler, or what came after."""

    name: str  # a `Component`, `DEFAULT` or `AFTER`
    standing: str
    """spoke; turn: it is waited for; passed: it had no part; silent: no verdict to the end; ahead; spared: an owner
    came before it."""
    steps: tuple[Step, ...] = ()
    turn: Turn | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A step as a part of the axis of time, which is `WIDTH` long. `kind` is "" while it is being waited for."""

    x: float
    width: float
    kind: str


def decided_s(record: ExceptionRecord) -> float | None:
    """The instant of the verdict that ended the chain; None while it goes on, and where its subject was gone first."""
    if not record.state.is_over or record.state is ExceptionState.EXPIRED:
        return None
    owning = (a.time_s for a in record.verdicts if a.kind is AnswerKind.HANDLED)
    return next(owning, record.verdicts[-1].time_s if record.verdicts else None)


def decided_after_s(record: ExceptionRecord) -> float | None:
    """Seconds from the raising to the end of the chain."""
    end_s = decided_s(record)
    return None if end_s is None else max(0.0, end_s - record.time_s)


def stages(record: ExceptionRecord, turn: Turn | None) -> tuple[DecisionStage, ...]:
    """All levels in the order of the scope, each with its answers, and what was said beyond them."""
    said = _said(record)
    order = [level.value for level in record.scope.order]
    asked = turn.component.value if turn else ""
    last = asked or next((name for name in reversed(order) if said[name]), "")
    beyond = _beyond(record, said)
    found = []
    for name, steps in said.items():
        if turn is not None and name == asked:
            found.append(DecisionStage(name, "turn", tuple(steps), turn))
        elif steps:
            found.append(DecisionStage(name, "spoke", tuple(steps)))
        else:
            found.append(DecisionStage(name, "passed" if last in order[order.index(name) :] else beyond))
    return tuple(found)


def _said(record: ExceptionRecord) -> dict[str, list[Step]]:
    """The answers of each level, and of whoever else spoke."""
    said: dict[str, list[Step]] = {level.value: [] for level in record.scope.order}
    before_s = record.time_s
    for place, answer in enumerate(record.verdicts):
        said.setdefault(_stage_of(record, place), []).append(Step(answer, max(0.0, answer.time_s - before_s)))
        before_s = answer.time_s
    return said


def _beyond(record: ExceptionRecord, said: Mapping[str, Sequence[Step]]) -> str:
    """How the levels stand that come after the last that spoke. That Perdure's own put it off is not written down."""
    if not record.state.is_over:
        return "ahead"
    if record.owner is not None and not any(step.answer.kind is AnswerKind.HANDLED for step in said.get(DEFAULT, ())):
        return "spared"
    at_s = min((step.answer.time_s for step in said.get(DEFAULT, ())), default=None)
    in_time = at_s is not None and (record.deadline_s is None or at_s < record.deadline_s)
    return "passed" if in_time else "silent"


def _stage_of(record: ExceptionRecord, place: int) -> str:
    """Where an answer belongs. The default handler speaks from Perdure's level, but out of its turn."""
    answer, earlier = record.verdicts[place], record.verdicts[:place]
    if any(a.kind is AnswerKind.HANDLED for a in earlier):
        return AFTER
    if answer.component is not Component.SCHEDULER or answer.handler:
        return answer.component.value
    order = record.scope.order
    has_spoken = any(a.component is Component.SCHEDULER and not a.handler for a in earlier)
    is_passed = any(order.index(a.component) > order.index(Component.SCHEDULER) for a in earlier)
    is_due = record.deadline_s is not None and answer.time_s >= record.deadline_s
    return DEFAULT if has_spoken or is_passed or is_due else answer.component.value


def stretches(record: ExceptionRecord, now: float) -> tuple[Stretch, ...]:
    """The steps up to the verdict on one axis, from the raising to the verdict or to `now`."""
    end_s = decided_s(record)
    ends = [(a.time_s, a.kind.value) for a in record.verdicts if end_s is None or a.time_s <= end_s]
    if end_s is None and not record.state.is_over:
        ends.append((now, ""))
    last_s = max((at for at, _ in ends), default=record.time_s)
    scale = WIDTH / max(last_s - record.time_s, 1e-9)
    found, x = [], 0.0
    for at, kind in ends:
        to = min(max((at - record.time_s) * scale, x), WIDTH)
        left = max(0.0, min(x, WIDTH - THINNEST))
        found.append(Stretch(left, max(to - left, THINNEST), kind))
        x = to
    return tuple(found)
