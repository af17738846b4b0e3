"""Corrections and rounds of teaching over the API and in the dashboard: who may, and what becomes of it."""

import csv
import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure.service.learning.outcome_store import SERVICE, Aside, JobOutcome
from perdure.service.store.queries.learning import similar
from perdure.service.store.schema import corrections
from perdure.service.web.pages.learning import ROUNDS
from tests.service.web_world import Site, fill, site

CORRECTION = "/api/v1/jobs/{}/attempts/1/correction"


@pytest.fixture
def place(tmp_path: Path) -> Site:
    place = site(tmp_path)
    fill(place.world)
    return place


def label_of(place: Site, token: str, job_id: str) -> Any:
    answer = place.client(token).get(f"/api/v1/jobs/{job_id}").json()
    return next(a["verdict"]["label"] for a in answer["attempts"] if a["verdict"])


def test_an_operators_word_changes_later_verdicts_of_all(place: Site) -> None:
    assert place.client(place.operator).post(CORRECTION.format(101), json={"label": "transient"}).status_code == 204
    world = place.world
    world.submit("201", "again", "mira")
    world.start("201", "gpu02")
    world.pass_time(60)
    world.end("201", world.logs["101", 1])
    assert label_of(place, place.operator, "201") == "transient"


def test_a_users_word_is_for_his_own_jobs(place: Site) -> None:
    world, mira = place.world, place.client(place.mira)
    assert mira.post(CORRECTION.format(101), json={"label": "transient"}).status_code == 403  # that of jonas
    assert mira.post(CORRECTION.format(102), json={"label": "deterministic"}).status_code == 204
    for job_id, user in (("201", "mira"), ("202", "jonas")):
        world.submit(job_id, "again", user)
        world.start(job_id, "gpu02")
        world.pass_time(60)
        world.end(job_id, world.logs["102", 1])
    assert label_of(place, place.operator, "201") == "deterministic"
    assert label_of(place, place.operator, "202") == "transient"


@pytest.mark.parametrize(
    ("job_id", "body", "status"),
    [
        (101, {"label": "perhaps"}, 422),
        (101, {}, 422),
        (106, {"label": "transient"}, 404),
        (999, {"label": "none"}, 404),
        (101, {"label": "none"}, 404),  # nobody corrected it
    ],
)
def test_what_makes_no_sense_is_refused(place: Site, job_id: int, body: dict[str, str], status: int) -> None:
    assert place.client(place.operator).post(CORRECTION.format(job_id), json=body).status_code == status


def test_rounds_are_held_shown_and_rolled_back(place: Site) -> None:
    operator = place.client(place.operator)
    operator.post(CORRECTION.format(101), json={"label": "transient"})
    held = operator.post("/api/v1/learning/rounds").json()
    assert held["rounds"][0]["term"]["persons"] == 1
    assert [(c["job_id"], c["label"], c["for_all"]) for c in held["corrections"]] == [("101", "transient", True)]
    assert held["rounds"][0]["term"]["adopted"]
    seen = held["model"]
    assert (seen, held["rounds"][0]["in_use"]) == (held["rounds"][0]["number"], True)
    back = "/api/v1/learning/rollback"
    assert operator.post(back).status_code == 422
    assert operator.post(back, json={"model": seen + 1}).status_code == 409
    assert operator.post(back, json={"model": seen}).json() == {"rolled_back": True}
    again = operator.post(back, json={"model": seen})
    assert again.status_code == 409
    assert "the model in use is the one that came with Perdure by now" in again.text
    assert operator.post("/do/learning/rollback", data={"model": seen}).status_code == 409
    assert operator.post(back, json={"model": 0}).json() == {"rolled_back": False}
    after = operator.get("/api/v1/learning").json()
    assert not any(row["in_use"] for row in after["rounds"])
    assert after["model"] == 0


def test_nobody_sees_what_others_said(place: Site) -> None:
    place.client(place.operator).post(CORRECTION.format(101), json={"label": "transient"})
    assert place.client(place.mira).get("/api/v1/learning").json()["corrections"] == []


