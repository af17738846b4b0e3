"""Rules matched against a log at the speed of one automaton.

Two passes. The *screen*, one pattern made of all rules, runs over whole blocks and finds the few lines that
could matter; on those the anchored rules decide, all at once, through `re2.Set`.

The work for a block is bounded. Where a log is a storm of failure lines, all different, the first `SEARCHES` of
a block are looked at, and of the rest one line in `STRIDE_BYTES`: the first that a sharp rule stops at, else the
first. Blocks are small where a window ends, so the end of a log is always looked at in full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from operator import itemgetter
from typing import Any

import re2

from perdure.triage.clean import ADVICE, MAX_LINE_BYTES, PIECE, SURVIVED, decode, tidy
from perdure.triage.logtext import Block, LogText, blocks
from perdure.triage.patterns import options
from perdure.triage.prefixes import rank_of
from perdure.triage.rule import Cause, Force, Rule
from perdure.triage.verdict import Role

SEARCHES = 128
STRIDE_BYTES = 2048
KEPT_VERDICTS = 4096
"""So many pieces are remembered with the rule that matched them: what repeats is matched once."""

_MAX_MEM = 64 << 20


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a rule matched."""

    cause: Cause
    line: int
    text: str  # cleaned, for a person
    order: int  # place among all hits of the log
    rank: str  # of the task that wrote it; "" where nothing tells
    block: Block  # that it stands in


@dataclass(frozen=True, slots=True)
class Match:
    """A hit before anybody wants to read it."""

    cause: Cause
    line: int
    piece: bytes  # scrubbed
    tidied: bytes
    block: Block

    def read(self, order: int) -> Hit:
        source = self.block.window.source
        rank = (source.rank if source else "") or rank_of(self.piece)
        return Hit(self.cause, self.line, decode(self.tidied).strip(), order, rank, self.block)


@dataclass(slots=True)
class Kept:
    """The first and the last matches of one rule."""

    most: int
    first: list[tuple[int, Match]] = field(default_factory=list)  # with their places among all
    last: deque[tuple[int, Match]] = field(default_factory=deque)

    def add(self, order: int, match: Match) -> None:
        if len(self.first) < self.most:
            self.first.append((order, match))
            return
        if len(self.last) == self.most:
            self.last.popleft()
        self.last.append((order, match))


@dataclass(frozen=True)
class RuleBook:
    """Rules in the order of their rank: within one line the earlier wins."""

    rules: tuple[Rule, ...]

    @cached_property
    def screen(self) -> Any:
        """What stops at every line that a rule could match."""
        return _screen(self.rules)

    @cached_property
    def sharp_screen(self) -> Any:
        """The same for rules that name what happened."""
        return _screen(tuple(rule for rule in self.rules if rule.is_sharp) or self.rules)

    @cached_property
    def _set(self) -> Any:
        rules = re2.Set.SearchSet(options(_MAX_MEM, never_capture=True))
        for pattern in (*(rule.anchored for rule in self.rules), SURVIVED, ADVICE):
            rules.Add(pattern.encode())
        rules.Compile()
        return rules

    def match(self, line: bytes) -> Rule | None:
        """The first rule that matches a cleaned line, or None.

        A line of mere advice matches none. One that tells of a failure which was dealt with confirms at most.
        """
        found = self._set.Match(line) or ()
        first, advice = min(found, default=len(self.rules)), len(self.rules) + 1
        if first >= len(self.rules) or advice in found:
            return None
        rule = self.rules[first]
        if advice - 1 in found and rule.cause.force is not Force.DECISIVE:
            return replace(rule, cause=replace(rule.cause, role=Role.CONFIRMATION))
        return rule

    def hits(self, text: LogText, keep: int = 48) -> list[Hit]:
        """All lines that a rule matches, in order; of each rule the first `keep` and the last `keep` at most."""
        kept: dict[str, Kept] = {}
        matches = self.matcher()
        in_order = chain.from_iterable(map(matches, chain.from_iterable(map(blocks, text.windows))))
        for order, match in enumerate(in_order):
            kept.setdefault(match.cause.name, Kept(keep)).add(order, match)
        found = sorted(chain(*(chain(k.first, k.last) for k in kept.values())), key=itemgetter(0))
        return [match.read(order) for order, match in found]

    def matcher(self) -> Callable[[Block], Iterator[Match]]:
        """What gives each line of a block that is looked at and that a rule matches; for the blocks of one log."""
        return partial(self._matches, {})

    def _matches(self, known: dict[bytes, tuple[Cause, bytes] | None], block: Block) -> Iterator[Match]:
        for line, piece in self._candidates(block):
            if piece not in known:
                if len(known) >= KEPT_VERDICTS:
                    known.clear()
                tidied = tidy(piece)
                rule = self.match(tidied)
                known[piece] = (rule.cause, tidied) if rule is not None else None
            if (found := known[piece]) is not None:
                yield Match(found[0], line, piece, found[1], block)

    def _candidates(self, block: Block) -> Iterator[tuple[int, bytes]]:
        """Yield `(line number, scrubbed piece)` for each line, or piece of an over-long one, to be looked at."""
        data = block.scrubbed()
        redrawn = PIECE in data
        position, line, left = 0, block.first_line, SEARCHES
        while found := self.screen.search(data, position) if left > 0 else self._sampled(data, position):
            at = found.start()
            line += data.count(b"\n", position, at)
            start, end = _piece(data, at, redrawn)
            yield line, data[start:end]
            following = max(end, at + 1)
            left -= 1
            if left < 0:
                following = max(following, data.find(b"\n", min(position + STRIDE_BYTES, len(data))))
            line += data.count(b"\n", at, following)
            position = following

    def _sampled(self, data: bytes, position: int) -> Any:
        """The first sharp stop in this stride, else the first stop from here on."""
        end = data.find(b"\n", position + STRIDE_BYTES)
        stride = len(data) if end < 0 else end
        return self.sharp_screen.search(data, position, stride) or self.screen.search(data, position)


def _piece(data: bytes, at: int, redrawn: bool) -> tuple[int, int]:
    """Where the line around `at` starts and ends: at most `MAX_LINE_BYTES`, within one picture of a redrawn one."""
    nearest = max(0, at - MAX_LINE_BYTES // 2)
    start = max(data.rfind(b"\n", nearest, at) + 1, nearest)
    farthest = min(len(data), at + MAX_LINE_BYTES // 2)
    end = data.find(b"\n", at, farthest)
    end = farthest if end < 0 else end
    if redrawn:
        start = max(start, data.rfind(PIECE, nearest, at) + 1)
        redraw = data.find(PIECE, at, end)
        end = end if redraw < 0 else redraw
    return start, end


def _screen(rules: tuple[Rule, ...]) -> Any:
    bare = "|".join(f"(?:{rule.pattern})" for rule in rules)
    return re2.compile(f"(?m){bare}".encode(), options(_MAX_MEM, never_capture=True))
