"""Perdure's own handlers, on sites of a few lines: who acts, on whose word, and within which budget."""

import json
from dataclasses import dataclass, field, replace

from perdure.coordination.bench import PlaybookBench
from perdure.coordination.chain import Chain, Raised, Settled, Ticked, advance
from perdure.coordination.playbook import own_playbook, site_playbook
from perdure.coordination.record import (
    Annotation,
    Component,
    ExceptionRecord,
    ExceptionState,
    Outcome,
    Scope,
    Subject,
)
from perdure.coordination.site import Resource
from perdure.model.actions import Drain, Extend, Hold, Release
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState

NOW = 1000.0


@dataclass
class Site:
    jobs: dict = field(default_factory=dict)
    nodes: dict = field(default_factory=dict)
    attempts: list = field(default_factory=list)
    resources: dict = field(default_factory=dict)
    failures: dict = field(default_factory=dict)
    chain: Chain = field(default_factory=Chain)
    playbook: object = field(default_factory=own_playbook)

    def job(self, job_id):
        return self.jobs.get(job_id)

    def latest(self, job_id):
        return max((a.id.incarnation for a in self.attempts if a.id.job_id == job_id), default=0)

    def node(self, name):
        return self.nodes.get(name)

    def waiting(self):
        return [job for job in self.jobs.values() if job.state is JobState.PENDING]

    def running(self):
        return self.attempts

    def resource(self, name):
        return self.resources.get(name) or Resource(name)

    def recovery(self, record):
        return None

    def failure_of(self, attempt):
        return self.failures.get(attempt.job_id, "")

    def holding(self, resource):
        return [(r.id, r.holds) for r in self.chain.ended.values() if r.subject.resource == resource and r.holds]

    def take(self, *inputs, now=NOW):
        self.chain, effects = advance(self.chain, inputs, PlaybookBench(self.playbook, self, now), now)
        return [action for effect in effects for action in getattr(effect, "actions", ())]

    def run(self, job_id, *nodes, **more):
        self.jobs[job_id] = Job("c", job_id, job_id, "ada", JobState.RUNNING, 0.0, **more)
        self.attempts.append(Attempt(AttemptId("c", job_id, 1), AttemptState.RUNNING, nodes, 0.0, user="ada"))

    def wait(self, job_id, **more):
        self.jobs[job_id] = Job("c", job_id, job_id, "ada", JobState.PENDING, 0.0, **more)


def raised(kind, name="x", by="operator:root", scope=Scope.LOCAL, notes=(), **subject):
    return Raised(
        ExceptionRecord(name, kind, 0, scope, Subject("c", **subject), NOW, detected_by=by, annotations=notes)
    )


def up(*names):
    return {name: Node(name, NodeState.UP) for name in names}


def test_a_broken_gpu_takes_its_node_out_of_service():
    site = Site(nodes=up("n1", "n2"))
    assert site.take(raised("gpu.xid79", nodes=("n1",))) == [Drain("n1", "perdure: gpu.xid79", "x")]
    assert site.chain.ended["x"].owner is Component.RESOURCE_MANAGER


def test_a_node_that_is_down_already_needs_nothing():
    site = Site(nodes={"n1": Node("n1", NodeState.DOWN)})
    assert site.take(raised("node.down", nodes=("n1",))) == []
    assert site.chain.ended["x"].state is ExceptionState.HANDLED


def test_one_users_word_drains_nothing_and_two_users_do():
    site = Site(nodes=up("n1"))
    assert site.take(raised("node.disk", by="viewer:ada", nodes=("n1",))) == []
    assert site.take(raised("node.disk", "y", by="viewer:ada", nodes=("n1",)), now=NOW + 1) == []
    assert site.take(raised("node.disk", "z", by="viewer:bob", nodes=("n1",)), now=NOW + 2) == []
    (action,) = site.take(Ticked(), now=NOW + 6)
    assert action == Drain("n1", "perdure: node.disk", "x")


def test_the_budget_of_a_node_is_kept():
    site = Site(nodes=up("n1"))
    later = [NOW + 3600 * i for i in range(5)]
    drains = [site.take(raised("gpu.xid79", f"x{i}", nodes=("n1",)), now=now) for i, now in enumerate(later)]
    assert [len(acts) for acts in drains] == [1, 1, 1, 0, 0]
    assert site.chain.ended["x3"].state is ExceptionState.ESCALATED
    assert "3 of 3" in site.chain.ended["x3"].verdicts[0].note


def test_what_needs_a_lost_resource_is_held_and_what_runs_is_told_once():
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


def test_what_was_held_is_released_once_it_works_again():
    site = Site()
    site.wait("1")
    site.take(raised("network.down", scope=Scope.GLOBAL, resource="ib0"))
    up_again = raised("network.restored", "up", scope=Scope.GLOBAL, resource="ib0")
    assert site.take(up_again, now=NOW + 100) == [Release(AttemptId("c", "1", 0), "x")]
    assert site.chain.ended["x"].outcome is Outcome.RECOVERED
    again = raised("network.restored", "up2", scope=Scope.GLOBAL, resource="ib0")
    assert site.take(again, now=NOW + 200) == []


