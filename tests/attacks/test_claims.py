"""What users claim holds, releases and silences nothing: an operator's word, and others' jobs, stand as they are."""

import time
from pathlib import Path
from typing import Any

import pytest

from perdure.coordination.messages import Annotated, ExceptionRaised, Ticked
from perdure.coordination.playbook import site_playbook
from perdure.coordination.record import Annotation, ExceptionOutcome, ExceptionRecord, ExceptionState, Scope, Subject
from perdure.coordination.record_changes import MAX_ANNOTATIONS, MAX_SOURCES
from perdure.model.actions import Drain, Hold, Release
from perdure.model.jobs import JobState
from perdure.service.core.view import SiteView
from tests.attacks.service import Attacked
from tests.coordination.test_handlers import NOW, Site, raised, up
from tests.copying import replace
from tests.service import web_world
from tests.service.web_world import fill, site

OPERATOR, MIRA, JONAS = "operator:root", "viewer:mira", "viewer:jonas"
FULL = tuple(Annotation(MIRA, NOW, f"k{i}", "x" * 100) for i in range(MAX_ANNOTATIONS))


def claim(kind: str, name: str, by: str, notes: tuple[Annotation, ...] = ()) -> ExceptionRaised:
    given = raised(kind, name, by, Scope.GLOBAL, notes, resource="pfs")
    return ExceptionRaised(given.record, guest=by is not OPERATOR)


def kinds(actions: list[Any]) -> list[Any]:
    return [type(action) for action in actions]


def test_a_claim_full_of_annotations_swallows_no_operator_s_fault() -> None:
    pfs = Site()
    pfs.wait("1")
    assert pfs.take(claim("storage.down", "mira+x", MIRA, FULL)) == []
    assert kinds(pfs.take(claim("storage.down", "down", OPERATOR), now=NOW + 1)) == [Hold]
    assert pfs.chain.ended["down"].is_hold_order
    assert pfs.chain.ended["mira+x"].state is ExceptionState.EXPIRED  # and it is over: nobody is asked about it again
    assert pfs.take(Ticked(), now=NOW + 100) == []


def test_a_claim_full_of_annotations_swallows_no_all_clear() -> None:
    pfs = Site()
    pfs.wait("1")
    pfs.take(claim("storage.down", "down", OPERATOR))
    assert pfs.take(claim("storage.restored", "mira+x", MIRA, FULL), now=NOW + 1) == []
    assert kinds(pfs.take(claim("storage.restored", "up", OPERATOR), now=NOW + 2)) == [Release]
    assert pfs.chain.ended["down"].outcome is ExceptionOutcome.CLEARING


def test_what_the_service_sees_is_not_folded_into_a_claim() -> None:
    nodes = Site(nodes=up("n1"))
    nodes.take(ExceptionRaised(raised("node.disk", "mira+x", MIRA, nodes=("n1",), notes=FULL).record, guest=True))
    assert nodes.take(raised("node.disk", "own", "perdure", nodes=("n1",)), now=NOW + 1) == [
        Drain("n1", "perdure: node.disk", "own")
    ]


def test_a_crowd_of_sources_leaves_room_for_the_operator_s() -> None:
    nodes = Site(nodes=up("n1"))
    first = raised("gpu.xid79", "mira+x", MIRA, nodes=("n1",), job_id="1").record
    nodes.run("1", "n1")
    nodes.take(ExceptionRaised(replace(first, severity=5), guest=True))
    for i in range(3 * MAX_SOURCES):
        nodes.take(ExceptionRaised(replace(first, detected_by=f"viewer:u{i}", severity=5), guest=True))
    known = nodes.chain.find("mira+x")
    assert len(known.sources) == MAX_SOURCES + 1
    nodes.take(ExceptionRaised(replace(first, detected_by=OPERATOR, severity=5)))
    assert OPERATOR in nodes.chain.find("mira+x").sources


def test_users_fill_no_operator_s_exception_with_annotations() -> None:
    pfs = Site()
    pfs.take(claim("storage.down", "down", OPERATOR))
    for i in range(2 * MAX_ANNOTATIONS):
        pfs.take(Annotated("down", Annotation(MIRA, NOW, f"k{i}", "x")))
    pfs.take(Annotated("down", Annotation(OPERATOR, NOW, "ticket", "4711")))
    assert pfs.chain.find("down").annotations[-1].key == "ticket"


@pytest.mark.parametrize("kind", ["storage.down", "storage.quota.over", "network.down", "licence.down"])
def test_two_users_hold_nobody(kind: str) -> None:
    pfs = Site()
    pfs.wait("1")
    assert pfs.take(claim(kind, "mira+x", MIRA), claim(kind, "jonas+x", JONAS)) == []
    assert pfs.take(Ticked(), now=NOW + 30) == []
    pfs.take(Ticked(), now=NOW + 61)
    assert pfs.chain.ended["mira+x"].needs_a_person  # who has been told by two
    assert pfs.chain.ended["mira+x"].sources == {MIRA, JONAS}


def test_two_users_release_nothing_that_an_operator_holds() -> None:
    pfs = Site()
    pfs.wait("1")
    pfs.take(claim("storage.down", "down", OPERATOR))
    clear = (claim("storage.restored", "mira+x", MIRA), claim("storage.restored", "jonas+x", JONAS))
    assert pfs.take(*clear, now=NOW + 10) == []
    assert pfs.take(Ticked(), now=NOW + 100) == []
    assert pfs.chain.ended["down"].is_hold_order


