"""Laws of who stopped first, and of silences: neither the order of ranks nor the hour of the day decides."""

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.hangs.collectives import PendingOperation, RankRecord, findings
from perdure.hangs.culprit import finding_of
from perdure.hangs.rank_state import Life, RankState
from perdure.job.silence import HangRule, Silence
from tests.copying import replace

PLACES = ("", "a.py:1 in f", "b.py:2 in g")
states = st.builds(
    RankState,
    rank=st.none(),
    node=st.sampled_from(("node1", "node11", "node2")),
    life=st.sampled_from(list(Life)) | st.just(Life.WAITS),
    where=st.sampled_from(PLACES),
    step=st.none() | st.integers(0, 3),
    silent_s=st.none() | st.integers(0, 60).map(float),
    collective=st.sampled_from(("", "all_reduce", "broadcast")),
    exit_code=st.just(1),
)
looks = st.lists(states, max_size=8).map(lambda found: [replace(each, rank=at) for at, each in enumerate(found)])
quick = settings(max_examples=150, deadline=None)


@quick
@given(looks, st.randoms(use_true_random=False), st.sampled_from((0.0, 5.0)), st.integers(0, 2))
def test_the_order_in_which_ranks_are_looked_at_decides_nothing(
    look: list[RankState], rng: Random, slack_s: Any, unseen: int
) -> None:
    assert finding_of(rng.sample(look, len(look)), slack_s, unseen) == finding_of(look, slack_s, unseen)


@quick
@given(looks, st.integers(1, 100))
def test_the_step_at_which_all_are_and_how_long_all_are_silent_already_accuses_nobody(
    look: list[RankState], more: int
) -> None:
    later = [
        replace(each, step=each.step and each.step + more, silent_s=each.silent_s and each.silent_s + more)
        for each in look
        if each.step and each.silent_s
    ]
    before = [each for each in look if each.step and each.silent_s]
    found, again = finding_of(before, 5.0), finding_of(later, 5.0)
    assert [each.rank for each in again.culprits] == [each.rank for each in found.culprits]
    assert again.works is found.works


@quick
@given(looks)
def test_other_names_of_nodes_change_these_and_nothing_else(look: list[RankState]) -> None:
    renamed = [replace(each, node=f"x{each.node}") for each in look]
    found, again = finding_of(look), finding_of(renamed)
    assert [each.rank for each in again.culprits] == [each.rank for each in found.culprits]
    assert again.nodes == tuple(f"x{node}" for node in found.nodes)
    assert again.sentence.replace("xnode", "node") == found.sentence


def test_a_silence_that_is_longer_by_the_slack_accuses_nobody_and_by_more_does() -> None:
    at_rest = [RankState(rank, "node1", Life.WAITS, silent_s=10.0, collective="all_reduce") for rank in range(4)]
    for longer, accused in ((5.0, ()), (5.5, (2,))):
        look = [replace(each, silent_s=10.0 + longer) if each.rank == 2 else each for each in at_rest]
        assert tuple(each.rank for each in finding_of(look, 5.0).culprits) == accused


ACTS = ("look", "step", "log", "quiet", "excuse", "skip", "condemn")
rules = st.builds(
    HangRule,
    after_s=st.sampled_from((0.0, 20.0, 60.0)),
    is_exact=st.booleans(),
    min_gaps=st.sampled_from((2, 10)),
    start_within_s=st.sampled_from((None, 0.0, 90.0)),
    soft_s=st.sampled_from((0.0, 5.0)),
    grace_s=st.sampled_from((0.0, 5.0)),
)
stories = st.lists(st.tuples(st.integers(0, 40), st.sampled_from((*ACTS, "look", "look"))), max_size=40)


def told(rule: HangRule, story: list[tuple[int, str]], start_s: float, *, looks_between: int = 0) -> list[object]:
    """What a silence comes to at each look of a story, and what it says of itself there."""
    silence, now = Silence(rule, start_s), start_s
    found: list[object] = []
    for wait_s, act in story:
        now += wait_s
        match act:
            case "look":
                found.append((silence.look(now), silence.is_alarmed, silence.silent_s(now), silence.heard_s - start_s))
            case "step":
                silence.heard(now, is_step=True)
            case "log":
                silence.heard(now)
            case "quiet":
                silence.heard(now, 10.0, is_step=True)
            case "excuse":
                found.append(silence.excuse(now))
            case "skip":
                silence.skip(float(wait_s))
            case "condemn":
                silence.condemn(now)
    return found


