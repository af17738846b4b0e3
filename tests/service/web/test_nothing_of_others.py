"""Over all routes at once: what one user's logs and programs say reaches that user and operators, and nobody else."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.types import Receive, Scope, Send

from perdure.coordination.messages import Ticked
from perdure.model.identity import AttemptId
from perdure.model.job_comment import ChainLink
from perdure.model.jobs import AttemptState
from perdure.model.output import LogMark
from perdure.service.access.auth import Identity, Role
from perdure.service.access.peers import PEER, Peer
from perdure.service.core.messages import Judged
from perdure.service.store import codec
from perdure.service.store.queries.events import EventRow
from perdure.service.web import roles as access
from perdure.service.web.api.event_feed import FeedItem
from perdure.service.web.api.events import Wanted
from perdure.service.web.api.models import EventItem
from perdure.service.web.pages.exceptions import rows_of
from perdure.triage.verdict import CauseRole, Evidence, Label, Reached, Verdict
from tests.copying import replace
from tests.service.exceptions_world import MIRA, Told
from tests.service.web.test_api_roles import CASES
from tests.service.web_world import Site, TestClient, fill, site

LOG, SAVED, NOTE, EVIDENCE, REMARK, ANSWER, ASIDE = (
    f"canary-{what}" for what in ("log", "saved", "note", "evidence", "remark", "answer", "aside")
)
SAID = (LOG, SAVED, NOTE, EVIDENCE, REMARK, ANSWER, ASIDE)
FAILURE = f"""step 1 loss 0.1
saved checkpoint /scratch/{SAVED}/step_1.pt
Traceback (most recent call last):
  File "train.py", line 3, in forward
ValueError: {LOG} is not a shape
""".encode()
SITE_FIELDS = [field.name for field in fields(Site)]
PLACES = re.compile(r"{([a-z_]+)(?::path)?}")


def lived_in(path: Path, **more: Any) -> Site:
    """A site on which mira's jobs have failed, and a program of hers has spoken; jonas has a job of his own."""
    place = site(path, max_streams=0, **more)
    world, told = place.world, Told(place.world)
    world.submit("1", "hermes", "mira", link=ChainLink("kept-mira", 1))
    world.start("1", "gpu01")
    world.submit("2", "his", "jonas")
    world.start("2", "gpu02")
    world.pass_time(60)
    told.enlist("trainer", "job", "app", "job")
    told.raise_("one", "app.nan", MIRA, job="1", note=NOTE, evidence=[EVIDENCE])
    told.coordinator.annotate("mira+one", "checkpoint", REMARK, MIRA)
    world.pass_time(1)
    told.answer("mira+one", "trainer", "handled", ANSWER)
    world.tell((Ticked(),))
    world.pass_time(60)
    world.end("1", FAILURE)
    attempt = world.attempts["1"].id
    failure = next(record.id for record in world.state.chain.open.values() if record.type.startswith("job."))
    told.answer(failure, "trainer", "annotated", ASIDE)
    world.tell((Ticked(),))
    world.carry_out()
    place.app.state.web.learner.correct(attempt, True, "mira", False)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return lived_in(tmp_path_factory.mktemp("others"))


def routes(place: Site) -> Iterator[str]:
    """Everything that can be asked for by GET, with all that there is put in."""
    world = place.world
    chain = world.state.chain
    known = {
        "job_id": ["1", "2"],
        "exception_id": [*chain.open, *chain.ended],
        "name": [*world.nodes][:2],
        "comparison_id": ["1"],
        "theme": ["light"],
        "user": ["mira"],
        "chain": ["kept-mira"],
    }
    for method, path, _ in CASES:
        if method != "GET" or "static" in path or path.endswith("/stream"):
            continue
        names = PLACES.findall(path)
        for values in product(*(known[name] for name in names)):
            yield PLACES.sub("{}", path).format(*(quote(value, safe="") for value in values))


