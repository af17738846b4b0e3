"""Rules matched against a log at the speed of one automaton.

Two passes. The *screen*, one pattern made of all rules, runs over whole blocks and finds the few lines that
could matter; on those the anchored rules decide, all at once, through `re2.Set`.

The work for a block is bounded. Where a log is a storm of failure lines, all different, the first `SEARCHES` of
a block are looked at, and of the rest two in `STRIDE_BYTES`: the first, and the next that a sharp rule stops at.
Blocks are small where a window ends, so the end of a log is always looked at in full.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain
from operator import itemgetter
from typing import Any

import re2
from msgspec import Struct
from msgspec.structs import replace

from perdure.triage.evidence.gpu_memory import gpu_memory
from perdure.triage.evidence.host_memory import keeps_to_its_request
from perdure.triage.evidence.rule import Cause, Force, TriageRule
from perdure.triage.text.clean import (
    ADVICE,
    CLEARED,
    INFORMED,
    LEVEL_OF_WARNING,
    MAX_LINE_BYTES,
    MENTIONED,
    PIECE,
    PRINTED,
    QUOTED,
    SURVIVED,
    TESTED,
    TOLD,
    WARNED,
    WARNS,
    decode,
    indent,
    tidy,
)
from perdure.triage.text.errno_texts import any_translated, in_english
from perdure.triage.text.log_levels import is_told, may_tell
from perdure.triage.text.logtext import END_BLOCK_BYTES, END_BYTES, LogText, TextBlock, blocks, newlines
from perdure.triage.text.patterns import capturing, compiled, options
from perdure.triage.text.prefixes import rank_before, rank_of
from perdure.triage.text.runs import Runs
from perdure.triage.verdict import CauseRole

SEARCHES, END_SEARCHES = 32, 1024
STRIDE_BYTES, DENSE_END_BYTES = 16384, 2048
KEPT_VERDICTS = 4096
"""This many pieces are remembered with the rule that matched them: what repeats is matched once."""

LONG_BYTES, WORDS_BEFORE = 1024, 120
"""Where this much of a line is before its words of failure, only this much of it is shown."""

FRAME_OF_CPP = b"frame #"
"""How a line of libtorch's stacks begins: it names functions, whatever words those are made of."""

_MAX_MEM, _REMARKS_MEM = 160 << 20, 32 << 20


class Hit(Struct, frozen=True):
    """A line that a rule matched."""

    cause: Cause
    line: int
    text: str  # cleaned, for a person
    order: int  # place among all hits of the log
    rank: str  # of the task that wrote it; "" where nothing shows it
    block: TextBlock  # that it is in
    run: int  # of failure lines; a later run of one file has a higher number
    warns: bool = False  # by the level that its program gave it


@dataclass(slots=True)  # not frozen: there can be millions of them
class Match:
    """A hit before anybody wants to read it."""

    cause: Cause
    line: int
    piece: bytes  # scrubbed
    tidied: bytes
    block: TextBlock
    near: bool  # to the match before it: between them lines were passed over
    at: int = 0  # where in the piece the screen stopped
    warns: bool = False  # by the level that its program gave it

    @property
    def rank(self) -> str:
        """The task that wrote it; "" where nothing shows it."""
        if (source := self.block.window.source) is not None and source.rank:
            return source.rank
        return rank_before(self.piece, self.tidied) or rank_of(self.tidied)

    def read(self, order: int, run: int) -> Hit:
        words = self.tidied if self.at < LONG_BYTES else b"... " + self.piece[self.at - WORDS_BEFORE :]
        return Hit(self.cause, self.line, decode(words).strip(), order, self.rank, self.block, run, self.warns)


