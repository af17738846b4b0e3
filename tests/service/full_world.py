"""A site where something of everything has happened, and all that can be read of it, found by the routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute

from perdure.blame.builders.topology import NO_SWITCHES
from perdure.model.job_comment import ChainLink
from perdure.model.jobs import AttemptState
from perdure.service.blame.settings import BlameSettings
from perdure.service.blame.suspect_store import SuspectStore
from perdure.service.blame.watch import Watch
from perdure.service.core.messages import ChainInput
from perdure.service.web.app import API, API_ROUTERS
from perdure.service.web.pages import site as pages
from tests.copying import replace
from tests.service.notices.three_targets import tell
from tests.service.web_world import HOUR, RESET, Site, TestClient, fill, routes_of, site
from tests.service.whatif_world import answered

SICK = "gpu05"
USERS = ("mira", "jonas", "aiko", "tunde")
NOT_OF_THE_JOURNAL = {f"{API}/events/stream", "/static/{name:path}", "/login"}
_OF_ONE_VISIT = re.compile(r'(name="csrf" (?:content|value)|nonce)="[^"]*"|/static/[^"]*')


def full_site(path: Path, **more: Any) -> Site:
    """Failures, retries, orders, suspects, corrections, exceptions, handlers, notices, comparisons of several users."""
    path.mkdir(exist_ok=True)
    place = site(path, **more)
    world = place.world
    fill(world)
    _failures_on(SICK, place)
    for job, user in (("201", "mira"), ("202", "jonas")):
        world.submit(job, "kept", user, link=ChainLink(f"kept-{user}", 1, why="its forecast is short"))
    operator, mira = place.client(place.operator), place.client(place.mira)
    for client, about in (
        (operator, {"type": "app.nan", "id": f"odd-{world.cluster}", "subject": {}}),
        (operator, {"type": "storage.down", "id": f"scratch-{world.cluster}", "subject": {"resource": "scratch"}}),
        (
            mira,
            {
                "type": "process.exit",
                "id": f"mine-{world.cluster}",
                "severity": 1,
                "subject": {"job": "104"},
                "note": "rank 3",
            },
        ),
        (
            mira,
            {
                "type": "process.exit",
                "id": f"again-{world.cluster}",
                "severity": 1,
                "subject": {"job": "104"},
                "note": "rank 3",
            },
        ),
    ):
        _well(client.post(f"{API}/exceptions", json=about))
    _well(operator.post(f"{API}/annotations/scratch-{world.cluster}", json={"key": "note", "value": "two disks"}))
    for client, name in ((mira, "trainer"), (operator, "site")):
        handler = {"component": "job", "types": ["app"], "lease_s": 3600}
        _well(client.put(f"{API}/handlers/{name}", json=handler))
    _well(operator.post(f"{API}/jobs/101/attempts/1/correction", json={"label": "transient"}))
    _well(mira.post(f"{API}/jobs/102/attempts/1/correction", json={"label": "deterministic"}))
    _well(operator.post(f"{API}/learning/aside", json={"kind": "day", "value": "2019-12-31"}))
    drain = {"kind": "drain", "node": "gpu06", "reason": "fan"}
    _well(operator.post(f"{API}/actions", json=drain, headers={"Idempotency-Key": "tonight"}))
    tell(world, path)
    world.carry_out()
    for owner in ("mira", "jonas", "mira"):
        answered(place, owner)
    world.learner.turn()  # a service takes it every now and then, and when it starts
    return place


def _failures_on(sick: str, place: Site) -> None:
    """Some minutes of everybody's jobs on all nodes; those on one fail, and it is named."""
    world = place.world
    number = 1000
    for _, user, node in product(range(3), USERS, world.nodes):
        world.submit(str(number), f"train-{user}", user, look=False)
        job = world.jobs[str(number)]
        world.jobs[str(number)] = replace(job, partition=("gpu", "debug")[number % 2])
        world.start(str(number), node)
        good = node != sick
        world.end(str(number), b"done\n" if good else RESET, AttemptState.COMPLETED if good else AttemptState.FAILED)
        world.pass_time(5)
        number += 1
    store = SuspectStore(world.journal.store, world.cluster, NO_SWITCHES, ())
    watch = Watch(
        store, BlameSettings(), lambda: world.now, lambda inputs: world.take(ChainInput(world.now, tuple(inputs)))
    )
    for _ in range(3):
        watch.turn()
        world.pass_time(HOUR / 12)


def _well(answer: Any) -> None:
    assert answer.status_code < 300, answer.text


def get_routes() -> Iterator[tuple[str, APIRoute]]:
    """The path of each thing that can be read of a journal, and its route."""
    for prefix, routers in ((API, API_ROUTERS), ("", pages.ROUTERS)):
        for router in routers:
            for method, route in routes_of(router):
                if method == "GET" and prefix + route.path not in NOT_OF_THE_JOURNAL:
                    yield prefix + route.path, route


def addresses(place: Site) -> list[str]:
    """All that can be read, one address for each thing that there is."""
    operator = place.client(place.operator)

    def listed(name: str, key: str) -> list[str]:
        return [item[key] for item in operator.get(f"{API}/{name}?limit=200").json()["items"]]

    values = {
        "job_id": listed("jobs", "job_id")[-8:],
        "exception_id": listed("exceptions", "id")[:12],
        "comparison_id": [each.id for each in place.queue.store.all()],
        "name": listed("nodes", "name"),
        "user": sorted({*listed("chains", "user")}),
        "chain": listed("chains", "chain"),
    }
    pictures = {"name": ["waits"], "theme": ["dark"]}
    found = []
    for path, _ in get_routes():
        names = re.findall(r"{(\w+)(?::path)?}", path)
        known = {**values, **pictures} if "theme" in names else values
        for given in product(*(known[name] for name in names)):
            parts = iter(given)
            found.append(re.sub(r"{[^}]*}", lambda _: next(parts), path))  # noqa: B023
    return found


def readers(place: Site) -> dict[str, TestClient]:
    """By name, those who look: with a token and at pages alike."""
    found = {}
    for name, token in (("operator", place.operator), ("mira", place.mira)):
        found[name] = place.client(token)
        found[name].post("/login", data={"token": token})
    return found


def everything(place: Site) -> dict[tuple[str, str], str]:
    """What each reader gets at each address, without what is of this visit alone."""
    return {(name, path): said(client, path) for name, client in readers(place).items() for path in addresses(place)}


def said(client: TestClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code < 500, f"{path}: {answer.text}"
    return f"{answer.status_code} {_OF_ONE_VISIT.sub('', answer.text)}"
