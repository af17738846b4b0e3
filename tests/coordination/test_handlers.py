"""Perdure's own handlers, on sites of a few lines: who acts, on whose word, and within which budget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from perdure.coordination.chain import advance
from perdure.coordination.chain import restored as rebuilt_from
from perdure.coordination.chain_state import Chain
from perdure.coordination.handler_set import PlaybookHandlers
from perdure.coordination.handlers.job import grant_time
from perdure.coordination.handlers.shared import MAX_HELD, newly_needed
from perdure.coordination.messages import (
    Annotated,
    Changed,
    ExceptionRaised,
    Failed,
    HandlerEnlisted,
    Input,
    Left,
    LetGo,
    ReadBack,
    Settled,
    Ticked,
)
from perdure.coordination.playbook import Playbook, own_playbook, site_playbook
from perdure.coordination.record import (
    Annotation,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Scope,
    Subject,
)
from perdure.coordination.ruling import Registration
from perdure.coordination.site import Resource
from perdure.model.actions import Drain, Extend, Hold, Release
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from tests.copying import replace

NOW = 1000.0


@dataclass
class Site:
    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    resources: dict[str, Resource] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    chain: Chain = field(default_factory=Chain)
    playbook: Playbook = field(default_factory=own_playbook)

    def job(self, job_id: str) -> Job | None:
        return self.jobs.get(job_id)

    def owner_of(self, record: ExceptionRecord) -> str:
        job = self.job(record.subject.job_id)
        return job.user if job else ""

    def latest(self, job_id: str) -> int:
        return max((a.id.incarnation for a in self.attempts if a.id.job_id == job_id), default=0)

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def waiting(self) -> list[Any]:
        return [job for job in self.jobs.values() if job.state is JobState.PENDING]

    def running(self) -> list[Attempt]:
        return self.attempts

    def resource(self, name: str) -> Resource:
        return self.resources.get(name) or Resource(name)

    def is_of_attempt(self, record: ExceptionRecord) -> bool:
        return False

    def recovery(self, record: ExceptionRecord) -> None:
        return None

    def settle_on(self, record: ExceptionRecord) -> None:
        """Nothing here was made of a failed attempt."""

    def failure_of(self, attempt: Any) -> str:
        return self.failures.get(attempt.job_id, "")

    def open_about(self, resource: str) -> list[Any]:
        return [r.id for r in self.chain.open.values() if r.subject.resource == resource]

    def seeing(self, chain: Chain) -> Site:
        return replace(self, chain=chain)

    def in_force(self) -> list[Any]:
        return [r for r in self.chain.ended.values() if r.subject.resource and r.is_in_force]

    def records(self) -> list[Any]:
        return [*self.chain.ended.values(), *self.chain.open.values()]

    def take(self, *inputs: Input, now: float = NOW) -> list[Any]:
        self.chain, effects = advance(self.chain, inputs, PlaybookHandlers(self.playbook, self, now), now)
        return [action for effect in effects for action in getattr(effect, "actions", ())]

    def run(self, job_id: str, *nodes: str, **more: Any) -> None:
        self.jobs[job_id] = Job("c", job_id, job_id, "ada", JobState.RUNNING, 0.0, **more)
        self.attempts.append(Attempt(AttemptId("c", job_id, 1), AttemptState.RUNNING, nodes, 0.0, user="ada"))

    def wait(self, job_id: str, **more: Any) -> None:
        self.jobs[job_id] = Job("c", job_id, job_id, "ada", JobState.PENDING, 0.0, **more)


def raised(
    kind: str,
    name: str = "x",
    by: str = "operator:root",
    scope: Scope = Scope.LOCAL,
    notes: tuple[Annotation, ...] = (),
    **subject: Any,
) -> ExceptionRaised:
    return ExceptionRaised(
        ExceptionRecord(name, kind, 0, scope, Subject("c", **subject), NOW, detected_by=by, annotations=notes)
    )


def up(*names: str) -> dict[Any, Any]:
    return {name: Node(name, NodeState.UP) for name in names}


def test_a_broken_gpu_takes_its_node_out_of_service() -> None:
    site = Site(nodes=up("n1", "n2"))
    assert site.take(raised("gpu.xid79", nodes=("n1",))) == [Drain("n1", "perdure: gpu.xid79", "x")]
    assert site.chain.ended["x"].owner is Component.RESOURCE_MANAGER


def test_a_node_that_nobody_knows_keeps_no_other_of_its_fault_in_service() -> None:
    site = Site(nodes=up("n1", "n2"))
    drains = [Drain(name, "perdure: node.disk", "x") for name in ("n1", "n2")]
    assert site.take(raised("node.disk", nodes=("n1", "gone", "n2"))) == drains


def test_whether_a_node_is_out_of_service_is_read_back_and_not_believed() -> None:
    """The last look may be old: somebody may have returned it since. That costs nothing of the node's budget."""
    site = Site(nodes={"n1": Node("n1", NodeState.DOWN)})
    for number in range(5):
        later = NOW + 3600 * number
        assert site.take(raised("node.disk", f"x{number}", nodes=("n1",)), now=later) == [
            Drain("n1", "perdure: node.disk", f"x{number}")
        ]
        assert site.chain.ended[f"x{number}"].owning.note == "n1 is to get no new work"


