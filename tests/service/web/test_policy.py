"""The page and the API of the policy in force, over a queue as a cluster would tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.live_policy.outcome import PolicyPromise
from perdure.live_policy.settings import PolicySettings
from perdure.service.live_policy.policy_store import PolicyStore
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.live_policy.worker import PolicyWorker
from perdure.waits.queue import QueueLook
from tests.copying import replace
from tests.live_policy.queues import look, running, waiting
from tests.service.web_world import Site, fill, site

LAS = PolicySettings("las-2d", first_limit_s=100.0, second_limit_s=1000.0, least_run_s=60.0)


class ToldQueue:
    """Tells of one job that was served, one that is young, and two that wait in another order than they came."""

    def __init__(self) -> None:
        self.nice: dict[str, int] = {}

    def queue(self) -> QueueLook:
        ran = (running("1", 500, ("n1",)), running("2", 30, ("n2",)))
        return look(*ran, waiting("3", 9, gpus=4), waiting("4", 20, gpus=2), waiting("5", 7, gpus=0))

    def set_nice(self, nice: Mapping[str, int]) -> dict[str, str]:
        self.nice.update(nice)
        return {}


@pytest.fixture
def place(tmp_path: Path) -> Site:
    found = site(tmp_path)
    fill(found.world)
    return found


def in_force(place: Site, folder: Path, *, acts: bool = False) -> ToldQueue:
    cluster = ToldQueue()
    store = PolicyStore(place.world.journal.store, place.world.cluster)
    worker = PolicyWorker(
        cluster, store, LAS, PolicySwitch(folder), lambda: acts, list, lambda *_: None, lambda: place.world.now
    )
    worker.turn()
    place.app.state.web = replace(place.app.state.web, policy=worker)
    return cluster


def test_what_a_policy_would_do_is_shown_and_not_done(place: Site, tmp_path: Path) -> None:
    cluster = in_force(place, tmp_path)
    found = place.client(place.mira).get("/api/v1/policy").json()
    assert (found["name"], found["state"], cluster.nice) == ("las-2d", "shadow", {})
    assert [(job["job"], job["place"], job["place_seen"]) for job in found["order"]] == [("3", 1, 2), ("4", 2, 1)]
    assert found["preemptions"] == [{"job": "1", "starts": "3", "why": "las-2d lets job 3 run before job 1"}]
    assert found["left_alone"] == {"5": "it asks for no GPU"}
    page = place.client(place.mira).get("/policy").text
    for words in (
        "shadow, nothing of it is done",
        "las-2d lets job 3 run before job 1",
        "It asks for no GPU",
        "to be 20",
    ):
        assert words in page
    lines = place.client(place.mira).get("/policy?format=csv").text.splitlines()
    assert lines[0].startswith("job_id,user,gpus")
    assert len(lines) == 3


def test_an_operator_switches_it_and_a_viewer_does_not(place: Site, tmp_path: Path) -> None:
    in_force(place, tmp_path, acts=True)
    assert place.client(place.mira).post("/api/v1/policy", json={"on": False}).status_code == 403
    operator = place.client(place.operator)
    assert operator.get("/api/v1/policy").json()["state"] == "acting"
    assert operator.post("/api/v1/policy", json={"on": False}).json()["state"] == "off"
    assert "switched off" in operator.get("/policy").text
    assert operator.post("/api/v1/policy", json={"on": True}).json()["state"] == "acting"


def test_without_a_policy_the_page_says_how_to_have_one(place: Site) -> None:
    assert "perdure up --policy las-2d" in place.client(place.mira).get("/policy").text
    assert place.client(place.mira).get("/api/v1/policy").json()["state"] == "none"
    refused = place.client(place.operator).post("/api/v1/policy", json={"on": False})
    assert (refused.status_code, "perdure up --policy NAME" in refused.text) == (409, True)


def test_what_was_promised_stands_beside_what_came(place: Site, tmp_path: Path) -> None:
    cluster = in_force(place, tmp_path, acts=True)
    promise = PolicyPromise("0" * 16, 50.0, 900, 60.0, 3600.0, 120.0, 7200.0)
    store = PolicyStore(place.world.journal.store, place.world.cluster)
    worker = PolicyWorker(
        cluster, store, replace(LAS, name="las-2d:4"), PolicySwitch(tmp_path), lambda: True, list, lambda *_: None,
        lambda: place.world.now, promise=lambda _: promise,
    )  # fmt: skip
    worker.turn()  # another policy than before: the time in force begins again
    worker.turn()
    place.app.state.web = replace(place.app.state.web, policy=worker)
    term = place.client(place.mira).get("/api/v1/policy").json()["term"]
    assert (term["policy"], term["promised"]["jct_s"], term["until_s"]) == ("las-2d:4", 3600.0, None)
    assert (term["over"], term["enough"], term["jct_s"]) == (0, False, None)
    page = place.client(place.mira).get("/policy").text
    assert "Promised and achieved" in page
    assert "Too few jobs for an interval" in page
    place.client(place.operator).post("/api/v1/policy", json={"on": False})
    PolicyWorker(
        cluster, store, LAS, PolicySwitch(tmp_path), lambda: True, list, lambda *_: None, lambda: place.world.now
    ).turn()
    assert store.term() is not None
    assert place.client(place.mira).get("/api/v1/policy").json()["term"]["until_s"] is not None
