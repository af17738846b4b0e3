"""What the end of a log says where no line names a cause: that it just stops, or that the work was done before."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.model.jobs import Attempt
from perdure.triage.evidence.context import progress_of
from perdure.triage.evidence.last_word import ended_itself
from perdure.triage.text.clean import MAX_LINE_BYTES, decode, scrub, tidy
from perdure.triage.text.logtext import LogText, TextWindow
from perdure.triage.text.patterns import compiled
from perdure.triage.text.when import DAY_S, stamp_of
from perdure.triage.verdict import CauseRole, Evidence, Label, Verdict

LOOK_BACK_LINES, LOOK_BACK_BYTES = 40, 64 * 1024
MOST_LAST_WORDS = 5  # lines at the end of a log among which it says that it is done
LAST_QUOTED = 2  # lines: what a program had printed is often written to its file only after the words it leaves with
MAX_SHOWN = 120  # characters of the line that is quoted
AT_EXIT = ("native_crash", "killed", "unknown")
"""Categories of deaths that say nothing of the work: a program that has done all can die so while it is taken down."""

_ONLY_THE_REST = "only what came after it failed"
WORK_DONE = "the log ends with its work done, and with no failure"
DONE_AFTER = "the log ends with its work done, after what looks like a failure"

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

_WHOLE = (
    r"(?i)\b(?:training|fine-?tuning|all (?:epochs|steps|work))\b"
    r"[^\n]{0,15}\b(?:complete|completed|finished|done|ended successfully)\b"
    r"|\b(?:finished|completed|done) (?:training|all)\b"
)
"""What says so of all the training, so that a retry would only repeat it."""

_OF_A_PART = (
    r"(?i)\b(?:stage|phase|fold|round|trial|part|pre-?training|tokeni[sz]er|embeddings?|epochs? ?#?\d|iter\w* \d"
    r"|step \d|for)\b"
)
_MORE_WORK = r"(?i)\b(?:start(?:s|ing)?|begin\w*|next|now|evaluat\w*|testing|inference)\b"
"""Words of a line that announces more work: that one itself, or one after it."""

_BAR, _OF_A_COPY = r"\d%\|[^|]*\| *\d", r"(?i)upload|download|sync|copy"
MAX_AFTER = 4096  # lines after it in which steps are looked for

_OF_OWN_CODE = frozenset({"syntax", "api", "index", "shape", "config"})

_NOT_DONE = (
    r"(?i)\b(?:not|never|un\w+ly|fail\w*|error|before|until|if|when|epoch \d+ (?:done|finished|complete)|step \d+)\b"
)
_OF_A_MANAGER = r"(?i)\bepilog(?:ue)?\b|\bjob #?\d"
"""A resource manager says so of any job that has ended."""


def with_ending(verdict: Verdict, text: LogText, attempt: Attempt | None = None) -> Verdict:
    """The verdict, with what the end of the log says: that, and whether the work was done before it failed."""
    telling = _telling(verdict)
    may_repeat = verdict.label is not Label.DETERMINISTIC and verdict.category not in _OF_OWN_CODE
    whole = _work_done(text, telling) if telling and may_repeat else ""
    return replace(verdict, ending=ending(text, verdict, attempt) or whole, work_done=bool(whole))


def ending(text: LogText, verdict: Verdict, attempt: Attempt | None = None) -> str:
    """A sentence about how the log ends; "" where its lines of failure say enough.

    `attempt`: what the resource manager says of its end, as a failure; by a log alone that is not known.
    """
    if not text.windows:
        return ""
    if attempt is None and (done := _done_after(text.windows[-1], verdict)):
        return done
    telling = [line for line in verdict.evidence if line.line and not line.source]
    if not any(line.line for line in verdict.evidence):
        return _just_stops(text.windows[-1], verdict, attempt)
    if telling and verdict.category in AT_EXIT and len(text.windows) == 1:
        if any(line.role is CauseRole.ROOT and "Error" in line.text for line in telling):
            return ""
        return _was_done(text.windows[0], min(line.line for line in telling), verdict.category)
    return ""


def _done_after(window: TextWindow, verdict: Verdict) -> str:
    """Where the last words say that all is done, after what would have been a passing failure; "" elsewhere.

    By a log alone nobody says that the job failed, and to run it again would repeat work that is done.
    """
    failure = max((line.line for line in verdict.evidence), default=0)
    if verdict.label is not Label.TRANSIENT or not failure:
        return ""
    after = scrub(window.data).split(b"\n")[max(0, failure + 1 - window.first_line) :]
    lines = [tidy(raw[:MAX_LINE_BYTES]) for raw in after if raw.strip()][-MOST_LAST_WORDS:]
    said = (
        line for line in reversed(lines) if _says_done(line) or (line is lines[-1] and compiled(_BARE).search(line))
    )
    done = next(said, None)
    return "" if done is None else f"{DONE_AFTER} (line {failure}): {decode(done).strip()[:MAX_SHOWN]!r}"


def _telling(verdict: Verdict) -> Sequence[Evidence]:
    """The lines of the cause: roots, else what follows from one, else what there is."""
    lines = [line for line in verdict.evidence if line.line]
    roots = [line for line in lines if line.role is CauseRole.ROOT]
    return roots or [line for line in lines if line.role is CauseRole.CASCADE] or lines


def _work_done(text: LogText, telling: Sequence[Evidence]) -> str:
    """A sentence that the whole work was done before the cause; "" where that is not said.

    What a file of one rank says of itself is not the job's. In a file that does not hold the cause, nothing else
    gives the order, and the line must be among its last.
    """
    for window in text.windows:
        name = window.source.name if window.source else ""
        if window.source is not None and window.source.rank:
            continue
        lines = scrub(window.data).split(b"\n")
        own = [line.line - window.first_line for line in telling if line.source == name]
        end = min(own) if own else len(lines)
        if not 0 <= end <= len(lines):
            continue  # of a log whose middle was not kept, the other part holds it
        if (at := _whole_work_at(lines, end)) is not None:
            where = f"line {window.first_line + at}" + (f" of {name}" if name else "")
            told = decode(tidy(lines[at][:MAX_LINE_BYTES])).strip()[:MAX_SHOWN]
            return f"the work was done ({where}: {told!r}): {_ONLY_THE_REST}; look at its output"
    return ""


def _whole_work_at(lines: Sequence[bytes], end: int) -> int | None:
    """The line shortly before `end` that says that all of the work was done, and that no work follows."""
    for index in range(end - 1, max(-1, end - LOOK_BACK_LINES), -1):
        line = tidy(lines[index][:MAX_LINE_BYTES])
        is_whole = compiled(_WHOLE).search(line) and _says_done(line) and not compiled(_OF_A_PART).search(line)
        if is_whole and not any(compiled(_MORE_WORK).search(raw) for raw in lines[index:end]):
            return None if any(map(_is_step, lines[index : index + MAX_AFTER])) else index
    return None


def _is_step(raw: bytes) -> bool:
    line = raw[:MAX_LINE_BYTES]
    is_bar = compiled(_BAR).search(line) and not compiled(_OF_A_COPY).search(line)
    return bool(is_bar) or progress_of(decode(tidy(line))).steps is not None


def _just_stops(window: TextWindow, verdict: Verdict, attempt: Attempt | None) -> str:
    """The last line, and when it was written, as far as the lines show; "" where the resource manager names a cause."""
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
        told = ", ".join(repr(decode(tidy(line)).strip()[:MAX_SHOWN]) for line in lines[-LAST_QUOTED:])
        return f"the program ended itself with exit code {attempt.exit_code}; its log ends with {told}"
    stamp = next((found for line in reversed(ends) if (found := stamp_of(line))), None)
    when = f" at {_clock(stamp.seconds)}" if stamp else ""
    why = (
        "it says nothing of a failure" if attempt is not None else "if the job failed, something outside of it ended it"
    )
    return f"the log just stops{when}, with {last!r}: {why}"


def _says_done(line: bytes) -> bool:
    is_said = compiled(_DONE).search(line) and not compiled(_NOT_DONE).search(line)
    return bool(is_said) and (b"success" in line or not compiled(_OF_A_MANAGER).search(line))


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds % DAY_S), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"


def _was_done(window: TextWindow, first_failure: int, category: str) -> str:
    """Whether a line shortly before the first of the failure says that the work was done, and no step came after."""
    lines = scrub(window.data).split(b"\n")
    at = first_failure - window.first_line
    for index in range(min(at, len(lines)) - 1, max(-1, at - LOOK_BACK_LINES), -1):
        line = tidy(lines[index][:MAX_LINE_BYTES])
        told = decode(line).strip()
        if _says_done(line):
            number = window.first_line + index
            how = "it crashed while exiting" if category == "native_crash" else _ONLY_THE_REST
            return f"the work was done (line {number}: {told[:MAX_SHOWN]!r}): {how}; look at its output"
        if progress_of(told).steps is not None:
            return ""
    return ""
