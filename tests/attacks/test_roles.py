"""A name is not a role, and what was given ends when it is taken back, or when its giver dies."""

import http.client
import signal
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from perdure.coordination.record import Component
from perdure.coordination.ruling import Registration
from perdure.errors import NotPermitted
from perdure.service.access.auth import CODE_LIFE_S, Identity, Role, TokenBook
from perdure.service.access.sessions import SESSION_LIFE_S, Sessions
from perdure.service.exceptions.permissions import may_speak_for
from tests.attacks.service import Attacked, attacked
from tests.copying import replace
from tests.service.web_world import Site, fill, site

WISH = {"component": "job", "types": ["process"], "lease_s": 3600, "answer_s": 600}


@pytest.fixture
def place(tmp_path: Path) -> Site:
    place = site(tmp_path)
    fill(place.world)
    place.world.submit("200", "resnet", "mira", 8)
    place.world.start("200", "gpu01", "gpu02")
    return place


def put(place: Site, token: str, name: str, **wish: Any) -> Any:
    return place.client(token).put(f"/api/v1/handlers/{name}", json={**WISH, **wish})


def names(place: Site) -> set[Any]:
    return set(place.world.state.chain.handlers)


def test_a_viewer_token_touches_nothing_that_the_same_name_s_operator_token_registered(place: Site) -> None:
    """Answers, takes over, deletes: none of it."""
    boss = place.tokens.mint("mira", Role.OPERATOR)
    assert put(place, boss, "site", component="resource_manager").status_code == 200
    raised = place.client(place.mira).post(
        "/api/v1/exceptions", json={"id": "x", "type": "process.exit", "severity": 1, "subject": {"job": "200"}}
    )
    assert raised.status_code == 201
    assert place.world.state.chain.turns["mira+x"].handler == "site"
    answer = {"handler": "site", "verdict": "handled", "note": "mine"}
    assert place.client(place.mira).post("/api/v1/answers/mira+x", json=answer).status_code in (403, 404)
    assert place.client(place.mira).delete("/api/v1/handlers/site").status_code in (403, 404)
    assert put(place, place.mira, "site").status_code in (200, 403)  # one of its own, at most
    assert place.world.state.chain.handlers["site"].owner == ""
    assert place.world.state.chain.turns["mira+x"].handler == "site"
    assert place.client(place.mira).get("/api/v1/handlers").json() == [
        item for item in place.client(place.operator).get("/api/v1/handlers").json() if item["id"] == "mira+site"
    ]


def test_one_speaks_for_a_handler_in_the_role_that_registered_it() -> None:
    """Names keep viewers off already; this holds whatever a name looks like."""
    of_the_site = Registration("h", Component.JOB, ("",), "mira", 1e9)
    own = replace(of_the_site, id="mira+h", owner="mira")
    assert may_speak_for(of_the_site, "h", Identity("mira", Role.OPERATOR)) is of_the_site
    assert may_speak_for(own, "mira+h", Identity("mira", Role.VIEWER)) is own
    assert may_speak_for(own, "mira+h", Identity("boss", Role.OPERATOR)) is own
    for registration, by in (
        (of_the_site, Identity("mira", Role.VIEWER)),
        (of_the_site, Identity("boss", Role.OPERATOR)),
        (own, Identity("noor", Role.VIEWER)),
    ):
        with pytest.raises(NotPermitted):
            may_speak_for(registration, registration.id, by)


def test_nobody_keeps_a_handler_s_name_from_others(place: Site) -> None:
    assert put(place, place.jonas, "trainer").status_code == 200
    assert put(place, place.mira, "trainer").status_code == 200
    assert put(place, place.operator, "trainer").status_code == 200
    assert names(place) == {"jonas+trainer", "mira+trainer", "trainer"}
    assert place.client(place.mira).delete("/api/v1/handlers/trainer").status_code == 204
    assert names(place) == {"jonas+trainer", "trainer"}
    assert place.client(place.mira).delete("/api/v1/handlers/jonas+trainer").status_code == 404
    assert place.client(place.operator).delete("/api/v1/handlers/jonas+trainer").status_code == 204
    assert names(place) == {"trainer"}


def test_time_set_back_makes_no_code_or_session_live_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = TokenBook(tmp_path)
    sessions = Sessions(book)
    code, secret = book.login_code(Identity("root", Role.OPERATOR)), sessions.open(Identity("root", Role.OPERATOR))
    later = time.monotonic() + max(CODE_LIFE_S, SESSION_LIFE_S)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    book._clock = sessions._clock = lambda: later
    assert book.redeem(code) is None
    assert sessions.find(secret) is None
    assert TokenBook(tmp_path)._clock is time.monotonic
    assert Sessions(book)._clock is time.monotonic


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("roles"), "--nodes", "1") as place:
        yield place


def listen(service: Attacked, token: str) -> HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    connection.request("GET", "/api/v1/events/stream", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline().startswith(b"id: ")
    return answer


def test_a_revoked_token_s_stream_ends(service: Attacked) -> None:
    token = service.token("eve")
    stream, other = listen(service, token), listen(service, service.token("mira"))
    book = TokenBook(service.state)
    book.revoke(book.find(token).token_id)
    begun_s = time.monotonic()
    while stream.readline():
        assert time.monotonic() - begun_s < 120
    assert service.ask("GET", "/events", token=token)[0] == 401
    service.submit("true", user="mira")
    while b"mira" not in other.readline():  # who is known yet is told on
        assert time.monotonic() - begun_s < 120


@pytest.mark.slow
def test_a_killed_service_leaves_no_token_behind(tmp_path: Path) -> None:
    with attacked(tmp_path, "--nodes", "1") as first:
        left = first.file.token
        assert first.ask("GET", "/nodes", token=left)[0] == 200
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(20)
    assert first.file.token == left  # so it lies about, and in backups
    known = TokenBook(first.state).mint("root", Role.OPERATOR)
    with attacked(tmp_path, "--nodes", "1") as second:
        assert second.ask("GET", "/nodes", token=known)[0] == 200
        assert second.ask("GET", "/nodes", token=left)[0] == 401


def test_what_an_older_version_left_behind_is_revoked(tmp_path: Path) -> None:
    from perdure.service.access.service_file import ServiceFile
    from perdure.service.runtime.serving import left_for_commands

    book = TokenBook(tmp_path)
    left = book.mint("root", Role.OPERATOR)
    ServiceFile("http://127.0.0.1:1", 1, left).write(tmp_path)
    with left_for_commands(book, "http://127.0.0.1:2", tmp_path):
        assert book.find(left) is None
        assert book.find(ServiceFile.read(tmp_path).token).role is Role.OPERATOR
