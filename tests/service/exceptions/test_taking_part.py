"""Programs that take part, by `perdure.client`, over a real socket: raise, hear, be asked, answer."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

import perdure.client as client
from perdure.errors import ClusterBusy, ConfigError, InputError, NotFound, NotPermitted
from perdure.service.runtime.serving import unix_socket
from tests.service.web_world import Site, fill, site

PATIENCE_S = 60.0


@pytest.fixture(params=["tcp", "unix"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reachable]:
    with reachable(tmp_path, request.param) as place:
        yield place


@dataclass
class Reachable(Site):
    service: client.Service


@contextmanager
def reachable(path: Path, kind: str) -> Iterator[Reachable]:
    """A site with job 200, which runs now, served on a socket of this `kind`."""
    place = site(path, now=time.time() - 40_000)
    fill(place.world)
    place.world.submit("200", "resnet", "mira", 8)
    place.world.start("200", "gpu01")
    place.world.now = time.time()
    with serving(place, path / "s.sock", kind) as service:
        yield Reachable(**vars(place), service=service)


class serving:
    def __init__(self, place: Site, path: Path, kind: str) -> None:
        self.place, self.path, self.kind = place, path, kind

    def __enter__(self) -> client.Service:
        config = uvicorn.Config(self.place.app, log_level="error", access_log=False, timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.local = unix_socket(self.path, shared=False)
        sockets = [socket.create_server(("127.0.0.1", 0)), self.local.__enter__()]
        port = sockets[0].getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": sockets}, daemon=True)
        self.thread.start()
        unix = str(self.path) if self.kind == "unix" else ""
        return client.Service(f"http://127.0.0.1:{port}", self.place.mira, unix, 10.0)

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE_S)
        self.local.__exit__(None, None, None)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_raised_is_heard_and_the_asked_one_owns_it(place: Reachable) -> None:
    heard = []

    def listen() -> None:
        for event in client.subscribe(job="200", after=0, service=place.service):
            heard.append(event["payload"]["record"]["state"])
            if heard[-1] == "handled":
                return

    def serve() -> None:
        for asked in client.handle("trainer", component="job", types=["app"], service=place.service):
            asked.handled("rolled back to step 1200", forbids=["requeue"])
            return

    threads = [threading.Thread(target=target, daemon=True) for target in (listen, serve)]
    for thread in threads:
        thread.start()
    until(lambda: "mira+trainer" in place.world.state.chain.handlers)
    name = client.raise_exception("app.nan", job="200", note="loss is NaN", service=place.service, step=1200)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert heard == ["in_chain", "handled"]
    record = place.world.state.chain.find(name)
    assert (record.owner, dict(record.extra)) == ("job", {"step": "1200"})
    until(lambda: not place.world.state.chain.handlers)  # who leaves the loop is asked no more


@pytest.mark.parametrize("ahead_s", [-300.0, 300.0])
def test_a_clock_that_is_off_misses_no_question(
    place: Reachable, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """Handler and raiser on a machine five minutes off: asked, once, with the time that there is; a deferral holds."""
    monkeypatch.setattr(client, "time", SimpleNamespace(
        time=lambda: time.time() + ahead_s, monotonic=time.monotonic, sleep=time.sleep,
    ))  # fmt: skip
    asked_of = client.handle("trainer", component="job", types=["app"], answer_s=20.0, service=place.service)
    register = threading.Thread(target=lambda: heard.append(next(asked_of)), daemon=True)
    heard = []
    register.start()
    until(lambda: "mira+trainer" in place.world.state.chain.handlers)
    name = client.raise_exception("app.nan", job="200", service=place.service)
    register.join(PATIENCE_S)
    (asked,) = heard
    assert asked.record["id"] == name
    assert 0 < asked.until - (time.time() + ahead_s) <= 21
    asked.deferred(time.time() + ahead_s + 10, "looking")
    assert 0 < place.world.state.chain.turns[name].until_s - time.time() <= 11
    asked.handled("rolled back")
    assert place.world.state.chain.find(name).owner == "job"
    assert isinstance(asked_of, Generator)
    asked_of.close()


def test_what_waits_and_is_told_of_as_well_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come up between the registration and the answer to it; then it is in both."""

    def asked(name: str, until_s: float, handler: str = "mira+trainer") -> dict[Any, Any]:
        return {"payload": {"record": {"id": name}, "until_s": until_s, "handler": "trainer", "handler_id": handler}}

    told = [asked("a", 30.0), asked("b", 30.0, "other"), asked("c", 31.0), asked("a", 90.0)]
    monkeypatch.setattr(client, "subscribe", lambda **_: iter(told))
    enlisted = {"id": "mira+trainer", "after": 1, "asked": [{"record": {"id": "a"}, "until": 30.0}]}
    turns = [(record["id"], until_s) for record, until_s in client._turns(enlisted, client.Service("http://x"))]
    assert turns == [("a", 30.0), ("c", 31.0), ("a", 90.0)]


