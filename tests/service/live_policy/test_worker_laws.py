"""Laws of the worker, whatever happens to a queue: what it took is given back, to the job that it was taken from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from perdure.live_policy.preemptions import PolicyMemory
from perdure.live_policy.settings import PolicySettings
from perdure.model.actions import Preempt
from perdure.model.identity import AttemptId
from perdure.model.jobs import JobSize, JobState, PolicyConsent
from perdure.scheduling.slurm.site_limits import QosLimits, SiteLimits
from perdure.service.live_policy.policy_store import KeptNice, KeptSize, PolicyStore
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.store.journal import Journal
from perdure.service.store.schema import actions, attempts, jobs
from perdure.waits.queue import QueuedJob, QueueLook
from tests.copying import replace
from tests.live_policy.queues import NOW_S, look, running, waiting

ASKED = JobSize(1, 2, 4)


class KilledHere(BaseException):
    """The service is no more: nothing of what comes next happens."""


@dataclass
class QueueInMemory:
    """A cluster that does what it is told, and remembers what each job's owner asked for."""

    now_s: float = NOW_S
    jobs: dict[str, QueuedJob] = field(default_factory=dict)
    own: dict[str, QueuedJob] = field(default_factory=dict)  # as they came
    known: SiteLimits = field(default_factory=SiteLimits)
    calls: int = 0
    killed_at: str = ""  # the service is killed once it has changed this

    def queue(self) -> QueueLook:
        seen = look(*self.jobs.values())
        return replace(seen, queue=replace(seen.queue, now_s=self.now_s))

    def limits(self, _: QueueLook) -> SiteLimits:
        return self.known

    def set_nice(self, nice: Mapping[str, int]) -> dict[str, str]:
        self.calls += 1
        for job_id, value in nice.items():
            job = self.jobs[job_id]
            self.jobs[job_id] = replace(job, nice=value, priority=job.priority + job.nice - value)
        return self._done("places")

    def set_sizes(self, sizes: Mapping[str, tuple[JobSize, JobSize]]) -> dict[str, str]:
        for job_id, (size, seen) in sizes.items():
            job = self.jobs[job_id]
            assert job.asks == seen != size
            self.jobs[job_id] = replace(job, asks=size, gpus=size.gpus, nodes=size.nodes)
        return self._done("sizes")

    def _done(self, what: str) -> dict[str, str]:
        if what == self.killed_at:
            raise KilledHere
        return {}

    def come(self, job: QueuedJob) -> None:
        self.jobs[job.job_id] = self.own[job.job_id] = job

    def consents(self, job_id: str, consent: PolicyConsent) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], consent=consent)


@dataclass
class WorkerWorld:
    """A worker over a queue in memory and a journal."""

    cluster: QueueInMemory
    journal: Journal
    switch: PolicySwitch
    settings: PolicySettings
    acts: bool = True
    clock_s: float = NOW_S
    orders: list[tuple[Preempt, str]] = field(default_factory=list)
    running: list[AttemptId] = field(default_factory=list)

    @property
    def store(self) -> PolicyStore:
        return PolicyStore(self.journal.store, "c")

    def worker(self, **more: Any) -> PolicyWorker:
        return PolicyWorker(
            self.cluster, self.store, self.settings, self.switch, lambda: self.acts, lambda: self.running,
            lambda action, why, _: self.orders.append((action, why)), lambda: self.clock_s, **more,
        )  # fmt: skip


@contextmanager
def world_of(settings_: PolicySettings) -> Iterator[WorkerWorld]:
    with tempfile.TemporaryDirectory() as place, closing(Journal.open(Path(place), "c")) as journal:
        yield WorkerWorld(QueueInMemory(), journal, PolicySwitch(Path(place)), settings_)


names = st.sampled_from(["11", "12", "13", "14"])
events = st.one_of(
    st.tuples(st.just("gone"), names),
    st.tuples(st.just("given again"), names),
    st.tuples(st.just("opts out"), names),
    st.tuples(st.just("opts in"), names),
    st.tuples(st.just("starts"), names),
    st.tuples(st.sampled_from(["off", "on", "shadow", "acts"]), st.just("")),
    st.tuples(st.just("killed"), st.sampled_from(["places", "sizes"])),
)
rounds = st.lists(st.lists(events, max_size=2), min_size=2, max_size=6)


def happen(world: WorkerWorld, kind: str, job_id: str) -> None:
    cluster = world.cluster
    if kind in ("off", "on"):
        world.switch.turn(on=kind == "on", by="ada")
    elif kind in ("shadow", "acts"):
        world.acts = kind == "acts"
    elif kind == "killed":
        cluster.killed_at = job_id
    elif kind == "given again" or job_id not in cluster.jobs:
        came = cluster.own[job_id]
        cluster.come(replace(came, user=f"{came.user}x", nice=came.nice + 10))  # the same user's would look the same
    elif kind == "gone":
        del cluster.jobs[job_id]
    elif kind == "starts":
        job = cluster.jobs[job_id]
        cluster.jobs[job_id] = replace(
            job, state=JobState.RUNNING, start_s=cluster.now_s, running_on=("n1",), asks=None
        )
    else:
        cluster.consents(job_id, PolicyConsent.NONE if kind == "opts out" else PolicyConsent.PREEMPT)