def test_a_fault_that_is_raised_again_after_its_node_was_returned_acts_anew() -> None:
    site = Site(nodes=up("n1"))
    (first,) = site.take(raised("node.disk", "x", nodes=("n1",)))
    assert site.take(raised("node.disk", "y", nodes=("n1",)), now=NOW + 1) == []  # on its way: one matter
    site.take(ReadBack(first.key, "drained: perdure: node.disk"), now=NOW + 2)
    assert site.chain.ended["x"].annotations[-1].value == "drained: perdure: node.disk"
    assert site.take(raised("node.disk", "z", nodes=("n1",)), now=NOW + 5) == []  # read back just now
    assert site.take(raised("node.disk", "z", nodes=("n1",)), now=NOW + 30) == [Drain("n1", "perdure: node.disk", "z")]


def test_a_drain_that_a_cap_holds_back_is_open_until_it_is_done() -> None:
    site = Site(nodes=up("n1"))
    (drain,) = site.take(raised("node.disk", "x", nodes=("n1",)))
    site.take(Failed(drain.key, "not done yet: the hour's cap on drains is reached"), now=NOW + 1)
    assert site.chain.ended["x"].needs_a_person
    site.take(ReadBack(drain.key, "drained: perdure: node.disk"), now=NOW + 2)
    assert site.chain.ended["x"].state is ExceptionState.HANDLED
    assert not site.chain.ended["x"].needs_a_person


def test_one_users_word_drains_nothing_and_two_users_do() -> None:
    site = Site(nodes=up("n1"))
    assert site.take(raised("node.disk", by="viewer:ada", nodes=("n1",))) == []
    assert site.take(raised("node.disk", "y", by="viewer:ada", nodes=("n1",)), now=NOW + 1) == []
    (action,) = site.take(raised("node.disk", "z", by="viewer:bob", nodes=("n1",)), now=NOW + 2)
    assert action == Drain("n1", "perdure: node.disk", "x")


def test_what_one_user_adds_to_the_own_word_is_no_second_source() -> None:
    notes = tuple(Annotation("viewer:ada", NOW, key, "it is broken") for key in ("disk", "smart"))
    site = Site(nodes=up("n1"))
    assert site.take(raised("node.disk", by="viewer:ada", nodes=("n1",), notes=notes)) == []
    assert site.take(Annotated("x", Annotation("viewer:ada", NOW, "more", "yes")), now=NOW + 1) == []
    assert site.take(Ticked(), now=NOW + 10_000) == []
    assert site.chain.find("x").state is ExceptionState.ESCALATED


def test_the_budget_of_a_node_is_kept() -> None:
    site = Site(nodes=up("n1"))
    later = [NOW + 3600 * i for i in range(5)]
    drains = [site.take(raised("gpu.xid79", f"x{i}", nodes=("n1",)), now=now) for i, now in enumerate(later)]
    assert [len(acts) for acts in drains] == [1, 1, 1, 0, 0]
    assert site.chain.ended["x3"].state is ExceptionState.ESCALATED
    assert "3 of 3" in site.chain.ended["x3"].verdicts[0].note
    site.chain = rebuilt(site.chain)
    assert site.take(raised("gpu.xid79", "x5", nodes=("n1",)), now=later[-1] + 3600) == []


def test_what_needs_a_lost_resource_is_held_and_what_runs_is_told_once() -> None:
    site = Site(resources={"pfs": Resource("pfs", licence="pfs")})
    site.wait("1", licences=("pfs",))
    site.wait("2")
    site.run("3", "n1", licences=("pfs",))
    site.run("4", "n2")
    acts = site.take(raised("storage.down", scope=Scope.GLOBAL, resource="pfs"))
    assert acts == [Hold(AttemptId("c", "1", 0), "x")]
    told = [r for r in site.chain.ended.values() if r.cause == "x"] + list(site.chain.open.values())
    assert {(r.type, r.subject.job_id) for r in told} == {("job.pause", "3")}
    assert site.take(raised("storage.down", "y", scope=Scope.GLOBAL, resource="pfs"), now=NOW + 60) == []


def rebuilt(chain: Chain) -> Chain:
    """As a service finds it after a restart."""
    return rebuilt_from((*chain.ended.values(), *chain.open.values()), chain.handlers.values(), chain.spent)


