"""Who stopped first in a program that still is there: its processes, and what its flight recorders tell.

The recorder is believed first. A rank without a dump is accused only if its process explains that: it is dead,
stopped, or has ended. What the processes show is said next to it, and that they name another rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.hangs.collectives import CollectiveFinding, Stop, findings
from perdure.hangs.culprit import HangFinding
from perdure.hangs.flight_recorder import Dump, joined
from perdure.hangs.rank_state import Life, RankState

RECORDER = "flight recorder"
_LEAVES_NO_DUMP = (Life.DEAD, Life.STOPPED, Life.ENDED)


def with_recorder(looks: HangFinding, sights: Sequence[RankState], dumps: Sequence[Dump]) -> HangFinding:
    """`looks` is what the processes show; without dumps, or where nobody waits in a collective, it stays as it is."""
    found = findings(*joined(dumps))
    if not found:
        return looks
    seen = {sight.rank: sight for sight in sights if sight.rank is not None}
    accused = _accused(found, seen, {dump.rank for dump in dumps})
    first = next((each for each in found if set(each.ranks) & set(accused)), found[0])
    if any(sight.life in (Life.DEAD, Life.STOPPED) for sight in looks.culprits) or (looks.culprits and not accused):
        return replace(looks, says=f"{looks.says}; {RECORDER}: {first.says}")
    if not accused:
        return HangFinding(says=f"{RECORDER}: {first.says}")
    culprits = tuple(seen.get(rank) or RankState(rank, "", Life.UNCLEAR) for rank in accused)
    works = any(sight.life is Life.WORKS for sight in culprits)
    return HangFinding(culprits, f"{RECORDER}: {first.says}{_second_word(culprits, looks)}", works)


def _accused(found: Sequence[CollectiveFinding], seen: Mapping[int, RankState], told: set[int]) -> tuple[int, ...]:
    """The ranks that are named as the first to stop; nobody where that is everybody."""
    ranks = dict.fromkeys(
        rank
        for each in found
        for rank in (each.ranks if each.accuses else ())
        if each.kind is not Stop.MISSING or (rank in seen and seen[rank].life in _LEAVES_NO_DUMP)
    )
    return () if told <= set(ranks) else tuple(ranks)


def _second_word(culprits: Sequence[RankState], looks: HangFinding) -> str:
    """What the processes show."""
    named = {sight.rank for sight in culprits}
    other = next(iter(looks.culprits), None)
    if other is not None and other.rank is not None and not named & {sight.rank for sight in looks.culprits}:
        return f"; its processes alone would name {other.name}: {looks.says}"
    return f"; its process: {culprits[0].where}" if culprits[0].where else ""