def test_the_page_tells_and_the_job_says_how_often_it_was_seen(place: Site) -> None:
    operator = place.client(place.operator)
    assert "No training yet" in operator.get("/learning").text
    operator.post(CORRECTION.format(101), json={"label": "transient"})
    operator.post("/api/v1/learning/rounds")
    page = operator.get("/learning").text
    assert "similar failures of all users" in page
    assert re.search(r"2 <span class=\"muted\">of 2</span>", page)  # the correction, and a retry that passed
    assert re.search(r"Accuracy on the reference set.*\d\.\d → \d+\.\d %", page, re.DOTALL)
    rows = list(csv.DictReader(io.StringIO(operator.get("/learning?format=csv").text)))
    assert [(row["training_examples"], row["from_people"]) for row in rows] == [("2", "1")]
    said = operator.get("/learning?format=csv&table=corrections").text
    assert said.splitlines()[1].startswith("101,1,transient,root,True,")
    assert len(place.client(place.mira).get("/learning?format=csv&table=corrections").text.splitlines()) == 1
    job = operator.get("/jobs/103").text
    assert "Seen 2 times this week, in 2 jobs of 2 users; a retry got past it in 1" in job


def test_what_has_no_fingerprint_is_like_nothing(place: Site) -> None:
    from perdure.service.store.queries.reader import Reader

    reader = Reader(place.world.journal.engine, "c")
    assert similar(reader, "", 0.0).failures == 0


def test_of_no_examples_of_the_site_no_accuracy_is_told() -> None:
    without = {"balanced_accuracy": 1.0, "examples": 0}
    row = SimpleNamespace(term={"site_before": without, "site_after": {"balanced_accuracy": 0.9, "examples": 5}})
    told = {name: cell(cast("Any", row)) for name, cell in ROUNDS if name.startswith("site_accuracy")}
    assert told == {"site_accuracy_before": None, "site_accuracy_after": 0.9}


def fail_again(place: Site, job_id: str, user: str) -> None:
    """Job 101's failure, in a job of `user`."""
    world = place.world
    world.submit(job_id, "again", user)
    world.start(job_id, "gpu02")
    world.pass_time(60)
    world.end(job_id, world.logs["102", 1])


def test_a_users_word_holds_for_all_once_an_operator_confirms_it(place: Site) -> None:
    operator, mira = place.client(place.operator), place.client(place.mira)
    assert mira.post(CORRECTION.format(102), json={"label": "deterministic"}).status_code == 204
    confirm = CORRECTION.format(102) + "/confirm"
    word = {"word": operator.get("/api/v1/learning").json()["corrections"][0]["word"]}
    assert mira.post(confirm, json=word).status_code == 403
    assert operator.post(CORRECTION.format(999) + "/confirm", json=word).status_code == 404
    assert operator.post(confirm).status_code == 422
    assert operator.post(confirm, json=word).status_code == 204
    fail_again(place, "201", "jonas")
    assert label_of(place, place.operator, "201") == "deterministic"
    assert mira.post(CORRECTION.format(102), json={"label": "transient"}).status_code == 403  # an operator spoke
    assert mira.post(CORRECTION.format(102), json={"label": "none"}).status_code == 403
    assert operator.get("/api/v1/learning").json()["corrections"][0]["confirmed_by"] == "root"
    assert "confirmed by root" in operator.get("/learning").text
    (row,) = csv.DictReader(io.StringIO(operator.get("/learning?format=csv&table=corrections").text))
    assert (row["by"], row["for_all_users"]) == ("mira", "True")
    (said,) = operator.get("/api/v1/jobs/102").json()["corrections"]
    assert (said["label"], said["by"], said["confirmed_by"]) == ("deterministic", "mira", "root")