@pytest.mark.parametrize("component", ["viewer:mira", "viewer:operator:root", "job", "workflow", ""])
def test_nobody_is_moved_on_the_word_of_a_user(component: str) -> None:
    site = Site()
    site.run("1", "n1")
    by = json.dumps({"limit": 1, "used": 100, "by": {"1": 100}})
    notes = (Annotation(component, NOW, "usage", by),)
    site.take(raised("storage.quota.over", scope=Scope.GLOBAL, notes=notes, resource="home"))
    assert not [r for r in site.chain.ended.values() if r.type == "job.move"]


def test_what_the_site_adds_to_a_users_word_counts() -> None:
    site = Site()
    site.run("1", "n1")
    told = raised("storage.quota.over", by="viewer:mira", scope=Scope.GLOBAL, resource="home")
    site.take(told)
    notes = usage(1, 100, **{"1": 100})
    site.take(raised("storage.quota.over", "y", scope=Scope.GLOBAL, notes=notes, resource="home"), now=NOW + 1)
    assert [r.subject.job_id for r in site.records() if r.type == "job.move"] == ["1"]


def test_a_user_who_cried_first_mutes_nobody() -> None:
    site = Site()
    site.wait("1")
    site.take(raised("storage.down", by="viewer:mira", scope=Scope.GLOBAL, resource="pfs"))
    site.take(Ticked(), now=NOW + 61)
    assert site.chain.ended["x"].state is ExceptionState.ESCALATED
    assert site.take(raised("storage.down", "y", scope=Scope.GLOBAL, resource="pfs"), now=NOW + 70)


def test_a_warning_that_becomes_a_fault_is_acted_on() -> None:
    site = Site(nodes=up("n1"))
    warning = raised("gpu.ecc", nodes=("n1",))
    assert site.take(replace(warning, record=replace(warning.record, severity=5))) == []
    assert site.take(raised("gpu.ecc", "y", nodes=("n1",)), now=NOW + 1) == [Drain("n1", "perdure: gpu.ecc", "y")]


def test_a_broken_node_stays_broken_when_the_job_that_met_it_has_ended() -> None:
    site = Site(nodes=up("n1"))
    site.run("1", "n1")
    site.take(raised("gpu.xid79", by="viewer:mira", nodes=("n1",), job_id="1"))
    site.jobs["1"] = replace(site.jobs["1"], state=JobState.COMPLETED)
    site.take(Ticked(), now=NOW + 6)
    assert site.take(raised("gpu.xid79", "y", nodes=("n1",), job_id="1"), now=NOW + 7)


def test_a_node_s_budget_is_charged_however_its_faults_are_told() -> None:
    site = Site(nodes=up("n1", "n2"))
    acts = [
        site.take(raised("gpu.xid79", f"x{i}", nodes=nodes), now=NOW + 3600 * i)
        for i, nodes in enumerate([("n1",), ("n1", "n2"), ("n2", "n1"), ("n1",), ("n2",)])
    ]
    assert [len(found) for found in acts] == [1, 2, 2, 0, 1]


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
def test_where_one_of_several_nodes_has_nothing_left_a_person_is_asked(nodes: tuple[str, str]) -> None:
    site = Site(nodes=up("n1", "n2"))
    for i in range(3):
        assert site.take(raised("gpu.xid79", f"x{i}", nodes=("n1",)), now=NOW + 3600 * i)
    assert site.take(raised("gpu.xid79", "both", nodes=nodes), now=NOW + 4 * 3600) == []
    assert "3 of 3 recoveries of node:n1" in site.chain.ended["both"].verdicts[0].note


def test_a_clock_that_is_set_back_brings_no_budget_back() -> None:
    site = Site(nodes=up("n1"))
    old = [raised("gpu.xid79", f"x{i}", nodes=("n1",)) for i in range(5)]
    old = [replace(one, record=replace(one.record, time_s=NOW - 6 * 86400.0)) for one in old]
    acts = [site.take(one, now=NOW + 3600 * i) for i, one in enumerate(old)]
    assert [len(found) for found in acts] == [1, 1, 1, 0, 0]


def test_a_job_is_told_of_each_resource_that_it_lacks() -> None:
    site = Site()
    site.run("1", "n1")
    site.take(raised("storage.down", scope=Scope.GLOBAL, resource="a"))
    site.take(raised("storage.down", "y", scope=Scope.GLOBAL, resource="b"), now=NOW + 1)
    assert sorted(r.cause for r in site.records() if r.type == "job.pause") == ["x", "y"]


def down(name: str = "x", resource: str = "pfs", kind: str = "storage.down") -> ExceptionRaised:
    return raised(kind, name, scope=Scope.GLOBAL, resource=resource)


def restored(name: str = "up", resource: str = "pfs", by: str = "operator:root") -> ExceptionRaised:
    return raised("storage.restored", name, by, scope=Scope.GLOBAL, resource=resource)