@given(rounds, st.sampled_from(["fifo", "las", "themis"]))
@settings(max_examples=40)
def test_what_was_changed_is_given_back_to_whom_it_was_taken_from(told: list[list[tuple[str, str]]], name: str) -> None:
    with world_of(PolicySettings(name, changes=2, least_run_s=1e9)) as world:
        cluster = world.cluster
        for at, job_id in enumerate(("11", "12", "13", "14")):
            asks = ASKED if at % 2 else None
            cluster.come(waiting(job_id, 10 * at + 1, 4, nice=at, asks=asks, consent=PolicyConsent.PREEMPT))
        for several in told:
            for kind, job_id in several:
                happen(world, kind, job_id)
            before = dict(cluster.jobs), world.store.nice(), world.store.sizes()
            try:
                world.worker().turn()
            except KilledHere:
                continue
            finally:
                cluster.now_s, cluster.killed_at = cluster.now_s + 60.0, ""
            if not world.acts:
                assert (cluster.jobs, world.store.nice(), world.store.sizes()) == before
                continue
            takes_part = {
                job_id for job_id, job in cluster.jobs.items()
                if job.consent is not PolicyConsent.NONE and not world.switch.is_off
            }  # fmt: skip
            own = cluster.own
            for job_id in cluster.jobs.keys() - takes_part:
                job = cluster.jobs[job_id]
                assert job.nice == own[job_id].nice
                assert job.priority == own[job_id].priority
                assert job.asks in (own[job_id].asks, None)
            for job_id, nice in world.store.nice().items():
                assert job_id in takes_part
                assert nice == KeptNice(own[job_id].nice, own[job_id].user)
            for job_id, size in world.store.sizes().items():
                assert job_id in takes_part
                assert size == KeptSize(ASKED, own[job_id].user)
            for job_id in takes_part:
                job = cluster.jobs[job_id]
                assert job.nice == own[job_id].nice or job_id in world.store.nice()
                assert job.asks in (own[job_id].asks, None) or job_id in world.store.sizes()


def preempted(world: WorkerWorld, job_id: str, state: str, started_s: float | None, incarnation: int = 1) -> None:
    key = {"key": f"p{job_id}{state}{started_s}", "cluster": "c", "kind": "preempt", "job_id": job_id}
    times = {"created_s": 1.0, "expires_s": 2.0, "started_s": started_s, "ended_s": started_s}
    said = {"state": state, "by": "perdure", "reason": "", "payload": "{}", "incarnation": incarnation}
    with world.journal.store.writing() as db:
        db.execute(insert(actions).values(**key, **times, **said))


def ran(world: WorkerWorld, job_id: str, gpus: int, since_s: float, until_s: float | None) -> None:
    job = {"cluster": "c", "job_id": job_id, "name": "train", "user": "jonas", "partition": "main", "node_count": 1}
    about = {"state": "completed" if until_s else "running", "gpus": gpus, "submit_s": since_s, "changed_s": since_s}
    run = {"cluster": "c", "job_id": job_id, "incarnation": 1, "state": "completed", "start_s": since_s}
    with world.journal.store.writing() as db:
        db.execute(insert(jobs).values(**job, **about, payload="{}"))
        db.execute(insert(attempts).values(**run, end_s=until_s, gpus=gpus, payload='{"user": "jonas"}'))


def memory_of(world: WorkerWorld, worker: PolicyWorker) -> PolicyMemory:
    """What a decision on the queue as it is rests on."""
    return worker._known(world.cluster.queue(), world.store.nice(), world.store.sizes())[2]