def test_who_confirms_a_word_sees_the_message_that_it_is_about(place: Site) -> None:
    world, operator = place.world, place.client(place.operator)
    world.submit("201", "odd", "mira")
    world.start("201", "gpu02")
    world.pass_time(60)
    world.end("201", b"loading\nacme.WarpError: <script>alert(1)</script> \x1b[31mtorn\xe2\x80\xae in lattice 7\n")
    assert place.client(place.mira).post(CORRECTION.format(201), json={"label": "transient"}).status_code == 204
    message = "acme.WarpError: <script>alert(<n>)</script> torn in lattice <n>"
    (said,) = operator.get("/api/v1/learning").json()["corrections"]
    assert said["message"] == message
    page = operator.get("/learning").text
    row = page[page.index('id="said"') :]
    assert "&lt;script&gt;alert(&lt;n&gt;)&lt;/script&gt; torn in lattice &lt;n&gt;</span>" in row
    assert "<script>alert" not in page
    (row_of_csv,) = csv.DictReader(io.StringIO(operator.get("/learning?format=csv&table=corrections").text))
    assert row_of_csv["message"] == message


def test_what_was_taught_is_shown_set_aside_and_approved(place: Site) -> None:
    operator, mira = place.client(place.operator), place.client(place.mira)
    place.world.learner.store.note_outcomes()
    (message,) = operator.get("/api/v1/learning").json()["messages"]
    assert (message["passed"], message["failed"], message["says"]) == (
        1,
        0,
        "too few yet: nothing is learnt",
    )
    user, which = message["users"][0], message["fingerprint"]
    for kind, value in (("user", user), ("message", which)):
        asked = {"kind": kind, "value": value}
        assert mira.post("/api/v1/learning/aside", json=asked).status_code == 403
        assert operator.post("/api/v1/learning/aside", json=asked).json() == {"taught": 1}
        told = operator.get("/api/v1/learning").json()
        assert told["messages"][0]["says"] == "set aside: nothing is learnt"
        assert [(one["kind"], one["value"], one["by"]) for one in told["set_aside"]] == [(kind, value, "root")]
        assert mira.get("/api/v1/learning").json()["set_aside"] == []
        page = operator.get("/learning").text
        assert "Set aside by root" in page
        assert operator.post("/api/v1/learning/approve", json=asked).status_code == 204
        assert operator.post("/api/v1/learning/approve", json=asked).status_code == 404
    assert operator.post("/api/v1/learning/aside", json={"kind": "week", "value": "soon"}).status_code == 422
    for no_day in ("soon", "2026-1-31"):
        assert operator.post("/api/v1/learning/aside", json={"kind": "day", "value": no_day}).status_code == 422
    assert operator.get("/api/v1/learning").json()["set_aside"] == []
    rows = list(csv.DictReader(io.StringIO(operator.get("/learning?format=csv&table=messages").text)))
    assert [(row["fingerprint"], row["passed"], row["users"]) for row in rows] == [(which, "1", user)]


def test_a_user_sees_no_message_of_others(place: Site) -> None:
    outcomes = [JobOutcome("1", "f", 0.0, "mira", True, "of mira"), JobOutcome("2", "g", 0.0, "jonas", True, "secret")]
    place.world.learner.store.outcomes.note(outcomes)
    every = place.client(place.operator).get("/api/v1/learning").json()["messages"]
    assert {one["message"] for one in every} >= {"of mira", "secret"}
    mira = place.client(place.mira)
    assert {user for one in mira.get("/api/v1/learning").json()["messages"] for user in one["users"]} == {"mira"}
    for page in ("/learning", "/learning?format=csv&table=messages"):
        told = mira.get(page).text
        assert "of mira" in told
        assert "secret" not in told