def test_a_soft_fault_is_acted_on_once_it_has_lasted() -> None:
    site = Site()
    site.wait("1")
    assert site.take(down(kind="storage.degraded")) == []
    assert site.take(Ticked(), now=NOW + 119) == []
    assert site.take(Ticked(), now=NOW + 121) == [Hold(AttemptId("c", "1", 0), "x")]


def test_a_soft_fault_that_passes_holds_nothing() -> None:
    site = Site()
    site.wait("1")
    site.take(down(kind="storage.degraded"))
    assert site.take(restored(), now=NOW + 60) == []
    assert site.take(Ticked(), now=NOW + 700) == []
    assert (site.chain.ended["x"].state, site.chain.ended["x"].outcome) == (
        ExceptionState.EXPIRED,
        ExceptionOutcome.RECOVERED,
    )


def test_a_hard_fault_is_acted_on_at_once_though_it_was_soft_before() -> None:
    site = Site()
    site.wait("1")
    site.take(down(kind="storage.degraded"))
    assert site.take(down("y"), now=NOW + 1) == [Hold(AttemptId("c", "1", 0), "y")]


def waiting(*job_ids: str) -> list[Any]:
    return [AttemptId("c", job_id, 0) for job_id in job_ids]


def test_what_holds_jobs_back_is_remembered_however_many_end_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.coordination.chain.MAX_ENDED", 3)
    site = Site()
    site.wait("1")
    assert site.take(down()) == [Hold(attempt, "x") for attempt in waiting("1")]
    for number in range(9):
        site.take(raised("site.note", f"n{number}", resource=f"r{number}"), now=NOW + number)
    assert list(site.chain.ended) == ["x", "n7", "n8"]
    assert site.take(restored(), now=NOW + 100) == [Release(attempt, "up") for attempt in waiting("1")]


def test_what_was_held_is_over_once_every_job_was_let_go() -> None:
    site = Site()
    for job_id in "123":
        site.wait(job_id)
    assert site.take(down()) == [Hold(attempt, "x") for attempt in waiting("1", "2", "3")]
    assert site.take(restored(), now=NOW + 100) == [Release(attempt, "up") for attempt in waiting("1", "2", "3")]
    assert (site.chain.ended["x"].outcome, site.chain.ended["x"].is_hold_order) == (ExceptionOutcome.CLEARING, False)
    site.take(*map(LetGo, waiting("1", "2")), now=NOW + 101)
    assert (site.chain.ended["x"].outcome, site.chain.ended["x"].holds) == (
        ExceptionOutcome.CLEARING,
        tuple(waiting("3")),
    )
    site.take(LetGo(*waiting("3")), now=NOW + 102)
    assert (site.chain.ended["x"].outcome, site.chain.ended["x"].holds) == (ExceptionOutcome.RECOVERED, ())
    assert site.take(restored("up2"), now=NOW + 200) == []


@pytest.mark.parametrize("after_s", [0.0, 1.0, 4.0])
def test_what_goes_down_right_after_an_all_clear_has_an_all_clear_of_its_own(after_s: float) -> None:
    """Equal all-clears within some seconds are one, unless there is something new to clear."""
    site = Site()
    site.wait("1")
    site.take(restored(), now=NOW)
    assert site.take(restored("up2"), now=NOW + after_s / 2) == []
    assert "up2" not in site.chain.ended
    assert site.take(down(), now=NOW + after_s) == [Hold(attempt, "x") for attempt in waiting("1")]
    assert site.take(restored("up3"), now=NOW + after_s) == [Release(attempt, "up3") for attempt in waiting("1")]


def test_what_is_not_decided_yet_is_cleared_right_after_another_all_clear_too() -> None:
    site = Site()
    site.wait("1")
    site.take(restored(), now=NOW)
    site.take(down(kind="storage.degraded"), now=NOW + 1)
    site.take(restored("up2"), now=NOW + 2)
    assert site.take(Ticked(), now=NOW + 122) == []


def test_what_an_all_clear_could_not_let_go_of_the_next_one_does() -> None:
    site = Site()
    site.wait("1")
    site.take(down())
    (refused,) = site.take(restored(), now=NOW + 100)
    site.take(Failed(refused.key, "refused: no rights"), now=NOW + 101)
    assert site.chain.ended["up"].state is ExceptionState.ESCALATED
    (again,) = site.take(restored("up2"), now=NOW + 200)
    assert again.attempt == refused.attempt
    assert again.key != refused.key  # else it would count as done


def test_holds_are_known_after_a_restart_as_before() -> None:
    site = Site()
    site.wait("1")
    site.wait("2")
    site.take(down())
    site.take(restored(), now=NOW + 100)
    site.take(LetGo(*waiting("1")), now=NOW + 101)
    before = site.in_force()
    site.chain = rebuilt(site.chain)
    assert site.in_force() == before
    site.take(LetGo(*waiting("2")), now=NOW + 102)
    assert site.chain.ended["x"].outcome is ExceptionOutcome.RECOVERED


