"""Exceptions over HTTP: who may raise and see what, who is asked, and what is refused, each with its fix."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from perdure.coordination.chain import MAX_ENDED
from perdure.coordination.messages import ExceptionRaised, Failed, Ticked
from perdure.coordination.record import (
    Answer,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Scope,
    Subject,
)
from perdure.model.jobs import AttemptState, JobState
from perdure.service.web.api.exceptions import Raised, Standing
from tests.copying import replace
from tests.service.web_world import Site, fill, site


@pytest.fixture
def place(tmp_path: Path) -> Site:
    place = site(tmp_path)
    fill(place.world)
    place.world.submit("200", "resnet", "mira", 8)
    place.world.start("200", "gpu01", "gpu02")
    place.world.end("200", b"", AttemptState.REQUEUED, to=JobState.PENDING)
    place.world.start("200", "gpu01", "gpu02")
    place.world.submit("300", "bert", "jonas", 8)
    place.world.start("300", "gpu05")
    return place


def about(job: str = "200", **more: Any) -> dict[Any, Any]:
    return {"type": "process.exit", "severity": 1, "subject": {"job": job}, "note": "rank 3 died", **more}


def post(place: Site, token: str, path: str, body: Mapping[str, object] | Sequence[dict[str, Any]]) -> Any:
    return place.client(token).post(f"/api/v1{path}", json=body)


def found(place: Site, exception_id: str, token: str | None = None) -> Any:
    return place.client(token or place.operator).get(f"/api/v1/exceptions/{exception_id}").json()


def test_a_user_raises_for_a_job_of_their_own(place: Site) -> None:
    answer = post(place, place.mira, "/exceptions", about(id="mine-1"))
    assert (answer.status_code, answer.json()["id"]) == (201, "mira+mine-1")
    record = found(place, "mira+mine-1", place.mira)
    assert (record["detected_by"], record["subject"]["job"]) == ("viewer:mira", "200")
    assert record["incarnation"] == place.world.view().latest("200") > 0
    assert record["state"] == "in_chain"


def test_an_operator_closes_what_waits_for_a_person(place: Site) -> None:
    raised = post(place, place.operator, "/exceptions", {"type": "app.nan", "id": "odd", "subject": {}}).json()
    assert raised["state"] == "escalated"
    assert post(place, place.mira, "/closings/odd", {}).status_code == 403
    assert post(place, place.operator, "/closings/none", {}).status_code == 404
    assert post(place, place.operator, "/closings/odd", {"note": "looked at it"}).status_code == 204
    record = found(place, "odd")
    (said,) = (each for each in record["annotations"] if each["key"] == "closed")
    assert (record["outcome"], said["component"], said["value"]) == ("closed", "operator:root", "looked at it")
    listed = place.client(place.operator).get("/api/v1/exceptions?state=closed").json()["items"]
    assert [(each["id"], each["state"]) for each in listed] == [("odd", "closed")]
    assert post(place, place.operator, "/closings/odd", {}).status_code == 409
    assert post(place, place.operator, "/annotations/odd", {"key": "closed", "value": "again"}).status_code == 422


def test_the_state_that_is_shown_is_the_one_that_filters(place: Site) -> None:
    client = place.client(place.operator)
    for one in client.get("/api/v1/exceptions?limit=200").json()["items"]:
        found_by = client.get("/api/v1/exceptions", params={"state": one["state"], "limit": 200}).json()["items"]
        assert one["id"] in [each["id"] for each in found_by]
        assert one["chain_state"] in list(ExceptionState)
    assert set(get_args(Standing)) == {*ExceptionState, *(str(each) for each in ExceptionOutcome if each)}


def test_a_state_that_there_is_not_is_refused(place: Site) -> None:
    for path in ("/exceptions?state=nope", "/exceptions?state=open", "/actions?state=zzz", "/actions?kind=explode"):
        refused = place.client(place.operator).get(f"/api/v1{path}")
        assert refused.status_code == 422, path
    assert "requeue" in refused.json()["fix"]


def test_of_a_job_that_ended_long_ago_the_refusal_says_when(place: Site) -> None:
    place.world.end("300", b"", AttemptState.COMPLETED, to=JobState.COMPLETED)
    forgotten = replace(place.world.state.known, jobs={}, running={})
    place.world.state = replace(place.world.state, known=forgotten, cases={})
    refused = post(place, place.operator, "/exceptions", about("300"))
    assert refused.status_code == 404
    assert re.fullmatch(r"it ended at \d{4}-\d\d-\d\dT[\d:+-]+ \(completed\)", refused.json()["detail"])
    (one,) = post(place, place.operator, "/exceptions/batch", [about("300")]).json()
    assert one["detail"] == refused.json()["detail"]
    assert "no such job" in post(place, place.mira, "/exceptions", about("300")).json()["detail"]


def test_of_a_job_that_ended_more_than_once_the_refusal_says_when_it_did_last(place: Site) -> None:
    world = place.world
    world.pass_time(600)
    world.end("200", b"", AttemptState.COMPLETED, to=JobState.COMPLETED)
    world.state = replace(world.state, known=replace(world.state.known, jobs={}, running={}), cases={})
    told = post(place, place.operator, "/exceptions", about("200")).json()["detail"]
    (at,) = re.findall(r"it ended at (\S+) \(completed\)", told)
    assert datetime.fromisoformat(at).timestamp() == world.now


def test_raising_twice_is_raising_once(place: Site) -> None:
    for _ in range(3):
        assert post(place, place.mira, "/exceptions", about(id="mine-1")).status_code == 201
    assert found(place, "mira+mine-1")["repeats"] == 0


def test_equal_faults_are_counted_with_the_first(place: Site) -> None:
    post(place, place.mira, "/exceptions", about(id="mine-1"))
    again = post(place, place.mira, "/exceptions", about(id="mine-2")).json()
    assert again == {"id": "mira+mine-1", "state": "in_chain", "repeats": 1, "reason": again["reason"]}
    assert again["reason"] == "nothing is known of its node; its attempt still runs"


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"type": "nonsense.type"}, 422, "type"),
        ({"type": "Has Spaces"}, 422, "dotted"),
        ({"type": "job.oom"}, 422, "the service itself"),
        ({"type": "resource.needed"}, 422, "the service itself"),
        ({"id": "a\nb"}, 422, "is not a name"),
        ({"id": "a\u202e"}, 422, "is not a name"),
        ({"id": ".."}, 422, "is not a name"),
        ({"id": "local/200#2:job.failed"}, 422, "is not a name"),
        ({"id": "x" * 300}, 422, "Keep it to 256"),
        ({"id": ""}, 422, "is not a name"),
        ({"severity": 9}, 422, "0 (fatal) to 7"),
        ({"severity": "high"}, 422, "severity"),
        ({"note": "x" * 10_000}, 422, "Keep it to 4096"),
        ({"subject": {"job": "nobody"}}, 404, "no such job"),
        ({"subject": {"job": "300"}}, 403, "another user"),
        ({"subject": {}}, 403, "Name a job of yours"),
        ({"subject": {"job": "200", "node": ["gpu06"]}}, 403, "does not run on gpu06"),
        ({"subject": {"job": "200", "cluster": "elsewhere"}}, 422, "elsewhere"),
        ({"subject": "200"}, 422, "not an object"),
        ({"incarnation": 2**40}, 422, "never started"),
        ({"incarnation": 1}, 409, "replaced"),
        ({"time": 9e11}, 422, "in the future"),
        ({"time": 5.0}, 422, "days back"),
        ({"version": 99}, 422, "version"),
        ({"verdicts": [{"component": "scheduler", "verdict": "handled"}]}, 422, "is set by the service"),
        ({"state": "handled"}, 422, "is set by the service"),
    ],
)
def test_what_is_wrong_is_refused_with_its_fix(
    place: Site,
    change: Mapping[str, list[dict[str, str]] | str | float | Mapping[str, Sequence[str]] | int],
    status: int,
    said: str,
) -> None:
    answer = post(place, place.mira, "/exceptions", {**about(), **change})
    problem = answer.json()
    assert (answer.status_code, bool(problem["fix"])) == (status, True), problem
    assert said in f"{problem['where']}: {problem['detail']} {problem['fix']}"
    assert place.world.state.chain.open == {}


def test_users_do_not_see_each_others(place: Site) -> None:
    post(place, place.mira, "/exceptions", about(id="mine-1"))
    assert place.client(place.jonas).get("/api/v1/exceptions/mira+mine-1").status_code == 404
    assert post(place, place.jonas, "/annotations/mira+mine-1", {"key": "k", "value": "v"}).status_code == 404
    ids = [item["id"] for item in place.client(place.jonas).get("/api/v1/exceptions").json()["items"]]
    assert "mira+mine-1" not in ids
    mine = place.client(place.mira).get("/api/v1/exceptions?open=true").json()["items"]
    assert "mira+mine-1" in [item["id"] for item in mine]


def test_a_batch_says_of_each_what_became_of_it(place: Site) -> None:
    answers = post(place, place.mira, "/exceptions/batch", [about(id="a"), {**about(), "severity": 9}]).json()
    assert answers[0]["id"] == "mira+a"
    assert answers[1]["status"] == 422


HANDLER = {"component": "job", "types": ["process"], "lease_s": 60}


def put(place: Site, token: str, name: str, body: dict[str, object] = HANDLER) -> Any:
    return place.client(token).put(f"/api/v1/handlers/{name}", json=body)


def test_a_registered_program_is_asked_and_owns_the_recovery(place: Site) -> None:
    assert put(place, place.mira, "trainer").status_code == 200
    post(place, place.mira, "/exceptions", about(id="mine-1"))
    asked = place.client(place.mira).get("/api/v1/events?limit=200").json()["items"][-1]
    assert (asked["kind"], asked["payload"]["handler"]) == ("handler_asked", "trainer")
    assert asked["payload"]["handler_id"] == "mira+trainer"
    answer = {"handler": "trainer", "verdict": "handled", "note": "rolled back", "forbids": ["requeue"]}
    assert post(place, place.mira, "/answers/mira+mine-1", answer).status_code == 204
    record = found(place, "mira+mine-1")
    assert record["state"] == "handled"
    (owning,) = [v for v in record["verdicts"] if v["verdict"] == "handled"]
    assert (owning["component"], owning["handler"], owning["forbids"]) == ("job", "mira+trainer", ["requeue"])
    again = post(place, place.mira, "/answers/mira+mine-1", answer)
    assert (again.status_code, "handled already" in again.json()["detail"]) == (409, True)


def test_a_handler_is_its_owners(place: Site) -> None:
    put(place, place.mira, "trainer")
    post(place, place.mira, "/exceptions", about(id="mine-1"))
    for name in ("trainer", "mira+trainer"):
        answer = {"handler": name, "verdict": "handled"}
        assert post(place, place.jonas, "/answers/mira+mine-1", answer).status_code == 404
        assert place.client(place.jonas).delete(f"/api/v1/handlers/{name}").status_code == 404
    assert place.client(place.jonas).get("/api/v1/handlers").json() == []
    assert place.client(place.mira).delete("/api/v1/handlers/trainer").status_code == 204
    assert place.world.state.chain.handlers == {}


def test_the_levels_of_the_site_are_for_operators(place: Site) -> None:
    body = {**HANDLER, "component": "scheduler"}
    assert put(place, place.mira, "mine", body).status_code == 403
    assert put(place, place.operator, "site", body).status_code == 200


def test_a_handler_of_one_user_hears_nothing_of_another(place: Site) -> None:
    put(place, place.jonas, "other")
    post(place, place.mira, "/exceptions", about(id="mine-1"))
    turn = place.world.state.chain.turns.get("mira+mine-1")
    assert turn is None or turn.handler == ""


def test_one_user_alone_takes_no_node_out_of_service(place: Site) -> None:
    xid = about(id="xid", type="gpu.xid79", subject={"job": "200", "node": ["gpu02"]})
    post(place, place.mira, "/exceptions", xid)
    place.world.pass_time(400)
    place.world.tell((Ticked(),))
    assert found(place, "mira+xid")["state"] == ExceptionState.ESCALATED
    assert "drain" not in {row.action.kind for row in place.world.journal.planned()}


@pytest.mark.parametrize("component", ["operator:root", "perdure", "", "viewer:jonas"])
def test_nobody_vouches_for_himself(place: Site, component: str) -> None:
    note = {"component": component, "time": place.world.now, "key": "seen_by", "value": "me"}
    xid = about(id="xid", type="gpu.xid79", subject={"job": "200", "node": ["gpu02"]}, annotations=[note])
    answer = post(place, place.mira, "/exceptions", xid)
    assert (answer.status_code, "seen_by" in answer.json()["where"]) == (422, True)
    post(place, place.mira, "/exceptions", {**xid, "annotations": []})
    for key in ("seen_by", "clears"):
        noted = post(place, place.mira, "/annotations/mira+xid", {"key": key, "value": "me"})
        assert (noted.status_code, "kept for the service" in noted.json()["detail"]) == (422, True)
    assert "drain" not in {row.action.kind for row in place.world.journal.planned()}


def test_what_is_noted_bears_the_name_of_who_noted_it(place: Site) -> None:
    note = {"component": "operator:root", "time": place.world.now, "key": "usage", "value": "{}"}
    post(place, place.mira, "/exceptions", about(id="mine", annotations=[note]))
    post(place, place.operator, "/exceptions", about(id="root", subject={"job": "300"}, annotations=[note]))
    assert [a["component"] for a in found(place, "mira+mine")["annotations"]] == ["viewer:mira"]
    (signed,) = found(place, "root")["annotations"]
    assert signed["component"].startswith("operator:")


def test_an_id_of_long_ago_is_not_written_over(place: Site) -> None:
    first = {"id": "old", "type": "site.first", "subject": {"resource": "a"}}
    post(place, place.operator, "/exceptions", first)
    many = [{"type": "site.note", "subject": {"resource": f"r{i}"}} for i in range(MAX_ENDED + 1)]
    for start in range(0, len(many), 500):
        post(place, place.operator, "/exceptions/batch", many[start : start + 500])
    assert place.world.state.chain.find("old") is None
    other = post(place, place.operator, "/exceptions", {**first, "type": "site.other"})
    assert (other.status_code, "taken" in other.json()["detail"]) == (409, True)
    same = post(place, place.operator, "/exceptions", first)
    assert (same.status_code, same.json()["state"]) == (201, "handled")
    assert found(place, "old")["type"] == "site.first"


@pytest.mark.parametrize("name", ["7", "x.1", "a-b_c"])
def test_an_action_is_told_from_one_that_was_asked_for_again_whatever_it_is_called(place: Site, name: str) -> None:
    """Behind the key of an action that is planned again there is a number."""
    xid = about(id=name, type="gpu.xid79", subject={"job": "200", "node": ["gpu02"]})
    post(place, place.operator, "/exceptions", xid)
    (drain,) = [row for row in place.world.journal.planned() if row.exception_id == name]
    place.world.tell((Failed(drain.key, "refused"),))
    assert place.world.state.chain.find(name).state is ExceptionState.ESCALATED


def test_an_operator_takes_a_node_out_of_service_and_only_once(place: Site) -> None:
    before = len(place.world.journal.planned())
    for n in range(5):
        body = {"id": f"xid-{n}", "type": "gpu.xid79", "severity": 0, "subject": {"node": ["gpu02"]}}
        assert post(place, place.operator, "/exceptions", body).status_code == 201
    planned = place.world.journal.planned()[before:]
    assert [(row.action.kind, row.action.node, row.exception_id) for row in planned] == [("drain", "gpu02", "xid-0")]


def test_a_shared_resource_holds_what_waits_and_lets_go_after(place: Site) -> None:
    place.world.submit("400", "waits", "mira", 8)
    down = {"id": "down", "type": "storage.down", "subject": {"resource": "pfs:/scratch"}}
    post(place, place.operator, "/exceptions", down)
    held = [row.action for row in place.world.journal.planned() if row.action.kind == "hold"]
    assert "400" in {action.attempt.job_id for action in held}
    children = [i for i in found_all(place) if i["cause"] == "down"]
    assert {i["subject"]["job"] for i in children} >= {"200", "300"}
    assert {i["type"] for i in children} == {"job.pause"}
    up = {"id": "up", "type": "storage.restored", "subject": {"resource": "pfs:/scratch"}}
    post(place, place.operator, "/exceptions", up)
    released = [row.action for row in place.world.journal.planned() if row.action.kind == "release"]
    assert {a.attempt.job_id for a in released} == {a.attempt.job_id for a in held}
    assert found(place, "down")["outcome"] == "clearing"
    place.world.carry_out()
    assert found(place, "down")["outcome"] == "recovered"


def found_all(place: Site) -> Any:
    return place.client(place.operator).get("/api/v1/exceptions?limit=200").json()["items"]


def test_what_was_open_is_open_after_a_restart(place: Site, tmp_path: Path) -> None:
    put(place, place.mira, "trainer")
    post(place, place.mira, "/exceptions", about(id="mine-1"))
    again = place.world.journal.restore()
    assert set(again.chain.open) == {"mira+mine-1"}
    assert set(again.chain.handlers) == {"mira+trainer"}


def test_what_keeps_jobs_held_is_open_and_known_until_its_all_clear_however_long_that_takes(place: Site) -> None:
    def are_open() -> set[str]:
        return {one["id"] for one in place.client(place.operator).get("/api/v1/exceptions?open=true").json()["items"]}

    place.world.submit("400", "waits", "mira", 8)
    shared = {"resource": "pfs:/scratch"}
    post(place, place.operator, "/exceptions", {"id": "down", "type": "storage.down", "subject": shared})
    place.world.carry_out()
    assert "down" in are_open()
    place.world.pass_time(90 * 86_400.0)
    while place.world.journal.prune(place.world.now):
        pass
    place.world.restart()
    known = place.world.state.chain.ended["down"]
    assert (known.is_in_force, known.is_unanswered) == (True, False)
    assert "down" in are_open()
    post(place, place.operator, "/exceptions", {"id": "up", "type": "storage.restored", "subject": shared})
    place.world.carry_out()
    assert "down" not in are_open()


def test_what_two_handlers_say_alike_is_said_once(place: Site) -> None:
    answer = post(place, place.operator, "/exceptions", {"type": "app.nan"})
    assert (answer.status_code, answer.json()["state"]) == (201, "escalated")
    assert answer.json()["reason"] == "it is about no job"


def test_a_body_that_is_not_called_json_is_refused_for_that(place: Site) -> None:
    answer = place.client(place.operator).post(
        "/api/v1/exceptions", content='{"type": "app.nan"}', headers={"Content-Type": "text/plain"}
    )
    assert (answer.status_code, answer.json()["fix"]) == (422, "Send Content-Type: application/json.")
    assert post(place, place.operator, "/exceptions", []).json()["detail"] == "Input should be a valid dictionary"


def test_the_reason_is_the_last_word_and_of_what_nobody_settles_every_word() -> None:
    answers = [Answer(Component.JOB, AnswerKind.DECLINED, 1.0, note) for note in ("first", "", "last", "first")]
    record = ExceptionRecord("x", "app.nan", 1, Scope.LOCAL, Subject("c"), 0.0, verdicts=tuple(answers[:3]))
    assert Raised.of(replace(record, state=ExceptionState.HANDLED), None).reason == "last"
    escalated = replace(record, state=ExceptionState.ESCALATED, verdicts=tuple(answers))
    assert Raised.of(escalated, None).reason == "first; last"


# -- what no answer can hold


HALF, DEEP = "\\ud800", "[" * 300 + "]" * 300
EVERYWHERE = ("/exceptions", "/exceptions?open=true", "/events?limit=200", "/jobs/200")


def all_is_shown(place: Site) -> bool:
    """To operators, and to a handler of the site that has such an exception before it."""
    client = place.client(place.operator)
    codes = [client.get(f"/api/v1{path}").status_code for path in EVERYWHERE]
    wish = {"component": "job", "types": ["app"], "lease_s": 100, "answer_s": 50}
    return {*codes, client.put("/api/v1/handlers/of-the-site", json=wish).status_code} == {200}


@pytest.mark.parametrize(
    "part",
    [f'"own": {DEEP}', f'"own": "{HALF}"', f'"own": {{"{HALF}": 1}}', f'"note": "{HALF}"', f'"evidence": ["{HALF}"]',
     f'"cause": "{HALF}"', f'"origin": {{"host": "{HALF}"}}', '"own": ' + "[" * 900 + "]" * 900, '"own": NaN'],
)  # fmt: skip
def test_what_one_user_sends_hides_nothing_of_the_others(place: Site, part: str) -> None:
    """One exception ended each answer that held it, of listings and events and to the site's own handlers."""
    assert all_is_shown(place)
    body = f'{{"type": "app.x", "subject": {{"job": "200"}}, {part}}}'
    client = place.client(place.mira)
    answer = client.post("/api/v1/exceptions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (201, 422)
    assert all_is_shown(place)


def test_nor_does_what_is_said_of_an_exception(place: Site) -> None:
    raised = post(place, place.mira, "/exceptions", {"type": "app.x", "subject": {"job": "200"}}).json()["id"]
    client = place.client(place.mira)
    for value in (f'"{HALF}"', f'{{"{HALF}": "{HALF}"}}', DEEP):
        said = client.post(
            f"/api/v1/annotations/{raised}",
            content=f'{{"key": "k{HALF}", "value": {value}}}',
            headers={"Content-Type": "application/json"},
        )
        assert said.status_code in (204, 422)
        assert all_is_shown(place)


@pytest.mark.parametrize("own", [DEEP, f'"{HALF}"'])
def test_what_an_earlier_release_took_is_shown_as_text(place: Site, own: str) -> None:
    subject = Subject(place.world.cluster, job_id="200")
    old = ExceptionRecord("old", "app.x", 1, Scope.LOCAL, subject, place.world.now, extra=(("own", own),))
    place.world.tell((ExceptionRaised(old),))
    assert all_is_shown(place)
    assert found(place, "old")["own"] == own
