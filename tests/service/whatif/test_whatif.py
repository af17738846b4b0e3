"""What-if questions over the web: who may ask what, what a process of its own answers, and what is left behind."""

from __future__ import annotations

import csv
import gzip
import hashlib
import html
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import __version__
from perdure.errors import InputError
from perdure.installation import install_command
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.service.access.auth import Identity, Role
from perdure.service.runtime.assembly import at_work
from perdure.service.web.host_guard import MAX_BODY_BYTES, POLICY
from perdure.service.web.pages import whatif as pages
from perdure.service.whatif import uploads as uploads_module
from perdure.service.whatif.comparison import ComparisonRequest, Progress, Stage, Summary
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.comparison_store import PICTURES, RECORD, SUMMARY
from perdure.service.whatif.question import (
    MAX_RUNS,
    PLACEMENT_NAMES,
    RETRY_NAMES,
    ComparisonQuestion,
    check,
    policy_names,
)
from perdure.service.whatif.settings import WhatifSettings
from perdure.service.whatif.worker import compare, compared
from perdure.simulation.failures import FAILURE_WORDS
from perdure.simulation.policy_file import is_policy_file
from perdure.simulation.report import TITLES
from perdure.simulation.restart_cost import PUBLISHED, restart_cost
from perdure.simulation.retries import RETRY_POLICIES
from perdure.simulation.simulate import simulate
from perdure.simulation.sweep import Setting, cases, sweep
from perdure.traces.read import read
from tests.copying import replace
from tests.job.launching import is_alive
from tests.service.web_world import CLUSTER, Site, TestClient, csrf_of, fill, site
from tests.service.whatif_world import ASK, PATIENCE_S, ROWS, WHATIF, answered, asked, awaited, packed, send


@pytest.fixture
def place(tmp_path: Path) -> Site:
    place = site(tmp_path, whatif=WhatifSettings(upload_mib=1, unpacked_mib=8, nice=0, queue=2, keep=3))
    fill(place.world)
    return place


@pytest.fixture
def working(place: Site) -> Iterator[Site]:
    with at_work(place.queue):
        yield place


def left_behind(place: Site) -> list[Any]:
    """Files of uploads and of simulations under way."""
    home = place.queue._work.parent
    return [path for part in ("work", "uploads") for path in (home / part).rglob("*")]


# -- what may be asked


@pytest.mark.parametrize(
    "policy",
    ["mine.py:Mine", "./mine.py", "/etc/x.py:Y", "dlas-gpu-8.py:Mine", "dlas-gpu-8.py", "nonsense", "fifo:x"],
)
def test_a_policy_is_a_name_of_the_registry_and_never_a_file(
    place: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "dlas-gpu-8.py"):
        (tmp_path / name).write_text("from pathlib import Path\nPath('ran').touch()\nclass Mine: pass\n")
    answer = place.client(place.operator).post(f"{WHATIF}/comparisons", json={**ASK, "policies": [policy]})
    assert answer.status_code == 422
    assert not (tmp_path / "ran").exists()
    assert place.queue.store.all() == ()


@given(st.text(max_size=40) | st.from_regex(r"\A[a-z0-9-]{1,12}(\.py)?(:[a-zA-Z0-9.]{0,8})?\Z"))
def test_whatever_is_taken_for_a_policy_is_no_file(name: str) -> None:
    try:
        check(
            ComparisonQuestion.model_construct(
                **{**ComparisonQuestion(cluster="1x1", policies=("fifo",)).model_dump(), "policies": (name,)}
            )
        )
    except InputError:
        return
    assert not is_policy_file(name)


