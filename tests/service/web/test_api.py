"""The HTTP API: what it tells, what it plans, and how it says no."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from perdure.model.jobs import AttemptState
from perdure.model.nodes import NodeState
from perdure.service.store.journal import ActionState
from perdure.service.web.api.event_feed import EventFeed, FeedItem
from perdure.service.web.app import create_app
from tests.copying import replace
from tests.service.web_world import RESET, SHAPE, Site, fill, site


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = site(tmp_path_factory.mktemp("api"), stream_every_s=0.01)
    fill(place.world)
    return place


@pytest.fixture
def fresh(tmp_path: Path) -> Site:
    place = site(tmp_path)
    fill(place.world)
    return place


def get(place: Site, path: str, token: str | None = None, **query: Any) -> Any:
    answer = place.client(place.operator if token is None else token).get(f"/api/v1{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(page: dict[str, Any]) -> list[Any]:
    return [item["job_id"] for item in page["items"]]


# -- jobs


def test_a_job_that_waits_for_a_drained_node_says_so(fresh: Site) -> None:
    world = fresh.world
    world.nodes["gpu02"] = replace(world.nodes["gpu02"], state=NodeState.DRAINED, reason="fan", since_s=None)
    world.submit("108", required=("gpu02",))
    said = "waits for gpu02, which is drained: fan"
    others = "waits for nodes, GPUs or memory that others use (Resources)"
    assert {job["job_id"]: job["waits"] for job in get(fresh, "/jobs", state="pending")["items"]} == {
        "108": said,
        "107": others,
    }
    assert get(fresh, "/jobs/108")["job"]["waits"] == said
    assert get(fresh, "/jobs/107")["job"]["waits"] == others


def test_jobs_come_latest_first(place: Site) -> None:
    assert ids(get(place, "/jobs")) == ["107", "106", "105", "104", "103", "102", "101"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"state": "running"}, ["104"]),
        ({"state": ["completed", "held"]}, ["106", "102"]),
        ({"user": "jonas"}, ["103", "101"]),
        ({"q": "UNET"}, ["101"]),
        ({"q": "104"}, ["104"]),
        ({"q": "tunde"}, ["107", "106"]),
        ({"q": "%"}, []),
        ({"q": "_"}, []),
        ({"user": "nobody"}, []),
        ({"user": "mira", "state": "completed", "q": "diff"}, ["102"]),
    ],
)
def test_jobs_are_filtered(place: Site, query: Mapping[str, Any], expected: list[str]) -> None:
    assert ids(get(place, "/jobs", **query)) == expected


def test_pages_join_without_gap_or_overlap(place: Site) -> None:
    found, cursor = [], None
    while True:
        page = get(place, "/jobs", limit=3, **({"cursor": cursor} if cursor else {}))
        found += ids(page)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == ids(get(place, "/jobs"))


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 40, "१"])
def test_a_cursor_of_ones_own_making_is_refused(place: Site, cursor: str) -> None:
    answer = place.client(place.operator).get("/api/v1/jobs", params={"cursor": cursor})
    assert answer.status_code == 422


def test_a_job_tells_why_it_failed_and_what_was_decided(place: Site) -> None:
    found = get(place, "/jobs/101")
    assert found["job"]["state"] == "failed"
    (attempt,) = found["attempts"]
    assert attempt["verdict"]["category"] == "shape"
    assert any("mat1 and mat2" in line["text"] for line in attempt["verdict"]["evidence"])
    (exception,) = found["exceptions"]
    assert (exception["decision"], exception["owner"], exception["state"]) == ("stop", "scheduler", "stopped")
    assert exception["decided"]["retry_cost_gpu_h"] > exception["decided"]["stop_cost_gpu_h"]
    assert found["actions"] == []


def test_a_recovered_job_shows_both_attempts_and_the_action_between(place: Site) -> None:
    found = get(place, "/jobs/102")
    assert [a["state"] for a in found["attempts"]] == ["completed", "failed"]
    assert found["exceptions"][0]["state"] == "recovered"
    (action,) = found["actions"]
    assert (action["kind"], action["state"], action["exclude"]) == ("requeue", "done", ["gpu02"])


@pytest.mark.parametrize("path", ["/jobs/nope", "/jobs/nope/log"])
def test_an_unknown_job_is_a_problem_with_a_fix(place: Site, path: str) -> None:
    answer = place.client(place.operator).get(f"/api/v1{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "where", "fix", "mend"}
    assert "perdure jobs" in problem["fix"]


@pytest.mark.parametrize(
    ("method", "status", "fix"),
    [
        ("GET", 404, "See /api/v1/openapi.json for the addresses."),
        ("DELETE", 405, "Use one of those in the header Allow."),
    ],
)
def test_an_address_or_method_that_does_not_exist_has_a_fix(place: Site, method: str, status: int, fix: str) -> None:
    path = "/api/v1/nothing" if status == 404 else "/api/v1/jobs"
    answer = place.client(place.operator).request(method, path)
    assert (answer.status_code, answer.json()["fix"]) == (status, fix)
    assert status == 404 or answer.headers["allow"] == "GET, POST"


def test_every_422_has_one_title(place: Site) -> None:
    client = place.client(place.operator)
    by_form = client.get("/api/v1/jobs", params={"limit": "x"})
    by_value = client.get("/api/v1/jobs", params={"cursor": "x"})
    by_job = client.post("/api/v1/jobs", json={"argv": "true"})
    titles = {(answer.status_code, answer.json()["title"]) for answer in (by_form, by_value, by_job)}
    assert titles == {(422, "Unprocessable Content")}
    described = client.get("/api/v1/openapi.json").json()["paths"]["/api/v1/jobs"]["get"]["responses"]["422"]
    assert described["description"] == "Unprocessable Content"


@pytest.mark.parametrize(
    "path", ["jobs", "nodes", "actions", "events", "exceptions", "notices", "suspects", "handlers"]
)
@pytest.mark.parametrize("asked", ["status=bogus", "limt=3"])
def test_a_parameter_that_an_address_does_not_take_is_refused(place: Site, path: str, asked: str) -> None:
    answer = place.client(place.operator).get(f"/api/v1/{path}?{asked}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["where"] == f"query.{asked.partition('=')[0]}"
    assert problem["detail"] == "is not a parameter of this address"
    assert problem["fix"].startswith(("Use ", "Leave it out"))


@pytest.mark.parametrize("asked", ["limit=-1", "limit=x", "state=bogus"])
def test_a_value_that_a_parameter_does_not_take_is_refused(place: Site, asked: str) -> None:
    answer = place.client(place.operator).get(f"/api/v1/jobs?{asked}")
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["where"].startswith(f"query.{asked.partition('=')[0]}")
    assert problem["detail"]
    assert problem["fix"]


# -- logs


def test_a_log_is_plain_text_and_nothing_else(place: Site) -> None:
    answer = place.client(place.operator).get("/api/v1/jobs/101/log")
    assert answer.content == SHAPE
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_log_is_bounded_and_of_the_attempt_asked_for(place: Site) -> None:
    client = place.client(place.operator)
    assert client.get("/api/v1/jobs/102/log", params={"max_bytes": 9}).content == b"finished\n"
    assert client.get("/api/v1/jobs/102/log", params={"incarnation": 1}).content == RESET
    assert client.get("/api/v1/jobs/102/log", params={"incarnation": 9}).status_code == 404
    assert client.get("/api/v1/jobs/107/log").status_code == 404


def test_viewers_read_their_own_logs_and_no_others(place: Site) -> None:
    mira = place.client(place.mira)
    assert mira.get("/api/v1/jobs/102/log").status_code == 200
    assert mira.get("/api/v1/jobs/101/log").status_code == 403
    assert place.client(place.jonas).get("/api/v1/jobs/101/log").status_code == 200


def test_an_id_that_another_user_had_before_shows_nothing_of_theirs(fresh: Site) -> None:
    """A slurmctld that lost its state gives ids out again."""
    fresh.world.submit("900", "theirs", "jonas")
    fresh.world.start("900", "gpu01")
    fresh.world.end("900", SHAPE)
    fresh.world.submit("900", "mine", "mira")
    fresh.world.start("900", "gpu02")
    found = get(fresh, "/jobs/900", fresh.mira)
    assert ([a["incarnation"] for a in found["attempts"]], found["exceptions"]) == ([2], [])
    assert fresh.client(fresh.mira).get("/api/v1/jobs/900/log?incarnation=1").status_code == 403
    assert fresh.client(fresh.jonas).get("/api/v1/jobs/900/log?incarnation=1").status_code == 403
    assert fresh.client(fresh.operator).get("/api/v1/jobs/900/log?incarnation=1").content == SHAPE


def test_lines_of_a_log_are_not_shown_around_the_corner(place: Site) -> None:
    secret = "mat1 and mat2"
    for path in ("/jobs/101", "/events?limit=200", "/jobs", "/actions", "/nodes"):
        assert secret not in place.client(place.mira).get(f"/api/v1{path}").text
    assert secret in place.client(place.jonas).get("/api/v1/jobs/101").text
    assert secret in place.client(place.jonas).get("/api/v1/events?limit=200").text
    assert get(place, "/jobs/101", token=place.mira)["attempts"][0]["verdict"]["evidence"] is None


# -- nodes


def test_nodes_tell_how_they_stand(place: Site) -> None:
    nodes = {node["name"]: node for node in get(place, "/nodes")["items"]}
    assert nodes["gpu03"]["state"] == "down"
    assert nodes["gpu03"]["reason"] == "Not responding"
    assert [nodes[name]["gpus_used"] for name in ("gpu05", "gpu06", "gpu01")] == [8, 8, 0]
    assert get(place, "/nodes/gpu05") == nodes["gpu05"]
    assert place.client(place.operator).get("/api/v1/nodes/zz").status_code == 404


def test_nodes_are_paged_by_name(place: Site) -> None:
    first = get(place, "/nodes", limit=4)
    rest = get(place, "/nodes", limit=4, cursor=first["next_cursor"])
    assert [n["name"] for n in first["items"] + rest["items"]] == [f"gpu{i:02}" for i in range(1, 7)]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("kind", ["fail", "freeze", "thaw", "return"])
def test_faults_reach_the_embedded_cluster(fresh: Site, kind: str) -> None:
    assert fresh.client(fresh.operator).post("/api/v1/nodes/gpu01/faults", json={"kind": kind}).status_code == 204
    assert fresh.commands.faults == [("gpu01", kind)]


def test_other_clusters_refuse_faults(fresh: Site) -> None:
    fresh.commands.backend = "slurm"
    answer = fresh.client(fresh.operator).post("/api/v1/nodes/gpu01/faults", json={"kind": "fail"})
    assert answer.status_code == 409
    assert answer.json()["fix"] == "Use the cluster's own commands."


# -- orders


def order(place: Site, body: object, key: str | None = None, path: str = "/actions") -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return place.client(place.operator).post(f"/api/v1{path}", json=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"kind": "hold", "job_id": "107"}, "hold"),
        ({"kind": "release", "job_id": "106"}, "release"),
        ({"kind": "cancel", "job_id": "104", "reason": "wrong data"}, "cancel"),
        ({"kind": "retry", "job_id": "101", "exclude": ["gpu01"]}, "requeue"),
        ({"kind": "drain", "node": "gpu02", "reason": "bad\nfan"}, "drain"),
        ({"kind": "undrain", "node": "gpu02"}, "undrain"),
    ],
)
def test_an_order_is_planned_in_its_senders_name(fresh: Site, body: Mapping[str, Sequence[str]], kind: str) -> None:
    answer = order(fresh, body)
    assert answer.status_code == 202
    row = fresh.world.journal.action(answer.json()["key"])
    assert (row.action.kind, row.by, row.state) == (kind, "root", ActionState.PLANNED)
    assert "\n" not in row.reason


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "hold", "job_id": "104"}, 409),
        ({"kind": "retry", "job_id": "104"}, 409),
        ({"kind": "cancel", "job_id": "101"}, 409),
        ({"kind": "hold", "job_id": "nope"}, 404),
        ({"kind": "drain", "node": "nope"}, 404),
        ({"kind": "drain", "job_id": "101"}, 422),
        ({"kind": "hold", "node": "gpu01"}, 422),
        ({"kind": "explode", "job_id": "101"}, 422),
        ({"kind": "hold", "job_id": "107", "more": 1}, 422),
        ([], 422),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(place: Site, body: object, status: int) -> None:
    answer = order(place, body)
    assert answer.status_code == status
    assert answer.json()["detail"]
    assert answer.json()["fix"]


def test_an_order_that_is_sent_twice_is_planned_once(fresh: Site) -> None:
    body = {"kind": "drain", "node": "gpu02"}
    first, again = order(fresh, body, key="k1"), order(fresh, body, key="k1")
    assert first.json() == again.json()
    assert order(fresh, body, key="k2").json() != first.json()
    assert order(fresh, {"kind": "drain", "node": "gpu01"}, key="k1").status_code == 422
    planned = fresh.world.journal.planned()
    assert len([row for row in planned if row.by == "root"]) == 2


def test_an_idempotency_key_of_a_drain_outlives_the_service(fresh: Site, tmp_path: Path) -> None:
    body = {"kind": "drain", "node": "gpu02"}
    first = order(fresh, body, key="k1").json()
    fresh.app.state.web.replies._replies.clear()
    assert order(fresh, body, key="k1").json() == first


def test_draining_by_the_nodes_own_address(fresh: Site) -> None:
    answer = order(fresh, {"reason": "hot"}, path="/nodes/gpu02/drain")
    assert fresh.world.journal.action(answer.json()["key"]).reason == "hot"
    client = fresh.client(fresh.operator)  # without a body
    assert (
        fresh.world.journal.action(client.post("/api/v1/nodes/gpu01/drain").json()["key"]).reason == "asked for by root"
    )
    assert "no such node" in client.post("/api/v1/nodes/zz/undrain").json()["detail"]


def test_a_token_that_is_minted_tells_the_id_that_revokes_it(fresh: Site) -> None:
    client = fresh.client(fresh.operator)
    minted = client.post("/api/v1/tokens", json={"user": "zoe"}).json()
    assert fresh.client(minted["token"]).get("/api/v1/jobs").status_code == 200
    fresh.tokens.revoke(minted["id"])
    assert fresh.client(minted["token"]).get("/api/v1/jobs").status_code == 401
    assert client.post("/api/v1/tokens", json={"user": "../bob"}).status_code == 422


def test_the_description_names_the_kinds_that_a_listing_takes(place: Site) -> None:
    listed = place.client().get("/api/v1/openapi.json").json()["paths"]["/api/v1/actions"]["get"]["parameters"]
    (kind,) = (one["schema"]["enum"] for one in listed if one["name"] == "kind")
    assert {"", "retry", "requeue", "hold", "drain"} <= set(kind)


def test_an_order_to_retry_is_listed_under_either_name(fresh: Site) -> None:
    key = order(fresh, {"kind": "retry", "job_id": "101"}).json()["key"]
    for kind in ("retry", "requeue"):
        assert key in [action["key"] for action in get(fresh, "/actions", kind=kind)["items"]]
    assert key not in [action["key"] for action in get(fresh, "/actions", kind="hold")["items"]]


def test_a_planned_action_can_be_withheld_once(fresh: Site) -> None:
    key = order(fresh, {"kind": "hold", "job_id": "107"}).json()["key"]
    client = fresh.client(fresh.operator)
    path = f"/api/v1/actions/{key.replace('/', '%2F').replace('#', '%23')}/withhold"
    assert client.post(path).status_code == 204
    assert fresh.world.journal.action(key).state is ActionState.WITHHELD
    assert client.post(path).status_code == 409


def test_a_finished_action_can_be_undone(fresh: Site) -> None:
    key = order(fresh, {"kind": "hold", "job_id": "107"}).json()["key"]
    fresh.world.carry_out()
    answer = fresh.client(fresh.operator).post(f"/api/v1/actions/{key.replace('#', '%23')}/undo")
    assert answer.status_code == 202
    assert fresh.world.journal.action(answer.json()["key"]).action.kind == "release"


def test_actions_are_filtered(place: Site) -> None:
    planned = get(place, "/actions", state="planned")["items"]
    assert {a["state"] for a in planned} == {"planned"}
    assert [a["job_id"] for a in get(place, "/actions", job_id="102")["items"]] == ["102"]


def test_the_kill_switch_turns_and_turns_back(fresh: Site) -> None:
    client = fresh.client(fresh.operator)
    assert client.post("/api/v1/kill-switch", json={"on": True}).json()["stopped"] is True
    assert client.get("/api/v1/status").json()["stopped"] is True
    assert client.post("/api/v1/kill-switch", json={"on": False}).json()["stopped"] is False


def test_a_job_is_submitted_once_for_one_key(fresh: Site) -> None:
    spec = {"argv": ["python", "train.py"]}
    first = order(fresh, spec, key="s", path="/jobs")
    assert (first.status_code, first.json()) == (201, {"job_id": "1"})
    assert order(fresh, spec, key="s", path="/jobs").json() == {"job_id": "1"}
    assert fresh.commands.submitted == [spec]


def test_a_token_is_minted_over_the_api(fresh: Site) -> None:
    answer = order(fresh, {"user": "lena"}, path="/tokens")
    assert answer.status_code == 201
    assert fresh.client(answer.json()["token"]).get("/api/v1/status").status_code == 200


# -- events


def test_events_are_read_in_order_and_without_gaps(place: Site) -> None:
    found, after = [], 0
    while items := get(place, "/events", after=after, limit=7)["items"]:
        found += items
        after = items[-1]["seq"]
    assert [e["seq"] for e in found] == sorted({e["seq"] for e in found})
    assert {"node_changed", "job_changed", "attempt_ended", "judged", "action_ended"} <= {e["kind"] for e in found}
    assert get(place, "/events", after=after) == {"items": [], "next_cursor": str(after)}


def streamed(place: Site, token: str, **request: Any) -> tuple[list[int], list[Any]]:
    """The first events of a stream that is told to close once it has nothing more to say."""
    place.app.state.listeners.closing = False
    lines = []
    with place.client(token).stream("GET", "/api/v1/events/stream", **request) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            lines.append(line)
    told = [line for line, following in pairwise(lines) if following.startswith("event: ")]
    return [int(line.removeprefix("id: ")) for line in told], lines


@pytest.fixture
def closing(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream ends after its first look that brings nothing."""
    real = EventFeed.after

    async def once(self: EventFeed, seq: int, patience_s: float) -> list[FeedItem]:
        heard = await real(self, seq, 0.05)
        if not heard:
            place.app.state.listeners.close()
        return heard

    monkeypatch.setattr(EventFeed, "after", once)


