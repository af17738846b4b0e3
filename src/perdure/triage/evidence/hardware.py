"""Whether a line of a log proves that hardware is broken, so that it may count against a node.

Such a line names the end of its program, not something that a health check told before: its program did not go on after
it. A line of the kernel must not be older than the attempt; one that counts its time from the boot says nothing of when
it was written, so that it needs a failure of the program itself next to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from perdure.triage.evidence.context import progress_of
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Force
from perdure.triage.text.clean import MAX_LINE_BYTES, indent, scrub, tidy
from perdure.triage.text.logtext import LogText
from perdure.triage.text.patterns import compiled
from perdure.triage.text.prefixes import rank_of
from perdure.triage.text.when import Form, stamp_of
from perdure.triage.verdict import CauseRole

END_BYTES = 256 * 1024
"""A line with more than so much after it did not end the program."""

STEPS_AFTER, LINES_AFTER, LINES_AFTER_KERNEL = 3, 12, 2
"""A program that takes this many steps after a failure, or writes more lines than this that no failure explains, went
on."""

HEADER_LINES, HEADER_BYTES = 200, 32 * 1024
"""So far before an exception's message its traceback begins at most."""

ZONES_S = 14 * 3600.0
"""A time without its zone is off by so much at most."""

_WITNESSES = {
    "gpu_hw": frozenset({"gpu_hw", "native_crash"}),
    "node_loss": frozenset({"node_loss", "fs", "native_crash"}),
}
"""By the category of a line of the kernel: those of the program's own failures that it explains."""

_OF_GPU, _CRASHED_KERNEL = "gpu_hw", "cuda-illegal"

_SINCE_BOOT = r"\[ *\d+\.\d+\]"
_FOLLOWS = (
    r"^(?:\s*$|frame #|Exception raised from|Traceback |During handling|The above exception|terminate called|Aborted"
    r"|(?:srun|slurmstepd|wandb|torchrun|mpirun|mpiexec)\b|[-=*#]{4}|\S+:\d+:\d+ \[\d+\] NCCL |[EWIF]\d{3,4} "
    r"|.{0,80}NVRM:)"
)
"""What a dying program, its launcher, its runtime and the driver write after a failure."""


def proof_of(hit: Hit, hits: Sequence[Hit], text: LogText) -> str:
    """The line of `hit`, the primary cause, if it proves that hardware is broken; "" where it does not."""
    if not hit.cause.hard or _went_on(hit, hits, text):
        return ""
    dated = not (hit.cause.of_kernel and compiled(_SINCE_BOOT).search(_raw(hit)) and not _date_of(hit))
    return hit.text if dated or any(_witnesses(other, hit) for other in hits) else ""


def without_older(hits: Iterable[Hit], start_s: float, end_s: float | None) -> list[Hit]:
    """The hits without lines of the kernel whose date is before the start of an attempt that ended at `end_s`."""
    near_s = start_s if end_s is None else end_s
    return [hit for hit in hits if not (hit.cause.of_kernel and _is_before(hit, start_s, near_s))]


def without_crashed_kernels(hits: Sequence[Hit], text: LogText) -> Sequence[Hit]:
    """The hits without kernels that crashed in whose run a GPU is proven to be broken: that is why they crashed."""
    if not any(hit.cause.name == _CRASHED_KERNEL for hit in hits):
        return hits
    broken = {hit.run for hit in hits if hit.cause.wider == _OF_GPU and proof_of(hit, hits, text)}
    return [hit for hit in hits if not (hit.cause.name == _CRASHED_KERNEL and hit.run in broken)]


def _is_before(hit: Hit, start_s: float, near_s: float) -> bool:
    written_s = _date_of(hit, near_s)
    return written_s is not None and written_s + ZONES_S < start_s


def _date_of(hit: Hit, near_s: float = 0.0) -> float | None:
    """When a line says that it was written, in seconds since 1970; one without a year, in the year before `near_s`."""
    stamp = stamp_of(_raw(hit))
    if stamp is None or stamp.form is Form.TIME_OF_DAY:
        return None
    if stamp.form is Form.DATE:
        return stamp.seconds
    near = datetime.fromtimestamp(near_s, UTC)
    day = datetime.fromtimestamp(stamp.seconds, UTC)
    same = near.replace(month=day.month, day=min(day.day, 28), hour=0, minute=0, second=0, microsecond=0).timestamp()
    same += (day.day - min(day.day, 28)) * 86400.0 + stamp.seconds % 86400.0
    return same if same < near_s + 2 * ZONES_S else same - 365 * 86400.0


def _witnesses(other: Hit, hit: Hit) -> bool:
    cause = other.cause
    if cause.of_kernel or cause.role is not CauseRole.ROOT or cause.force is not Force.PLAIN:
        return False
    return cause.category in _WITNESSES.get(hit.cause.category, ())


def _went_on(hit: Hit, hits: Sequence[Hit], text: LogText) -> bool:
    """Whether its program went on after a line, as far as the log shows."""
    window = hit.block.window
    if window is not next(each for each in reversed(text.windows) if each.source is window.source):
        return True  # what was not read lies between
    after = window.data[_end_of(hit) :]
    if len(after) > END_BYTES:
        return True
    explained = {other.line for other in hits if other.block.window is window}
    late = not hit.cause.of_kernel and _is_raised(hit)
    steps, others = set[int](), 0
    for number, raw in enumerate(scrub(after).split(b"\n"), hit.line + 1):
        if late and stamp_of(raw) is None and b"%|" not in raw:
            continue  # printed from the buffer of a program that has ended
        line = tidy(raw[:MAX_LINE_BYTES])
        if (step := progress_of(line.decode("utf-8", "replace")).steps) is not None:
            steps.add(step)
        elif number not in explained and not (_is_indented(raw) or compiled(_FOLLOWS).search(line)):
            others += 1
    return len(steps) >= STEPS_AFTER or others > (LINES_AFTER_KERNEL if hit.cause.of_kernel else LINES_AFTER)


def _is_raised(hit: Hit) -> bool:
    """Whether a traceback ends with the line, and so its process."""
    end = _start_of(hit)
    lines = scrub(hit.block.window.data[max(0, end - HEADER_BYTES) : end]).split(b"\n")[:-1]
    for raw in reversed(lines[-HEADER_LINES:]):
        if rank_of(raw) == hit.rank and not _is_indented(raw):
            return tidy(raw[:MAX_LINE_BYTES]).startswith(b"Traceback (most recent call last)")
    return False


def _is_indented(raw: bytes) -> bool:
    """Whether more than one space is before its text, after what launchers put there."""
    line = raw[:MAX_LINE_BYTES]
    return line[: indent(line)].endswith((b"  ", b"\t"))


def _raw(hit: Hit) -> bytes:
    return scrub(hit.block.window.data[_start_of(hit) : _end_of(hit)][:MAX_LINE_BYTES])


def _start_of(hit: Hit) -> int:
    """Where its line begins in its window."""
    at = hit.block.start
    for _ in range(hit.line - hit.block.first_line):
        at = hit.block.window.data.find(b"\n", at) + 1
    return at


def _end_of(hit: Hit) -> int:
    end = hit.block.window.data.find(b"\n", _start_of(hit))
    return len(hit.block.window.data) if end < 0 else end + 1