def test_a_hold_that_came_to_nothing_is_none() -> None:
    site = Site()
    site.wait("1")
    site.take(down())
    (waits,) = waiting("1")
    site.take(LetGo(waits, "x"))
    assert (site.chain.ended["x"].holds, site.chain.ended["x"].is_hold_order) == ((), True)
    assert site.take(restored(), now=NOW + 100) == []
    assert site.chain.ended["x"].outcome is ExceptionOutcome.RECOVERED


def test_one_users_word_lets_nothing_go() -> None:
    site = Site()
    site.wait("1")
    site.take(down())
    assert site.take(restored(by="viewer:ada"), now=NOW + 100) == []
    assert site.chain.ended["x"].is_hold_order


def test_what_is_down_and_an_all_clear_say_what_it_is_and_how_many_jobs_it_is_about() -> None:
    site = Site()
    assert site.take(restored("early")) == []
    assert site.chain.ended["early"].owning.note == "nothing is held because of it"
    site.wait("1")
    site.take(down())
    assert site.chain.ended["x"].owning.note == (
        "storage.down of pfs: 1 of 1 waiting jobs are held, until storage.restored of it is raised;"
        " 0 running ones are notified"
    )
    site.take(restored("late"), now=NOW + 100)
    assert site.chain.ended["late"].owning.note == "storage.restored of pfs: 1 jobs are released"


def test_jobs_that_come_while_it_is_down_are_held_together_and_once() -> None:
    site = Site()
    site.run("9", "n1")
    assert newly_needed(site, NOW) == []
    site.take(down())
    for job_id in "12":
        site.wait(job_id)
    (needed,) = newly_needed(site, NOW + 30)
    assert (needed.cause, needed.scope, needed.subject.resource) == ("x", Scope.GLOBAL, "pfs")
    assert site.take(ExceptionRaised(needed, own=True), now=NOW + 30) == [Hold(a, needed.id) for a in waiting("1", "2")]
    assert newly_needed(site, NOW + 60) == []  # though the look does not show them held yet
    assert sum(r.type == "job.pause" for r in (*site.chain.open.values(), *site.chain.ended.values())) == 1
    assert {a.attempt for a in site.take(restored(), now=NOW + 90)} == {*waiting("1", "2")}
    site.wait("3")
    assert newly_needed(site, NOW + 100) == []  # while the others are being let go
    site.take(*map(LetGo, waiting("1", "2")), now=NOW + 101)
    assert {site.chain.ended[name].outcome for name in ("x", needed.id)} == {ExceptionOutcome.RECOVERED}


@pytest.mark.parametrize(
    ("kind", "by", "ends"),
    [
        ("storage.full", "perdure", "until there is room again, which Perdure sees by itself"),
        ("storage.full", "operator:root", "until storage.restored of it is raised"),
        ("storage.down", "perdure", "until storage.restored of it is raised"),
    ],
)
def test_what_holds_a_job_that_came_later_says_what_is_wrong_and_what_ends_it(kind: str, by: str, ends: str) -> None:
    site = Site()
    site.take(ExceptionRaised(replace(down().record, type=kind, detected_by=by)))
    for job_id, now in (("1", NOW + 30), ("2", NOW + 60)):
        site.wait(job_id)
        (needed,) = newly_needed(site, now)
        site.take(ExceptionRaised(needed, own=True), now=now)
        note = site.chain.ended[needed.id].owning.note
        assert note == f"{kind} of pfs: 1 jobs that need it and came since are held, {ends}"


def test_a_job_that_a_person_let_go_is_held_when_something_else_that_it_needs_goes_down() -> None:
    site = Site()
    site.wait("1")
    site.take(down())
    site.take(LetGo(*waiting("1")))
    assert site.take(down("y", "home")) == [Hold(attempt, "y") for attempt in waiting("1")]
    assert newly_needed(site, NOW + 30) == []


def test_of_two_faults_of_one_resource_the_first_holds_those_that_come() -> None:
    site = Site()
    site.take(down())
    site.take(down("y", kind="storage.full"))
    site.wait("1")
    assert [needed.cause for needed in newly_needed(site, NOW + 30)] == ["x"]


def test_a_job_that_a_person_let_go_is_not_held_again() -> None:
    site = Site()
    site.wait("1")
    site.take(down())
    site.take(LetGo(*waiting("1")))
    assert newly_needed(site, NOW + 30) == []
    assert site.take(restored(), now=NOW + 60) == []


def test_more_jobs_than_one_exception_may_hold_are_held_by_the_next() -> None:
    site = Site()
    for number in range(MAX_HELD + 3):
        site.wait(str(number))
    assert len(site.take(down())) == MAX_HELD
    (needed,) = newly_needed(site, NOW + 1)
    assert len(site.take(ExceptionRaised(needed, own=True))) == 3


