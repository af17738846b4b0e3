"""Laws of a chain's state machine, tried on all that it hears in random storms."""

import random
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from perdure.job.link_marks import LinkEnded
from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain import step
from perdure.succession.chain_state import ChainSpec, ChainStanding, JobChain, Strategy
from perdure.succession.messages import (
    AskEnd,
    Effect,
    Event,
    LinkPlanned,
    LinkRefused,
    LinksSeen,
    PlanLink,
    StopAsked,
)
from tests.laws.difference import must_equal
from tests.laws.moved import Moved
from tests.laws.seeds import SEEDS
from tests.succession import test_storms
from tests.succession.test_storms import LINKS, STORM_S, WALLTIME_S, Keeper, World

START_S = 1_600_000_000.0
TAG = "keptA.ab"
SHIFT_S = 7 * 24 * 3600.0


class Heard(NamedTuple):
    """One step of a chain."""

    chain: JobChain
    event: Event
    after: JobChain
    effects: list[Any]


class Rough(World):
    """Programs fail in it, too, and what is said of them is that they pass, or not."""

    def _end(self, job_id: str, number: int, state: str, signals: tuple[str, ...]) -> None:
        super()._end(job_id, number, state, signals)
        if number % 3 == 1 and state == "COMPLETED" and self.rng.random() < 0.5:
            ended = LinkEnded(job_id, self.now, 1)
            self._set(job_id, state="FAILED", exit_code=1)
            self.marks[number] = replace(self.marks[number], asked=None, ended=ended)


@cache
def heard(seed: int) -> list[Heard]:
    """The steps of a chain in one storm."""
    found = []

    def noted(chain: JobChain, event: Event) -> tuple[JobChain, list[Effect]]:
        after, effects = step(chain, event)
        found.append(Heard(chain, event, after, effects))
        return after, effects

    rng = random.Random(seed)
    strategy = list(Strategy)[seed % len(Strategy)]
    spec = ChainSpec("keptA", TAG, "c", "/c.sh", "/", "ada", START_S, WALLTIME_S, strategy=strategy, most_links=LINKS)
    world = Rough(rng, spec, now=START_S)
    keeper = Keeper(world, JobChain(spec))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(test_storms, "step", noted)
        for _ in range(400):
            storm = world.now < START_S + STORM_S
            keeper.deaths, world.is_mute = (0.1, rng.random() < 0.2) if storm else (0.0, False)
            keeper.round()
            world.pass_time(rng.choice([1.0, 5.0, 20.0]), storm)
            if keeper.disk.standing is not ChainStanding.RUNNING:
                break
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_a_week_later_is_decided_the_same(seed: int) -> None:
    moved = Moved(shift_s=SHIFT_S)
    for each in heard(seed):
        must_equal(step(moved(each.chain), moved(each.event)), (moved(each.after), moved(each.effects)))


@pytest.mark.parametrize("seed", SEEDS)
def test_another_name_user_and_tag_change_these_and_nothing_else(seed: int) -> None:
    moved = Moved(lambda word: {"keptA": "kept", "ada": "c"}.get(word, word))
    for each in heard(seed):
        must_equal(step(moved(each.chain), moved(each.event)), (moved(each.after), moved(each.effects)))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_told_again_begins_nothing_new(seed: int) -> None:
    """A look that is taken in twice wants what was wanted once more; an answer that comes twice wants nothing."""
    for each in heard(seed):
        after, effects = step(each.after, each.event)
        if isinstance(each.event, LinksSeen):
            must_equal(step(after, each.event), (after, effects))
            new = [
                effect for effect in effects if effect not in each.effects and not isinstance(effect, PlanLink | AskEnd)
            ]
            assert new == []
        elif not isinstance(each.event, LinkPlanned | LinkRefused | StopAsked):
            must_equal(after, each.after)
            assert effects == []


@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_of_other_chains_and_of_nobodys_change_nothing(seed: int) -> None:
    """An earlier chain of the same id, a later one whose tag begins alike, and jobs of no chain, with the same keys."""
    for each in heard(seed):
        if isinstance(each.event, LinksSeen) and each.event.jobs is not None:
            event = LinksSeen(**{**_fields(each.event), "jobs": (*_others(each.event.jobs), *each.event.jobs)})
            must_equal(step(each.chain, event), (each.after, each.effects))


def _others(jobs: tuple[LinkJob, ...]) -> Iterator[LinkJob]:
    for job in jobs:
        for number, chain in enumerate(("keptA.aa", f"{TAG}c", "keptA", "")):
            other = replace(job, job_id=f"{number + 1}{job.job_id}0000", chain=chain)
            yield replace(other, state="PENDING" if job.is_over else "COMPLETED") if chain else replace(other, key="")
    yield LinkJob("999", "RUNNING", chain="kept", key="1.1")


def _fields(value: LinksSeen) -> dict[Any, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
