"""Which ranks keep the others waiting in collective operations, from what each rank had enqueued.

Who waits for whom is a graph. A rank waits at the head of its queue: in its oldest collective that has not ended, or in
the sends and receives that come before the next collective. It waits for those of the group who have not come there.
Following the arrows ends at ranks that wait for nobody: they stopped first. That is so for a rank that is in no
operation, for one that left no record, and for one whose operation its peers have finished already (its GPU stands
still). Two members that came to one place of a group with different operations stop all of it: that is looked at first.
Arrows that only lead in a circle mean that ranks call operations in different orders.

What is compared are places in a group's own order, never clocks or the lengths of queues: a rank that waits is often
further behind in some group than the rank that it waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

SAME_SIZE = ("all_reduce", "reduce_scatter_base", "all_gather_base", "broadcast", "reduce")
"""Collectives that need inputs of one size and type on all ranks."""

MOST_NAMED = 8


class PendingOperation(Struct, frozen=True):
    """What a rank has enqueued, and what has not ended there."""

    group: str  # the process group's name, the same on all of its ranks
    name: str  # "all_reduce"
    seq: int  # of a collective: its place in the group's order
    ends: tuple[int, int] | None = None  # of a send or receive: the global ranks that it goes from and to
    size: str = ""  # types and shapes of its input
    of: str = ""  # what the program calls the group: "TENSOR_MODEL_PARALLEL_GROUP"
    where: str = ""  # the line of the program's own code that called it

    @property
    def place(self) -> tuple[str, int | tuple[int, int]]:
        """The same for all ranks that meet in it."""
        return self.group, self.ends or self.seq


class RankRecord(Struct, frozen=True):
    """What one rank left behind of its collectives."""

    rank: int
    pending: tuple[PendingOperation, ...] = ()  # in the order in which it enqueued them
    completed: Mapping[str, int] = {}  # by group the last collective that it has finished
    where: str = ""  # the line of the program's own code that called the last one


class Stop(StrEnum):
    """How a rank keeps the others waiting."""

    MISMATCH = "mismatch"  # it calls another operation than its peers, or with another size
    MISSING = "missing"  # it left no record
    BEHIND = "behind"  # it has not finished what its peers have
    ABSENT = "absent"  # it is in no operation
    SENDING = "sending"  # it only sends, for which no program has to wait, and is missing where others wait for it
    CIRCLE = "circle"  # it waits for ranks that wait for it
    STUCK = "stuck"  # all have come, and the operation does not end


class CollectiveFinding(Struct, frozen=True):
    """Who stopped first, and in which operation the others wait."""

    kind: Stop
    ranks: tuple[int, ...]  # of `CIRCLE` and `STUCK` those concerned: nobody stands out
    operation: PendingOperation | None = None
    peers: tuple[int, ...] = ()  # who waits there for it, or has finished it
    waiting: int = 0  # ranks that wait, directly or through others
    says: str = ""

    @property
    def accuses(self) -> bool:
        """Whether it names ranks as the first to stop."""
        return self.kind not in (Stop.CIRCLE, Stop.STUCK)


def findings(records: Sequence[RankRecord], groups: Mapping[str, Sequence[int]]) -> list[CollectiveFinding]:
    """What the records of a hang show, the firmest first; none where no rank waits.

    `groups` names the global ranks of each process group.
    """
    return list(_Graph(records, groups).findings())


class _Graph:
    def __init__(self, records: Sequence[RankRecord], groups: Mapping[str, Sequence[int]]) -> None:
        self._records = {record.rank: record for record in records}
        self._groups = groups
        self._heads = {record.rank: _head(record) for record in records}
        self._arrived: dict[tuple[str, int | tuple[int, int]], dict[int, PendingOperation]] = {}
        for rank, head in self._heads.items():
            for operation in head:
                self._arrived.setdefault(operation.place, {})[rank] = operation
        self._awaited = {place: self._missing(place, here) for place, here in self._arrived.items()}

    def findings(self) -> Iterator[CollectiveFinding]:
        accused = [*self._mismatches(), *self._by_kind()]
        yield from accused or [*self._circle(), *self._stuck()]

    def _missing(
        self, place: tuple[str, int | tuple[int, int]], here: Mapping[int, PendingOperation]
    ) -> tuple[int, ...]:
        """The ranks that those at `place` wait for."""
        group, at = place
        if isinstance(at, tuple):
            return tuple(rank for rank in at if rank not in here)
        return tuple(rank for rank in self._groups.get(group, ()) if rank not in here and not self._passed(rank, place))

    def _passed(self, rank: int, place: tuple[str, int | tuple[int, int]]) -> bool:
        group, at = place
        record = self._records.get(rank)
        return record is not None and isinstance(at, int) and record.completed.get(group, -1) >= at

    def _finished_by(self, operation: PendingOperation) -> tuple[int, ...]:
        """The peers that have finished it."""
        return tuple(rank for rank in self._groups.get(operation.group, ()) if self._passed(rank, operation.place))

    def _mismatches(self) -> Iterator[CollectiveFinding]:
        for here in self._arrived.values():
            kinds = Counter(_kind(operation) for operation in here.values())
            if len(kinds) < 2:
                continue
            (usual, many), (_, next_most) = kinds.most_common(2)
            odd = sorted(rank for rank, operation in here.items() if many == next_most or _kind(operation) != usual)
            peers = sorted(set(here) - set(odd))
            theirs = here[peers[0]] if peers else here[odd[-1]]
            other = f"{named(peers)} {theirs.name} {theirs.size}" if peers else f"{theirs.name} {theirs.size}"
            says = f"{named(odd)} call{'s' if len(odd) == 1 else ''} {described(here[odd[0]])}, {other.rstrip()}"
            yield CollectiveFinding(
                Stop.MISMATCH, tuple(odd), here[odd[0]], tuple(peers), self._waiting_for(odd), says + _at(here[odd[0]])
            )

    def _by_kind(self) -> Iterator[CollectiveFinding]:
        awaited = {rank for missing in self._awaited.values() for rank in missing}
        missing = sorted(awaited - set(self._records))
        absent = sorted(rank for rank in awaited if rank in self._records and not self._heads[rank])
        behind = sorted(rank for rank in awaited if self._behind(rank))
        sending = sorted(rank for rank in awaited if self._only_sends(rank))
        kinds = ((Stop.MISSING, missing), (Stop.BEHIND, behind), (Stop.ABSENT, absent), (Stop.SENDING, sending))
        return (self._accusation(kind, ranks) for kind, ranks in kinds if ranks)

    def _behind(self, rank: int) -> bool:
        head = self._heads.get(rank, ())
        return any(operation.ends is None and self._finished_by(operation) for operation in head) and not any(
            self._awaited[operation.place] for operation in head
        )

    def _only_sends(self, rank: int) -> bool:
        record = self._records.get(rank)
        pending = record.pending if record else ()
        return (
            bool(pending)
            and all(each.ends is not None and each.ends[0] == rank for each in pending)
            and any(rank in missing for (_, at), missing in self._awaited.items() if isinstance(at, int))
        )

    def _accusation(self, kind: Stop, ranks: Sequence[int]) -> CollectiveFinding:
        first = ranks[0]
        if kind is Stop.BEHIND:
            operation = self._heads[first][0]
            peers = self._finished_by(operation)
            says = (
                f"{named(ranks)} {_has(ranks)} not finished {described(operation)}, which {named(peers)} {_has(peers)}"
            )
        else:
            operation, peers = self._where_awaited(first)
            wait = "waits" if len(peers) == 1 else "wait"
            says = f"{named(ranks)} {_how(kind, ranks)}; {named(peers)} {wait} in {described(operation)}"
        at = "" if kind is Stop.MISSING else _last_at(self._records[first])
        return CollectiveFinding(kind, tuple(ranks), operation, peers, self._waiting_for(ranks), says + at)

    def _where_awaited(self, rank: int) -> tuple[PendingOperation, tuple[int, ...]]:
        """The operation in which most wait for it, a collective if there is one, and who waits there."""
        places = [place for place, missing in self._awaited.items() if rank in missing]
        here = self._arrived[max(places, key=lambda place: (isinstance(place[1], int), len(self._arrived[place])))]
        return next(iter(here.values())), tuple(sorted(here))

    def _waiting_for(self, ranks: Collection[int]) -> int:
        """How many ranks wait for one of these, directly or through others."""
        found: set[int] = set()
        todo = list(ranks)
        waiters: dict[int, list[int]] = {}
        for place, missing in self._awaited.items():
            for rank in missing or (place[1] if isinstance(place[1], tuple) else ()):
                waiters.setdefault(rank, []).extend(
                    self._arrived[place]
                )  # both ends may have come, and wait for others
        while todo:
            for rank in waiters.pop(todo.pop(), ()):
                if rank not in found:
                    found.add(rank)
                    todo.append(rank)
        return len(found - set(ranks))

    def _circle(self) -> Iterator[CollectiveFinding]:
        """Ranks that wait for each other: nobody among them waits for anybody outside."""
        blocked = {rank for place, missing in self._awaited.items() if missing for rank in self._arrived[place]}
        if blocked:
            ranks = tuple(sorted(blocked))
            first, last = self._heads[ranks[0]][0], self._heads[ranks[-1]][0]
            says = (
                f"{named(ranks)} wait for each other: rank {ranks[0]} in {described(first)}, rank {ranks[-1]} in "
                f"{described(last)}; they call operations in different orders"
            )
            yield CollectiveFinding(Stop.CIRCLE, ranks, first, ranks, len(ranks), says)

    def _stuck(self) -> Iterator[CollectiveFinding]:
        for place, here in self._arrived.items():
            ranks = tuple(sorted(here))
            operation = here[ranks[0]]
            if not self._awaited[place] and not self._finished_by(operation) and len(ranks) > 1:
                says = f"{named(ranks)} are all in {described(operation)}, and it does not end: a network or GPU fault"
                yield CollectiveFinding(Stop.STUCK, ranks, operation, ranks, len(ranks), says)


def _head(record: RankRecord) -> tuple[PendingOperation, ...]:
    """What it waits in: its oldest operation; of sends and receives all that follow each other, in any order."""
    pending = [each for each in record.pending if each.ends or each.seq > record.completed.get(each.group, -1)]
    if not pending or pending[0].ends is None:
        return tuple(pending[:1])
    sends = next((n for n, each in enumerate(pending) if each.ends is None), len(pending))
    return tuple(pending[:sends])


def _kind(operation: PendingOperation) -> tuple[str, str]:
    """What must be the same for all who meet in it."""
    if operation.ends is not None:
        return "", ""
    return operation.name, operation.size if operation.name.startswith(SAME_SIZE) else ""


def described(operation: PendingOperation) -> str:
    """``all_reduce 4711 of TENSOR_PARALLEL``, ``send 0 -> 3``."""
    if operation.ends is not None:
        return f"{operation.name} {operation.ends[0]} -> {operation.ends[1]}"
    group = f"{operation.of} ({operation.group})" if operation.of else f"group {operation.group}"
    return f"{operation.name} {operation.seq} of {group}"


def named(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 1, 2 and 5``, ``40 ranks (0, 1, 2, ...)``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > MOST_NAMED:
        return f"{len(ranks)} ranks ({', '.join(map(str, ranks[:3]))}, ...)"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _how(kind: Stop, ranks: Sequence[int]) -> str:
    if kind is Stop.MISSING:
        return "left no record"
    return (
        f"{_is(ranks)} in no collective"
        if kind is Stop.ABSENT
        else f"{_has(ranks)} sent, and come{'s' if len(ranks) == 1 else ''} to no collective"
    )


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _is(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _at(operation: PendingOperation) -> str:
    return f", at {operation.where}" if operation.where else ""


def _last_at(record: RankRecord) -> str:
    where = record.pending[0].where if record.pending else record.where
    return f"; its last call was at {where}" if where else ""