def usage(limit, used, **by):
    return (Annotation("pfs", NOW, "usage", json.dumps({"limit": limit, "used": used, "by": by})),)


def test_the_fewest_bytes_that_mend_a_quota_are_moved_each_once():
    site = Site()
    for job_id in "1234":
        site.run(job_id, f"n{job_id}")
    notes = usage(100, 175, **{"1": 70, "2": 40, "3": 35, "4": 30})
    site.take(raised("storage.quota.over", scope=Scope.GLOBAL, notes=notes, resource="home"))
    moves = [r for r in (*site.chain.ended.values(), *site.chain.open.values()) if r.type == "job.move"]
    assert sorted(r.subject.job_id for r in moves) == ["2", "3"]  # 75 of 75: neither 70 + 30 nor 40 + 35 + 30
    assert site.chain.ended["x"].verdicts[0].forbids == ("move", "migrate")


def test_a_quota_that_cannot_be_mended_is_a_persons():
    site = Site()
    notes = usage(100, 500, **{"1": 70})
    site.take(raised("storage.quota.over", scope=Scope.GLOBAL, notes=notes, resource="home"))
    assert site.chain.ended["x"].state is ExceptionState.ESCALATED


def test_a_permanent_launcher_failure_is_never_tried_again():
    site = Site()
    site.run("1", "n1")
    assert site.take(raised("launcher.permanent", job_id="1")) == []
    ended = site.chain.ended["x"]
    assert (ended.owner, ended.outcome) == (Component.WORKFLOW, Outcome.STOPPED)
    assert "requeue" in ended.verdicts[-1].forbids


def test_a_dead_rank_is_recovered_with_the_end_of_its_attempt():
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


def test_a_job_that_is_over_takes_its_exceptions_with_it():
    site = Site()
    site.run("1", "n1")
    site.take(raised("app.nan", job_id="1"))
    site.jobs["1"] = Job("c", "1", "1", "ada", JobState.COMPLETED, 0.0)
    site.take(Ticked(), now=NOW + 6)
    assert (site.chain.ended["x"].state, site.chain.ended["x"].outcome) == (
        ExceptionState.EXPIRED, Outcome.WITHDRAWN,
    )  # fmt: skip


def test_an_open_exception_that_is_settled_ends():
    site = Site()
    site.run("1", "n1")
    site.take(raised("app.nan", job_id="1"))
    site.take(Settled("x", Outcome.RECOVERED))
    assert site.chain.ended["x"].state is ExceptionState.EXPIRED


def test_a_sites_own_plan_is_followed():
    book = site_playbook('[failures."storage.tape"]\nscope = "global"\nseats = { scheduler = "leave" }\n', "site.toml")
    site = Site(playbook=book)
    site.wait("1")
    assert site.take(raised("storage.tape", scope=Scope.GLOBAL, resource="tape")) == []
    assert site.chain.ended["x"].state is ExceptionState.HANDLED


def test_what_says_that_a_fault_is_over_is_no_fault_and_folds_into_none():
    site = Site(nodes=up("n1"))
    clear = (Annotation("site", NOW, "clears", "gpu.xid79@n1"),)
    site.take(raised("gpu.xid79", nodes=("n1",)))
    assert site.take(raised("gpu.xid79", "over", notes=clear, nodes=("n1",)), now=NOW + 5) == []
    assert site.chain.ended["over"].state is ExceptionState.HANDLED
    assert site.chain.ended["x"].repeats == 0


def test_a_warning_takes_no_node_out_of_service():
    site = Site(nodes=up("n1"))
    warning = raised("node.memory", nodes=("n1",))
    assert site.take(Raised(replace(warning.record, severity=4))) == []
    assert site.chain.ended["x"].state is ExceptionState.HANDLED


GRANTS = site_playbook(
    '[failures."app.walltime"]\nseats = { scheduler = "grant-time" }\nfall_back = "leave"\n'
    'budget = { limit = 1, window_s = 86400, per = "job" }\n',
    "site.toml",
)


def test_time_is_granted_where_the_site_says_so_and_as_often_as_it_says():
    site = Site(playbook=GRANTS)
    site.run("1", "n1", walltime_s=7200.0)
    assert site.take(raised("app.walltime", job_id="1")) == [Extend(AttemptId("c", "1", 1), 9000.0)]
    site.jobs["1"] = replace(site.jobs["1"], walltime_s=9000.0)
    assert site.take(raised("app.walltime", "again", job_id="1"), now=NOW + 5000) == []


def test_else_no_time_is_granted():
    site = Site()
    site.run("1", "n1", walltime_s=7200.0)
    assert site.take(raised("app.walltime", job_id="1")) == []
    assert site.chain.ended["x"].state is ExceptionState.HANDLED