def test_a_decision_rests_on_all_that_is_known() -> None:
    with world_of(PolicySettings("themis")) as world:
        cluster = world.cluster
        for job in running("1", 900, ("n1",)), running("2", 900, ("n2",), consent=PolicyConsent.ORDER), waiting("3", 5):
            cluster.come(job)
        cluster.known = SiteLimits((QosLimits("tight"),))
        for started_s in (NOW_S - 3601, NOW_S - 3599, NOW_S - 100):
            preempted(world, "1", "done", started_s)
        preempted(world, "1", "planned", None)
        preempted(world, "2", "done", NOW_S - 50)
        world.store.keep_nice([cluster.jobs["3"]], NOW_S)
        world.store.keep_sizes({"3": KeptSize(ASKED, "mira")}, NOW_S)
        ran(world, "1", 4, NOW_S - 900, None)
        ran(world, "8", 4, NOW_S - 700, NOW_S - 600)
        asked = list[list[str]]()

        def checkpoints(ready: Any) -> dict[str, float]:
            asked.append([job.job_id for job in ready])
            return {"1": NOW_S - 5}

        found = memory_of(world, world.worker(checkpoints=checkpoints))
        assert asked == [["1"]]
        assert (found.preempted, set(found.on_their_way)) == ({"1": 3}, {"1"})
        assert sorted(found.preempted_s) == [NOW_S - 3599, NOW_S - 100, NOW_S - 50]
        assert (found.checkpoint_s, found.nice, found.sizes) == ({"1": NOW_S - 5}, {"3": 0}, {"3": ASKED})
        assert (found.limits, found.past.most_gpus) == (cluster.known, {"1": 4})
        assert (list(found.past.run_s), list(found.past.lives)) == ([100.0], [(NOW_S - 700, NOW_S - 600)])


def test_what_is_known_is_asked_for_again_in_time() -> None:
    for name, every_s in (("themis", 60.0), ("gittins-2d", 600.0)):
        with world_of(PolicySettings(name)) as world:
            worker = world.worker()
            first = memory_of(world, worker)
            world.cluster.known = SiteLimits((QosLimits("tight"),))
            ran(world, "8", 4, NOW_S - 700, NOW_S - 600)
            for later_s, is_known in ((every_s - 1, False), (every_s, True)):
                world.clock_s = world.cluster.now_s = NOW_S + later_s
                found = memory_of(world, worker)
                assert (found.past.run_s != first.past.run_s or found.services != first.services) is is_known
            world.clock_s = NOW_S + 599.0 + every_s
            assert memory_of(world, worker).limits == world.cluster.known


def test_one_look_is_worked_on_once() -> None:
    with world_of(PolicySettings("fifo")) as world:
        for job in waiting("11", 1), waiting("12", 9):
            world.cluster.come(job)
        worker = world.worker()
        worker.turn()
        world.cluster.set_nice({"11": 0, "12": 0})
        worker.turn()
        assert world.cluster.jobs["11"].nice == 0
        world.cluster.now_s += 1.0
        worker.turn()
        assert world.cluster.jobs["11"].nice < 0


def test_who_takes_part_is_noted_and_a_term_ends_once_it_no_longer_acts() -> None:
    with world_of(PolicySettings("fifo")) as world:
        world.cluster.come(waiting("11", 1, submit_s=NOW_S + 1))
        world.cluster.come(waiting("12", 1, submit_s=NOW_S + 2, consent=PolicyConsent.PREEMPT))
        world.cluster.come(waiting("13", 1, submit_s=NOW_S + 3, consent=PolicyConsent.NONE))
        world.cluster.come(waiting("14", 1, gpus=0, submit_s=NOW_S + 4))
        worker = world.worker()
        worker.turn()
        term = world.store.term()
        assert term is not None
        with world.journal.store.writing() as db:
            for job_id in ("11", "12", "13", "14"):
                about = {"state": "pending", "gpus": 1, "submit_s": 1.0, "changed_s": 1.0, "payload": "{}"}
                db.execute(insert(jobs).values(cluster="c", job_id=job_id, name="", user="mira", partition="main",
                                               node_count=1, **about))  # fmt: skip
        assert sorted(life.came_s for life in world.store.lives(term)) == [NOW_S + 1, NOW_S + 2]
        world.acts = False
        world.cluster.now_s += 60.0
        worker.turn()
        ended = world.store.term()
        assert ended is not None
        assert ended.until_s == NOW_S + 60.0
        world.acts = True
        for _ in range(2):
            world.cluster.now_s += 60.0
            worker.turn()
        again = world.store.term()
        assert again is not None
        assert (again.since_s, again.until_s) == (NOW_S + 120.0, None)


def test_a_preemption_that_came_to_nothing_is_ordered_under_another_key() -> None:
    with world_of(PolicySettings("las", first_limit_s=100.0, least_run_s=0.0)) as world:
        for job in running("1", 5000, ("n1",)), running("2", 5000, ("n2",)), waiting("3", 5, gpus=4):
            world.cluster.come(job)
        world.running = [AttemptId("c", "1", 7), AttemptId("c", "2", 7)]
        worker = world.worker()
        worker.turn()
        ((first, why),) = world.orders
        assert why == f"las lets job 3 run before job {first.attempt.job_id}"
        preempted(world, first.attempt.job_id, "expired", None)
        world.cluster.now_s += 60.0
        worker.turn()
        assert world.orders[1][0] == replace(first, episode="1")
        world.running = []  # it has ended since the look
        world.cluster.now_s += 60.0
        worker.turn()
        assert len(world.orders) == 2