def test_sources_that_an_older_version_wrote_as_annotations_count() -> None:
    old = ExceptionRecord("x", "gpu.xid79", 0, Scope.LOCAL, Subject("c"), NOW, detected_by=MIRA)
    seen = replace(old, annotations=(Annotation(OPERATOR, NOW, "seen_by", "n1"),))
    assert seen.sources == {MIRA, OPERATOR}
    assert seen.is_of_the_site


# -- at the door


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> web_world.Site:
    place = site(tmp_path)
    fill(place.world)
    for job_id, user in (("200", "mira"), ("300", "jonas")):
        place.world.submit(job_id, "train", user, 8, licences=("ansys",))
        place.world.start(job_id, "gpu01")
    book = site_playbook(
        '[resources."licence:ansys"]\nlicence = "ansys"\n[resources."licence:matlab"]\nlicence = "matlab"\n', "site"
    )
    view = place.world.view
    monkeypatch.setattr(place.world, "view", lambda: SiteView(place.world.state, book, view().rules, place.world.now))
    return place


def post(place: web_world.Site, token: str, **record: Any) -> tuple[Any, Any]:
    answer = place.client(token).post("/api/v1/exceptions", json={"severity": 1, **record})
    return answer.status_code, answer.json()


def shared(resource: str, job: str = "200", kind: str = "licence.down") -> dict[Any, Any]:
    return {"type": kind, "subject": {"job": job, "resource": resource}}


def test_a_user_speaks_of_what_a_live_job_of_theirs_uses(place: web_world.Site) -> None:
    assert post(place, place.mira, **shared("licence:ansys"))[0] == 201
    status, said = post(place, place.mira, **shared("licence:matlab"))
    assert (status, said["detail"]) == (403, "the job is not known to use licence:matlab")
    status, said = post(place, place.mira, **shared("pfs:/invented", kind="storage.down"))
    assert (status, said["detail"]) == (403, "the job is not known to use pfs:/invented")
    place.world.end("200")
    status, said = post(place, place.mira, **shared("licence:ansys"))
    assert (status, said["detail"]) == (403, "it does not run")
    assert post(place, place.operator, **shared("pfs:/scratch", job="", kind="storage.down"))[0] == 201


@pytest.mark.parametrize("kind", ["suspect.node", "suspect.storage", "suspect", "node.failure", "job.oom"])
def test_the_service_s_own_types_are_no_user_s(place: web_world.Site, kind: str) -> None:
    status, said = post(place, place.mira, type=kind, subject={"job": "200"})
    assert (status, "told by the service itself" in said["detail"]) == (422, True)
    assert "suspect" not in said["fix"]


def test_nobody_says_who_else_saw_it(place: web_world.Site) -> None:
    seen = [{"by": "operator:root", "time": place.world.now}]
    assert post(place, place.mira, type="process.exit", subject={"job": "200"}, seen_by=seen)[0] == 422


# -- against the real service


def test_two_users_whose_jobs_are_over_stop_nobody(service: Attacked) -> None:
    """The attack as it was made: an invented storage, told by two users whose jobs ended, and its all-clear."""
    over = {user: service.submit("true", user=user) for user in ("mallory", "eve")}
    full = [service.submit("sleep 60", user="aiko", gpus_per_node=1) for _ in range(3)]
    waiting = service.submit("true", user="aiko", gpus_per_node=1)

    def state(job_id: str) -> str:
        status, found = service.ask("GET", f"/jobs/{job_id}")
        return str(found["job"]["state"]) if status == 200 else ""

    def await_state(job_id: str, *wanted: JobState) -> None:
        begun_s = time.monotonic()
        while state(job_id) not in wanted:
            assert time.monotonic() - begun_s < 120, (job_id, state(job_id))
            time.sleep(0.1)

    for job_id in over.values():
        await_state(job_id, JobState.COMPLETED)
    await_state(full[-1], JobState.RUNNING)
    for user, job_id in over.items():
        said = {"type": "storage.down", "severity": 0, "subject": {"job": job_id, "resource": "pfs:/invented"}}
        assert service.ask("POST", "/exceptions", said, service.token(user))[0] == 403
    down = {"id": "real", "type": "storage.down", "severity": 0, "subject": {"resource": "pfs:/scratch"}}
    assert service.ask("POST", "/exceptions", down)[0] == 201
    await_state(waiting, JobState.HELD)
    for user, job_id in over.items():
        said = {"type": "storage.restored", "severity": 0, "subject": {"job": job_id, "resource": "pfs:/scratch"}}
        assert service.ask("POST", "/exceptions", said, service.token(user))[0] == 403
    time.sleep(1.0)
    assert state(waiting) == JobState.HELD
    up_again = {"type": "storage.restored", "severity": 6, "subject": {"resource": "pfs:/scratch"}}
    assert service.ask("POST", "/exceptions", up_again)[0] == 201
    begun_s = time.monotonic()
    while state(waiting) == JobState.HELD:
        assert time.monotonic() - begun_s < 120
        time.sleep(0.1)
