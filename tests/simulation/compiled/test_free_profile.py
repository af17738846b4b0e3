"""What will be free at each tick, in blocks, against one number a tick."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.free_profile import _FEW, SIZE, Profile, empty_profile
from tests.simulation.compiled.in_python import in_python

profiles = in_python("free_profile")
GPUS, LAST = 12, 400  # nothing changes from the last tick on
Ticks = NDArray[np.int64]


def stretches(profile: Profile) -> list[tuple[int, int]]:
    """All stretches in order; what the docstring says is kept true."""
    found: list[tuple[int, int]] = []
    blocks = profile.block[: profile.tally[0].blocks]
    for block in blocks:
        assert 0 < block.many <= SIZE
        mine = profile.stretch[block.place : block.place + block.many]
        assert block.tick == mine[0].tick
        found += [(int(each.tick), int(each.free)) for each in mine]
    for (tick, free), (later, then) in pairwise(found):
        assert tick < later
        assert free != then
    places = [*blocks["place"].tolist(), *profile.unused[: profile.tally[0].unused].tolist()]
    assert sorted(places) == list(range(0, len(profile.stretch), SIZE))  # each once
    return found


def by_tick(profile: Profile, since: int) -> Ticks:
    """What the profile says of each tick from `since` on."""
    found = np.array(stretches(profile))
    return found[np.searchsorted(found[:, 0], np.arange(since, LAST + 1), side="right") - 1, 1]


def first_start(free: Ticks, since: int, gpus: int, length: int, old: int, until: int) -> int:
    """The earliest start, tried tick by tick; behind the last tick it is free for ever or never."""
    for tick in range(since, min(old, until, LAST + 1)):
        if (free[tick : min(tick + length, old)] >= gpus).all():
            return tick
    return old


def crowd(seed: int, changes: int) -> tuple[Profile, Ticks, np.random.Generator]:
    """A profile of many short promises, and the same by tick."""
    rng = np.random.default_rng(seed)
    profile, free = empty_profile(2 * changes + 8, GPUS), np.full(LAST + 1, GPUS, np.int64)
    for _ in range(changes):
        begin, end = np.sort(rng.choice(LAST, 2, replace=False)).tolist()
        gpus = int(rng.integers(-2, 4))
        broken = profiles.take(profile, begin, end, gpus)
        free[begin:end] -= gpus
        assert broken == (free[begin:end] < 0).any()
    return profile, free, rng


@pytest.mark.parametrize("seed", range(2))
def test_what_is_taken_and_given_back_adds_up_at_every_tick(seed: int) -> None:
    profile, free, _ = crowd(seed, 70)
    assert np.array_equal(by_tick(profile, 0), free)
    assert profile.tally[0].blocks > 2


@pytest.mark.parametrize("seed", range(2))
def test_the_earliest_start_is_that_of_a_search_tick_by_tick(seed: int) -> None:
    """Sizes that share a place in `gaps` are looked for in turn, and the profile changes in between."""
    profile, free, rng = crowd(seed, 60)
    for _ in range(60):
        gpus, length = int(rng.integers(1, GPUS + 1)), int(rng.integers(1, 60))
        old, until = rng.integers(1, LAST, 2).tolist() if rng.random() < 0.6 else (int(NEVER), int(NEVER))
        size = gpus if rng.random() < 0.5 else gpus % 2
        assert profiles.earliest(profile, size, gpus, length, old, until) == first_start(
            free, 0, gpus, length, old, until
        )
        begin = int(rng.integers(LAST - 5))
        profiles.take(profile, begin, begin + 5, 1)
        free[begin : begin + 5] -= 1


@pytest.mark.parametrize("seed", range(2))
def test_to_forget_the_past_leaves_what_is_to_come(seed: int) -> None:
    profile, free, rng = crowd(seed, 70)
    now = 0
    for _ in range(25):
        now += int(rng.integers(0, 30))
        if now > LAST - 2:
            break
        profiles.forget_before(profile, now)
        assert profiles.begin_of(profile) == now == stretches(profile)[0][0]
        assert np.array_equal(by_tick(profile, now), free[now:])
        profiles.take(profile, now, now + 1, 1)
        free[now] -= 1
        gpus, length = int(rng.integers(1, GPUS)), int(rng.integers(1, 40))
        found = profiles.earliest(profile, gpus, gpus, length, NEVER, NEVER)
        assert found == first_start(free, now, gpus, length, int(NEVER), int(NEVER))


@pytest.mark.parametrize("seed", range(2))
def test_all_that_is_given_back_leaves_one_stretch_in_one_block(seed: int) -> None:
    rng = np.random.default_rng(seed)
    profile = empty_profile(200, GPUS)
    taken = [(int(begin), int(begin) + 1 + int(lasts), 1 + place % 3)
             for place, (begin, lasts) in enumerate(rng.integers(0, 300, (80, 2)))]  # fmt: skip
    for promise in taken:
        profiles.take(profile, *promise)
    assert profile.tally[0].blocks > 1
    rng.shuffle(taken)
    for begin, end, gpus in taken:
        profiles.take(profile, begin, end, -gpus)
        many = profile.block["many"][: profile.tally[0].blocks]
        assert (many[1:] + many[:-1] > _FEW).all()
    assert stretches(profile) == [(0, GPUS)]


def test_promises_by_hand() -> None:
    profile = empty_profile(10, 4)
    assert not profiles.take(profile, 10, 20, 4)
    assert profiles.earliest(profile, 0, 1, 10, NEVER, NEVER) == 0
    assert profiles.earliest(profile, 0, 1, 11, NEVER, NEVER) == 20
    assert profiles.earliest(profile, 0, 1, 11, 15, NEVER) == 15  # no gap of eleven ticks before, so as promised
    assert profiles.earliest(profile, 0, 1, 11, 10, NEVER) == 0  # from 10 on it has its own GPUs
    assert not profiles.take(profile, 20, 25, 4)
    assert stretches(profile) == [(0, 4), (10, 0), (25, 4)]
    assert profiles.take(profile, 24, 26, 1)
    assert stretches(profile) == [(0, 4), (10, 0), (24, -1), (25, 3), (26, 4)]
