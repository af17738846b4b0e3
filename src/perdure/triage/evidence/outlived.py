"""What a program outlived: failures after which it went on, and which therefore are not what ended it.

Of one process only its last traceback can have ended it: an earlier one was caught, unless a later one names it as its
cause. A thread's exception, one in a finaliser and one in a callback never end it. Steps and checkpoints between two
failures show that the first was survived, as does a later launch by the same script. Processes whose lines are mixed
cannot be told apart: of theirs the first failure stays the cause, and so it does where steps may have been printed late
from a buffer. Where nothing shows the end, `RAN_ON` steps after a line show that it was survived; after a traceback
only those that a logger dated or a progress bar drew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perdure.triage.evidence.context import progress_of
from perdure.triage.evidence.excerpt import ends_a_job
from perdure.triage.evidence.launchers import LauncherReport
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.text.clean import MAX_LINE_BYTES, indent, scrub, tidy
from perdure.triage.text.logtext import LogText, Source, TextWindow
from perdure.triage.text.patterns import capturing, compiled
from perdure.triage.text.prefixes import rank_of
from perdure.triage.text.when import stamp_of
from perdure.triage.verdict import CauseRole

MADE_STEPS = 20
"""This many steps after a failure line, made by the task that wrote it, say that a signal which came then needs no
other cause."""

END_BYTES, BEFORE_BYTES, MAX_MARKS = 256 * 1024, 16 * 1024, 16_384
"""This much of a log's end is looked at, this much before the first failure, and this many of its lines."""

HEAD_BYTES = 64 * 1024
"""So far a log's beginning is searched for words of a program with several processes."""

MAX_FRAME_LINES, LINES_ASIDE = 400, 6
"""A traceback has this many lines, and this many lines at most are between it and what says whose it is."""

STEPS_OF_ONE, STEPS_OF_MANY, MAX_STEPS = 2, 3, 64
"""This many steps show that one process went on, or that one of several did, whose peers may take one more; this many
are looked at."""

RAN_ON, RAN_ON_DATED = 10, 3
"""This many steps show that a line which no end of the program follows was survived; this many if no step is from a
buffer.
"""

_OF_OWN_CODE = frozenset({"syntax", "api", "index", "config", "missing_file"})
"""Categories of errors that no broken hardware brings about."""


def without_outlived(
    hits: Sequence[Hit], report: LauncherReport | None = None, asks_again: bool = False
) -> tuple[Sequence[Hit], LauncherReport | None]:
    """The hits, and the launcher's report, without those that the program outlived; all where nothing shows it.

    `asks_again`: the program ended by asking to be tried again, so that nothing before its last steps ended it.
    """
    hits = _without_mounted(_without_old_kernel_lines(hits))
    gone: set[int] = set()
    for window in {id(hit.block.window): hit.block.window for hit in hits}.values():
        own = [hit for hit in hits if hit.block.window is window]
        gone |= {hit.order for hit in _Story.of(window, own, report).outlived(own, asks_again)}
    kept = [hit for hit in hits if hit.order not in gone or hit.cause.force is Force.DECISIVE]
    if report is not None and not (report.after or report.is_last):
        words = [hit for hit in hits if hit.block.window is report.window and hit.line < report.line and _can_end(hit)]
        if words and all(hit.order in gone for hit in words) and any(map(_can_end, kept)):
            report = None
    return kept, report