def test_a_stream_goes_on_where_it_broke_off(place: Site, closing: None) -> None:
    everything, _ = streamed(place, place.operator, params={"after": 0})
    later, _ = streamed(place, place.operator, headers={"Last-Event-ID": str(everything[4])})
    assert later == everything[5:]
    assert streamed(place, place.operator)[0] == []
    assert streamed(place, place.operator, headers={"Last-Event-ID": "9" * 5000})[0] == []
    assert place.app.state.listeners.here == 0


HALF = '{"type": "app.x", "\\ud800": 1}'


@pytest.mark.parametrize(
    ("path", "body"),
    [("/exceptions", '{"type": "\\ud800"}'), ("/jobs", '{"argv": ["a"], "\\ud800": 1}'),
     ("/jobs/\\ud800/attempts/1/correction", HALF), ("/kill-switch", '{"on": true, "\\ud800": 1}')],
)  # fmt: skip
def test_half_a_character_is_refused_in_one_line(place: Site, path: str, body: str) -> None:
    answer = place.client(place.operator).post(f"/api/v1{path}", content=body, headers=JSON_BODY)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_half_a_character_spoils_no_other_of_many(place: Site) -> None:
    """In a field of its own it is replaced; a type of it is refused."""
    sent = f'[{{"type": "app.x", "subject": {{"job": "200"}}}}, {HALF}, {{"type": "\\ud800"}}]'
    answer = place.client(place.operator).post("/api/v1/exceptions/batch", content=sent, headers=JSON_BODY)
    assert answer.status_code == 200, answer.text
    first, second, third = answer.json()
    assert first["status"] == 404
    assert get(place, f"/exceptions/{second['id']}")["\ufffd"] == 1
    assert third["status"] == 422


