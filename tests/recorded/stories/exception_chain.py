"""The chain of owners with the playbook that comes with Perdure: faults of a small site, handlers, people and time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest

from perdure.coordination import chain as coordination_chain
from perdure.coordination.chain import advance, restored
from perdure.coordination.handler_set import PlaybookHandlers
from perdure.coordination.handlers.shared import newly_needed
from perdure.coordination.messages import (
    Annotated,
    Answered,
    Changed,
    Closed,
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
from perdure.coordination.playbook import site_playbook
from perdure.coordination.record import (
    Annotation,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    Scope,
    Subject,
)
from perdure.coordination.ruling import Registration, Ruling
from perdure.coordination.site import Resource
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from tests.coordination.test_handlers import Site
from tests.copying import replace
from tests.recorded.drawn import NOW, in_words

CASES, STEPS = 80, 35
OF_JOBS = ("app.walltime", "app.oom", "process.signal", "process.nccl", "launcher.transient", "app.shape", "own.thing")
OF_NODES = ("gpu.xid79", "node.down", "node.unreachable", "network.degraded")
SHARED = ("storage.down", "storage.degraded", "storage.quota.over", "storage.restored", "licence.short", "power.cap",
          "storage.full", "licence.restored")  # fmt: skip
SOURCES = ("perdure", "perdure.blame", "operator:root", "viewer:ada", "ada", "ada", "bob", "nvsentinel")
PLAYBOOK = """
[failures."app.walltime"]
levels = { scheduler = "grant-time" }
budget = { limit = 1, window_s = 3600, per = "job" }
[failures."storage.quota.over"]
scope = "global"
levels = { scheduler = "move-least" }
[failures."storage.degraded"]
scope = "global"
levels = { scheduler = "throttle" }
[failures."gpu.xid79"]
levels = { resource_manager = "drain" }
lasts_s = 50
"""
STATES = (JobState.PENDING, JobState.PENDING, JobState.RUNNING, JobState.HELD, JobState.FAILED, JobState.COMPLETED)
NODES = ("n1", "n2", "n3")


def story(_case: int, rng: Random) -> Iterator[str]:
    site, now, raised = _site(rng), NOW, list[ExceptionRecord]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordination_chain, "MAX_OPEN", 7)
        patch.setattr(coordination_chain, "MAX_OF_GUESTS", 4)
        patch.setattr(coordination_chain, "MAX_OF_ONE_GUEST", 2)
        patch.setattr(coordination_chain, "MAX_ENDED", 8)
        patch.setattr(coordination_chain, "MAX_SPENT", 3)
        patch.setattr(coordination_chain, "MAX_BUDGETS", 5)
        patch.setattr(coordination_chain, "MAX_HANDLERS", 3)
        patch.setattr(coordination_chain, "MAX_HANDLERS_OF_ONE_GUEST", 1)
        lines = []
        for _ in range(STEPS):
            now += rng.choice((0.0, 0.0, 1.0, 30.0, 60.0, 300.0, 600.0, 3600.0))
            _moves(site, rng)
            lines += _step(site, raised, now, rng)
    return iter(lines)


def _step(site: Site, raised: list[ExceptionRecord], now: float, rng: Random) -> Iterator[str]:
    inputs = [_input(site, raised, now, rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    inputs += [ExceptionRaised(record, own=True) for record in newly_needed(site, now)]
    yield f"{now - NOW:g} {in_words(inputs)}"
    site.chain, effects = advance(site.chain, inputs, PlaybookHandlers(site.playbook, site, now), now)
    yield from (f" {in_words(effect)}" for effect in effects)
    raised += [effect.record for effect in effects if isinstance(effect, Changed)]
    turns = sorted(site.chain.turns.items())
    yield f" {sorted(site.chain.open)} {sorted(site.chain.ended)} {in_words(turns)}"
    yield f" {in_words(sorted(site.chain.spent.items()))}"
    if rng.random() < 0.05:
        records = [*site.chain.ended.values(), *site.chain.open.values()]
        site.chain = restored(records, site.chain.handlers.values(), site.chain.spent)


def _site(rng: Random) -> Site:
    site = Site(playbook=site_playbook(PLAYBOOK, "site.toml")) if rng.random() < 0.5 else Site()
    for name in NODES:
        site.nodes[name] = Node(name, rng.choice((NodeState.UP, NodeState.UP, NodeState.DOWN)), gpus=4)
    for number in range(1, 5):
        job = Job("c", str(number), "train", rng.choice(("ada", "bob")), rng.choice(STATES), NOW - 900.0)
        licences, work_dir = rng.choice(((), ("ansys",))), rng.choice(("/scratch/ada", "/home/ada"))
        site.jobs[job.job_id] = replace(
            job, licences=licences, work_dir=work_dir, walltime_s=rng.choice((None, 7200.0))
        )
    site.resources = {"pfs": Resource("pfs", directory="/scratch"), "ansys": Resource("ansys", licence="ansys")}
    return site


def _moves(site: Site, rng: Random) -> None:
    """The site goes on by itself."""
    job = site.jobs[str(rng.randrange(1, 5))]
    if rng.random() < 0.3:
        job = replace(job, state=rng.choice(STATES), restarts=job.restarts + 1)
        site.jobs[job.job_id] = job
        site.attempts = [each for each in site.attempts if each.id.job_id != job.job_id]
        if job.state is JobState.RUNNING:
            attempt_id = AttemptId("c", job.job_id, job.restarts)
            site.attempts.append(Attempt(attempt_id, AttemptState.RUNNING, (rng.choice(NODES),), NOW, user=job.user))
    if rng.random() < 0.1:
        name = rng.choice(NODES)
        site.nodes[name] = replace(site.nodes[name], state=rng.choice(list(NodeState)), reason="why")
    if rng.random() < 0.1:
        site.failures[job.job_id] = rng.choice(("", "attempt-1"))


def _input(site: Site, raised: list[ExceptionRecord], now: float, rng: Random) -> Input:
    known = rng.choice(raised[-12:]).id if raised else "none"
    said = Annotation(rng.choice(SOURCES), now, rng.choice(("note", "seen", "usage")), _usage(rng))
    handler = rng.choice(("h1", "h2", "ada/h3", "ada/h4"))
    match rng.choice("rrrrrrrrtttaaanhhlfbsscg"):
        case "r":
            guest = rng.random() < 0.4
            return ExceptionRaised(_record(site, now, rng), own=not guest and rng.random() < 0.1, guest=guest)
        case "t":
            return Ticked()
        case "a":
            kind = rng.choice(list(AnswerKind))
            until_s = now + 60.0 if kind is AnswerKind.DEFERRED else None
            forbids = rng.choice(((), ("move",)))
            asked = [(name, turn.handler) for name, turn in sorted(site.chain.turns.items()) if turn.handler]
            known, handler = rng.choice(asked) if asked and rng.random() < 0.8 else (known, handler)
            return Answered(known, handler, Ruling(kind, "it says so", until_s=until_s, forbids=forbids))
        case "n":
            return Annotated(known, said)
        case "h":
            owner = "ada" if "/" in handler else ""
            types = rng.choice((("",), ("gpu", "node"), ("storage",), ("app",)))
            component = rng.choice(list(Component))
            until_s = now + rng.choice((60.0, 9e4))
            return HandlerEnlisted(
                Registration(handler, component, types, "ada", until_s, owner, rng.choice((20.0, 300.0)))
            )
        case "l":
            return Left(handler)
        case "s":
            return Settled(known, rng.choice(list(ExceptionOutcome)), "by itself")
        case "c":
            return Closed(known, said)
        case "g":
            return LetGo(AttemptId("c", str(rng.randrange(1, 5)), rng.randrange(3)), rng.choice(("", known)))
    keys = [key for record in raised[-12:] for answer in record.verdicts for key in answer.action_keys]
    key = rng.choice(keys) if keys else "drain:n1@none"
    return Failed(key, "refused") if rng.random() < 0.5 else ReadBack(key, "n1 is drained")


def _usage(rng: Random) -> str:
    return json.dumps({"limit": 100, "used": rng.choice((90, 160)), "by": {"1": 40, "2": 35, "3": 70}})


def _record(site: Site, now: float, rng: Random) -> ExceptionRecord:
    number, job_id = rng.randrange(30), str(rng.randrange(1, 5))
    kind, node = rng.choice("jnnss"), rng.choice(NODES)
    time_s, severity = now - rng.choice((0.0, 0.0, 60.0)), rng.randrange(6)
    base = ExceptionRecord(f"x-{number}", "", severity, Scope.LOCAL, Subject("c"), time_s)
    base = replace(base, detected_by=rng.choice(SOURCES), note=rng.choice(("", "because")))
    base = replace(base, deadline_s=now + rng.choice((10.0, 900.0)) if rng.random() < 0.2 else None)
    if kind == "j":
        attempt = rng.choice((0, site.latest(job_id), site.latest(job_id) - 1))
        subject = Subject("c", job_id, (node,))
        return replace(base, type=rng.choice(OF_JOBS), subject=subject, incarnation=max(0, attempt))
    if kind == "n":
        return replace(base, type=rng.choice(OF_NODES), subject=Subject("c", rng.choice(("", job_id)), (node,)))
    resource = rng.choice(("pfs", "pfs", "ansys", ""))
    annotations = (Annotation("scheduler", now, "usage", _usage(rng)),) if rng.random() < 0.5 else ()
    subject = Subject("c", resource=resource)
    return replace(base, type=rng.choice(SHARED), scope=Scope.GLOBAL, subject=subject, annotations=annotations)
