"""Failure lines that the program outlived, so that they are no cause of its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.triage.clean import scrub, tidy
from perdure.triage.context import progress_of
from perdure.triage.excerpt import ends_a_job
from perdure.triage.logtext import LogText, Source
from perdure.triage.matching import Hit
from perdure.triage.prefixes import rank_of
from perdure.triage.rule import Force
from perdure.triage.verdict import Role

MADE_STEPS = 20
"""So many steps after a failure line, made by the task that wrote it, say that it went on."""

END_BYTES = 256 * 1024
"""So much of a log's end is read for steps."""

_OF_OWN_CODE = frozenset({"syntax", "api", "index", "config", "missing_file"})
"""Categories of errors that no broken hardware brings about."""


def without_outlived(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits without lines of the kernel that the program outlived.

    A health check may print the kernel's log of days before a job; whoever then ends by an error of its own code alone
    was not stopped by what stands there.
    """
    roots = [hit for hit in hits if hit.cause.role is Role.ROOT and hit.cause.force is not Force.FAINT]
    own = next((hit for hit in roots if not hit.cause.of_kernel), None)
    if own is None or own.cause.category not in _OF_OWN_CODE:
        return hits
    return [hit for hit in hits if not (hit.cause.of_kernel and hit.cause.role is Role.ROOT and hit.order < own.order)]


def without_long_past(hits: Sequence[Hit], text: LogText) -> Sequence[Hit]:
    """The hits, if steps do not follow the last of them: for a job that a signal ended, which needs no other cause.

    Programs ask for names that are not there, and log what they caught; then they train for days, and are killed.
    """
    last: dict[Source | None, Hit] = {}
    for hit in hits:
        source = hit.block.window.source
        last[source] = max(hit, last.get(source, hit), key=lambda each: each.line)
    past = {source for source, hit in last.items() if _steps_after(hit, text) >= MADE_STEPS}
    return [hit for hit in hits if hit.block.window.source not in past or ends_a_job(hit.cause)]


def _steps_after(hit: Hit, text: LogText) -> int:
    """How many steps its task made after a line, as far as the end of the log tells."""
    window = next(each for each in reversed(text.windows) if each.source is hit.block.window.source)
    start = max(0, len(window.data) - END_BYTES)
    first = window.first_line + window.data.count(b"\n", 0, start)
    lines = scrub(window.data[start:]).split(b"\n")[max(0, hit.line + 1 - first) :]
    return len(set(_steps(line for line in lines if rank_of(line) == hit.rank)))


def _steps(lines: Iterable[bytes]) -> Iterable[int]:
    told = (progress_of(tidy(line).decode("utf-8", "replace")).steps for line in lines)
    return (step for step in told if step is not None)