class Kept:
    """The first and the last matches of one rule, with their places among all and their runs."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.first: list[tuple[int, int, Match]] = []
        self.last: deque[tuple[int, int, Match]] = deque(maxlen=most)

    def add(self, order: int, run: int, match: Match) -> None:
        (self.first if len(self.first) < self.most else self.last).append((order, run, match))


class RuleBook(Struct, frozen=True, dict=True):
    """Rules in the order of their rank: within one line the earlier wins."""

    rules: tuple[TriageRule, ...]

    @cached_property
    def screen(self) -> Any:
        """What stops at every line that a rule could match."""
        return _screen(self.rules)

    @cached_property
    def sharp_screen(self) -> Any:
        """The same for rules that name the cause."""
        return _screen(tuple(rule for rule in self.rules if rule.is_sharp) or self.rules)

    @cached_property
    def _set(self) -> Any:
        rules = re2.Set.SearchSet(options(_MAX_MEM, never_capture=True))
        for pattern in (*(rule.anchored for rule in self.rules), SURVIVED, WARNED, ADVICE):
            rules.Add(pattern.encode())
        rules.Compile()
        return rules

    def named(self, name: str) -> TriageRule | None:
        """The rule of that name; None where there is none."""
        return next((rule for rule in self.rules if rule.cause.name == name), None)

    def match(self, line: bytes, told: bool = False, translated: bool = True) -> TriageRule | None:
        """The first rule that matches a cleaned line, or None.

        `told`: its program gave it a level such as INFO. `translated`: it may hold the C library's words in another
        language.

        A frame of C++ and a line of mere advice match none, nor does one of a check that found nothing, one that only
        mentions an error, nor a quoted one that would blame the site. One that reports a failure which was dealt with
        confirms at most; one that shows a value is faint.
        """
        if line.startswith(FRAME_OF_CPP):
            return None
        if translated:
            line = in_english(line)
        found, survived = self._set.Match(line), len(self.rules)
        if not found or (first := min(found)) >= survived:
            return None
        warned, advice = survived + 1, survived + 2
        rule = self._by_numbers(self.rules[first], line)
        if advice in found and not (rule.warns and _says(LEVEL_OF_WARNING, line)):
            return None
        if rule.cause.force is Force.DECISIVE:
            return rule
        remarks = _remarks().Match(line) or ()
        if _CLEARED in remarks or _MENTIONED in remarks or (rule.cause.infrastructure and _QUOTED in remarks):
            return None
        if (
            survived in found
            or (warned in found and not rule.warns)
            or _TESTED in remarks
            or ((told or _INFORMED in remarks) and not rule.warns and _is_lasting(rule.cause))
        ):
            return replace(rule, cause=replace(rule.cause, role=CauseRole.CONFIRMATION, force=Force.FAINT, hard=False))
        if rule.cause.role is not CauseRole.CONFIRMATION and _is_printed(line):
            return replace(rule, cause=replace(rule.cause, role=CauseRole.ROOT, force=Force.FAINT, hard=False))
        if rule.cause.force is Force.FAINT and line.lstrip().startswith(b"what(): "):  # it ended a C++ program
            return replace(rule, cause=replace(rule.cause, force=Force.GENERIC))
        return rule

    def _by_numbers(self, rule: TriageRule, line: bytes) -> TriageRule:
        """The rule for what is full, by whose use fills it: its own program's, or others'."""
        if rule.cause.name == EVICTED_FOR_ITSELF and keeps_to_its_request(line):
            return self.named(EVICTED) or rule
        if rule.cause.category not in _OF_FULL_CARD or (memory := gpu_memory(decode(line))) is None:
            return rule
        held = memory.is_held_by_others
        name = FULL_BY_OTHERS if held else FULL_BY_ITSELF
        return rule if rule.cause.category == _OF_FULL_CARD[held] else (self.named(name) or rule)

    def _without_own(self, hit: Hit, text: LogText) -> Hit:
        """The hit; one that blames other processes for a full card, which are this job's own, as too big a job."""
        if hit.cause.name != FULL_BY_OTHERS or (itself := self.named(FULL_BY_ITSELF)) is None:
            return hit
        memory = gpu_memory(hit.text)
        own = memory is not None and any(_tells_process(text, pid) for pid in memory.pids)
        return replace(hit, cause=itself.cause) if own else hit

    def hits(self, text: LogText, keep: int = 48) -> list[Hit]:
        """All lines that a rule matches, in order; of each rule the first `keep` and the last `keep` at most."""
        kept = defaultdict[str, Kept](partial(Kept, keep))
        matches, runs, order = self.matcher(), Runs(), 0
        for block in chain.from_iterable(map(blocks, text.windows)):
            runs.enter(block)
            for match in matches(block):
                kept[match.cause.name].add(order, runs.of(match.line, block.window, match.near), match)
                order += 1
        found = sorted(chain(*(chain(k.first, k.last) for k in kept.values())), key=itemgetter(0))
        return [self._without_own(match.read(order, run), text) for order, run, match in found]

    def matcher(self) -> Callable[[TextBlock], Iterator[Match]]:
        """What gives each line of a block that is looked at and that a rule matches; for the blocks of one log."""
        return partial(self._matches, {})

    def _matches(self, known: dict[bytes, tuple[Cause, bytes, bool] | None], block: TextBlock) -> Iterator[Match]:
        data = block.scrubbed()
        searches = END_SEARCHES if len(data) <= END_BLOCK_BYTES else SEARCHES
        line, counted, last = block.first_line, 0, -STRIDE_BYTES
        quotes, ignores = b'"' in data and b'File "' in data, _IGNORED in data
        small = len(data) <= END_BLOCK_BYTES  # then one look at all of it is cheaper than one at each line
        levels, translated = not small or may_tell(data), not small or _says(any_translated(), data)
        warns = not small or _says(WARNS, data)
        for number, (at, start, end) in enumerate(self._stops(data, searches)):
            piece = data[start:end]
            if piece not in known:
                if len(known) >= KEPT_VERDICTS:
                    known.clear()
                tidied, told = tidy(piece), levels and is_told(piece)
                rule = self.match(tidied, told, translated)
                only_warns = rule is not None and ((warns and _says(WARNS, piece)) or (told and not rule.warns))
                known[piece] = (rule.cause, tidied, only_warns) if rule is not None else None
            if (found := known[piece]) is None:
                continue
            if not ((quotes and _is_source(data, start)) or (ignores and _is_ignored(data, start))):
                line += data.count(b"\n", counted, at) if at - counted < LONG_BYTES else newlines(data, counted, at)
                counted = at
                near = number > searches and at - last < 2 * STRIDE_BYTES
                yield Match(found[0], line, piece, found[1], block, near, at - start, found[2])
                last = at

    def _stops(self, data: bytes, searches: int) -> Iterator[tuple[int, int, int]]:
        """Where the screen stops, and where the piece around that starts and ends; sparse after this many
        `searches`.
        """
        redrawn, position, ahead = PIECE in data, 0, self.screen.finditer(data)
        for _ in range(searches):
            if (found := next(ahead, None)) is None:
                return
            at, stop = found.span()
            if at < position:  # again in the piece before
                ahead = self.screen.finditer(data, position)
                if (found := next(ahead, None)) is None:
                    return
                at, stop = found.span()
            start, end = _piece(data, at, redrawn)
            yield at, start, end
            position = max(end, at + 1)
            if stop > position:
                ahead = self.screen.finditer(data, position)
        dense_from = len(data) - DENSE_END_BYTES  # a run of failure lines must not seem to end where a block does
        while found := self.screen.search(data, position):
            at = found.start()
            start, end = _piece(data, at, redrawn)
            yield at, start, end
            position = max(end, at + 1)
            stride_end = _line_end(data, max(position, min(at + STRIDE_BYTES, dense_from)))
            if sharp := self.sharp_screen.search(data, position, stride_end):
                yield sharp.start(), *_piece(data, sharp.start(), redrawn)
            position = max(position, stride_end)


