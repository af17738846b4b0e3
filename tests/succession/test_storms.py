"""Chains through random storms: a keeper that dies between any two of its acts, a mute controller, nodes that fail,
and a disk that is full: neither the keeper's states nor the marks of links are written then.

The world is a small Slurm that takes jobs by their keys. Whatever happens, no submission is made twice, no more than
two links are in the queue, and once the storm is over the chain comes to its end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.job.link_marks import HandoverAsked, LinkBegun, LinkEnded, LinkMarks
from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain import step
from perdure.succession.chain_state import ChainSpec, ChainStanding, JobChain, Strategy
from perdure.succession.messages import (
    AskEnd,
    CancelLink,
    Effect,
    EndTold,
    Event,
    JudgeLink,
    LinkJudged,
    LinkPlanned,
    LinkReleased,
    LinksSeen,
    LinkSubmitted,
    PlanLink,
    ReleaseLink,
    SubmitLink,
)
from perdure.succession.protocol import Decision

WALLTIME_S = 600.0
LINKS = 6
LOOK_S = 60.0
STORM_S = 4000.0


@dataclass
class World:
    """Slurm, its nodes and the marks of links."""

    rng: random.Random
    spec: ChainSpec
    now: float = 1.0
    jobs: dict[str, LinkJob] = field(default_factory=dict)
    marks: dict[int, LinkMarks] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)
    is_mute: bool = False
    is_full: bool = False

    def submit(self, key: str) -> str:
        self.submitted.append(key)
        job_id = str(len(self.submitted))
        self.jobs[job_id] = LinkJob(job_id, "PENDING", submit_s=self.now, chain=self.spec.tag, key=key)
        return job_id

    def cancel(self, job_id: str) -> None:
        if not self.jobs[job_id].is_over:
            self._set(job_id, state="CANCELLED", end_s=self.now)

    def pass_time(self, seconds: float, storm: bool) -> None:
        """Jobs start, take over and end."""
        self.now += seconds
        for job in list(self.jobs.values()):
            number = int(job.key.partition(".")[0])
            waits = job.state == "PENDING" and "Held" not in job.reason and not self._waits_for_another()
            if waits and self.rng.random() < 0.5:
                self._start(job.job_id, number)
            elif job.state == "RUNNING" and storm and self.rng.random() < 0.02:
                state = self.rng.choice(["NODE_FAIL", "PENDING"])  # Slurm may put it back
                self._set(job.job_id, state=state, end_s=self.now, submit_s=self.now)
            elif job.state == "RUNNING" and self.now >= job.start_s + WALLTIME_S:
                self._end(job.job_id, number, "TIMEOUT", ("TERM",))

    def _waits_for_another(self) -> bool:
        """Where the running link cannot be asked to end, it is waited for."""
        return self.is_full and any(job.state == "RUNNING" for job in self.jobs.values())

    def _start(self, job_id: str, number: int) -> None:
        """What `perdure.job.link` does: a link whose successor has begun does not run."""
        begun = {later for later, marks in self.marks.items() if marks.begun}
        runs = {int(job.key.partition(".")[0]) for job in self.jobs.values() if job.state == "RUNNING"}
        if any(later > number for later in begun | runs):
            self._set(job_id, state="COMPLETED", start_s=self.now, end_s=self.now + 1)
            return
        for job in list(self.jobs.values()):
            before = int(job.key.partition(".")[0])
            if job.state == "RUNNING" and before < number:
                asked = HandoverAsked(job_id, self.now, self.now + 60.0)
                self.marks[before] = replace(self.marks.get(before, LinkMarks()), asked=asked)
                self._end(job.job_id, before, "COMPLETED", ("TERM",))
        self._set(job_id, state="RUNNING", start_s=self.now, end_s=self.now + WALLTIME_S)
        self.marks.pop(number, None)
        if not self.is_full:
            self.marks[number] = LinkMarks(begun=LinkBegun(job_id, self.now, self.now))

    def _end(self, job_id: str, number: int, state: str, signals: tuple[str, ...]) -> None:
        self._set(job_id, state=state, end_s=self.now)
        marks = self.marks.get(number, LinkMarks())
        if self.rng.random() < 0.8 and not self.is_full:  # else it was killed before it left its mark
            self.marks[number] = replace(marks, ended=LinkEnded(job_id, self.now, 0, signals))

    def _set(self, job_id: str, **changes: Any) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], **changes)


@dataclass
class Keeper:
    """What drives the chain; all that it holds in memory is lost when it dies."""

    world: World
    disk: JobChain
    looked: tuple[tuple[LinkJob, ...] | None, float] = (None, 0.0)
    deaths: float = 0.0
    chain: JobChain | None = None  # in memory, newer than the disk where that is behind
    is_behind: bool = False  # the disk says so
    unsure_s: float = 0.0

    def round(self) -> None:
        world = self.world
        if world.now - self.looked[1] >= LOOK_S and not world.is_mute:
            self.looked = (tuple(world.jobs.values()), world.now)
        if self.chain is None:  # a new life
            self.chain, self.unsure_s = self.disk, world.now if self.is_behind else 0.0
        if self.looked[1] >= self.unsure_s:
            self.unsure_s = 0.0
        events: list[Event] = [LinksSeen(world.now, dict(world.marks), *self.looked, unsure_s=self.unsure_s)]
        while events:
            chain, effects = step(self.chain, events.pop(0))
            if self._dies():
                return
            self._write(chain)
            for effect in effects:
                if self._dies():
                    return
                answer = self._act(effect, chain)
                if self._dies():
                    return
                if answer is not None:
                    events.append(answer)

    def _write(self, chain: JobChain) -> None:
        self.chain = chain
        if self.world.is_full:
            self.is_behind = True
            return
        self.disk = chain
        self.is_behind = self.is_behind and self.unsure_s > 0

    def _dies(self) -> bool:
        if self.world.rng.random() >= self.deaths:
            return False
        self.chain = None
        if self.world.rng.random() < 0.5:  # else another process has kept the look
            self.looked = (None, 0.0)
        return True

    def _act(self, effect: Effect, chain: JobChain) -> Event | None:
        world, now = self.world, self.world.now
        if world.is_mute and isinstance(effect, SubmitLink | CancelLink | ReleaseLink | AskEnd):
            return None
        match effect:
            case SubmitLink():
                link = chain.link(effect.number)
                assert link is not None
                job_id = world.submit(link.key)
                if effect.hold:
                    world._set(job_id, reason="JobHeldUser")
                return LinkSubmitted(now, effect.number, job_id)
            case CancelLink() if chain != self.disk and chain.standing is ChainStanding.RUNNING:
                return None  # as `perdure.cli.keeper` has it
            case CancelLink():
                world.cancel(effect.job_id)
            case ReleaseLink():
                world._set(effect.job_id, reason="")
                return LinkReleased(now, effect.number)
            case AskEnd():
                return EndTold(now, effect.number, world.jobs.get(effect.job_id))
            case JudgeLink():
                return LinkJudged(now, effect.number, True, "it passes")
            case PlanLink():
                current = chain.link(effect.number)
                is_due = current is not None and now >= current.started_s + WALLTIME_S / 2
                return LinkPlanned(now, Decision(is_due, now + 30.0, "half of it is over"))
        return None


@given(seed=st.integers(0, 10**6), strategy=st.sampled_from([Strategy.NONE, Strategy.HOLD]))
@settings(max_examples=150, deadline=None)
def test_no_link_is_lost_or_doubled_in_a_storm(seed: int, strategy: Any) -> None:
    rng = random.Random(seed)
    spec = ChainSpec("c-1", "c-1.ab", "c", "/c.sh", "/", "a", 0.0, WALLTIME_S, strategy=strategy, most_links=LINKS)
    world = World(rng, spec)
    keeper = Keeper(world, JobChain(spec), deaths=0.1)
    for _ in range(3000):
        storm = world.now < STORM_S
        keeper.deaths = 0.1 if storm else 0.0
        world.is_mute = storm and rng.random() < 0.2
        if rng.random() < 0.02 or not storm:
            world.is_full = storm and rng.random() < 0.4
        keeper.round()
        world.pass_time(rng.choice([1.0, 5.0, 20.0]), storm)
        assert len(set(world.submitted)) == len(world.submitted), world.submitted
        live = [job for job in world.jobs.values() if not job.is_over]
        if not (world.is_full or keeper.is_behind):  # then nothing is cancelled
            assert len({job.key.partition(".")[0] for job in live}) <= 3
        assert sum(job.state == "RUNNING" for job in live) <= 1
        if keeper.disk.standing is not ChainStanding.RUNNING and not live:
            break
    assert keeper.disk.standing is ChainStanding.DONE, keeper.disk
    numbers = [link.number for link in keeper.disk.links]
    assert numbers == list(range(1, len(numbers) + 1))
    assert not [job for job in world.jobs.values() if not job.is_over]