def test_all_that_is_offered_can_be_asked(place: Site) -> None:
    offer = place.client(place.mira).get(WHATIF).json()
    assert offer["cluster"] == "6x8"
    assert offer["history_jobs"] == 4
    assert offer["policies"] == list(policy_names())
    for placement in PLACEMENT_NAMES:
        for failures in FAILURE_WORDS:
            question = ComparisonQuestion(
                cluster="6x8",
                retries=RETRY_NAMES,
                policies=policy_names(),
                placement=placement,
                failures=failures,
            )
            check(question)
    assert offer["upload_bytes"] == 1 << 20


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"cluster": "lots"}, "is not NODESxGPUS"),
        ({"cluster": "machines.csv"}, "is not NODESxGPUS"),
        ({"cluster": "9999999x8"}, "more than 1000000 nodes"),
        ({"policies": []}, "at least 1"),
        ({"policies": ["fifo", "fifo"]}, "given twice"),
        ({"retries": ["often"]}, "no retry policy"),
        ({"placement": "../x"}, "no placement"),
        ({"failures": "nonsense"}, "no failure model"),
        ({"format": "excel"}, "not a form of trace"),
        ({"seeds": 21}, "less than or equal"),
        ({"load": -1}, "greater than"),
        ({"preemption_cost": "dear"}, "'dear' is not a cost"),
        ({"preemption_cost": "8:30,1:7,60"}, "is not a cost"),
        ({"upload": "../../etc/passwd"}, "match pattern"),
        ({"upload": "0" * 16}, "no such trace is at hand"),
        ({"rates": "0" * 16}, "the trace that these rates belong to is missing"),
        ({"path": "/etc/passwd"}, "not permitted"),
        ({"policies": list(policy_names())[:15], "seeds": 14}, f"{MAX_RUNS} are taken"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once_in_words(place: Site, said: Mapping[str, object], words: str) -> None:
    answer = place.client(place.operator).post(f"{WHATIF}/comparisons", json={**ASK, **said})
    assert answer.status_code in (404, 422)
    assert words in answer.json()["detail"]
    assert place.queue.store.all() == ()
    assert left_behind(place) == []


def test_the_form_says_the_same_as_the_command_line(place: Site) -> None:
    browser = logged_in(place)
    form = {
        "cluster": "2x8", "policy": ["fifo", "las-2d"], "retry": ["never"], "load": "0.8", "seeds": "3",
        "preemption_cost": "1:7,20",
    }  # fmt: skip
    answer = browser.post("/do/whatif", data=form)
    assert answer.status_code == 303
    (found,) = place.queue.store.all()
    assert answer.headers["location"] == f"/whatif/{found.id}"
    text = browser.get(answer.headers["location"]).text
    assert (
        "perdure whatif TRACE --cluster 2x8 --policy fifo,las-2d --retry never --load 0.8 --seeds 3 "
        "--preemption-cost 1:7,20" in text
    )
    assert "1:7,20 s" in text
    again = browser.get(f"/whatif?like={found.id}").text
    assert re.search(r'value="las-2d" checked', again)
    assert 'name="preemption_cost" value="1:7,20"' in again
    assert not re.search(r'value="srtf" checked', again)


def logged_in(place: Site, token: str | None = None) -> TestClient:
    """A browser whose every change carries the CSRF token of its session."""
    browser = place.client()
    browser.post("/login", data={"token": token or place.operator})
    browser.headers["X-CSRF-Token"] = csrf_of(browser.get("/whatif").text)
    return browser


def test_a_form_with_nonsense_is_answered_in_words(place: Site) -> None:
    hx = {"HX-Request": "true"}
    for form, words in (
        ({"cluster": "2x8", "policy": ["fifo"], "retry": ["never"], "load": "much"}, "valid number"),
        ({"cluster": "2x8", "policy": ["mine.py:P"], "retry": ["never"]}, "no policy has that name"),
        ({"cluster": "2x8", "policy": ["fifo"], "retry": ["never"], "source": "upload"}, "no file was sent"),
        ({"cluster": "2x8"}, "at least 1"),
    ):
        answer = logged_in(place).post("/do/whatif", data=form, headers=hx)
        assert answer.status_code == 422
        told = json.loads(answer.headers["hx-trigger"])["perdure:told"]
        assert told["bad"] is True
        assert words in told["text"].lower()
    assert place.queue.store.all() == ()


@pytest.mark.parametrize("source", ["history", "upload"])
def test_a_form_asks_of_what_is_chosen_whatever_was_sent_before(place: Site, source: str) -> None:
    browser = logged_in(place, place.mira)
    sent = send(place.client(place.mira)).json()["id"]
    form = {
        "cluster": "2x8",
        "policy": ["fifo"],
        "retry": ["never"],
        "source": source,
        "upload": sent,
        "format": "perdure",
    }
    assert browser.post("/do/whatif", data=form).status_code == 303
    (found,) = place.queue.store.all()
    chosen = source == "upload"
    assert (found.ask.upload, found.ask.format) == ((sent, "perdure") if chosen else (None, None))
    assert found.source == ("jobs.csv" if chosen else "this site's history")


# -- uploads


def test_an_upload_is_used_once_and_by_its_sender_alone(place: Site) -> None:
    mira, jonas, root = (place.client(token) for token in (place.mira, place.jonas, place.operator))
    upload = send(mira).json()
    assert (upload["name"], upload["bytes"]) == ("jobs.csv", len(ROWS))
    for other in (jonas, root):
        assert other.post(f"{WHATIF}/comparisons", json={**ASK, "upload": upload["id"]}).status_code == 404
    found = asked(mira, upload=upload["id"])
    assert found["source"] == "jobs.csv"
    place.queue.cancel(found["id"], Identity("mira", Role.VIEWER))
    assert mira.post(f"{WHATIF}/comparisons", json={**ASK, "upload": upload["id"]}).status_code == 404
    assert left_behind(place) == []


def test_too_much_is_refused_and_leaves_nothing(place: Site) -> None:
    client = place.client(place.mira)
    assert send(client, b"x" * ((1 << 20) + 1)).status_code == 413
    pieces = (b"x" * 65536 for _ in range(64))
    assert 400 <= client.post(f"{WHATIF}/uploads", content=pieces).status_code < 500
    assert send(client, b"").status_code == 422
    assert left_behind(place) == []


def test_only_uploads_may_be_larger_than_other_bodies(tmp_path: Path) -> None:
    place = site(tmp_path, whatif=WhatifSettings(upload_mib=4))
    client = place.client(place.operator)
    raw = b"x" * (MAX_BODY_BYTES + 1)
    assert send(client, raw).status_code == 201
    assert client.post(f"{WHATIF}/comparisons", content=raw).status_code == 413
    assert client.post("/do/whatif", content=raw).status_code == 413


def test_nobody_sends_without_being_known(place: Site) -> None:
    assert send(place.client()).status_code == 401
    browser = place.client()
    browser.post("/login", data={"token": place.mira})
    assert send(browser).status_code == 403
    assert left_behind(place) == []


def test_uploads_are_few_and_do_not_stay(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    client = place.client(place.mira)
    ids = [send(client).json()["id"] for _ in range(3)]
    assert len(left_behind(place)) == 2
    assert client.post(f"{WHATIF}/comparisons", json={**ASK, "upload": ids[0]}).status_code == 404
    monkeypatch.setattr(uploads_module, "MAX_UPLOADS", 3)
    assert send(place.client(place.jonas)).status_code == 201
    assert send(place.client(place.operator)).status_code == 429
    place.world.pass_time(uploads_module.LIFE_S + 1)
    assert send(place.client(place.operator)).status_code == 201
    assert len(left_behind(place)) == 1


def test_an_upload_is_gone_after_an_hour_though_nobody_sends_another(place: Site) -> None:
    mira = place.client(place.mira)
    first, second = (send(mira).json()["id"] for _ in range(2))
    place.world.pass_time(uploads_module.LIFE_S)
    assert mira.post(f"{WHATIF}/comparisons", json={**ASK, "upload": first}).status_code == 202
    place.queue.cancel(place.queue.store.all()[0].id, Identity("mira", Role.VIEWER))
    place.world.pass_time(1)
    assert mira.post(f"{WHATIF}/comparisons", json={**ASK, "upload": second}).status_code == 404
    assert left_behind(place) == []
    send(mira)
    place.world.pass_time(uploads_module.LIFE_S + 1)
    assert not place.queue.work_next(0.0)
    assert left_behind(place) == []


def test_whoever_sends_too_many_replaces_their_own_and_nobody_elses(place: Site) -> None:
    mira, jonas = place.client(place.mira), place.client(place.jonas)
    of_jonas = send(jonas).json()["id"]
    for _ in range(3):
        send(mira)
    assert jonas.post(f"{WHATIF}/comparisons", json={**ASK, "upload": of_jonas}).status_code == 202


# -- who sees what


def test_users_see_their_own_and_operators_all(place: Site) -> None:
    mine = answered(place, "mira", "mira.csv")
    parts = ("", "/result", "/report", "/pictures/use/dark")
    for token, status in ((place.mira, 200), (place.operator, 200), (place.jonas, 404)):
        client, browser = place.client(token), logged_in(place, token)
        assert {client.get(f"{WHATIF}/comparisons/{mine.id}{part}").status_code for part in parts} == {status}
        assert len(client.get(f"{WHATIF}/comparisons").json()["items"]) == (status == 200)
        assert browser.get(f"/whatif/{mine.id}").status_code == status
        assert ("mira.csv" in browser.get("/whatif").text) == (status == 200)
    jonas = logged_in(place, place.jonas)
    assert jonas.get(f"/whatif?like={mine.id}").status_code == 200
    assert jonas.post(f"{WHATIF}/comparisons/{mine.id}/cancel").status_code == 404
    assert jonas.delete(f"{WHATIF}/comparisons/{mine.id}").status_code == 404
    assert jonas.post(f"/do/whatif/{mine.id}/remove").status_code == 404
    assert len(place.queue.store.all()) == 1


def test_a_viewer_has_one_at_a_time_and_the_queue_ends(place: Site) -> None:
    mira, root = place.client(place.mira), place.client(place.operator)
    first = asked(mira)
    again = mira.post(f"{WHATIF}/comparisons", json=ASK)
    assert (again.status_code, "one of yours" in again.text) == (429, True)
    second = asked(root)
    assert (first["ahead"], second["ahead"]) == (0, 1)
    full = root.post(f"{WHATIF}/comparisons", json=ASK)
    assert (full.status_code, "2 wait already" in full.text) == (429, True)
    assert mira.post(f"{WHATIF}/comparisons/{first['id']}/cancel").status_code == 202
    assert mira.post(f"{WHATIF}/comparisons/{first['id']}/cancel").status_code == 409
    assert asked(mira)["stage"] == "waiting"


def test_a_request_that_is_sent_again_is_taken_once(place: Site) -> None:
    root = place.client(place.operator)
    key = {"Idempotency-Key": "k1"}
    first, second = (root.post(f"{WHATIF}/comparisons", json=ASK, headers=key).json()["id"] for _ in range(2))
    assert first == second
    other = root.post(f"{WHATIF}/comparisons", json={**ASK, "seeds": 2}, headers=key)
    assert other.status_code == 422


def test_a_service_that_takes_none_says_so(place: Site) -> None:
    place.app.state.web = replace(place.app.state.web, whatif=None)
    assert place.client(place.operator).get(WHATIF).status_code == 404
    assert place.client(place.operator).post(f"{WHATIF}/comparisons", json=ASK).status_code == 404
    assert "whatif.enabled is false" in logged_in(place).get("/whatif").text


# -- what is kept


def test_the_oldest_are_forgotten(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [answered(place, "mira").id for _ in range(5)]
    assert [found.id for found in place.queue.store.all()] == kept[:1:-1]
    assert len(list((place.queue._work.parent / "kept").iterdir())) == 3
    monkeypatch.setattr("perdure.service.whatif.comparison_store.MAX_KEPT", 4)
    for user in ("jonas", "lena"):
        answered(place, user)
    assert len(place.queue.store.all()) == 4


def test_one_that_is_over_is_removed_with_its_answers(place: Site) -> None:
    found = answered(place, "mira")
    browser = logged_in(place, place.mira)
    assert browser.delete(f"{WHATIF}/comparisons/{found.id}", headers={"X-CSRF-Token": "wrong"}).status_code == 403
    assert browser.post(f"/do/whatif/{found.id}/remove").headers["location"] == "/whatif"
    assert browser.get(f"{WHATIF}/comparisons/{found.id}/report").status_code == 404
    waits = asked(place.client(place.mira))
    assert place.client(place.mira).delete(f"{WHATIF}/comparisons/{waits['id']}").status_code == 409


def test_what_is_kept_is_read_again_and_what_is_broken_removed(place: Site) -> None:
    found = answered(place, "mira", "na\u202eme\ud800.csv")
    kept = place.queue._work.parent / "kept"
    for name, text in (("0" * 15 + "a", "{"), ("stray", "{}"), ("0" * 15 + "b", None)):
        (kept / name).mkdir()
        if text is not None:
            (kept / name / RECORD).write_text(text)
    again = queue_like(place.queue)
    assert [each.id for each in again.store.all()] == [found.id]
    assert again.store.find(found.id) == place.queue.store.find(found.id)
    assert [path.name for path in kept.iterdir()] == [found.id]


def test_after_a_restart_the_latest_comes_first_and_the_oldest_goes_first(place: Site) -> None:
    kept = [answered(place, owner) for owner in ("mira", "jonas", "mira", "jonas", "mira")]
    for path, again in ((place.queue._work.parent / "kept" / each.id, 90 - each.created_s % 7) for each in kept):
        os.utime(path, (again, again))
    store = queue_like(place.queue).store
    assert store.all() == place.queue.store.all() == tuple(reversed(kept))
    newest = answered(place)
    store.put(newest)
    assert [each.id for each in store.all()] == [
        each.id for each in (newest, *reversed(kept[1:]))
    ]  # three of each user


def test_an_answer_that_is_lost_spoils_no_other(place: Site) -> None:
    lost, found = answered(place, "mira"), answered(place, "mira")
    (place.queue._work.parent / "kept" / lost.id / SUMMARY).write_text("")
    client = place.client(place.mira)
    assert len(client.get(f"{WHATIF}/comparisons").json()["items"]) == 2
    assert client.get(f"{WHATIF}/comparisons/{lost.id}").json()["summary"] is None
    assert client.get(f"{WHATIF}/comparisons/{found.id}").json()["summary"]["jobs"] == 1500
    assert "The answer is gone" in logged_in(place).get(f"/whatif/{lost.id}").text
    mistyped = logged_in(place).get("/whatif/nope")
    assert mistyped.status_code == 404
    assert "no such one is known" in mistyped.text


def queue_like(queue: ComparisonQueue) -> ComparisonQueue:
    return ComparisonQueue(queue._work.parent, queue._database, CLUSTER, queue.settings, queue._clock)


# -- real simulations


def test_an_upload_is_simulated_as_the_command_would(working: Site, tmp_path: Path) -> None:
    mira = working.client(working.mira)
    upload = send(mira, packed(ROWS), "nightly.csv.gz").json()["id"]
    found = awaited(mira, asked(mira, upload=upload, retries=["recorded", "never"])["id"])
    assert found["stage"] == "done", found
    summary = found["summary"]
    path = tmp_path / "jobs.csv"
    path.write_text(ROWS)
    table = read(path).table
    for row, policy in zip(summary["compared"][::2], ("fifo", "srtf"), strict=True):
        result = simulate(table, Cluster.parse("2x8"), policy, cost=PUBLISHED)
        assert row["policy"] == policy
        assert row["jct_s"]["mean"] == pytest.approx(float((result.end_s - table.submit_s).mean()))
        assert row["utilisation"] == pytest.approx(result.utilisation)
    first, *others = summary["compared"]
    assert first["jct_change"] is None
    for row in others:
        assert row["jct_change"] == pytest.approx(row["jct_s"]["mean"] / first["jct_s"]["mean"] - 1)
    assert (summary["jobs"], summary["format"], summary["gpus"]) == (40, "perdure", 16)
    assert left_behind(working) == []
    answer = f"{WHATIF}/comparisons/{found['id']}"
    result = mira.get(f"{answer}/result")
    assert result.headers["content-disposition"] == f'attachment; filename="whatif-{found["id"]}.json"'
    assert [run["policy"] for run in result.json()["runs"]] == ["fifo", "fifo", "srtf", "srtf"]
    assert result.json()["schema"] == "perdure.whatif/1"
    report = mira.get(f"{answer}/report")
    assert "attachment" in report.headers["content-disposition"]
    assert report.headers["content-security-policy"] == POLICY
    assert report.text.count("data:image/png;base64,") == 10  # nobody gains or loses by a bound
    pictures = [mira.get(f"{answer}/pictures/use/{theme}").content for theme in ("light", "dark")]
    assert all(png.startswith(b"\x89PNG") for png in pictures)
    assert pictures[0] != pictures[1]
    for name in ("tokens", "..%2f..", "comparison.json"):
        assert mira.get(f"{answer}/pictures/{name}/light").status_code == 404


def test_a_preemption_costs_what_was_asked_and_the_answer_says_what_it_was_made_of(
    working: Site, tmp_path: Path
) -> None:
    mira = working.client(working.mira)
    upload = send(mira, packed(ROWS), "nightly.csv.gz").json()["id"]
    found = awaited(mira, asked(mira, upload=upload, policies=["fifo", "srtf"], preemption_cost="500")["id"])
    assert found["stage"] == "done", found
    (tmp_path / "jobs.csv").write_text(ROWS)
    table = read(tmp_path / "jobs.csv").table
    means = {}
    for cost in (PUBLISHED, restart_cost("500")):
        result = simulate(table, Cluster.parse("2x8"), "srtf", cost=cost)
        means[cost] = float((result.end_s - table.submit_s).mean())
    assert found["summary"]["compared"][1]["jct_s"]["mean"] == pytest.approx(means[restart_cost("500")])
    assert means[PUBLISHED] != means[restart_cost("500")]
    made = mira.get(f"{WHATIF}/comparisons/{found['id']}/result").json()["manifest"]
    assert made["command"] == "perdure whatif trace --cluster 2x8 --policy fifo,srtf --preemption-cost 500"
    assert (made["version"], made["seeds"]) == (__version__, [0])
    assert made["inputs"][0]["sha256"] in {hashlib.sha256(ROWS.encode()).hexdigest(),
                                           hashlib.sha256(packed(ROWS)).hexdigest()}  # fmt: skip


def test_the_sites_own_history_is_simulated(working: Site) -> None:
    mira = working.client(working.mira)
    found = awaited(mira, asked(mira, cluster="1x8", policies=["fifo"])["id"])
    assert found["stage"] == "done", found
    assert (found["source"], found["summary"]["jobs"]) == ("this site's history", 4)
    assert found["summary"]["left_out"] == {"not ended yet": 3}
    assert found["summary"]["compared"][0]["success_rate"] == 0.25
    text = logged_in(working, working.mira).get(f"/whatif/{found['id']}").text
    assert "3 left out: not ended yet" in text


def test_a_bomb_and_a_bad_row_are_told_in_one_line_without_a_path_of_this_machine(
    working: Site, tmp_path: Path
) -> None:
    root = working.client(working.operator)
    for raw, words in (
        (packed(ROWS) + gzip.compress(b" " * (1 << 20), mtime=0) * 16, "trace: it unpacks to more than 8 MiB"),
        (ROWS + "wide,1,64,1,\n", "trace: job wide: it asks for 64 GPUs"),
    ):
        found = awaited(root, asked(root, upload=send(root, raw).json()["id"])["id"])
        assert found["stage"] == "failed"
        trouble = found["trouble"]
        assert words in f"{trouble['where']}: {trouble['what']}"
        assert str(tmp_path) not in str(found)
    assert left_behind(working) == []


def test_one_that_runs_is_cancelled_and_its_process_ends(working: Site) -> None:
    root = working.client(working.operator)
    found = asked(root, policies=list(policy_names())[:10], seeds=20)
    (process,) = processes_of(working)
    assert root.post(f"{WHATIF}/comparisons/{found['id']}/cancel").status_code == 202
    assert awaited(root, found["id"])["stage"] == "cancelled"
    assert not Path(f"/proc/{process}").exists()
    assert left_behind(working) == []


def processes_of(place: Site) -> list[int]:
    """Ids of the processes that simulate for this site, once there is one."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        if found := [pid for pid in pids if stands_in(pid, place.queue._work)]:
            return found
        time.sleep(0.02)
    raise AssertionError("no process has begun")


def stands_in(pid: int, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)
    except OSError:
        return False


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (WhatifSettings(time_limit_s=0.3, nice=0), r"time: not done within 0 s"),
        (
            WhatifSettings(memory_mib=120, nice=0),
            r"memory: more memory was needed|ended unexpectedly|cannot be allocated",
        ),
    ],
    ids=["time", "memory"],
)
def test_one_that_takes_too_much_fails_alone(tmp_path: Path, settings: WhatifSettings, words: str) -> None:
    place = site(tmp_path, whatif=settings)
    with at_work(place.queue):
        root = place.client(place.operator)
        found = awaited(root, asked(root, upload=send(root).json()["id"])["id"])
    assert found["stage"] == "failed"
    assert re.search(words, f"{found['trouble']['where']}: {found['trouble']['what']}"), found["trouble"]
    assert left_behind(place) == []


def test_a_service_that_ends_ends_the_simulation_and_says_so_when_it_is_back(place: Site) -> None:
    root = place.client(place.operator)
    with at_work(place.queue):
        found = asked(root, policies=list(policy_names())[:10], seeds=20)
        waits = asked(root)
        (process,) = processes_of(place)
    assert not Path(f"/proc/{process}").exists()
    again = queue_like(place.queue)
    assert {each.id for each in again.store.all()} == {found["id"], waits["id"]}
    assert {each.stage for each in again.store.all()} == {Stage.BROKEN_OFF}
    assert left_behind(place) == []


SERVICE = """
import sys, threading, time
from pathlib import Path
from perdure.service.access.auth import Identity, Role
from perdure.service.whatif.question import ComparisonQuestion, policy_names
from perdure.service.runtime.assembly import at_work
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.settings import WhatifSettings
home, database = Path(sys.argv[1]), sys.argv[2]
with at_work(ComparisonQueue(home, database, "aurora", WhatifSettings(), time.time)) as queue:
    question = ComparisonQuestion(cluster="6x8", policies=policy_names()[:10], seeds=20)
    queue.ask(question, Identity("root", Role.OPERATOR))
    threading.Event().wait()
"""


def test_a_service_that_is_killed_takes_the_simulation_along(place: Site) -> None:
    queue = place.queue
    service = subprocess.Popen([sys.executable, "-c", SERVICE, str(queue._work.parent), queue._database])
    try:
        (process,) = processes_of(place)
        os.kill(service.pid, signal.SIGKILL)
    finally:
        service.kill()
        service.wait()
    until = time.monotonic() + PATIENCE_S
    while is_alive(process):
        assert time.monotonic() < until
        time.sleep(0.05)
    (found,) = queue_like(queue).store.all()
    assert found.stage is Stage.BROKEN_OFF
    assert found.trouble is not None
    assert "ended before this was done" in found.trouble.what
    assert left_behind(place) == []


def test_without_the_optional_part_there_are_figures_and_the_page_says_what_to_install(
    place: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("duckdb", "matplotlib", "numba"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    ask = ComparisonQuestion(cluster="6x8", policies=("fifo", "srtf"))
    compare(ComparisonRequest(ask, place.queue._database, CLUSTER, 1 << 20, 1 << 32, 60.0, 0), lambda progress: None)
    summary = Summary.model_validate_json((tmp_path / SUMMARY).read_text())
    assert [row.policy for row in summary.compared] == ["fifo", "srtf"]
    assert summary.pictures == []
    assert install_command("sim") in summary.missing
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    text = logged_in(place).get("/whatif").text
    assert "duckdb, matplotlib missing" in text
    assert install_command("sim") in html.unescape(text)


# -- parts


def test_seeds_are_taken_together() -> None:
    path_rows = sweep([table_of(5)], Setting(Cluster.parse("1x2"), "random"), cases(1, ["fifo", "srtf"], seeds=3))
    found = compared(path_rows)
    assert [row.policy for row in found] == ["fifo", "srtf"]
    same = [run.metrics.jct_s.mean for run in path_rows[:3]]
    assert found[0].jct_s.mean == pytest.approx(sum(same) / 3)
    assert min(same) <= found[0].jct_low <= found[0].jct_high <= max(same)


def table_of(n: int) -> JobTable:
    return JobTable(np.arange(n).astype(str), np.zeros(n), np.ones(n, np.int64), np.arange(1.0, n + 1))


def test_words_are_of_names_that_are_offered() -> None:
    assert set(pages.PLACEMENT_WORDS) <= set(PLACEMENT_NAMES)
    for name, form in RETRY_POLICIES.items():
        assert form.offered.partition(":")[0] == form.usage.partition(":")[0] == name


RATES = "gpu,job,scale_factor,steps_per_s\n" + "".join(
    f"{kind},{name} (batch size {size}),{gpus},{gpus * rate}\n"
    for kind, rate in (("fast", 2.0), ("slow", 1.0))
    for name, size in (("LM", 5), ("ResNet", 16))
    for gpus in (1, 2)
)
STEPS = "".join(
    "\t".join([name, "python3 main.py", "--num_steps", "0", str(2000 + 300 * number), str(500 * number), str(gpus)])
    + "\n"
    for number, (name, gpus) in enumerate(3 * [("LM (batch size 5)", 1), ("ResNet (batch size 16)", 2)])
)
PLANS: dict[str, Any] = {"cluster": "1x2:fast + 2x2:slow", "policies": ["gavel-las", "gandiva"]}


def test_policies_with_profiles_are_offered_and_compared_on_a_cluster_of_two_types(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "net_isolated.csv").write_text(RATES)
    place = site(tmp_path, whatif=WhatifSettings(nice=0, profiles=profiles))
    fill(place.world)
    with at_work(place.queue):
        client = place.client(place.operator)
        assert "gandiva" in client.get(WHATIF).json()["planned_policies"]
        assert 'value="gavel-las"' in logged_in(place).get("/whatif").text
        sent = send(client, STEPS, "jobs.trace").json()["id"]
        found = awaited(client, asked(client, **PLANS, upload=sent)["id"])
        assert found["stage"] == "done", found
        summary = found["summary"]
        assert [row["policy"] for row in summary["compared"]] == ["gavel-las", "gandiva"]
        assert (summary["jobs"], summary["gpus"], summary["pictures"]) == (6, 6, ["allocation", "rho"])
        assert "largest rho" in summary["says"][0]
        assert any("take turns" in note for note in summary["notes"])
        page = html.unescape(logged_in(place).get(f"/whatif/{found['id']}").text)
        command = "perdure whatif elastic PROFILES TRACE --cluster '1x2:fast + 2x2:slow' --policy gavel-las,gandiva"
        assert command in page
        assert "A preemption costs" not in page  # what these do not ask for
        assert "GPUs given, over time" in page
        report = client.get(f"{WHATIF}/comparisons/{found['id']}/report").text
        assert "1x2:fast + 2x2:slow" in report
        assert "take turns" in report
        bad = awaited(
            client, asked(client, **{**PLANS, "cluster": "1x2:tpu"}, upload=send(client, STEPS).json()["id"])["id"]
        )
        assert "'tpu' were measured, only on fast, slow" in bad["trouble"]["what"]


def test_what_policies_with_profiles_lack_is_said_in_one_line(place: Site) -> None:
    assert place.client(place.operator).get(WHATIF).json()["planned_policies"] == []
    assert "whatif.profiles</code> names no folder of measured steps" in logged_in(place).get("/whatif").text
    for change, says in (
        ({}, "this site's history does not"),
        ({"policies": ["fifo", "sia"]}, "fifo of those chosen cannot be compared"),
        ({"upload": "0" * 16}, "gavel-las plans with measured profiles, of which this service has none"),
        ({"upload": "0" * 16, "load": 0.5}, "know no such setting"),
        ({"upload": "0" * 16, "retries": ["oracle"]}, "needs the causes of failures"),
    ):
        answer = place.client(place.operator).post(f"{WHATIF}/comparisons", json={**PLANS, **change})
        assert answer.status_code == 422, answer.text
        assert says in answer.text


def test_every_policy_is_named_as_the_field_names_it_and_keeps_its_id(place: Site) -> None:
    browser = logged_in(place, place.mira)
    text = browser.get("/whatif").text
    assert 'value="las-2d" checked><span class="choice-name">Tiresias-LAS <code class="muted">las-2d</code>' in text
    found = answered(place)
    assert "<h1>FIFO, SRTF</h1>" in browser.get(f"/whatif/{found.id}").text


def test_comparisons_and_their_figures_are_files_and_sorted(place: Site) -> None:
    found = answered(place)
    mira, jonas = logged_in(place, place.mira), logged_in(place, place.jonas)
    listed = list(csv.DictReader(io.StringIO(mira.get("/whatif?format=csv").text)))
    assert [(row["id"], row["policies"]) for row in listed] == [(found.id, "fifo srtf")]
    assert len(jonas.get("/whatif?format=csv").text.splitlines()) == 1  # not his
    rows = list(csv.DictReader(io.StringIO(mira.get(f"/whatif/{found.id}?format=csv&sort=-policy").text)))
    assert [row["policy"] for row in rows] == ["srtf", "las-2d", "fifo"]
    assert jonas.get(f"/whatif/{found.id}?format=csv").status_code == 404


def test_pages_are_sound_and_escape_what_others_wrote(place: Site) -> None:
    hostile = "<script>alert(1)</script>\"'{{ 7*7 }}"
    found = answered(place, "mira", hostile, left_out={hostile: 1}, notes=[hostile])
    browser = logged_in(place, place.mira)
    for path in ("/whatif", f"/whatif/{found.id}"):
        text = browser.get(path).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)" in text


def test_the_one_that_runs_is_ahead_too(place: Site) -> None:
    place.queue._progress["0" * 16] = Progress(phase="reading")
    assert asked(place.client(place.operator))["ahead"] == 1


def test_each_picture_of_a_report_is_kept_and_has_its_words_on_the_page() -> None:
    assert pages.PICTURE_WORDS.keys() == {*TITLES, "allocation"} == {*PICTURES}