def test_only_operators_set_aside_approve_and_confirm(place: Site) -> None:
    mira, asked = place.client(place.mira), {"kind": "user", "value": "jonas"}
    for deed in ("aside", "approve"):
        assert mira.post(f"/api/v1/learning/{deed}", json=asked).status_code == 403
        assert mira.post(f"/do/learning/{deed}", data=asked).status_code == 403
    assert mira.post(CORRECTION.format(102), json={"label": "deterministic"}).status_code == 204
    word = {"word": mira.get("/api/v1/learning").json()["corrections"][0]["word"]}
    assert mira.post(f"{CORRECTION.format(102)}/confirm", json=word).status_code == 403
    assert mira.post(f"/do{CORRECTION.format(102).removeprefix('/api/v1')}/confirm", data=word).status_code == 403
    (said,) = mira.get("/api/v1/learning").json()["corrections"]
    assert not said["confirmed_by"]


@pytest.mark.parametrize("then", ["deterministic", "transient"])
def test_a_word_that_changed_since_it_was_seen_is_not_confirmed(place: Site, then: str) -> None:
    operator, mira, path = place.client(place.operator), place.client(place.mira), CORRECTION.format(102)
    mira.post(path, json={"label": "transient"})
    seen = {"word": operator.get("/api/v1/learning").json()["corrections"][0]["word"]}
    place.world.pass_time(1)
    assert mira.post(path, json={"label": then}).status_code == 204
    refused = operator.post(path + "/confirm", json=seen)
    assert refused.status_code == 409
    assert "has changed since you looked" in refused.json()["detail"]
    (said,) = operator.get("/api/v1/learning").json()["corrections"]
    assert (said["label"], said["confirmed_by"]) == (then, "")
    assert operator.post(path + "/confirm", json={"word": said["word"]}).status_code == 204


def test_a_user_with_a_long_name_is_set_aside_and_approved(place: Site) -> None:
    operator, asked = place.client(place.operator), {"kind": "user", "value": "e" * 1000}
    assert operator.post("/api/v1/learning/aside", json=asked).json() == {"taught": 0}
    assert operator.get("/api/v1/learning").json()["set_aside"][0]["value"] == "e" * 1000
    assert operator.post("/api/v1/learning/approve", json=asked).status_code == 204
    assert operator.post("/api/v1/learning/aside", json={**asked, "value": "e" * 5000}).status_code == 422


def test_what_the_service_set_aside_says_why_and_is_undone_by_one_command(place: Site) -> None:
    operator, outcomes = place.client(place.operator), place.world.learner.store.outcomes
    outcomes.put_aside(Aside.USER, "eve", SERVICE, place.world.now, "of 5 messages others saw the opposite")
    (held,) = operator.get("/api/v1/learning").json()["set_aside"]
    assert (held["by"], held["reason"]) == ("perdure", "of 5 messages others saw the opposite")
    assert "Set aside by the service" in (page := operator.get("/learning").text)
    assert "of 5 messages others saw the opposite" in page
    assert operator.post("/api/v1/learning/approve", json={"kind": "user", "value": "eve"}).status_code == 204
    assert operator.get("/api/v1/learning").json()["set_aside"] == []


def test_many_words_of_one_user_hide_no_word_of_another(place: Site) -> None:
    said = place.world.learner.store
    assert place.client(place.mira).post(CORRECTION.format(102), json={"label": "deterministic"}).status_code == 204
    row = {"transient": True, "by": "eve", "user": "eve", "fingerprint": "f", "for_all": False, "incarnation": 1}
    rows = [{**row, "cluster": said.cluster, "job_id": f"e{n}", "time_s": 1e10 + n} for n in range(300)]
    with place.world.journal.store.writing() as db:
        db.execute(corrections.insert(), rows)
    for token in (place.operator, place.mira):
        words = place.client(token).get("/api/v1/learning").json()["corrections"]
        assert "mira" in {word["by"] for word in words}
        assert '<td data-label="By">mira' in place.client(token).get("/learning").text


def test_a_users_word_is_noted_as_their_own_until_it_is_confirmed(place: Site) -> None:
    path = "/do/jobs/102/attempts/1/correction"
    for token, is_own in ((place.mira, True), (place.operator, False)):
        done = place.client(token).post(path, data={"label": "deterministic"}, headers={"HX-Request": "true"})
        assert ("your own jobs until an operator confirms" in done.text + str(done.headers)) is is_own