JSON_BODY = {"Content-Type": "application/json"}


def test_a_stream_says_first_where_it_begins(place: Site, closing: None) -> None:
    newest = get(place, "/events", limit=200)["items"][-1]["seq"]
    assert streamed(place, place.operator)[1][:2] == [f"id: {newest}", ""]
    assert streamed(place, place.operator, params={"after": 3})[1][0] == "id: 3"


def test_a_stream_hides_what_a_viewer_may_not_read(place: Site, closing: None) -> None:
    _, lines = streamed(place, place.mira, params={"after": 0})
    assert "mat1 and mat2" not in "\n".join(lines)
    data = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert any(item["kind"] == "judged" for item in data)


def test_listeners_are_bounded(tmp_path: Path) -> None:
    place = site(tmp_path, max_streams=0)
    answer = place.client(place.operator).get("/api/v1/events/stream")
    assert answer.status_code == 429
    assert answer.headers["retry-after"]


# -- service


def test_status_tells_what_cannot_be_seen(fresh: Site) -> None:
    fresh.world.unseen = {"accounting": "slurmdbd does not answer"}
    found = get(fresh, "/status")
    assert found["unseen"] == {"accounting": "slurmdbd does not answer"}
    assert found["cluster"] == "aurora"


def test_ready_only_once_the_cluster_was_looked_at(fresh: Site) -> None:
    client = fresh.client()
    assert client.get("/readyz").status_code == 200
    fresh.commands.ready = False
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
    assert client.get("/healthz").status_code == 200