def answers(place: Site, client: TestClient) -> Iterator[tuple[str, Any]]:
    """What each route answers; a log is asked for by its incarnation, too."""
    incarnations = {attempt.id.job_id: attempt.id.incarnation for attempt in place.world.attempts.values()}
    for path in routes(place):
        yield path, client.get(path)
    for job_id, incarnation in incarnations.items():
        for base in ("/api/v1/jobs", "/jobs"):
            path = f"{base}/{job_id}/log?incarnation={incarnation}"
            yield path, client.get(path)
    for query in ("job_id=1", "user=mira", "open=true", "q=hermes"):
        for base in ("/api/v1/exceptions", "/api/v1/actions", "/exceptions", "/actions", "/jobs", "/api/v1/jobs"):
            yield f"{base}?{query}", client.get(f"{base}?{query}")
    for base in ("/jobs", "/exceptions", "/actions"):
        path = f"{base}?format=csv"
        yield path, client.get(path)


def test_no_route_tells_a_viewer_what_anothers_log_or_program_said(place: Site) -> None:
    for path, answer in answers(place, place.client(place.jonas)):
        found = [word for word in SAID if word in answer.text]
        assert not found, (path, found)
        assert answer.status_code != 500, path


@pytest.mark.parametrize("who", ["mira", "operator"])
def test_its_owner_and_operators_are_told_all_of_it(place: Site, who: str) -> None:
    """Or else the test above would pass of a service that says nothing."""
    told = {word: [] for word in SAID}
    for path, answer in answers(place, place.client(getattr(place, who))):
        for word in SAID:
            if word in answer.text:
                told[word].append(path)
    assert all(told.values()), told
    assert any(path.startswith("/api/v1/events") for path in told[LOG])
    assert any(path.startswith("/jobs/1/log") for path in told[LOG])


@pytest.fixture
def without_token(place: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], TestClient]:
    """A client on the Unix socket, as this user."""

    def client(user: str) -> TestClient:
        async def by_socket(scope: Scope, receive: Receive, send: Send) -> None:
            await place.app({**scope, "state": {**scope.get("state", {}), PEER: Peer(uid=4_000_000)}}, receive, send)

        monkeypatch.setattr(access, "identity_of", lambda uid: Identity(user, Role.VIEWER, own_only=uid == 4_000_000))
        return TestClient(by_socket, base_url="http://127.0.0.1:8470", follow_redirects=False)

    return client


def test_of_a_verdict_an_event_tells_a_stranger_nothing_that_the_log_says() -> None:
    """The line that shows broken hardware, the files, and how far it came are the log's words, too."""
    mark = LogMark(f"/home/mira/{LOG}", 0, 9, "d", 1.0)
    words: dict[str, Any] = {
        "summary": "it failed",
        "hardware": LOG,
        "logs": (mark,),
        "reached": Reached(checkpoint=LOG),
        "ending": LOG,
    }
    verdict = Verdict(Label.UNSURE, 0.5, "unknown", evidence=(Evidence(1, LOG, CauseRole.ROOT, "r"),), **words)
    judged = json.loads(codec.encode(Judged(1.0, AttemptId("c", "1", 1), verdict)))
    row = EventRow(1, 1.0, "judged", "1", judged)
    assert LOG not in EventItem.of(row, with_log=False).model_dump_json()
    assert EventItem.of(row, with_log=True).model_dump_json().count(LOG) == 5
    listener = Wanted(Identity("jonas", Role.VIEWER))
    of_others, of_its_own, of_no_job = (
        listener.text_of(FeedItem(replace(row, job_id=job_id), owner))
        for job_id, owner in (("1", "mira"), ("1", "jonas"), ("", ""))
    )
    assert LOG not in of_others
    assert of_its_own.count(LOG) == of_no_job.count(LOG) == 5


PUBLIC = ("/healthz", "/readyz", "/metrics", "/login", "/api/v1/openapi.json")


def test_without_a_token_no_route_says_that_anothers_job_is_there(
    place: Site, without_token: Callable[[str], TestClient]
) -> None:
    for path, answer in answers(place, without_token("jonas")):
        if answer.status_code == 200 and not path.startswith(PUBLIC):
            assert "mira" not in answer.text, path
            assert "hermes" not in answer.text, path
            assert '"1"' not in answer.text, path


def test_without_a_token_one_sees_the_own_jobs(place: Site, without_token: Callable[[str], TestClient]) -> None:
    mine = without_token("mira")
    assert LOG in mine.get("/api/v1/jobs/1").text
    assert [job["job_id"] for job in mine.get("/api/v1/jobs").json()["items"]] == ["1"]
    assert mine.get("/api/v1/jobs/2").status_code == 403
    assert mine.get("/api/v1/jobs/1/log").content == FAILURE
    assert mine.get("/api/v1/jobs/2/log").status_code == 403


