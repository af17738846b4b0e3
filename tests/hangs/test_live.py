"""Processes and flight recorders of one hang: who is believed, and what is said of the other."""

from collections.abc import Sequence
from typing import Any

import pytest

from perdure.hangs.collectives import PendingOperation
from perdure.hangs.culprit import HangFinding, finding_of
from perdure.hangs.flight_recorder import Dump
from perdure.hangs.live import with_recorder
from perdure.hangs.rank_state import Life, RankState

RANKS = [0, 1, 2, 3]


def dump(rank: int, waits: bool = True, seq: int = 5, name: str = "all_reduce") -> Dump:
    pending = [PendingOperation("0", name, seq, of="default_pg")] if waits else []
    return Dump(rank, {"0": RANKS}, pending, {"0": seq - 1}, "", f"rank_{rank}", "0")


def sights(**lives: Any) -> list[Any]:
    """All ranks; those named are at something else than an unclear wait."""
    return [
        RankState(rank, f"n{rank // 2}", lives.get(f"r{rank}", Life.UNCLEAR), where="train.py:9 in f") for rank in RANKS
    ]


def judged(seen: list[Any], dumps: Sequence[Dump]) -> HangFinding:
    return with_recorder(finding_of(seen), seen, dumps)


def ranks_of(finding: HangFinding) -> list[Any]:
    return [sight.rank for sight in finding.culprits]


ONE_ABSENT = [dump(rank, waits=rank != 2) for rank in RANKS]


def test_the_recorder_names_a_rank_where_processes_name_nobody() -> None:
    found = judged(sights(), ONE_ABSENT)
    assert ranks_of(found) == [2]
    assert found.sentence == (
        "rank 2 on n1 stopped first: flight recorder: rank 2 is in no collective; ranks 0, 1 and 3 wait in "
        "all_reduce 5 of default_pg (0); its process: train.py:9 in f"
    )


def test_where_they_differ_the_recorder_is_believed_and_the_other_is_said() -> None:
    found = judged(sights(r1=Life.ELSEWHERE), ONE_ABSENT)
    assert ranks_of(found) == [2]
    assert found.says.endswith(
        "; its processes alone would name rank 1 on n0: train.py:9 in f; ranks 0, 2, 3 wait for it"
    )


@pytest.mark.parametrize("life", [Life.DEAD, Life.STOPPED])
def test_a_rank_that_is_dead_or_stopped_is_named_before_what_the_recorder_says(life: Life) -> None:
    found = judged(sights(r1=life), [each for each in ONE_ABSENT if each.rank != 1])
    assert ranks_of(found) == [1]
    assert "; flight recorder: rank" in found.says


def test_a_rank_whose_dump_did_not_come_is_not_accused_for_that() -> None:
    dumps = [dump(rank) for rank in RANKS if rank != 3]
    assert ranks_of(judged(sights(), dumps)) == []
    assert judged(sights(), dumps).sentence.startswith("flight recorder: rank 3 left no record; ranks 0, 1 and 2 wait")
    assert ranks_of(judged(sights(r1=Life.ELSEWHERE), dumps)) == [1]


def test_one_that_has_ended_left_no_dump_for_that_and_is_accused() -> None:
    dumps = [dump(rank) for rank in RANKS if rank != 3]
    assert ranks_of(judged(sights(r0=Life.ELSEWHERE, r3=Life.ENDED), dumps)) == [3]


def test_a_rank_that_works_while_the_others_wait_for_it_is_left_alone() -> None:
    assert judged(sights(r2=Life.WORKS), ONE_ABSENT).works
    assert not judged(sights(r0=Life.WORKS), ONE_ABSENT).works  # it spins in the collective


def test_where_all_are_in_one_operation_nobody_is_accused_and_that_is_said() -> None:
    found = judged(sights(), [dump(rank) for rank in RANKS])
    assert found.culprits == ()
    assert "are all in all_reduce 5" in found.sentence
    two = [dump(rank, name="all_reduce" if rank % 2 else "barrier") for rank in RANKS]
    assert judged(sights(), two).culprits == ()


def test_without_dumps_or_a_wait_the_finding_stays_as_it_is() -> None:
    looks = HangFinding(says="x")
    assert with_recorder(looks, sights(), []) is looks
    assert with_recorder(looks, sights(), [dump(rank, waits=False) for rank in RANKS]) is looks
