"""The worker of the policy in force, on a real embedded cluster: places are changed, kept and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from perdure.backends.local import JobSpec, LocalBackend, start_daemon, stop_daemon
from perdure.live_policy.settings import PolicySettings
from perdure.model.actions import Preempt
from perdure.model.jobs import PolicyConsent
from perdure.service.live_policy.past_services import past_services
from perdure.service.live_policy.policy_store import PolicyStore
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.store.journal import Journal
from perdure.service.store.schema import actions
from tests.copying import replace
from tests.e2e.service import await_

FIFO = PolicySettings("fifo")
LAS = PolicySettings("las-2d", first_limit_s=0.2, second_limit_s=1000.0, least_run_s=0.0)


@dataclass
class PolicyWorld:
    """One node of two GPUs, a journal, and workers over both."""

    backend: LocalBackend
    journal: Journal
    state: Path
    acts: bool = True
    orders: list[tuple[Preempt, str]] = field(default_factory=list)

    def worker(self, settings: PolicySettings) -> PolicyWorker:
        """As after a start of the service: nothing is remembered but what is in the journal."""
        return PolicyWorker(
            self.backend, PolicyStore(self.journal.store, "local"), settings, PolicySwitch(self.state),
            lambda: self.acts, self.running, lambda action, why, _: self.orders.append((action, why)), lambda: 0.0,
        )  # fmt: skip

    def running(self) -> list[Any]:
        return [each.id for each in self.backend.observe(0.0).attempts if not each.state.is_over]

    def submit(self, seconds: float = 600.0, gpus: int = 2, **more: Any) -> str:
        given = {"consent": PolicyConsent.PREEMPT, **more}
        return self.backend.submit(JobSpec(("sleep", str(seconds)), gpus_per_node=gpus, **given))

    def nice(self) -> dict[str, int]:
        return {job.job_id: job.nice for job in self.backend.queue().queue.jobs}

    def order(self) -> list[str]:
        """Waiting jobs, who is considered first, first."""
        waiting = self.backend.queue().queue.waiting()
        return [job.job_id for job in sorted(waiting, key=lambda job: (-job.priority, int(job.job_id)))]

    def await_running(self, job_id: str) -> None:
        await_(lambda: job_id in {each.job_id for each in self.running()}, 30.0, lambda: f"job {job_id} does not run")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PolicyWorld]:
    home = tmp_path / "cluster"
    start_daemon(home, nodes=1, gpus=2, nice=0)
    try:
        with closing(Journal.open(tmp_path / "state", "local")) as journal:
            yield PolicyWorld(LocalBackend(home), journal, tmp_path)
    finally:
        stop_daemon(home)


@pytest.fixture
def queue(world: PolicyWorld) -> tuple[str, str, str]:
    """One job runs; two wait, of which the cluster considers the later one first, as its owner asked for that."""
    first = world.submit()
    world.await_running(first)
    return first, world.submit(), world.submit(priority=1)


def test_waiting_jobs_come_into_the_policys_order(world: PolicyWorld, queue: tuple[str, str, str]) -> None:
    _, early, late = queue
    assert world.order() == [late, early]
    world.worker(FIFO).turn()
    assert world.order() == [early, late]


def test_a_second_turn_changes_nothing(world: PolicyWorld, queue: tuple[str, str, str]) -> None:
    world.worker(FIFO).turn()
    before = world.nice()
    again = world.worker(FIFO)
    again.turn()
    assert (again.latest.changes, world.nice()) == ((), before)


def test_in_shadow_mode_nothing_is_touched(world: PolicyWorld, queue: tuple[str, str, str]) -> None:
    world.acts = False
    worker = world.worker(LAS)
    worker.turn()
    assert worker.latest.order
    assert not any(world.nice().values())
    assert (world.orders, PolicyStore(world.journal.store, "local").nice()) == ([], {})


def off(world: PolicyWorld) -> PolicySettings:
    PolicySwitch(world.state).turn(on=False, by="ada")
    return FIFO


@pytest.mark.parametrize(
    "end", [off, lambda _: PolicySettings(), lambda _: replace(FIFO, owners=False)], ids=["off", "unset", "opted-out"]
)
def test_jobs_get_the_places_back_that_they_had(
    world: PolicyWorld, queue: tuple[str, str, str], end: Callable[[PolicyWorld], PolicySettings]
) -> None:
    world.backend.set_nice({queue[1]: 5})
    world.worker(FIFO).turn()
    assert world.order() == [*queue[1:]]
    world.worker(end(world)).turn()
    assert world.nice() == {queue[0]: 0, queue[1]: 5, queue[2]: 0}
    assert PolicyStore(world.journal.store, "local").nice() == {}


def test_a_number_that_is_another_users_job_now_has_that_jobs_place(
    world: PolicyWorld, queue: tuple[str, str, str]
) -> None:
    """A manager that lost its state gives numbers out again."""
    store = PolicyStore(world.journal.store, "local")
    world.backend.set_nice({queue[1]: 5})
    store.keep_nice([replace(job, user="eve", nice=9) for job in world.backend.queue().queue.jobs], 0.0)
    world.worker(FIFO).turn()
    assert world.order() == [*queue[1:]]
    world.worker(off(world)).turn()
    assert world.nice() == {queue[0]: 0, queue[1]: 5, queue[2]: 0}
    assert store.nice() == {}


def test_switched_on_again_it_decides_again(world: PolicyWorld, queue: tuple[str, str, str]) -> None:
    off(world)
    world.worker(FIFO).turn()
    assert world.order() == [queue[2], queue[1]]
    PolicySwitch(world.state).turn(on=True, by="ada")
    world.worker(FIFO).turn()
    assert world.order() == [*queue[1:]]


def test_a_job_that_is_gone_is_forgotten(world: PolicyWorld, queue: tuple[str, str, str]) -> None:
    from perdure.model.actions import Cancel
    from perdure.model.identity import AttemptId

    world.worker(FIFO).turn()
    kept = PolicyStore(world.journal.store, "local").nice()
    assert kept
    for job_id in kept:
        world.backend.perform(Cancel(AttemptId("local", job_id, 0)))
    world.worker(FIFO).turn()
    assert PolicyStore(world.journal.store, "local").nice() == {}


def test_a_place_is_restored_to_the_user_who_had_it_and_to_no_other_of_the_same_number(
    world: PolicyWorld, queue: tuple[str, str, str]
) -> None:
    """As where a manager lost its state and gave the number out again."""
    given_again(world, queue[1])
    world.worker(PolicySettings()).turn()
    assert world.nice()[queue[1]] == 0


def test_a_job_that_got_the_number_of_another_users_gets_its_own_place_back(
    world: PolicyWorld, queue: tuple[str, str, str]
) -> None:
    given_again(world, queue[1])
    world.backend.set_nice({queue[1]: 5})
    world.worker(FIFO).turn()
    assert world.order() == [*queue[1:]]
    world.worker(off(world)).turn()
    assert world.nice() == {queue[0]: 0, queue[1]: 5, queue[2]: 0}
    assert PolicyStore(world.journal.store, "local").nice() == {}


def given_again(world: PolicyWorld, job_id: str) -> None:
    """The journal has the place of another user's job of this number."""
    job = next(each for each in world.backend.queue().queue.jobs if each.job_id == job_id)
    PolicyStore(world.journal.store, "local").keep_nice([replace(job, user="eve", nice=7)], 0.0)