@quick
@given(rules, stories, st.sampled_from((-1000.0, 1.0, 1e6)))
def test_a_silence_is_the_same_at_any_hour(rule: HangRule, story: list[tuple[int, str]], start_s: float) -> None:
    assert told(rule, story, start_s) == told(rule, story, 0.0)


@quick
@given(rules, stories)
def test_time_that_does_not_count_changes_nothing(rule: HangRule, story: list[tuple[int, str]]) -> None:
    """A machine that is frozen for an hour, and knows it, is where it was."""
    frozen = [each for wait_s, act in story for each in ((wait_s, act), (3600, "skip"))]
    has_ends = any(act in ("condemn", "skip") for _, act in story)
    if not has_ends:
        assert [each[:2] for each in told(rule, frozen, 0.0) if isinstance(each, tuple)] == [
            each[:2] for each in told(rule, story, 0.0) if isinstance(each, tuple)
        ]


GROUPS = {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}
operations = st.builds(
    PendingOperation,
    group=st.sampled_from(tuple(GROUPS)),
    name=st.sampled_from(("all_reduce", "barrier")),
    seq=st.integers(1, 3),
    ends=st.none() | st.sampled_from(((0, 1), (1, 0), (2, 3))),
    size=st.sampled_from(("", "[4]", "[8]")),
)


@st.composite
def hung(draw: st.DrawFn) -> list[RankRecord]:
    """What ranks left behind of their collectives, each only of groups of which it is one."""
    found = []
    for rank in draw(st.sets(st.integers(0, 3), min_size=1)):
        mine = [name for name, ranks in GROUPS.items() if rank in ranks]
        pending = [each for each in draw(st.lists(operations, max_size=3)) if each.group in mine]
        completed = {name: draw(st.integers(0, 2)) for name in mine}
        found.append(RankRecord(rank, tuple(pending), completed, f"train.py:{rank}"))
    return found


def told_of(records: Sequence[RankRecord], groups: dict[str, tuple[int, ...]]) -> list[Any]:
    """The findings; which of several operations in which ranks wait stands first is left open."""
    return sorted((each.kind, each.ranks, each.waiting) for each in findings(records, groups))


@quick
@given(hung(), st.randoms(use_true_random=False))
def test_the_order_in_which_dumps_are_read_accuses_nobody_else(records: list[RankRecord], rng: Random) -> None:
    assert told_of(rng.sample(records, len(records)), GROUPS) == told_of(records, GROUPS)


@quick
@given(hung())
def test_ranks_of_another_group_that_hang_alike_are_told_of_beside_these_and_change_nothing(
    records: list[RankRecord],
) -> None:
    """Eight more of everything: the same groups, of other ranks."""
    others = [moved_by_ranks(record, 10) for record in records]
    groups = {**GROUPS, **{f"1{name}": tuple(rank + 10 for rank in ranks) for name, ranks in GROUPS.items()}}
    together = [each for each in findings([*records, *others], groups) if each.accuses]
    alone = [each for each in findings(records, GROUPS) if each.accuses]
    assert sum(len(each.ranks) for each in together) == 2 * sum(len(each.ranks) for each in alone)
    accused = {rank for each in together for rank in each.ranks}
    assert {rank for rank in accused if rank < 10} == {rank for each in alone for rank in each.ranks}
    assert {rank - 10 for rank in accused if rank >= 10} == {rank for each in alone for rank in each.ranks}


def moved_by_ranks(record: RankRecord, more: int) -> RankRecord:
    pending = tuple(
        replace(each, group=f"1{each.group}", ends=each.ends and (each.ends[0] + more, each.ends[1] + more))
        for each in record.pending
    )
    return RankRecord(
        record.rank + more, pending, {f"1{name}": seq for name, seq in record.completed.items()}, record.where
    )
