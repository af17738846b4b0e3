"""Which rank of a program that stands still stopped first, from one look at all of its ranks.

In this order: a rank that is dead; one that is stopped; those that stand still elsewhere while others wait for peers;
one that has ended well, for which the others wait; where all are in collectives, the few that are in another one than
the rest; the one whose step lies behind; the one that has told no step for longest. A rank that works may be the reason
why the others wait: then it is not a hang yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.hangs.rank_state import Life, RankState

MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class HangFinding:
    """Who stopped first, and how that is known. No culprit: nobody stands out."""

    culprits: tuple[RankState, ...] = ()
    says: str = "what it waits for is not known"
    works: bool = False  # somebody works: it may go on

    @property
    def sentence(self) -> str:
        """``rank 1 on node2 stopped first: train.py:17 in load; rank 0 waits for it``; of many the first.

        The node is behind the first rank where it is that of all of them.
        """
        if not self.culprits or self.culprits[0].rank is None:
            return self.says
        first, nodes = self.culprits[0], self.nodes
        who = first.name
        if len(self.culprits) > 1:
            more = f" and {len(self.culprits) - 1} more"
            some = f"{', '.join(nodes[:MOST_NAMED])}{', ...' if len(nodes) > MOST_NAMED else ''}"
            who = f"{who}{more}" if len(nodes) < 2 else f"rank {first.rank}{more} on {some}"
        return f"{who} {'works' if self.works else 'stopped first'}: {self.says}"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Of the culprits, as far as they are known."""
        return tuple(dict.fromkeys(sight.node for sight in self.culprits if sight.node))


def finding_of(sights: Sequence[RankState], slack_s: float = 0.0, unseen: int = 0) -> HangFinding:
    """Judge one look. Silences that differ by less than `slack_s` are alike; of `unseen` ranks nothing is known."""
    ranks = sorted(sights, key=lambda sight: -1 if sight.rank is None else sight.rank)
    found = _finding(ranks, slack_s)
    if not unseen or any(sight.life not in (Life.WAITS, Life.UNCLEAR) for sight in found.culprits):
        return found
    return HangFinding(says=f"of {unseen} rank{'s' if unseen > 1 else ''} nothing is known{_places(ranks)}")


def _finding(ranks: Sequence[RankState], slack_s: float) -> HangFinding:
    by_life = {life: [sight for sight in ranks if sight.life is life] for life in Life}
    others_wait = _waiting(by_life)
    for life in (Life.DEAD, Life.STOPPED, Life.WORKS, Life.ELSEWHERE, Life.ENDED):
        found = by_life[life]
        if found and (len(found) < len(ranks) or len(ranks) == 1 or life is Life.WORKS):
            return HangFinding(tuple(found), f"{_of(found[0])}{others_wait}", works=life is Life.WORKS)
    if len(ranks) == 1:
        return HangFinding(tuple(ranks), ranks[0].where or "nothing says what it waits for")
    if not ranks:
        return HangFinding(says="none of its processes is known here")
    return _odd_one(ranks) or _latest(ranks, slack_s) or HangFinding(says=f"no rank stands out{_places(ranks)}")


def _of(sight: RankState) -> str:
    """What a culprit is at."""
    at = f": {sight.where}" if sight.where else ""
    if sight.life is Life.DEAD:
        return f"it {sight.ending}"
    if sight.life is Life.ENDED:
        return "it has ended with exit code 0"
    if sight.life is Life.STOPPED:
        return f"it is stopped, by a signal or a debugger{at}"
    if sight.life is Life.WORKS:
        return f"it still works{at}"
    return sight.where or "it stands still"


def _waiting(by_life: dict[Life, list[RankState]]) -> str:
    waiting, ended = [*by_life[Life.WAITS], *by_life[Life.UNCLEAR]], by_life[Life.ENDED]
    if not waiting:
        return f"; {_named(ended)} {'has' if len(ended) == 1 else 'have'} ended with exit code 0" if ended else ""
    named = sorted({sight.collective for sight in waiting if sight.collective})
    where = f" in {', '.join(named[:MOST_NAMED])}" if named else ""
    return f"; {_named(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for it{where}"


def _named(sights: Sequence[RankState]) -> str:
    numbers = [str(sight.rank) for sight in sights if sight.rank is not None]
    if len(numbers) > MOST_NAMED:
        return f"{len(numbers)} ranks"
    if not numbers:
        return "another process"
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(numbers)}"


def _odd_one(ranks: Sequence[RankState]) -> HangFinding | None:
    """The few that are in another collective, or at another place, than the rest."""
    kinds = Counter(_at(sight) for sight in ranks)
    if len(kinds) < 2:
        return None
    (usual, many), (_, next_most) = kinds.most_common(2)
    odd = [sight for sight in ranks if _at(sight) != usual]
    if many == next_most or not all(map(_at, odd)):
        return None
    rest = [sight for sight in ranks if _at(sight) == usual]
    return HangFinding(tuple(odd), f"it is in {_at(odd[0])}, {_named(rest)} in {usual or 'another place'}")


def _latest(ranks: Sequence[RankState], slack_s: float) -> HangFinding | None:
    """The one whose last step lies behind, or was told longest ago."""
    steps = [sight.step for sight in ranks if sight.step is not None]
    places = _places(ranks)
    if len(steps) == len(ranks) and min(steps) < max(steps):
        behind = [sight for sight in ranks if sight.step == min(steps)]
        return HangFinding(tuple(behind), f"its last step is {min(steps)}, that of others {max(steps)}{places}")
    silent = sorted(((sight.silent_s or 0.0, sight) for sight in ranks), key=lambda pair: -pair[0])
    if all(sight.silent_s is not None for sight in ranks) and silent[0][0] > silent[1][0] + slack_s:
        return HangFinding((silent[0][1],), f"it fell silent first{places}")
    return None


def _places(ranks: Sequence[RankState]) -> str:
    """Where each rank is, of a few."""
    told = [f"rank {sight.rank}: {_at(sight)}" for sight in ranks[:MOST_NAMED] if _at(sight)]
    return f" ({'; '.join(told)})" if told else ""


def _at(sight: RankState) -> str:
    return sight.collective or sight.where
