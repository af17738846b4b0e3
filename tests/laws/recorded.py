"""What the controller is asked in the deterministic simulation: states as rich as its seeds make them."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest

from perdure.coordination.site import Resource
from perdure.service.core import controller
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Effect, Event
from perdure.service.core.settings import ControllerSettings
from perdure.service.exceptions.permissions import handler_id
from tests.copying import replace
from tests.dst import cluster, programs, service, simulation
from tests.dst.laws import Auditor
from tests.dst.programs import Handler
from tests.dst.service import Limits
from tests.laws.beside import MARK

START_S = 1_600_000_000.0  # all instants of a seed are multiples of one power of two, so shifting them is exact
FIRST_JOB = 4_711_001  # a number that is nothing else
PARTITION = "p4"
USES = {service.SCRATCH: "scratch", service.HOME: "home"}  # what jobs ask for who need a resource
RULES = replace(service.RULES, per_user_per_hour=3, per_node_per_hour=4, user_share=1.0)
LIMITS = (Limits("few retries of a user, or on a node", service.LOOSE, RULES), *service.LIMITS[:1])


class Asked(NamedTuple):
    """One step of the controller."""

    state: ControllerState
    event: Event
    settings: ControllerSettings
    after: ControllerState
    effects: list[Effect]


class _Manager(cluster.Manager):
    """Its nodes are in one partition, and its jobs ask for it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._ids = itertools.count(FIRST_JOB)
        self._nodes = {name: replace(node, partitions=(PARTITION,)) for name, node in self._nodes.items()}

    def submit(self, script: Any) -> str:
        job_id = super().submit(script)
        submitted = self._jobs[job_id]
        submitted.job = replace(submitted.job, partition=PARTITION)
        return job_id


def recorded(seed: int, *, is_apart: bool = False) -> list[Asked]:
    """The steps of one seed, in their order. `is_apart`: nothing in it is about all users and jobs that there are."""
    found: list[Asked] = []

    def step(state: ControllerState, event: Event, settings: ControllerSettings) -> Any:
        after, effects = controller.step(state, event, settings)
        found.append(Asked(state, event, settings, after, effects))
        return after, effects

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("perdure.service.workers.engine.step", step)
        patched.setattr("perdure.backends.simulated.cluster.START_S", START_S)
        patched.setattr(simulation, "Manager", _Manager)
        unmarked = tuple(replace(each, mark="") for each in service.LIMITS)  # lines in records tell dates
        patched.setattr(simulation, "LIMITS", unmarked)
        for law in ("check_all", "watch", "check_start", "check_handlers", "check_end"):  # here others are tested
            patched.setattr(Auditor, law, lambda *_given, **_named: None)
        if is_apart:
            _set_apart(patched)
        told = simulation.Simulation().run(seed)
    assert not told.broken, told.broken
    return found


def _set_apart(patched: pytest.MonkeyPatch) -> None:
    """Resources are for jobs that ask for them, programs answer for their users, and nobody sets the clock."""
    licences = {"ada": ("scratch",), "bob": ("scratch", "home")}
    patched.setattr(cluster, "LICENCES", licences)
    patched.setattr("tests.dst.laws.LICENCES", licences)
    uses = [(f"{name}{of}", f"{licence}{of}") for name, licence in USES.items() for of in ("", MARK)]
    both = {name: Resource(name, licence=licence) for name, licence in uses}
    patched.setattr(service, "PLAYBOOK", replace(service.PLAYBOOK, resources=both))
    patched.setattr(simulation, "LIMITS", LIMITS)
    patched.setattr(simulation._Run, "jump", lambda _run: "")
    by_anybody = programs.handlers
    patched.setattr(programs, "handlers", lambda rng: [_of_a_user(handler) for handler in by_anybody(rng)])


def _of_a_user(handler: Handler) -> Handler:
    if handler.identity is not programs.ROOT:
        return handler
    name, identity = f"{handler.name}-of-a-user", programs.USERS[0]
    return replace(handler, name=handler_id(name, identity), identity=identity, component="job")