def test_what_needs_two_that_are_down_is_let_go_with_the_second() -> None:
    site = Site(resources={"lic": Resource("lic", licence="lic")})
    site.wait("1", licences=("lic",))
    site.wait("2")
    site.take(down("x", "pfs"), down("y", "lic"))
    assert [a.attempt for a in site.take(restored("up", "pfs"), now=NOW + 100)] == waiting("2")
    assert site.chain.ended["x"].outcome is ExceptionOutcome.CLEARING
    assert [a.attempt for a in site.take(restored("up2", "lic"), now=NOW + 200)] == waiting("1", "2")
    site.take(*map(LetGo, waiting("1", "2")))
    assert {site.chain.ended[name].outcome for name in "xy"} == {ExceptionOutcome.RECOVERED}


def test_what_an_earlier_all_clear_has_ended_is_not_written_again_by_the_next() -> None:
    site = Site(resources={"lic": Resource("lic", licence="lic")})
    site.wait("1", licences=("lic",))
    site.take(down("x", "pfs"), down("y", "lic"))
    site.take(restored("up", "pfs"), now=NOW + 100)
    later = NOW + 200
    _, effects = advance(site.chain, [restored("up2", "lic")], PlaybookHandlers(site.playbook, site, later), later)
    assert {each.record.id for each in effects if isinstance(each, Changed)} == {"up2", "y"}


def test_of_two_that_stay_down_one_is_enough_to_keep_what_needs_it() -> None:
    site = Site(resources={name: Resource(name, licence=name) for name in ("lic", "other")})
    site.wait("1", licences=("lic",))
    site.wait("2")
    site.take(down("x", "pfs"), down("y", "lic"), down("z", "other"))
    assert [a.attempt for a in site.take(restored("up", "pfs"), now=NOW + 100)] == waiting("2")


def test_two_all_clears_at_one_instant_let_go_of_what_needs_both() -> None:
    site = Site()
    site.wait("1")
    site.take(down("x", "pfs"), down("y", "ib0"))
    released = site.take(restored("up", "pfs"), restored("up2", "ib0"), now=NOW + 100)
    assert [a.attempt for a in released] == waiting("1")


def test_a_fault_that_stays_is_one_and_one_that_comes_back_is_another() -> None:
    site = Site()
    site.take(down())
    site.take(down("y"), now=NOW + 1e5)
    assert site.chain.ended["x"].repeats == 1
    site.take(restored(), now=NOW + 1e5)
    site.wait("1")
    (waits,) = waiting("1")
    assert site.take(down("z"), now=NOW + 1e5 + 1) == [Hold(waits, "z")]


def usage(limit: int, used: int, **by: Any) -> tuple[Annotation]:
    return (Annotation("operator:root/pfs", NOW, "usage", json.dumps({"limit": limit, "used": used, "by": by})),)


def test_the_fewest_bytes_that_mend_a_quota_are_moved_each_once() -> None:
    site = Site()
    for job_id in "1234":
        site.run(job_id, f"n{job_id}")
    notes = usage(100, 175, **{"1": 70, "2": 40, "3": 35, "4": 30})
    site.take(raised("storage.quota.over", scope=Scope.GLOBAL, notes=notes, resource="home"))
    moves = [r for r in (*site.chain.ended.values(), *site.chain.open.values()) if r.type == "job.move"]
    assert sorted(r.subject.job_id for r in moves) == ["2", "3"]  # 75 of 75: neither 70 + 30 nor 40 + 35 + 30
    assert site.chain.ended["x"].verdicts[0].forbids == ("start", "move", "migrate")


def test_of_a_quota_s_use_what_the_site_says_last_counts() -> None:
    site = Site()
    for job_id in "12":
        site.run(job_id, f"n{job_id}")
    notes: tuple[Annotation, ...] = usage(100, 175, **{"1": 80}) + usage(100, 175, **{"1": 80, "2": 75})
    notes += (Annotation("operator:root/pfs", NOW, "seen", "by the weekly scan"),)
    site.take(raised("storage.quota.over", scope=Scope.GLOBAL, notes=notes, resource="home"))
    assert [r.subject.job_id for r in site.records() if r.type == "job.move"] == ["2"]


