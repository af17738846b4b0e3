"""States in which a service may be found, and who reads what it shows there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from perdure.coordination.messages import Ticked
from perdure.live_policy.settings import PolicySettings
from perdure.model.jobs import JobState
from perdure.service.access.auth import Identity, Role, TokenBook
from perdure.service.access.peers import PEER, Peer
from perdure.service.learning.learner import Learner
from perdure.service.learning.training_store import TrainingStore
from perdure.service.live_policy.policy_store import PolicyStore
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.web import roles
from perdure.service.web.app import create_app
from perdure.service.web.state import WebSettings
from perdure.service.workers.commands import ServiceCommands
from perdure.service.workers.kill_switch import KillSwitch
from perdure.triage.evidence.rules import own_rules
from perdure.waits.queue import QueueLook
from tests.copying import replace
from tests.dst.service import catch_up
from tests.dst.simulation import Simulation
from tests.live_policy.queues import look, running, waiting
from tests.service import whatif_world
from tests.service.full_world import full_site
from tests.service.store import drawn_rows
from tests.service.waits_world import watched
from tests.service.web.test_chains import chain
from tests.service.web_world import BASE, Desk, Site, TestClient, World, site

LAS = PolicySettings("las-2d", first_limit_s=100.0, second_limit_s=1000.0, least_run_s=60.0)
READERS = ("operator", "owner", "stranger", "socket")
SEEDS = (3, 57)
BY_SOCKET = 4_000_000


@dataclass(frozen=True)
class ServiceState:
    """A web application over what has happened, and how each reader reaches it."""

    clock: Callable[[], float]
    readers: Mapping[str, TestClient]
    user: str  # the owner of some jobs, who asks as "owner" with a token, and as "socket" without
    pass_time: Callable[[], None]  # a while, in which the service does what is due


class ToldQueue:
    """Tells of one job that was served, one that is young, and two that wait in another order than they came."""

    def queue(self) -> QueueLook:
        ran = (running("1", 500, ("n1",)), running("2", 30, ("n2",)))
        return look(*ran, waiting("3", 9, gpus=4), waiting("4", 20, gpus=2), waiting("5", 7, gpus=0))

    def set_nice(self, nice: Mapping[str, int]) -> dict[str, str]:
        return dict.fromkeys(nice, "")


def _nothing() -> None:
    """Nobody waits for these rows to change."""


def _state(
    app: FastAPI, tokens: TokenBook, clock: Callable[[], float], user: str, pass_time: Callable[[], None] = _nothing
) -> ServiceState:
    minted = {
        "operator": tokens.mint("root", Role.OPERATOR),
        "owner": tokens.mint(user, Role.VIEWER),
        "stranger": tokens.mint("zoe", Role.VIEWER),
    }

    async def by_socket(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": {**scope.get("state", {}), PEER: Peer(uid=BY_SOCKET)}}, receive, send)

    readers = {
        name: TestClient(app, base_url=BASE, headers={"Authorization": f"Bearer {token}"}, follow_redirects=False)
        for name, token in minted.items()
    }
    for name, token in minted.items():
        readers[name].post("/login", data={"token": token})
    readers["socket"] = TestClient(by_socket, base_url=BASE, follow_redirects=False)
    return ServiceState(clock, readers, user, pass_time)


def _of_site(place: Site, user: str) -> ServiceState:
    world = place.world

    def pass_time() -> None:
        world.pass_time(45)
        world.tell((Ticked(),))
        world.carry_out()

    return _state(place.app, place.tokens, lambda: world.now, user, pass_time)


def full(folder: Path) -> ServiceState:
    """Something of everything, with starts forecast and a policy in force."""
    place = full_site(folder)
    world = place.world
    watched(place, folder)
    store = PolicyStore(world.journal.store, world.cluster)
    worker = PolicyWorker(
        ToldQueue(), store, LAS, PolicySwitch(folder), lambda: True, list, lambda *_: None, lambda: world.now
    )
    worker.turn()
    worker.took_s = 0.25
    place.app.state.web = replace(place.app.state.web, policy=worker)
    return _of_site(place, "mira")


def empty(folder: Path) -> ServiceState:
    """Nothing has happened yet."""
    place = site(folder)
    return _of_site(place, "mira")


def in_need(folder: Path) -> ServiceState:
    """A shadow service that is stopped and not ready, whose cluster does not answer; budgets are spent. And a chain."""
    place = site(folder)
    world, desk = place.world, place.commands
    chain(world)
    for number in range(70):
        job_id = str(500 + number)
        world.submit(job_id, f"<b>{number}</b>", ("mira", "=ada")[number % 2], look=False)
        world.jobs[job_id] = replace(world.jobs[job_id], state=list(JobState)[number % len(JobState)])
        world.pass_time(3001)
    world.look()
    world.spend(20, "mira")
    world.unseen = {"nodes": "slurm_load_nodes: timed out", "manager": "squeue: cannot connect"}
    world.look()
    desk.armed, desk.stopped, desk.ready, desk.backend = False, True, False, "slurm"
    desk.unready = ("the resource manager does not answer",)
    return _of_site(place, "mira")


def of_rows(seed: int, folder: Path) -> ServiceState:
    """Random rows, among them what seldom goes together; nothing is learnt, forecast or simulated."""
    rows = drawn_rows.drawn(seed)
    del rows["terms"]  # theirs hold nothing
    engine = drawn_rows.written(rows)
    now_s = 4200.0
    world = World(folder, now_s, cluster=drawn_rows.HERE)
    learner = Learner(TrainingStore(world.journal.store, world.cluster), own_rules(), lambda: now_s)
    tokens, settings = TokenBook(folder, lambda: now_s), WebSettings(clock=lambda: now_s)
    return _state(create_app(engine, Desk(world), tokens, settings, learner=learner), tokens, lambda: now_s, "ada")


def of_seed(seed: int, folder: Path) -> ServiceState:
    """What a seed of the simulation leaves halfway, with the commands of the real service."""
    simulation = Simulation()
    run = simulation.left_by(seed)
    engine, clock = run.life.engine, run.life.engine.clock
    folder.mkdir(exist_ok=True)
    every_s = 3600.0  # it is not late on a machine that is busy
    commands = ServiceCommands(engine, "simulated", True, KillSwitch(folder), every_s)
    tokens = TokenBook(folder, clock)
    app = create_app(simulation.disk.reader, commands, tokens, WebSettings(clock=clock))

    def pass_time() -> None:
        run.manager.advance(20.0)
        catch_up(engine)

    return _state(app, tokens, clock, "ada", pass_time)


STATES: Mapping[str, Callable[[Path], ServiceState]] = {
    "full": full,
    "empty": empty,
    "in-need": in_need,
    "rows-1": partial(of_rows, 1),
    **{f"seed-{seed}": partial(of_seed, seed) for seed in SEEDS},
}


@contextmanager
def state_of(name: str, folder: Path) -> Iterator[ServiceState]:
    """A state by its name, made in an empty folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whatif_world, "_numbers", itertools.count())
        made = STATES[name](folder)
        known = Identity(made.user, Role.VIEWER, own_only=True)
        patch.setattr(roles, "identity_of", lambda uid: known if uid == BY_SOCKET else None)
        yield made