def test_the_clock_is_the_one_last_heard() -> None:
    clock = client.Clock(1000.0)
    assert clock.left_s(1010.0) == pytest.approx(10, abs=1)
    clock.hear(1020.0)
    assert clock.left_s(1010.0) == pytest.approx(-10, abs=1)
    assert clock.instant_s(5.0) == pytest.approx(1025.0, abs=1)


def test_a_stream_that_breaks_before_its_first_event_misses_none(
    place: Reachable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is known from the first message on: what happens while the way is cut is heard afterwards."""
    listen, cuts, raised = client.Service.listen, [], []

    def cut(self: client.Service, path: str) -> Iterator[tuple[str, str, Any]]:
        for told in listen(self, path):
            yield told
            if not cuts:
                cuts.append(path)
                raised.append(client.raise_exception("app.nan", job="200", service=place.service))
                raise ClusterBusy("here", "the stream broke off", "Listen again")

    monkeypatch.setattr(client.Service, "listen", cut)
    heard = next(client.subscribe(job="200", service=place.service))
    assert [heard["payload"]["record"]["id"]] == raised


def test_what_waits_for_a_handler_from_before_its_restart_comes_first(place: Reachable) -> None:
    wish = {"component": "job", "types": ["app"]}
    place.service.ask("PUT", "/handlers/trainer", wish)
    name = client.raise_exception("app.nan", job="200", service=place.service)
    for asked in client.handle("trainer", component="job", types=["app"], service=place.service):
        assert asked.record["id"] == name
        asked.annotated("no good checkpoint", checkpoint="none")
        break
    assert [a.value for a in place.world.state.chain.find(name).annotations] == ["none"]


def test_an_annotation_goes_with_it(place: Reachable) -> None:
    name = client.raise_exception("app.nan", job="200", service=place.service)
    client.annotate(name, "checkpoint", {"step": 1200}, service=place.service)
    assert [a.value for a in place.world.state.chain.find(name).annotations] == ['{"step": 1200}']


def test_refusals_are_errors_that_say_how_to_mend_it(place: Reachable) -> None:
    with pytest.raises(InputError, match="nonsense is not known"):
        client.raise_exception("nonsense", job="200", service=place.service)
    with pytest.raises(NotPermitted, match="another user"):
        client.raise_exception("app.nan", job="101", service=place.service)


def test_a_job_that_is_not_known_yet_is_waited_for_a_little(place: Reachable, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            place.world.submit("201", "late", "mira", 8)
            place.world.start("201", "gpu02")

    monkeypatch.setattr(time, "sleep", sleep)
    name = client.raise_exception("app.nan", job="201", service=place.service)
    assert len(pauses) == 2
    assert place.world.state.chain.find(name).subject.job_id == "201"
    with pytest.raises(NotFound, match="no such job"):
        client.raise_exception("app.nan", job="nobody", service=place.service)


def test_a_service_that_is_away_is_asked_again_and_then_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(ClusterBusy, match=r"127\.0\.0\.1:1"):
        client.raise_exception("app.nan", job="1", service=client.Service("http://127.0.0.1:1", "", "", 0.5))
    assert len(pauses) == client.TRIES - 1


def test_an_environment_that_names_no_service_is_said() -> None:
    with pytest.raises(ConfigError, match="PERDURE_URL"):
        client.Service.of({})


def test_it_is_light() -> None:
    """It is imported inside jobs: what it needs is the standard library and the errors."""
    code = "import sys, perdure.client; print(sorted(m for m in sys.modules if m.split('.')[0] in HEAVY))"
    heavy = "HEAVY={'numpy','pydantic','sqlalchemy','fastapi','typer','rich','jinja2','re2'};"
    assert subprocess.check_output([sys.executable, "-c", heavy + code], text=True).strip() == "[]"
