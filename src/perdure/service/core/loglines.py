"""What the service's log says of a batch of effects: one line for each decision, action and change of sight. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perdure.log import printable
from perdure.model.events import ActionEnded, SightChanged
from perdure.service.core.case import ControllerState, Failure
from perdure.service.core.messages import Act, Effect, Journalled, Noted, Ordered


@dataclass(frozen=True, slots=True)
class ServiceLogLine:
    """One line, and how loud it is."""

    level: int
    text: str


def lines(effects: Iterable[Effect], before: ControllerState, now: float) -> Iterator[ServiceLogLine]:
    """The lines for `effects` of a step from `before`; what users and nodes are called is made safe for a terminal."""
    for effect in effects:
        match effect:
            case Noted(record=record, failure=failure):
                verdict, decision = failure.verdict, failure.decision
                if verdict is None or decision is None or _was_decided(before, failure):
                    continue
                attempt = failure.attempt
                ended = _ended(attempt.end_s, now)
                owner = f"{record.owner} handles it" if record.owner else "nobody handles it"
                said = (
                    verdict.category if verdict.summary in decision.reason else f"{verdict.category}: {verdict.summary}"
                )
                why = f"{said}; {owner}; {ended}"
                text = f"job {attempt.id.job_id} of {attempt.user}: {decision.kind}: {decision.reason} ({why})"
                yield _line(logging.INFO, text)
            case Act(action=action, by=by, reason=reason):
                yield _line(logging.INFO, f"action {action.key}: planned by {by}: {reason}")
            case Journalled(event=ActionEnded(action_key=key, status=status, detail=detail)):
                level = logging.INFO if status in ("done", "shadow") else logging.WARNING
                yield _line(level, f"action {key}: {status}" + (f": {detail}" if detail else ""))
            case Journalled(event=SightChanged(part=part, text=text)) if text:
                yield _line(logging.WARNING, f"{part} cannot be seen: {text}")
            case Journalled(event=SightChanged(part=part)):
                yield _line(logging.WARNING, f"{part} can be seen again")
            case Journalled(event=Ordered(action=action, by=by)):
                yield _line(logging.INFO, f"action {action.key}: asked for by {by}")
            case _:
                pass


def _ended(end_s: float | None, now: float) -> str:
    if end_s is None:
        return "its end is not told"
    return f"ended {now - end_s:.0f} s ago" if now - end_s >= 1.0 else "ended just now"


def _was_decided(before: ControllerState, failure: Failure) -> bool:
    case = before.cases.get(failure.attempt.id.job_id)
    known = case.failure if case else None
    return known is not None and known.attempt.id == failure.attempt.id and known.decision == failure.decision


def _line(level: int, text: str) -> ServiceLogLine:
    return ServiceLogLine(level, printable(text))