@pytest.mark.parametrize(
    "told",
    [
        '{"limit": 100, "used": 175, "by": ["1", "2"]}',
        '{"limit": 100, "used": 175, "by": {"1": -5}}',
        '{"limit": 100, "used": 175, "by": {"1": true}}',
        '{"limit": 100, "used": 9223372036854775808, "by": {"1": 75}}',
        json.dumps({"limit": 100, "used": 175, "by": dict.fromkeys(map(str, range(10_001)), 75)}),
        '{"limit": 100, "by": {"1": 75}}',
        "[]",
        "not JSON",
    ],
)
def test_on_a_usage_that_makes_no_sense_nobody_is_moved(told: str) -> None:
    site = Site()
    site.run("1", "n1")
    notes = (Annotation("operator:root", NOW, "usage", told),)
    assert site.take(raised("storage.quota.over", scope=Scope.GLOBAL, notes=notes, resource="home")) == []
    assert not any(r.type == "job.move" for r in site.records())


@pytest.mark.parametrize(("used", "is_over"), [(100, False), (101, True)])
def test_a_quota_that_is_not_exceeded_any_more_holds_nobody(used: int, is_over: bool) -> None:
    site = Site()
    site.run("1", "n1")
    site.wait("2")
    notes = usage(100, used, **{"1": 70})
    held = site.take(raised("storage.quota.over", scope=Scope.GLOBAL, notes=notes, resource="home"))
    assert held == ([Hold(AttemptId("c", "2", 0), "x")] if is_over else [])
    assert site.chain.ended["x"].is_hold_order is is_over


def test_what_the_site_says_of_use_moves_nobody_where_only_a_user_says_that_it_is_too_much() -> None:
    site = Site()
    site.run("1", "n1")
    notes = usage(100, 175, **{"1": 80})
    claim = raised("storage.quota.over", by="viewer:mira", scope=Scope.GLOBAL, notes=notes, resource="home")
    assert site.take(claim) == []
    assert not any(r.type == "job.move" for r in site.records())


def test_a_quota_that_cannot_be_mended_is_a_persons() -> None:
    site = Site()
    notes = usage(100, 500, **{"1": 70})
    site.take(raised("storage.quota.over", scope=Scope.GLOBAL, notes=notes, resource="home"))
    assert site.chain.ended["x"].state is ExceptionState.ESCALATED


def test_a_permanent_launcher_failure_is_never_tried_again() -> None:
    site = Site()
    site.run("1", "n1")
    assert site.take(raised("launcher.permanent", job_id="1")) == []
    ended = site.chain.ended["x"]
    assert (ended.owner, ended.outcome) == (Component.WORKFLOW, ExceptionOutcome.STOPPED)
    assert "requeue" in ended.verdicts[-1].forbids


def test_a_dead_rank_is_recovered_with_the_end_of_its_attempt() -> None:
    site = Site(nodes=up("n1"))
    site.run("1", "n1")
    site.take(raised("process.signal", job_id="1", nodes=("n1",)))
    assert site.chain.open["x"].state is ExceptionState.IN_CHAIN
    site.failures["1"] = "c/1#1:job.failed"
    site.take(Ticked(), now=NOW + 6)
    ended = site.chain.ended["x"]
    assert ended.owner is Component.SCHEDULER
    assert "c/1#1:job.failed" in ended.verdicts[-1].note
    assert [a.key for a in ended.annotations] == ["nodes"]


def test_what_is_about_a_start_that_a_newer_one_has_replaced_changes_nothing() -> None:
    site = Site()
    site.run("1", "n1")
    old = raised("app.nan", job_id="1")
    site.take(replace(old, record=replace(old.record, incarnation=1)))
    assert "x" in site.chain.open
    site.attempts.append(replace(site.attempts[0], id=AttemptId("c", "1", 2)))
    assert site.take(Ticked(), now=NOW + 6) == []
    assert site.chain.ended["x"].outcome is ExceptionOutcome.WITHDRAWN


def test_a_users_handler_is_asked_about_the_own_jobs_alone() -> None:
    site = Site()
    site.run("1", "n1")
    for user in ("ada", "bob"):
        site.take(HandlerEnlisted(Registration(f"{user}+h", Component.JOB, ("app",), user, NOW + 100, user)))
    site.take(raised("app.nan", job_id="1"))
    assert site.chain.turns["x"].handler == "ada+h"
    site.take(Left("ada+h"))
    assert site.chain.turns["x"].handler == ""


def test_a_job_that_is_over_takes_its_exceptions_with_it() -> None:
    site = Site()
    site.run("1", "n1")
    site.take(raised("app.nan", job_id="1"))
    site.jobs["1"] = Job("c", "1", "1", "ada", JobState.COMPLETED, 0.0)
    site.take(Ticked(), now=NOW + 6)
    assert (site.chain.ended["x"].state, site.chain.ended["x"].outcome) == (
        ExceptionState.EXPIRED, ExceptionOutcome.WITHDRAWN,
    )  # fmt: skip


def test_an_open_exception_that_is_settled_ends() -> None:
    site = Site()
    site.run("1", "n1")
    site.take(raised("app.nan", job_id="1"))
    site.take(Settled("x", ExceptionOutcome.RECOVERED))
    assert site.chain.ended["x"].state is ExceptionState.EXPIRED


