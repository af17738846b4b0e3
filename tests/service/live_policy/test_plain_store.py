"""What a policy knows of the past is told as by reading all rows one by one, on random rows of two clusters."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import insert, null

from perdure.live_policy.outcome import JobLife, PolicyTerm
from perdure.model.jobs import SAME_SUBMIT_S, JobState
from perdure.service.live_policy import policy_store
from perdure.service.live_policy.policy_store import FORGOTTEN_S, PolicyStore
from perdure.service.store import codec
from perdure.service.store.journal import Journal
from perdure.service.store.schema import metadata
from tests.copying import replace
from tests.service.store.drawn_rows import HERE, IDS, Rows, drawn
from tests.service.store.plain_reading import Plain, Row

SEEDS = range(6)
OVER = ("completed", "failed", "cancelled")
TERM = PolicyTerm("las", 1000.0, 2500.0)


def rows_of(seed: int) -> Rows:
    """As drawn, with limits, sizes of attempts, jobs that took part, and what the policy had put back."""
    rng, rows = random.Random(seed), drawn(seed)
    for job in rows["jobs"]:
        job["payload"] = replace(job["payload"], walltime_s=rng.choice((None, 150.0, 9000.0)))
        job["state"] = rng.choice((*OVER, *(each.value for each in JobState)))
    for attempt in rows["attempts"]:
        attempt["gpus"] = rng.choice((0, 2, 8))
        attempt["end_s"] = attempt["start_s"] + rng.choice((0.0, 100.0, 900.0)) if attempt["end_s"] else None
    for action in rows["actions"]:
        if action["kind"] in ("requeue", "hold", "cancel", "release"):
            action["kind"] = rng.choice(("preempt", "preempt", action["kind"]))
        action["state"] = rng.choice(("planned", "started", "done", "expired", "shadow", "refused"))
        begun_s = action["created_s"] + 1.0
        action["started_s"] = begun_s if action["state"] in ("started", "done") else None
        action["ended_s"] = begun_s + 1.0 if action["state"] == "done" else None
    taken = [job for job in rows["jobs"] if rng.random() < 0.7]
    rows["policy_jobs"] = [{**{name: job[name] for name in ("cluster", "job_id")}, "came_s": rng.choice(
        (1000.0, 2500.0, job["submit_s"]))} for job in taken]  # fmt: skip
    return {name: rows[name] for name in ("jobs", "attempts", "actions", "policy_jobs")}


def stored(value: Any, column: str) -> Any:
    if value is None:
        return null() if column == "verdict" else None  # None would be JSON's
    return value if isinstance(value, str | float | int) else codec.encode(value)


@pytest.fixture(params=SEEDS, scope="module")
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PolicyStore, Plain]]:
    rows = rows_of(request.param)
    with closing(Journal.open(tmp_path_factory.mktemp("journal"), HERE)) as journal:
        with journal.store.writing() as db:
            for name, several in rows.items():
                given = [{column: stored(value, column) for column, value in row.items()} for row in several]
                db.execute(insert(metadata.tables[name]), given)
        yield PolicyStore(journal.store, HERE), Plain(rows, HERE)


def runs_of(plain: Plain, job_id: str) -> list[Row]:
    return [run for run in plain.own_attempts(job_id) if run["end_s"] is not None]


def test_how_long_past_jobs_ran(seen: tuple[PolicyStore, Plain]) -> None:
    store, plain = seen
    for since_s in (0.0, 1500.0):
        ended = list[tuple[float, float, float, float | None]]()
        for job in plain.rows["jobs"]:
            runs = [run for run in runs_of(plain, job["job_id"]) if run["end_s"] > since_s]
            ran_s = sum(run["end_s"] - run["start_s"] for run in runs)
            if job["state"] in OVER and job["gpus"] and ran_s:
                came_s = min(job["submit_s"], *(run["start_s"] for run in runs))
                ended.append((max(run["end_s"] for run in runs), came_s, ran_s, job["payload"].walltime_s))
        ended.sort(key=lambda each: -each[0])
        found = store.past(since_s)
        assert list(found.lives) == [(came_s, end_s) for end_s, came_s, _, _ in ended]
        assert list(found.run_s) == [ran_s for _, _, ran_s, _ in ended]
        assert list(found.shares) == [min(1.0, ran_s / limit_s) for *_, ran_s, limit_s in ended if limit_s]


def test_of_more_jobs_than_are_asked_for_the_newest_count(
    seen: tuple[PolicyStore, Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, plain = seen
    all_of = store.past(0.0).lives
    monkeypatch.setattr(policy_store, "MOST_SERVICES", 2)
    few = store.past(0.0).lives
    assert len(few) <= 2  # one that ended as it began tells nothing
    assert few == all_of[: len(few)]
    newest = [job["job_id"] for job in plain.rows["jobs"][::-1] if job["state"] in OVER][:2]
    assert sorted(store.services()) == services_of(plain, newest)
    came = sorted((life.came_s for life in lives_of(plain, PolicyTerm("las", 0.0))), reverse=True)
    assert [life.came_s for life in store.lives(PolicyTerm("las", 0.0))] <= came[:2]


def services_of(plain: Plain, job_ids: Sequence[str]) -> list[float]:
    per_job = [[(run["end_s"] - run["start_s"]) * run["gpus"] for run in runs_of(plain, name)] for name in job_ids]
    return sorted(sum(each) for each in per_job if sum(each) > 0)


def test_what_past_jobs_took_and_what_each_ran(seen: tuple[PolicyStore, Plain]) -> None:
    store, plain = seen
    over = [job["job_id"] for job in plain.rows["jobs"] if job["state"] in OVER]
    assert sorted(store.services()) == services_of(plain, over)
    ran = {name: sorted((run["start_s"], run["end_s"]) for run in runs_of(plain, name)) for name in IDS}
    assert {name: sorted(spans) for name, spans in store.ran(IDS).items()} == {
        n: each for n, each in ran.items() if each
    }
    most = {name: max((run["gpus"] for run in plain.own_attempts(name)), default=0) for name in IDS}
    assert store.most_gpus(IDS) == {name: gpus for name, gpus in most.items() if gpus}


def lives_of(plain: Plain, term: PolicyTerm) -> list[JobLife]:
    found = list[JobLife]()
    for row in plain.rows["policy_jobs"]:
        job, runs = plain.jobs[row["job_id"]], plain.own_attempts(row["job_id"])
        is_over = job["state"] in OVER
        started_s = min((run["start_s"] for run in runs), default=None)
        ended_s = max((run["end_s"] for run in runs if run["end_s"] is not None), default=None) if is_over else None
        is_own = row["came_s"] >= job["story_s"] - SAME_SUBMIT_S  # else it was another job of that id
        in_term = term.since_s <= row["came_s"] < (term.until_s or 1e9)
        if is_own and in_term and (started_s is not None or not is_over):
            found.append(JobLife(row["came_s"], started_s, ended_s))
    return found


def by_age(life: JobLife) -> tuple[float, float, float]:
    return life.came_s, life.started_s or 0.0, life.ended_s or 0.0


@pytest.mark.parametrize("term", [TERM, replace(TERM, until_s=None)])
def test_what_became_of_the_jobs_of_a_term(seen: tuple[PolicyStore, Plain], term: PolicyTerm) -> None:
    store, plain = seen
    assert sorted(store.lives(term), key=by_age) == sorted(lives_of(plain, term), key=by_age)


def test_what_was_put_back_is_on_its_way_or_was_in_vain(seen: tuple[PolicyStore, Plain]) -> None:
    store, plain = seen
    now_s = 2000.0
    for running in (dict.fromkeys(IDS, 1.0), dict.fromkeys(IDS[::2], 2.0)):
        counted: dict[str, dict[str, int]] = {"done": {}, "in_vain": {}}
        on_their_way = set[str]()
        for job_id, start_s in running.items():
            for row in (row for row in plain.own("actions", job_id) if row["kind"] == "preempt"):
                if row["state"] in ("planned", "started"):
                    on_their_way.add(job_id)
                goes_on = row["incarnation"] == start_s and now_s > (row["ended_s"] or now_s) + FORGOTTEN_S
                kind = {"expired": "in_vain", "shadow": "in_vain", "done": "in_vain" if goes_on else "done"}
                counts = counted.get(kind.get(row["state"], ""), {})
                counts[job_id] = counts.get(job_id, 0) + 1
        found = store.preemptions(running, now_s)
        assert (found.done, set(found.open), found.in_vain) == (counted["done"], on_their_way, counted["in_vain"])


def test_when_the_policy_put_jobs_back(seen: tuple[PolicyStore, Plain]) -> None:
    store, plain = seen
    begun: list[Any] = [row["started_s"] for row in plain.rows["actions"] if row["kind"] == "preempt"]
    for since_s in (0.0, 1501.0):
        wanted = sorted(at_s for at_s in begun if at_s is not None and at_s > since_s)
        assert sorted(store.preempted_since(since_s)) == wanted
