"""All sources of a hang heard: who stopped first, who says so, and who says otherwise.

The flight recorder is believed before stacks, stacks before heartbeats, these before the ranks' logs, and NCCL RAS
last: it has been seen to call a real hang healthy, and to list ranks that only waited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from perdure.hangs.collectives import CollectiveFinding, findings, named
from perdure.hangs.culprit import finding_of
from perdure.hangs.flight_recorder import joined
from perdure.hangs.folder import Folder
from perdure.hangs.nccl_ras import RasFinding
from perdure.hangs.rank_state import RankState

FLIGHT_RECORDER, STACKS, HEARTBEATS, LOGS, RAS = "flight recorder", "stacks", "heartbeats", "logs", "NCCL RAS"


class Word(Struct, frozen=True):
    """What one source says: the ranks that it names as the first to stop, () for nobody."""

    source: str
    ranks: tuple[int, ...]
    says: str


class HangReport(Struct, frozen=True):
    """Who stopped first. No ranks: nobody stands out."""

    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()  # of these ranks, as far as they are known
    says: str = "no rank stands out"
    words: tuple[Word, ...] = ()  # of all sources, the most trusted first
    collective: CollectiveFinding | None = None
    seen: int = 0  # ranks of which something is known

    @property
    def conflicts(self) -> tuple[Word, ...]:
        """The sources that name other ranks alone; of NCCL RAS also that it sees nothing wrong."""
        told = (word for word in self.words if word.ranks or word.source == RAS)
        return tuple(word for word in told if self.ranks and not set(word.ranks) & set(self.ranks))


def report_of(folder: Folder, of_logs: Word | None = None) -> HangReport:
    """What a folder shows; `of_logs` is what its logs say."""
    records, groups = joined(folder.dumps)
    found = findings(records, groups)
    words = [*_of_recorder(found), *_of_stacks(folder.stacks), *_of_steps(folder.steps)]
    words += [*([of_logs] if of_logs else ()), *(_of_ras(folder.ras) if folder.ras else ())]
    first = next((word for word in words if word.ranks), words[0] if words else None)
    ranks = _accused(words, first)
    return HangReport(
        ranks,
        tuple(dict.fromkeys(folder.nodes[rank] for rank in ranks if rank in folder.nodes)),
        first.says if first else "no rank stands out",
        tuple(words),
        found[0] if found else None,
        len({record.rank for record in records} | {state.rank for state in folder.stacks} | set(folder.steps)),
    )


def _accused(words: Sequence[Word], first: Word | None) -> tuple[int, ...]:
    """All that the most trusted source names, in its order."""
    if first is None:
        return ()
    return tuple(dict.fromkeys(rank for word in words if word.source == first.source for rank in word.ranks))


def _of_recorder(found: Sequence[CollectiveFinding]) -> Iterator[Word]:
    for each in found:
        waiting = (
            f" ({each.waiting} rank{'s' if each.waiting > 1 else ''} wait)" if each.waiting and each.accuses else ""
        )
        yield Word(FLIGHT_RECORDER, each.ranks if each.accuses else (), each.says + waiting)


def _of_stacks(states: Sequence[RankState]) -> Iterator[Word]:
    if states:
        found = finding_of(states)
        ranks = tuple(state.rank for state in found.culprits if state.rank is not None)
        yield Word(STACKS, ranks if len(ranks) < len(states) or len(states) == 1 else (), found.sentence)


def _of_steps(steps: Mapping[int, int]) -> Iterator[Word]:
    if len(steps) > 1:
        least, most = min(steps.values()), max(steps.values())
        behind = tuple(sorted(rank for rank, step in steps.items() if step == least)) if least < most else ()
        says = f"{named(behind)}: last step {least}, others {most}" if behind else f"all ranks are at step {most}"
        yield Word(HEARTBEATS, behind, says)


def _of_ras(ras: RasFinding) -> Iterator[Word]:
    if ras.unreachable:
        yield Word(RAS, ras.ranks, f"{named(ras.unreachable)} cannot be reached")
    elif ras.behind:
        yield Word(RAS, ras.ranks, f"{named(ras.behind)} called fewer collectives than others")
    else:
        yield Word(RAS, (), "all ranks answer, and have called the same collectives")