def test_a_viewer_acts_on_nothing_of_anothers(place: Site) -> None:
    """Each way in which a user may change something of the own, tried on another's."""
    jonas, before = place.client(place.jonas), place.world.state
    (failed,) = [a.id for a in place.world.attempts.values() if a.id.job_id == "1"]
    corrected = f"/api/v1/jobs/1/attempts/{failed.incarnation}/correction"
    ways = [
        partial(jonas.post, corrected, json={"label": "deterministic"}),
        partial(jonas.post, corrected, json={"label": "none"}),
        partial(jonas.post, "/api/v1/annotations/mira%2Bone", json={"key": "k", "value": "v"}),
        partial(jonas.post, "/api/v1/answers/mira%2Bone", json={"handler": "trainer", "verdict": "handled"}),
        partial(jonas.delete, "/api/v1/handlers/trainer"),
        partial(jonas.delete, "/api/v1/handlers/mira%2Btrainer"),
        partial(
            jonas.post,
            "/api/v1/exceptions",
            json={"id": "x", "type": "app.nan", "severity": 1, "subject": {"job": "1"}},
        ),
    ]
    for way in ways:
        answer = way()
        assert answer.status_code in (403, 404), (answer.url, answer.text)
    assert place.world.state.chain == before.chain
    (kept,) = place.client(place.mira).get("/api/v1/learning").json()["corrections"]
    assert (kept["label"], kept["by"]) == ("transient", "mira")
    assert place.client(place.jonas).get("/api/v1/learning").json()["corrections"] == []


def test_a_node_s_page_shows_who_raised_something_about_it_to_no_other_user(tmp_path: Path) -> None:
    place = site(tmp_path)
    told = Told(place.world)
    place.world.submit("1", "hermes", "mira")
    place.world.start("1", "gpu01")
    told.enlist("trainer", "job", "app", by=MIRA)
    told.raise_("ecc", "app.ecc", MIRA, job="1", node=["gpu01"], note=NOTE)
    place.world.tell((Ticked(),))
    assert place.world.state.chain.open
    seen = {who: place.client(getattr(place, who)).get("/nodes/gpu01").text for who in ("operator", "mira", "jonas")}
    assert {who: "mira%2Becc" in text for who, text in seen.items()} == {"operator": True, "mira": True, "jonas": False}


def test_the_line_of_a_log_is_not_shown_to_who_has_the_id_of_its_job_now(tmp_path: Path) -> None:
    place = site(tmp_path)
    world, web = place.world, place.app.state.web
    world.submit("1", "hermes", "mira")
    world.start("1", "gpu01")
    world.pass_time(60)
    world.end("1", FAILURE)
    known = world.state.chain
    (failure,) = [record for record in (*known.open.values(), *known.ended.values()) if record.subject.job_id == "1"]

    def shown(user: str) -> str:
        (row,) = rows_of(web, Identity(user, Role.VIEWER), [failure])
        return row.says

    assert LOG in shown("mira")
    assert shown("jonas") == ""
    world.pass_time(600)
    world.submit("1", "other", "jonas")
    assert (shown("mira"), shown("jonas")) == ("", "")


def test_a_service_tells_nothing_of_another_cluster_in_its_database(tmp_path: Path) -> None:
    """Both have jobs of the same numbers, and nodes of the same names."""
    first = lived_in(tmp_path)
    fill(first.world)
    first.world.journal.close()
    place = site(tmp_path, cluster="borealis")
    for job_id in (*first.world.jobs, "2000"):
        place.world.submit(job_id, "quiet", "aiko")
        place.world.start(job_id, "gpu06")
        place.world.end(job_id, b"", AttemptState.COMPLETED)
    routes_of = Site(first.world, *(getattr(place, name) for name in SITE_FIELDS[1:]))
    said = (*SAID, "jonas", "mira", "hermes", "unet", "llm-7b", "aurora", "trainer", "a connection")
    for path, answer in answers(routes_of, place.client(place.operator)):
        found = [word for word in said if word in answer.text and word not in path]
        assert not found or answer.status_code == 404, (path, found)
