"""A slurmctld that lost its state gives ids out again: the job that has one now has a story of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from perdure.model.jobs import AttemptState, begins_anew
from perdure.service.access.auth import Identity, Role
from perdure.service.store.queries import actions, jobs
from tests.copying import replace
from tests.service.web_world import RESET, SHAPE, Site, site

ROUTES = ("/jobs/900", "/jobs/900/log", "/jobs", "/exceptions?job_id=900", "/exceptions")
THEIRS = "900#1:"  # in the ids of all that is about jonas's attempt


@pytest.fixture
def given_again(tmp_path: Path, where: Path | str) -> Site:
    """Job 900 of jonas failed and was put back; then the id went to mira, whose first attempt went well."""
    place = site(tmp_path, where=where)
    world = place.world
    world.submit("900", "theirs", "jonas")
    world.start("900", "gpu01")
    world.pass_time(600)
    world.end("900", RESET)
    world.carry_out()
    world.pass_time(60)
    give_again(place, "mira")
    world.pass_time(60)
    world.end("900", b"mine alone\n", AttemptState.COMPLETED)
    return place


def give_again(place: Site, user: str) -> None:
    """As after a restart of slurmctld without its state."""
    place.world.submit("900", "mine", user)
    place.world.start("900", "gpu02")


def get(place: Site, path: str, token: str) -> Any:
    return place.client(token).get(f"/api/v1{path}")


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("role", ["mira", "jonas", "operator"])
def test_nothing_of_the_job_before_is_told_of_the_one_that_has_its_id(given_again: Site, path: str, role: str) -> None:
    text = get(given_again, path, getattr(given_again, role)).text
    if path == "/exceptions" and role == "operator":
        assert THEIRS in text  # it asks for all
    else:
        assert THEIRS not in text
        assert "connection" not in text.lower()
        assert "away from gpu01" not in text


def test_actions_of_the_job_before_are_not_listed(given_again: Site) -> None:
    for token in (given_again.mira, given_again.jonas, given_again.operator):
        assert get(given_again, "/actions?job_id=900", token).json()["items"] == []
    assert "requeue" in get(given_again, "/actions", given_again.operator).text


def test_a_job_page_tells_of_its_own_attempts_alone(given_again: Site) -> None:
    for token in (given_again.mira, given_again.operator):
        page = given_again.client(token).get("/jobs/900", headers={"accept": "text/html"}).text
        assert "theirs" not in page
        assert "connection" not in page.lower()


def test_the_owner_reads_the_log_and_nobody_reads_that_of_the_one_before(given_again: Site) -> None:
    assert get(given_again, "/jobs/900/log", given_again.mira).content == b"mine alone\n"
    assert get(given_again, "/jobs/900/log?incarnation=2", given_again.mira).content == b"mine alone\n"
    assert get(given_again, "/jobs/900/log?incarnation=1", given_again.mira).status_code == 403
    assert get(given_again, "/jobs/900/log?incarnation=1", given_again.jonas).status_code == 403


@pytest.mark.parametrize("role", ["mira", "jonas"])
def test_an_exception_of_the_job_before_is_not_found(given_again: Site, role: str) -> None:
    listed = get(given_again, "/exceptions", given_again.operator).json()["items"]
    (before,) = [record["id"] for record in listed if THEIRS in record["id"]]
    assert get(given_again, f"/exceptions/{quote(before)}", getattr(given_again, role)).status_code == 404
    assert get(given_again, f"/exceptions/{quote(before)}", given_again.operator).status_code == 200


def test_what_a_log_said_of_the_job_before_is_not_in_events(given_again: Site) -> None:
    for token in (given_again.mira, given_again.jonas):
        assert "Connection reset by peer" not in get(given_again, "/events?limit=200", token).text
    assert "Connection reset by peer" in get(given_again, "/events?limit=200", given_again.operator).text


def test_a_user_without_a_token_sees_the_new_job_alone(given_again: Site) -> None:
    reader, mine = given_again.app.state.web.reader, Identity("mira", Role.VIEWER, own_only=True)
    assert mine.may_see(jobs.owner_of(reader, "900"))
    detail = jobs.job_detail(reader, "900")
    assert [each.attempt.id.incarnation for each in detail.attempts] == [2]
    assert (detail.exceptions, actions.actions_of(reader, "900")) == ((), ())


def test_the_same_users_later_job_is_another_one(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.world.submit("900", "first", "mira")
    place.world.start("900", "gpu01")
    place.world.end("900", SHAPE)
    place.world.pass_time(60)
    give_again(place, "mira")
    found = get(place, "/jobs/900", place.mira).json()
    assert ([a["incarnation"] for a in found["attempts"]], found["exceptions"]) == ([2], [])


def test_a_job_that_was_put_back_keeps_its_story(tmp_path: Path) -> None:
    """Slurm counts it as submitted anew."""
    place = site(tmp_path)
    place.world.submit("900", "first", "mira")
    place.world.start("900", "gpu01")
    place.world.end("900", RESET)
    place.world.carry_out()
    place.world.pass_time(60)
    place.world.jobs["900"] = replace(place.world.jobs["900"], submit_s=place.world.now, restarts=1)
    place.world.look()
    found = get(place, "/jobs/900", place.mira).json()
    assert ([a["incarnation"] for a in found["attempts"]], len(found["exceptions"])) == ([1], 1)


def test_jobs_that_came_after_the_ids_began_again_come_first(given_again: Site) -> None:
    world = given_again.world
    world.submit("901", "older", "mira")
    world.pass_time(60)
    give_again(given_again, "jonas")
    listed = get(given_again, "/jobs", given_again.operator).json()["items"]
    assert [job["job_id"] for job in listed] == ["900", "901"]


def test_a_case_ends_where_another_job_gets_the_id(given_again: Site) -> None:
    assert "900" not in given_again.world.state.cases
    stands = {r["id"]: r["outcome"] for r in get(given_again, "/exceptions", given_again.operator).json()["items"]}
    assert [state for name, state in stands.items() if THEIRS in name] == ["withdrawn"]


def test_what_begins_anew(tmp_path: Path) -> None:
    world = site(tmp_path).world
    world.submit("1")
    job = world.jobs["1"]
    later = replace(job, submit_s=job.submit_s + 100)
    assert begins_anew(job, later)
    assert begins_anew(job, replace(later, user="jonas", restarts=3))
    assert not begins_anew(job, replace(later, restarts=1))
    assert not begins_anew(job, replace(job, user="1001", name="renamed"))