_CLEARED, _MENTIONED, _QUOTED, _TESTED, _INFORMED = range(5)


@lru_cache(maxsize=1)
def _remarks() -> Any:
    """What a line may be instead of a failure; next to the rules' set, whose automaton would outgrow its memory."""
    remarks = re2.Set.SearchSet(options(_REMARKS_MEM, never_capture=True))
    for pattern in (CLEARED, MENTIONED, QUOTED, TESTED, INFORMED):
        remarks.Add(pattern.encode())
    remarks.Compile()
    return remarks


_MOST_LASTING = 0.3  # a cause that passes a retry more rarely lasts
_OF_FULL_CARD = "gpu_oom", "gpu_busy"  # by whether others hold it
EVICTED_FOR_ITSELF, EVICTED = "k8s-evicted-for-its-own-use", "k8s-evicted"
FULL_BY_ITSELF, FULL_BY_OTHERS = "cuda-oom", "cuda-oom-busy-card"


def _tells_process(text: LogText, pid: str) -> bool:
    """Whether the job's log names a process as its own, as launchers and runtimes do."""
    named = capturing(rf"(?i)\b(?:pid|process(?: id)?)[ =:#\[(]{{1,3}}{pid}\b(?: has \d)?")
    found = (found for window in text.windows for found in named.finditer(window.data[-END_BYTES:]))
    return any(b" has " not in one.group() for one in found)


