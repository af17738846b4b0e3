"""What the service's log says of a batch of effects: one line for each decision, action and change of sight. Pure."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perdure.model.events import ActionEnded, SightChanged
from perdure.service.core.case import ControllerState, Failure
from perdure.service.core.messages import Act, Effect, Journalled, Noted, Ordered

MAX_LINE = 600


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


def printable(text: str) -> str:
    """`text` on one line without anything that moves a terminal's cursor, colours or reorders; bounded.

    >>> printable("a\\x1b[2Jb\\nc\\u202ed")
    'a\\\\x1b[2Jb\\\\nc\\\\u202ed'
    """
    text = text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class PrintableFormatter(logging.Formatter):
    """Times in ISO 8601 with the zone; each record is one line, but for the traceback of an error.

    With a `width` what is merely told has no more characters: the address above it stays on the screen for longer.
    """

    def __init__(self, width: int | None = None) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
        self._width = width

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = printable(record.getMessage()), ()
        line = super().format(record)
        if self._width is None or record.levelno > logging.INFO or len(line) <= self._width:
            return line
        return f"{line[: self._width - 1]}…"


def log_to_stderr(level: int = logging.INFO) -> None:
    """Let the service's own log, and no library's, go to stderr; on a terminal a line of it takes one line."""
    handler = logging.StreamHandler()
    width = max(40, shutil.get_terminal_size().columns) if sys.stderr.isatty() else None
    handler.setFormatter(PrintableFormatter(width))
    own = logging.getLogger("perdure")
    own.handlers[:] = [handler]
    own.setLevel(level)
    own.propagate = False


class Repeats:
    """Passes a text on only when it is another than the last one of its kind, or `every_s` later."""

    def __init__(self, every_s: float = 600.0) -> None:
        self._every_s = every_s
        self._said: dict[str, tuple[str, float]] = {}

    def is_news(self, kind: str, text: str, now: float) -> bool:
        last, at_s = self._said.get(kind, ("", 0.0))
        if text == last and 0 <= now - at_s < self._every_s:
            return False
        self._said[kind] = (text, now)
        return True

    def ended(self, kind: str) -> bool:
        """Forget a kind; True where it had been said."""
        return self._said.pop(kind, None) is not None