def _without_old_kernel_lines(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits without lines of the kernel that the program outlived.

    A health check may print the kernel's log of days before a job; whoever then ends by an error of its own code alone
    was not stopped by what is there.
    """
    roots = [hit for hit in hits if hit.cause.role is CauseRole.ROOT and hit.cause.force is not Force.FAINT]
    own = next((hit for hit in roots if not hit.cause.of_kernel), None)
    if own is None or own.cause.wider not in _OF_OWN_CODE:
        return hits
    return [
        hit for hit in hits if not (hit.cause.of_kernel and hit.cause.role is CauseRole.ROOT and hit.order < own.order)
    ]


_VOLUME, _AFTER_VOLUMES = (
    "k8s-volume",
    frozenset({"image-pull-limited", "image-not-there", "image-pull-flaky", "k8s-oomkilled"}),
)
_POD = r"\bpod/([\w.-]+)"


def _without_mounted(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits without volumes that were mounted at last: a kubelet fetches a pod's images only then."""
    later = [hit for hit in hits if hit.cause.name in _AFTER_VOLUMES]
    if not later:
        return hits
    return [hit for hit in hits if hit.cause.name != _VOLUME or not any(_is_later(each, hit) for each in later)]


def _is_later(hit: Hit, other: Hit) -> bool:
    """Whether a line tells of a later stage of the pod that another tells of."""
    pods = [found[1] for each in (hit, other) if (found := capturing(_POD).search(each.text.encode()))]
    return hit.order > other.order and len(set(pods)) < 2


def _can_end(hit: Hit) -> bool:
    """Whether it reports something that can have ended the program."""
    return hit.cause.role is CauseRole.CASCADE or (
        hit.cause.role is CauseRole.ROOT and hit.cause.force is not Force.FAINT
    )


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


class _Step(NamedTuple):
    """A line that shows a step or a checkpoint."""

    line: int
    says: bytes  # "step 7"
    raw: bytes

    @property
    def at_once(self) -> bool:
        """Whether it was printed when it happened: by a logger or a progress bar, not from a buffer at the end."""
        return b"%|" in self.says or stamp_of(self.raw) is not None


@dataclass(slots=True)
class _Exception:
    """A traceback, with those that it names as its cause."""

    first: int  # line of the first header
    last: int  # line of the message
    aside: bool = False  # of a thread, a finaliser or a callback


_NUMBER = r" ?[:=#|\[( ] ?\d{1,12}(?:\.\d{1,9})?"
_MARKS = (
    r"(?P<header>(?:Original )?Traceback \(most recent call last\))"
    r"|(?P<aside>Exception in thread [^\"]|Exception ignored (?:in|on)|exception was never retrieved"
    r"|Exception in callback|Error in atexit\._run_exitfuncs|--- Logging error ---)"
    r"|(?P<again>(?i:\bre-?trying\b|\bwill re-?try\b|\bgoing on\b|\bcontinuing\b|\battempt \d+ ?(?:/|of) ?\d))"
    r"|(?P<link>During handling of the above exception|The above exception was the direct cause)"
    rf"|(?P<step>(?i:\b(?:global[_ ]?step|steps?|iter(?:ation)?s?|epochs?|batch)[\"\x27]?{_NUMBER}"
    r"|\b(?:saved|wrote|stored)\b[^\n]{0,80}\b(?:checkpoint|ckpt)\S{0,80}|\bcheckpoint\b[^\n]{0,80}\bsaved\b)"
    r"|\d%\|[^|\n]{0,200}\| *\d+/\d+)"
)
_OF_MANY = (
    r"(?m)^Process \S{0,60}-\d+(?::\d+)*:|\bworld[_ ]?size\b\W{1,4}(?:[2-9]|1\d)|torch/distributed/|/multiprocessing/"
    r"|/concurrent/futures/process|distributed/worker|\bray::|\bmpi(?:run|exec)\b|(?i:nccl|gloo|horovod)"
    r"|\b[Rr]ank ?[=:#]? ?\d|init_process_group|CalledProcessError"
)
"""Words of programs whose processes die of each other's death."""

_NOT_OF_PROGRAM = r"^(?:(?:srun|slurmstepd)[\w-]*|wandb|perdure exec): "


@dataclass(slots=True)
class _Story:
    """What a window tells besides its failures, in the order of its lines."""

    many: bool  # several processes write here
    labelled: bool  # and the ranks before lines tell them apart
    after: int  # the last line of the launch before the last one; 0 where there is none
    following: frozenset[int]  # hits, by their order, that follow from the failure that a launcher reports
    exceptions: dict[str, list[_Exception]] = field(default_factory=dict)  # by rank, as are the steps
    steps: dict[str, list[_Step]] = field(default_factory=dict)
    again: dict[str, list[int]] = field(default_factory=dict)  # lines that announce another try

    @classmethod
    def of(cls, window: TextWindow, hits: Sequence[Hit], report: LauncherReport | None) -> _Story:
        start = max(0, min(hit.block.start for hit in hits) - BEFORE_BYTES, len(window.data) - END_BYTES)
        data = scrub(window.data[start:])
        many = len({hit.rank for hit in hits if hit.rank}) > 1 or (report is not None and not report.is_of_one)
        many = many or any(compiled(_OF_MANY).search(part) for part in (window.data[:HEAD_BYTES], data))
        labelled = report is None or report.launcher == "srun"
        after = report.after if report is not None and report.window is window else 0
        following = frozenset(hit.order for hit in hits if report is not None and report.is_followed_by(hit))
        story = cls(many, labelled, after, following)
        rank = window.source.rank if window.source is not None else ""
        first = window.first_line + window.data.count(b"\n", 0, start)
        story._read(data, first, rank, {hit.line for hit in hits})
        return story

    def _read(self, data: bytes, first: int, rank: str, taken: set[int]) -> None:
        lines, pending = data.split(b"\n"), dict[str, tuple[str, int]]()
        for line, kind, says in _marks(data, first):
            raw = lines[line - first][:MAX_LINE_BYTES]
            who = rank or rank_of(raw)
            raised = self.exceptions.setdefault(who, [])
            if kind == "step":
                within = bool(raised) and line <= raised[-1].last
                if line not in taken and not within and not compiled(_NOT_OF_PROGRAM).search(raw):
                    self.steps.setdefault(who, []).append(_Step(line, says.lower(), raw))
                continue
            if kind == "again":
                self.again.setdefault(who, []).append(line)
                continue
            if kind == "aside":
                raised.append(_Exception(line, line, aside=True))
            if kind != "header":
                pending[who] = kind, line
                continue
            told, at = pending.pop(who, ("", 0))
            last = _last_of(lines, line - first) + first
            linked = told == "link" or says.startswith(b"Original") or (told == "aside" and line - at <= LINES_ASIDE)
            if linked and raised:
                raised[-1].last = last
            else:
                raised.append(_Exception(line, last))

    def outlived(self, hits: Sequence[Hit], asks_again: bool) -> Iterator[Hit]:
        """Those of the window's hits that did not end the program."""
        if not (self.after or self.steps or any(self.exceptions.values())):
            return  # nothing was done after any of them, and none is of a traceback
        aside = {hit.order for hit in hits if (held := self._held(hit)) is not None and held.aside}
        ends = [hit for hit in hits if _can_end(hit) and hit.order not in aside]
        explained = any(each.cause.force is not Force.GENERIC and each.order not in self.following for each in ends)
        last_of = {hit.rank: hit for hit in ends}
        for hit in hits:
            last = last_of.get(hit.rank) or (ends[-1] if ends else None)
            if last is not None and last.line <= hit.line:
                last = ends[-1]
            if hit.order in aside:
                told = explained or (bool(self.following) and self._ran_on(hit))
            elif last is None or hit.line >= last.line:
                told = (asks_again and self._went_on(hit, None)) or self._ran_on(hit)
            else:
                told = hit.line <= self.after < last.line or self._is_caught(hit, last) or self._went_on(hit, last)
                told = told or (asks_again and self._went_on(hit, None)) or self._ran_on(hit)
            if told or (asks_again and hit.order in aside):
                yield hit

    def _held(self, hit: Hit) -> _Exception | None:
        """The traceback that a hit is in."""
        raised = self.exceptions.get(hit.rank, [])
        at = bisect_right(raised, hit.line, key=lambda each: each.first) - 1
        return raised[at] if at >= 0 and hit.line <= raised[at].last else None

    def _is_one(self, hit: Hit, last: Hit | None) -> bool:
        """Whether one process wrote both, or one after the other."""
        if not self.many:
            return last is None or hit.rank == last.rank
        return self.labelled and hit.rank.isdecimal() and last is not None and hit.rank == last.rank

    def _is_caught(self, hit: Hit, last: Hit) -> bool:
        """Whether a later traceback of the same process ended it.

        It may be a mere wrapper of a child's error, or an interruption of what had failed: neither says that.
        """
        if last.cause.category == "cancelled" or not self._is_one(hit, last):
            return False
        one, other = self._held(hit), self._held(last)
        if one is None or other is None or one is other:
            return False
        tried = any(one.last < line < other.first for line in self.again.get(hit.rank, []))
        return last.cause.force is not Force.GENERIC or tried

    def _ran_on(self, hit: Hit) -> bool:
        """Whether its program worked on until the end, as far as the log goes: nothing need show an end."""
        steps = self.steps.get(hit.rank, [])
        if not steps and not hit.rank.isdecimal():
            steps = self.steps.get("", [])  # of the program that a runtime's thread belongs to
        if not steps:
            return False
        start = bisect_right(steps, hit.line, key=lambda step: step.line)
        after = steps[start : start + MAX_STEPS]
        if self._is_raised(hit):  # a bar may be redrawn once more, or be in a stream that was added at the end
            return len({step.line for step in after if stamp_of(step.raw) is not None}) >= RAN_ON
        dated = len({step.line for step in after if stamp_of(step.raw) is not None})
        told = {
            step.line if _names_an_end(hit.cause) else step.says for step in after
        }  # a bar has many steps in one line
        return dated >= (RAN_ON if self.many else RAN_ON_DATED) or len(told) >= RAN_ON

    def _is_raised(self, hit: Hit) -> bool:
        """Whether it belongs to a traceback, be it of another form than Python's own."""
        raised, steps = self.exceptions.get(hit.rank, []), self.steps.get(hit.rank, [])
        at = bisect_right(raised, hit.line, key=lambda each: each.first) - 1
        if at < 0 or hit.line - raised[at].first > MAX_FRAME_LINES:
            return False
        between = bisect_right(steps, hit.line, key=lambda step: step.line)
        return between == bisect_right(steps, raised[at].first, key=lambda step: step.line)

    def _went_on(self, hit: Hit, last: Hit | None) -> bool:
        """Whether its process took steps between `hit` and `last`, or the end."""
        steps, one = self.steps.get(hit.rank, []), self._is_one(hit, last)
        start = bisect_right(steps, hit.line, key=lambda step: step.line)
        end = bisect_right(steps, last.line, key=lambda step: step.line) if last else len(steps)
        after = steps[start : min(end, start + MAX_STEPS)]
        late = start == 0 and not (one and (last is None or self._held(hit) is None))  # they may come from a buffer
        enough = STEPS_OF_ONE if one else STEPS_OF_MANY
        return len({step.says for step in after if step.at_once or not late}) >= enough


def _names_an_end(cause: Cause) -> bool:
    """Whether programs end by what it tells, more often than they go on."""
    return cause.role is CauseRole.ROOT and cause.force is not Force.FAINT


def _marks(data: bytes, first: int) -> Iterator[tuple[int, str, bytes]]:
    """The lines that tell something, numbered from `first`: number, kind, and the words that tell it."""
    line, counted, position = first, 0, 0
    for _ in range(MAX_MARKS):
        if not (found := capturing(_MARKS).search(data, position)):
            return
        line, counted = line + data.count(b"\n", counted, found.start()), found.start()
        yield line, found.lastgroup.decode(), found.group()
        position = found.end()


def _last_of(lines: Sequence[bytes], header: int) -> int:
    """The last line of the message below a traceback's header; the lines of its frames are indented before it."""
    rank, margin, message = rank_of(lines[header]), indent(lines[header][:MAX_LINE_BYTES]), header
    for index in range(header + 1, min(len(lines), header + MAX_FRAME_LINES)):
        raw = lines[index][:MAX_LINE_BYTES]
        if rank_of(raw) != rank or compiled(_NOT_OF_PROGRAM).search(tidy(raw)):
            continue
        indented = indent(raw) > margin if margin else raw[:1].isspace()
        if message > header and not (indented and raw.strip()):
            break
        if message > header or (raw.strip() and not indented):
            message = index
    return message