def _says(pattern: str, line: bytes) -> bool:
    return compiled(pattern).search(line) is not None


def _is_printed(line: bytes) -> bool:
    """Whether it shows a value, and no message: what words are in it did not happen."""
    return line.rstrip(b" \t,.;")[-1:] in _ENDS_OF_VALUES and _says(PRINTED, line) and not _says(TOLD, line)


_ENDS_OF_VALUES = frozenset({b"}", b"]", b")", b"'", b'"'})


def _line_end(data: bytes, at: int) -> int:
    """Where the line at `at` ends."""
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


_HALF_LINE = MAX_LINE_BYTES // 2


def _piece(data: bytes, at: int, redrawn: bool) -> tuple[int, int]:
    """Where the line around `at` starts and ends: at most `MAX_LINE_BYTES`, within one picture of a redrawn one."""
    nearest = at - _HALF_LINE if at > _HALF_LINE else 0
    start = data.rfind(b"\n", nearest, at) + 1 or nearest
    end = data.find(b"\n", at, at + _HALF_LINE)
    if end < 0:
        end = min(len(data), at + _HALF_LINE)
    if redrawn:
        start = max(start, data.rfind(PIECE, nearest, at) + 1)
        redraw = data.find(PIECE, at, end)
        end = end if redraw < 0 else redraw
    return start, end


_FRAME = r'^\s*File "[^"]{1,1000}", line \d{1,9}'
TRACEBACK_LINES = 64
"""An ignored exception's traceback has this many lines at most."""

MIXED_LINES, MIXED_BYTES = 16, 4096
"""So far before a line the one that its own task wrote before it is looked for, where tasks' lines are mixed."""


def _is_source(data: bytes, start: int) -> bool:
    """Whether the line that begins at `start` is one of source code, quoted by a traceback: it was not printed."""
    if data[start - 1 : start] != b"\n":
        return False
    nearby = data[max(0, start - 1 - MIXED_BYTES) : start - 1]
    if b'File "' not in nearby:
        return False
    line = data[start : _line_end(data, start)][:MAX_LINE_BYTES]
    task = rank_of(line)
    for before in reversed(nearby.split(b"\n")[-MIXED_LINES:]):
        if rank_of(before) == task:
            return compiled(_FRAME).search(tidy(before)) is not None and indent(before) < indent(line)
    return False


_IGNORED = b"Exception ignored "  # in a destructor: Python reports it and goes on


def _is_lasting(cause: Cause) -> bool:
    """Whether it is a root cause that a retry rarely passes."""
    return cause.role is CauseRole.ROOT and not cause.hard and cause.p_transient <= _MOST_LASTING


def _is_ignored(data: bytes, start: int) -> bool:
    """Whether the line that begins at `start` belongs to the traceback of an exception that Python ignored."""
    before = data[max(0, start - MIXED_BYTES) : start]
    if _IGNORED not in before:
        return False
    line = data[start : _line_end(data, start)][:MAX_LINE_BYTES]
    task, floor = rank_of(line), indent(line) - (b'File "' in line)
    for above in reversed(before.split(b"\n")[-TRACEBACK_LINES:-1]):
        if rank_of(above) == task and indent(above) <= floor:
            text = tidy(above).lstrip()
            if not text.startswith(b"Traceback (most recent call last)"):
                return text.startswith(_IGNORED)
    return False


def _screen(rules: tuple[TriageRule, ...]) -> Any:
    bare = "|".join([*(f"(?:{rule.pattern})" for rule in rules), any_translated()])
    return re2.compile(f"(?m){bare}".encode(), options(_MAX_MEM, never_capture=True))
