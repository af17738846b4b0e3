"""Who keeps the others waiting: laws on simulated programs, and the cases by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.hangs.collectives import PendingOperation, RankRecord, Stop, findings

GROUPS = {
    "world": list(range(8)),
    "tp0": [0, 1, 2, 3],
    "tp1": [4, 5, 6, 7],
    "dp0": [0, 4],
    "dp1": [1, 5],
    "dp2": [2, 6],
    "dp3": [3, 7],
}
SIZES = "Float [4]"
Step = tuple[str, str]  # of a program that all ranks run: a kind of group, and an operation


@dataclass
class Rank:
    """A rank of a simulated program; its stream does one operation after the other."""

    rank: int
    queue: list[PendingOperation] = field(default_factory=list)
    done: int = 0  # operations of its queue that have ended there
    told: int = 0  # of which its host knows that they ended

    @property
    def current(self) -> PendingOperation | None:
        return self.queue[self.done] if self.done < len(self.queue) else None

    def record(self) -> RankRecord:
        completed: dict[str, int] = {}
        for operation in self.queue[: self.told]:
            completed[operation.group] = operation.seq
        return RankRecord(self.rank, tuple(self.queue[self.told :]), completed)


def group_of(kind: str, rank: int) -> str:
    return next(name for name, ranks in GROUPS.items() if name.startswith(kind) and rank in ranks)


def run(program: list[Step], absent: dict[int, int], blind: dict[int, int]) -> list[RankRecord]:
    """What is left of a program of 8 ranks; those in `absent` enqueue no more than so many operations, those in `blind`
    no longer notice that operations end after so many.
    """
    ranks = [Rank(rank) for rank in range(8)]
    for rank in ranks:
        counts: dict[str, int] = {}
        for kind, name in program[: absent.get(rank.rank, len(program))]:
            group = group_of(kind, rank.rank)
            counts[group] = counts.get(group, 0) + 1
            rank.queue.append(PendingOperation(group, name, counts[group], size=SIZES))
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            current = rank.current
            if current and all(ranks[peer].current == current for peer in GROUPS[current.group]):
                for peer in GROUPS[current.group]:
                    ranks[peer].done += 1
                moved = True
    for rank in ranks:
        rank.told = min(rank.done, blind.get(rank.rank, rank.done))
    return [rank.record() for rank in ranks]


programs = st.lists(
    st.tuples(st.sampled_from(["world", "tp", "dp"]), st.sampled_from(["all_reduce", "all_gather_base", "broadcast"])),
    min_size=4, max_size=24,
)  # fmt: skip


@settings(max_examples=300)
@given(programs, st.dictionaries(st.integers(0, 7), st.integers(0, 20), min_size=1, max_size=3))
def test_every_rank_that_stays_away_and_is_waited_for_is_named_and_nobody_else(
    program: list[Step], absent: dict[int, int]
) -> None:
    records = run(program, absent, {})
    idle = {record.rank for record in records if not record.pending}
    waits = {record.rank for record in records if record.pending}
    found = findings(records, GROUPS)
    accused = {rank for each in found if each.accuses for rank in each.ranks}
    assert accused <= idle & set(absent)
    if waits:
        assert accused, "somebody waits, so somebody is waited for"
        first = next(record for record in records if record.pending).pending[0]
        here = {record.rank for record in records if record.pending and record.pending[0] == first}
        assert all(rank in accused for rank in set(GROUPS[first.group]) - here if rank in idle)
    else:
        assert not found


@settings(max_examples=200)
@given(programs, st.integers(0, 7), st.integers(0, 8))
def test_a_rank_whose_gpu_stands_still_is_named_before_those_who_wait_for_it(
    program: list[Step], culprit: int, after: int
) -> None:
    whole = [*program, *program, ("world", "barrier")]
    ends = len(program) + after % len(program)
    records = run(whole, {culprit: ends}, {culprit: max(0, ends - 2)})
    found = findings(records, GROUPS)
    finished = {(group, seq) for record in records if record.rank != culprit for group, seq in record.completed.items()}
    head = records[culprit].pending[0]
    if any(group == head.group and seq >= head.seq for group, seq in finished):
        assert found[0].kind is Stop.BEHIND
        assert found[0].ranks == (culprit,)
        assert found[0].waiting > 0


def op(group: str, seq: int, name: str = "all_reduce", size: str = SIZES) -> PendingOperation:
    return PendingOperation(group, name, seq, size=size)


def test_another_operation_at_the_same_place_is_a_mismatch() -> None:
    records = [RankRecord(rank, (op("tp0", 3, "broadcast" if rank == 2 else "all_reduce"),)) for rank in range(4)]
    (found,) = findings(records, GROUPS)
    assert (found.kind, found.ranks) == (Stop.MISMATCH, (2,))
    assert found.says.startswith("rank 2 calls broadcast 3 of group tp0, ranks 0, 1 and 3 all_reduce")


def test_two_that_disagree_are_both_named() -> None:
    records = [RankRecord(0, (op("dp0", 3),)), RankRecord(4, (op("dp0", 3, size="Float [5]"),))]
    (found,) = findings(records, GROUPS)
    assert (found.kind, found.ranks) == (Stop.MISMATCH, (0, 4))


def test_sizes_of_an_all_to_all_may_differ() -> None:
    records = [RankRecord(rank, (op("dp0", 3, "all_to_all", f"Float [{rank}]"),)) for rank in (0, 4)]
    assert [found.kind for found in findings(records, GROUPS)] == [Stop.STUCK]


def test_a_rank_without_a_record_is_named_first() -> None:
    records = [RankRecord(rank, (op("tp0", 3),)) for rank in (0, 1)] + [RankRecord(3)]
    found = findings(records, GROUPS)
    assert [(each.kind, each.ranks, each.waiting) for each in found] == [
        (Stop.MISSING, (2,), 2), (Stop.ABSENT, (3,), 2),
    ]  # fmt: skip


def test_a_rank_waits_in_the_oldest_of_what_it_has_enqueued() -> None:
    waits = (op("tp0", 3), op("dp0", 9))
    records = [RankRecord(0, waits), *(RankRecord(rank, (op("tp0", 3),)) for rank in (1, 2)), RankRecord(3)]
    (found,) = findings(records, GROUPS)
    assert (found.ranks, found.peers) == ((3,), (0, 1, 2))


def test_ranks_that_call_in_different_orders_accuse_nobody() -> None:
    records = [RankRecord(0, (op("tp0", 1), op("dp0", 1))), RankRecord(4, (op("dp0", 1), op("tp0", 1)))]
    groups = {"tp0": [0, 4], "dp0": [0, 4]}
    (found,) = findings(records, groups)
    assert (found.kind, found.ranks, found.accuses) == (Stop.CIRCLE, (0, 4), False)


def send(source: int, target: int) -> PendingOperation:
    return PendingOperation("pp", "send", 0, ends=(source, target))


def recv(source: int, target: int) -> PendingOperation:
    return PendingOperation("pp", "recv", 0, ends=(source, target))


def test_a_pipeline_is_followed_to_the_stage_that_stopped() -> None:
    records = [
        RankRecord(0, (recv(1, 0),)), RankRecord(1, (recv(2, 1), send(1, 0))), RankRecord(2, (recv(3, 2), send(2, 1))),
        RankRecord(3),
    ]  # fmt: skip
    (found,) = findings(records, {"pp": [0, 1, 2, 3]})
    assert (found.kind, found.ranks, found.waiting) == (Stop.ABSENT, (3,), 3)


def test_both_ends_of_an_exchange_have_come_whichever_they_enqueued_first() -> None:
    records = [RankRecord(0, (send(0, 1), recv(1, 0))), RankRecord(1, (send(1, 0), recv(0, 1)))]
    assert {found.kind for found in findings(records, {"pp": [0, 1]})} == {Stop.STUCK}


def test_who_has_only_sent_and_is_missing_elsewhere_comes_after_all_others() -> None:
    records = [
        RankRecord(0, (op("tp0", 5),)), RankRecord(1, (send(1, 5),)), RankRecord(2, (op("tp0", 5),)),
        RankRecord(3, (op("tp0", 5),)), RankRecord(5, (op("tp1", 9),)), RankRecord(4), RankRecord(6, (op("tp1", 9),)),
        RankRecord(7, (op("tp1", 9),)),
    ]  # fmt: skip
    found = findings(records, GROUPS)
    assert [(each.kind, each.ranks) for each in found] == [(Stop.ABSENT, (4,)), (Stop.SENDING, (1,))]


@pytest.mark.parametrize("ranks", [0, 1])
def test_nobody_waits_where_nothing_is_pending(ranks: int) -> None:
    assert findings([RankRecord(rank) for rank in range(ranks)], GROUPS) == []