def test_what_has_not_changed_is_not_sent_again(fresh: Site) -> None:
    client = fresh.client(fresh.operator)
    first = client.get("/api/v1/jobs")
    again = client.get("/api/v1/jobs", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    fresh.world.submit("108")
    assert client.get("/api/v1/jobs", headers={"If-None-Match": first.headers["etag"]}).status_code == 200


def test_a_journal_that_does_not_answer_is_a_problem(fresh: Site) -> None:
    path = fresh.tokens.path.with_name("torn.db")
    path.write_bytes(b"no database" * 1000)
    fresh.app = create_app(create_engine(f"sqlite:///{path}"), fresh.commands, fresh.tokens)
    client = fresh.client(fresh.operator)
    assert client.get("/metrics").text.count("perdure_journal_up 0.0") == 1
    answer = client.get("/api/v1/jobs")
    assert answer.status_code == 503
    assert answer.json()["where"] == "the journal"


def test_the_api_is_described(place: Site) -> None:
    document = place.client().get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "Problem" in document["components"]["schemas"]
    operations = [(path, method) for path, item in document["paths"].items() for method in item]
    for path, method in operations:
        if path.startswith("/api/"):
            assert "application/problem+json" in document["paths"][path][method]["responses"]["401"]["content"]


def test_an_attempt_that_was_preempted_is_told_as_such(fresh: Site) -> None:
    fresh.world.end("104", b"", AttemptState.PREEMPTED)
    assert get(fresh, "/jobs/104")["attempts"][0]["verdict"]["category"] == "preempt"


def test_an_arrays_id_finds_its_tasks(fresh: Site) -> None:
    for job_id in ("900_1", "900_2", "9001_1"):
        fresh.world.submit(job_id, "sweep", "mira")
    found = get(fresh, "/jobs", q="900", token=fresh.mira)["items"]
    assert [job["job_id"] for job in found] == ["900_2", "900_1"]


def test_a_component_of_a_heterogeneous_job_names_the_whole(place: Site) -> None:
    """Slurm's tools name it so; Perdure keeps the job as one."""
    assert get(place, "/jobs/101%2B1")["job"]["job_id"] == "101"
