"""What ended earlier runs of a job whose log goes on with a later one: the last run is the one that is judged.

A job that is put back appends to its log. The resource manager's word that it ended the job is believed before all
else, and wherever it is; but where the program started over below it and failed by itself, it ended a run before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.triage.evidence.context import progress_of
from perdure.triage.evidence.excerpt import ends_a_job
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Force
from perdure.triage.text.clean import MAX_LINE_BYTES, decode, scrub, tidy
from perdure.triage.text.logtext import TextWindow
from perdure.triage.text.masking import shapes
from perdure.triage.text.patterns import compiled
from perdure.triage.text.prefixes import rank_of
from perdure.triage.verdict import CauseRole

LOOKED_AT_BYTES = 256 * 1024
"""So much before the manager's word, and after it, is searched for steps and for the beginning of a run."""

MOST_ENDS = 8
"""So many of the manager's last words are looked at: a log can hold any number of them."""

STEPS_BACK, STEPS_MADE = 3, 2
"""A run that starts over is so many steps behind the one before, and makes so many; ranks of one run differ less."""

OPENING_LINES, SHORTEST_LINE, LINES_ALIKE = 8, 12, 2
"""Of so many lines with which a log begins, each so long, so many are said again by a run that starts over."""

_LOADS = r"(?i)\b(?:resum|load|restor|continu)(?:ed|es|ing)\b[^\n]{0,80}\b(?:checkpoint|ckpt)"
"""What a run says at its beginning, and none that is being ended."""


def without_earlier_runs(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits without the manager's word that it ended a run, and all before, where a later run failed by itself."""
    for end in reversed([hit for hit in hits if ends_a_job(hit.cause)][-MOST_ENDS:]):
        window = end.block.window
        later = [hit for hit in hits if hit.block.window is window and hit.line > end.line and _ends_a_run(hit)]
        if later and _starts_over(window, end.line, later[-1].line):
            return [hit for hit in hits if hit.block.window is not window or hit.line > end.line]
    return hits


def _ends_a_run(hit: Hit) -> bool:
    cause = hit.cause
    return cause.role is not CauseRole.CONFIRMATION and cause.force is not Force.FAINT and cause.category != "cancelled"


def _starts_over(window: TextWindow, end: int, last: int) -> bool:
    """Whether a run begins between two lines of a window."""
    at = _place_of(window, end)
    first = scrub(window.data[: min(at, LOOKED_AT_BYTES)])
    before = scrub(window.data[max(0, at - LOOKED_AT_BYTES) : at]).split(b"\n")
    after = scrub(window.data[at : at + LOOKED_AT_BYTES]).split(b"\n")[1 : last - end]
    if any(compiled(_LOADS).search(line[:MAX_LINE_BYTES]) for line in after) or _steps_back(before, after):
        return True
    return window.first_line == 1 and _opens_again(first, after)


def _place_of(window: TextWindow, line: int) -> int:
    """Where a line begins in its window."""
    at = 0
    for _ in range(line - window.first_line):
        at = window.data.find(b"\n", at) + 1
    return at


def _steps_back(before: Sequence[bytes], after: Sequence[bytes]) -> bool:
    """Whether a task takes steps again that it had taken."""
    reached, again = dict[str, int](), dict[str, set[int]]()
    for rank, step in _steps(before):
        reached[rank] = max(step, reached.get(rank, step))
    for rank, step in _steps(after):
        if step <= reached.get(rank, 0) - STEPS_BACK:
            again.setdefault(rank, set()).add(step)
    return any(len(steps) >= STEPS_MADE for steps in again.values())


def _steps(lines: Sequence[bytes]) -> Iterator[tuple[str, int]]:
    for raw in lines:
        line = raw[:MAX_LINE_BYTES]
        if (step := progress_of(decode(tidy(line))).steps) is not None:
            yield rank_of(line), step


def _opens_again(first: bytes, after: Sequence[bytes]) -> bool:
    """Whether lines with which the log begins, each said once by the run, are said again; numbers may differ."""
    alike = shapes(first).split(b"\n")
    opening = [line for line in alike if len(line) >= SHORTEST_LINE][:OPENING_LINES]
    once = {line for line in opening if alike.count(line) == 1}
    told = once.intersection(shapes(b"\n".join(after)).split(b"\n"))
    return len(told) >= min(LINES_ALIKE, max(1, len(once)))