def test_a_sites_own_plan_is_followed() -> None:
    book = site_playbook('[failures."storage.tape"]\nscope = "global"\nseats = { scheduler = "leave" }\n', "site.toml")
    site = Site(playbook=book)
    site.wait("1")
    assert site.take(raised("storage.tape", scope=Scope.GLOBAL, resource="tape")) == []
    assert site.chain.ended["x"].state is ExceptionState.HANDLED


def test_what_says_that_a_fault_is_over_is_no_fault_and_folds_into_none() -> None:
    site = Site(nodes=up("n1"))
    clear = (Annotation("site", NOW, "clears", "gpu.xid79@n1"),)
    site.take(raised("gpu.xid79", nodes=("n1",)))
    assert site.take(raised("gpu.xid79", "over", notes=clear, nodes=("n1",)), now=NOW + 5) == []
    assert site.chain.ended["over"].state is ExceptionState.HANDLED
    assert site.chain.ended["x"].repeats == 0


def test_a_warning_takes_no_node_out_of_service() -> None:
    site = Site(nodes=up("n1"))
    warning = raised("node.memory", nodes=("n1",))
    assert site.take(ExceptionRaised(replace(warning.record, severity=4))) == []
    assert site.chain.ended["x"].state is ExceptionState.HANDLED


GRANTS = site_playbook(
    '[failures."app.walltime"]\nseats = { scheduler = "grant-time" }\nfall_back = "leave"\n'
    'budget = { limit = 1, window_s = 86400, per = "job" }\n',
    "site.toml",
)


def test_time_is_granted_where_the_site_says_so_and_as_often_as_it_says() -> None:
    site = Site(playbook=GRANTS)
    site.run("1", "n1", walltime_s=7200.0)
    assert site.take(raised("app.walltime", job_id="1")) == [Extend(AttemptId("c", "1", 1), 9000.0)]
    assert site.chain.ended["x"].owning.forbids == ("requeue",)  # it has what it needs: it is not put back, too
    site.jobs["1"] = replace(site.jobs["1"], walltime_s=9000.0)
    assert site.take(raised("app.walltime", "again", job_id="1"), now=NOW + 5000) == []


def test_time_is_granted_to_the_start_that_asks_for_it_and_to_no_newer_one() -> None:
    site = Site()
    site.run("1", "n1", walltime_s=7200.0)
    site.attempts.append(replace(site.attempts[0], id=AttemptId("c", "1", 2)))
    asks = replace(raised("app.walltime", job_id="1").record, incarnation=1)
    assert grant_time(asks, site, NOW).actions == (Extend(AttemptId("c", "1", 1), 9000.0),)


def test_a_budget_bounds_what_is_done_at_the_deadline_too() -> None:
    """Nobody answers: the default handler acts, once and no second time in the budget's window."""
    book = site_playbook(
        '[failures."app.walltime"]\nfall_back = "grant-time"\nbudget = { limit = 1, window_s = 86400, per = "job" }\n',
        "site.toml",
    )
    site = Site(playbook=book)
    site.run("1", "n1", walltime_s=7200.0)
    assert site.take(raised("app.walltime", job_id="1")) == [Extend(AttemptId("c", "1", 1), 9000.0)]
    site.jobs["1"] = replace(site.jobs["1"], walltime_s=9000.0)
    assert site.take(raised("app.walltime", "again", job_id="1"), now=NOW + 5000) == []
    assert site.chain.ended["again"].state is ExceptionState.ESCALATED


def test_else_no_time_is_granted() -> None:
    site = Site()
    site.run("1", "n1", walltime_s=7200.0)
    assert site.take(raised("app.walltime", job_id="1")) == []
    assert site.chain.ended["x"].state is ExceptionState.HANDLED


@pytest.mark.parametrize(
    ("resource", "job", "needs"),
    [
        (Resource("x"), {}, True),  # of what nothing is said all are known to need it
        (Resource("x", licence="ansys"), {"licences": ("ansys", "abaqus")}, True),
        (Resource("x", licence="ansys", partitions=("gpu",)), {"licences": ("abaqus",), "partition": "gpu"}, False),
        (Resource("x", partitions=("gpu", "fat")), {"partition": "gpu"}, True),
        (Resource("x", partitions=("gpu", "fat")), {"partition": "cpu"}, False),
        (Resource("x", partitions=("gpu",)), {"partition": "cpu,gpu"}, True),  # it may start in either
        (Resource("x", partitions=("gpu",)), {"partition": "gpu2"}, False),
        (Resource("x", partitions=("gpu",)), {}, False),
    ],
)
def test_which_jobs_need_what_is_shared(resource: Resource, job: Mapping[str, Any], needs: bool) -> None:
    assert resource.is_needed_by(Job("c", "1", "train", "ada", JobState.PENDING, 0.0, **job)) is needs