def test_a_job_that_three_changes_did_not_move_is_left_alone(
    world: PolicyWorld, queue: tuple[str, str, str], tmp_path: Path
) -> None:
    asked = list[str]()

    class ByHand(LocalBackend):
        """One whose jobs' priorities were set by hand."""

        def set_nice(self, nice: Any) -> Any:
            asked.extend(nice)
            return {}

    world.backend = ByHand(tmp_path / "cluster")
    worker = world.worker(FIFO)
    for _ in range(5):
        worker.turn()
    assert max(map(asked.count, asked)) == 3


def test_another_policy_begins_a_term_of_its_own(world: PolicyWorld, queue: tuple[str, str, str]) -> None:
    store, found = PolicyStore(world.journal.store, "local"), list[Any]()
    for settings in (FIFO, FIFO, LAS):
        world.worker(settings).turn()
        found.append(store.term())
    assert [term.policy for term in found] == ["fifo", "fifo", "las-2d"]
    assert found[0].since_s == found[1].since_s < found[2].since_s


def test_a_job_that_was_served_makes_room(world: PolicyWorld) -> None:
    served = world.submit()
    world.await_running(served)
    short = world.submit(1.0)
    worker = world.worker(LAS)

    def has_decided() -> bool:
        worker.turn()
        return bool(world.orders)

    await_(has_decided, 30.0, lambda: f"no order: {worker.latest}")
    assert world.orders[0] == (Preempt(world.running()[0]), f"las-2d lets job {short} run before job {served}")
    assert world.order()[0] == short
    assert world.nice()[served] > world.nice()[short]  # or it would start again at once


def test_an_index_rests_on_a_sites_own_accounting(world: PolicyWorld, tmp_path: Path) -> None:
    rows = "".join(f"{n},{n},2,{50 * n}\n" for n in range(1, 21))
    (tmp_path / "history.csv").write_text("job_id,submit_s,gpus,duration_s\n" + rows)
    sample = past_services(tmp_path / "history.csv")
    assert sorted(sample) == [100.0 * n for n in range(1, 21)]
    world.submit()
    settings = PolicySettings("gittins-2d")
    for known, policy in (((), "las-2d"), (sample, "gittins-2d")):
        worker = PolicyWorker(
            world.backend, PolicyStore(world.journal.store, "local"), settings, PolicySwitch(world.state),
            lambda: False, world.running, lambda *_: None, lambda: 0.0, sample=known,
        )  # fmt: skip
        worker.turn()
        assert worker.latest is not None
        assert worker.latest.policy == policy


def test_a_preemption_that_the_manager_has_forgotten_is_planned_again(world: PolicyWorld) -> None:
    """A slurmctld that was killed had not saved it: the same start runs on."""
    store = PolicyStore(world.journal.store, "local")
    key = {"key": "preempt:local/7#100", "cluster": "local", "kind": "preempt", "job_id": "7", "incarnation": 100}
    times = {"created_s": 500.0, "expires_s": 560.0, "started_s": 500.0, "ended_s": 501.0}
    said = {"state": "done", "by": "perdure", "reason": "", "payload": "{}"}
    with world.journal.store.writing() as connection:
        connection.execute(insert(actions).values(**key, **times, **said))
    for start_s, now_s, done, in_vain in (100.0, 520.0, 1, 0), (100.0, 540.0, 0, 1), (510.0, 540.0, 1, 0):
        past = store.preemptions({"7": start_s}, now_s)
        assert (past.done.get("7", 0), past.in_vain.get("7", 0)) == (done, in_vain), (start_s, now_s)
