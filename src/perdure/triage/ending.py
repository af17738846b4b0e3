"""What the end of a log says where no line names a cause: that it just stops, or that the work was done before."""

from __future__ import annotations

from perdure.model.jobs import Attempt
from perdure.triage.clean import MAX_LINE_BYTES, decode, scrub, tidy
from perdure.triage.context import progress_of
from perdure.triage.last_word import ended_itself
from perdure.triage.logtext import LogText, TextWindow
from perdure.triage.patterns import compiled
from perdure.triage.verdict import CauseRole, Verdict
from perdure.triage.when import DAY_S, stamp_of

LOOK_BACK_LINES, LOOK_BACK_BYTES = 40, 64 * 1024
MOST_LAST_WORDS = 5  # lines at the end of a log among which it says that it is done
MAX_SHOWN = 120  # characters of the line that is quoted
AT_EXIT = ("native_crash", "killed", "unknown")
"""Categories of deaths that say nothing of the work: a program that has done all can die so while it is taken down."""

WORK_DONE = "the log ends with its work done, and with no failure"

_DONE = (
    r"(?i)\b(?:training|fine-?tuning|fit|fitting|evaluation|run|job|experiment|all (?:epochs|steps|work)|everything)\b"
    r"[^\n]{0,30}\b(?:complete|completed|finished|done|ended successfully)\b"
    r"|\b(?:finished|completed|done) (?:training|successfully|all)\b|\bsaved? (?:the )?final\b"
    r"|`Trainer\.fit` stopped: `max_\w+=\S+` reached"  # Lightning
    r"|^\s*(?:\{'train_runtime': |\*\*\*\*\* train metrics \*\*\*\*\*|train_runtime +=)"  # Hugging Face's Trainer
)
_BARE = (
    r"(?i)^(?:.{0,80}\bINFO\b)?\W*(?:all |job |run |we are )?(?:done|finished|completed?|success(?:ful(?:ly)?)?)"
    r"(?: successfully)?(?: (?:in|after) [\d.:]+ ?[a-z]{0,9})?[\s.!]*$"
)
"""What says so only as the last line of all: parts of a program say it of themselves as well."""

_NOT_DONE = (
    r"(?i)\b(?:not|never|un\w+ly|fail\w*|error|before|until|if|when|epoch \d+ (?:done|finished|complete)|step \d+)\b"
)


def ending(text: LogText, verdict: Verdict, attempt: Attempt | None = None) -> str:
    """A sentence about how the log ends; "" where its lines of failure say enough.

    `attempt`: what the resource manager says of its end, as a failure; by a log alone that is not known.
    """
    if not text.windows:
        return ""
    telling = [line for line in verdict.evidence if line.line and not line.source]
    if not any(line.line for line in verdict.evidence):
        return _just_stops(text.windows[-1], verdict, attempt)
    if telling and verdict.category in AT_EXIT and len(text.windows) == 1:
        if any(line.role is CauseRole.ROOT and "Error" in line.text for line in telling):
            return ""
        return _was_done(text.windows[0], min(line.line for line in telling))
    return ""


def _just_stops(window: TextWindow, verdict: Verdict, attempt: Attempt | None) -> str:
    """The last line, and when it was written, as far as the lines tell; "" where the resource manager names a cause."""
    if verdict.evidence and verdict.category not in AT_EXIT:
        return ""
    lines = [raw[:MAX_LINE_BYTES] for raw in scrub(window.data[-LOOK_BACK_BYTES:]).split(b"\n") if raw.strip()]
    if not lines:
        return ""
    ends = lines[-LOOK_BACK_LINES:]
    last = decode(tidy(lines[-1])).strip()[:MAX_SHOWN]
    if compiled(_BARE).search(tidy(lines[-1])) or any(_says_done(line) for line in ends[-MOST_LAST_WORDS:]):
        return f"{WORK_DONE}: {last!r}"
    if attempt is not None and ended_itself(attempt) and progress_of(last).steps is None:
        return f"the program ended itself with exit code {attempt.exit_code}; the last line of its log is {last!r}"
    stamp = next((found for line in reversed(ends) if (found := stamp_of(line))), None)
    when = f" at {_clock(stamp.seconds)}" if stamp else ""
    why = (
        "it says nothing of a failure" if attempt is not None else "if the job failed, something outside of it ended it"
    )
    return f"the log just stops{when}, with {last!r}: {why}"


def _says_done(line: bytes) -> bool:
    return bool(compiled(_DONE).search(line)) and not compiled(_NOT_DONE).search(line)


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds % DAY_S), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"


def _was_done(window: TextWindow, first_failure: int) -> str:
    """Whether a line shortly before the first of the failure says that the work was done, and no step came after."""
    lines = scrub(window.data).split(b"\n")
    at = first_failure - window.first_line
    for index in range(min(at, len(lines)) - 1, max(-1, at - LOOK_BACK_LINES), -1):
        line = tidy(lines[index][:MAX_LINE_BYTES])
        told = decode(line).strip()
        if _says_done(line):
            number = window.first_line + index
            return (
                f"the work was done (line {number}: {told[:MAX_SHOWN]!r}): it crashed while exiting; look at its output"
            )
        if progress_of(told).steps is not None:
            return ""
    return ""
