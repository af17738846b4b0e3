"""What was promised of waits is told, and kept, as by reading all rows one by one, on random rows of two clusters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, null

from perdure.model.jobs import SAME_SUBMIT_S
from perdure.service.store import codec
from perdure.service.store.journal import Journal
from perdure.service.store.schema import metadata
from perdure.service.waits import promise_store
from perdure.service.waits.promise_store import EARLY_S, KEEP_S, PromiseStore
from perdure.waits.calibration import Promise
from tests.service.store.drawn_rows import HERE, IDS, THERE, Rows, drawn
from tests.service.store.plain_reading import Plain, Row

WAIT_S = (1.0, 2.0, 3.0)


def rows_of(seed: int) -> Rows:
    rng, rows = random.Random(seed), drawn(seed)
    rows["wait_promises"] = []
    for seq in range(1, 81):
        run = rng.choice(rows["attempts"])  # asked about when a job starts, so that a second decides
        asked_s = rng.choice((rng.randrange(0, 4000, 100), 1499.0, 1498.0, run["start_s"], run["start_s"] + 1.0,
                              run["start_s"] + 2.0))  # fmt: skip
        rows["wait_promises"].append({
            "seq": seq, "cluster": rng.choice((HERE, HERE, THERE)), "job_id": rng.choice((*IDS, run["job_id"])),
            "asked_s": float(asked_s), "start_s": rng.choice((None, None, 9000.0)), "wait_s": WAIT_S,
            "raw_s": rng.choice(((), WAIT_S[::-1])), "kind": rng.choice(("", "small")),
        })  # fmt: skip
    return {name: rows[name] for name in ("jobs", "attempts", "wait_promises")}


def stored(value: Any, column: str) -> Any:
    if value is None:
        return null() if column == "verdict" else None
    return value if isinstance(value, str | float | int) else codec.encode(value)


@pytest.fixture(params=range(6))
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[PromiseStore, Plain, Plain]]:
    """What asks, the rows of its cluster, and those of the other."""
    rows = rows_of(request.param)
    with closing(Journal.open(tmp_path, HERE)) as journal:
        with journal.store.writing() as db:
            for name, several in rows.items():
                given = [{column: stored(value, column) for column, value in row.items()} for row in several]
                db.execute(insert(metadata.tables[name]), given)
        yield PromiseStore(journal.store, HERE), Plain(rows, HERE), Plain(rows, THERE)


def is_of_this_job(plain: Plain, row: Row) -> bool:
    job = plain.jobs.get(row["job_id"])
    return job is None or row["asked_s"] >= job["story_s"] - SAME_SUBMIT_S


def told(rows: list[Row]) -> list[Promise]:
    names = "job_id", "asked_s", "wait_s", "start_s", "raw_s", "kind"
    return [Promise(*(row[name] for name in names)) for row in rows]


def started(plain: Plain) -> list[Row]:
    """The rows with the first start since of those that wait."""
    found = []
    for row in plain.rows["wait_promises"]:
        first_s = row["start_s"]
        if first_s is None and is_of_this_job(plain, row):
            starts = [run["start_s"] for run in plain.own_attempts(row["job_id"])]
            first_s = min((at_s for at_s in starts if at_s >= row["asked_s"] - EARLY_S), default=None)
        found.append({**row, "start_s": first_s})
    return found


def test_what_is_known_of_promises(seen: tuple[PromiseStore, Plain, Plain]) -> None:
    store, plain, _ = seen
    rows = plain.rows["wait_promises"]
    for since_s in (0.0, 1500.0, rows[0]["asked_s"]):
        wanted = {row["job_id"] for row in rows if row["asked_s"] >= since_s and is_of_this_job(plain, row)}
        assert store.promised_since(since_s) == wanted
    assert store.kept() == told([row for row in rows if row["start_s"] is not None])
    waits = [row for row in rows if row["start_s"] is None and is_of_this_job(plain, row)]
    assert store.open_of(IDS[:4]) == told([row for row in waits if row["job_id"] in IDS[:4]])


def test_a_start_that_came_of_a_promise_is_the_first_since(seen: tuple[PromiseStore, Plain, Plain]) -> None:
    store, plain, other = seen
    new = Promise("7", 4000.0, WAIT_S, None, WAIT_S, "small")
    store.note([new], 4000.0)
    rows = started(plain)
    assert store.kept() == told([row for row in rows if row["start_s"] is not None])
    there = PromiseStore(store._store, THERE)  # the other cluster's part of one database
    assert there.kept() == told([row for row in other.rows["wait_promises"] if row["start_s"] is not None])
    assert new in store.open_of(["7"])
    assert there.promised_since(4000.0) == {
        row["job_id"] for row in other.rows["wait_promises"] if row["asked_s"] >= 4000 and is_of_this_job(other, row)
    }


def test_what_is_old_or_too_much_is_forgotten_of_this_cluster(
    seen: tuple[PromiseStore, Plain, Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, plain, other = seen
    store.note((), KEEP_S + 1500.0)
    rows = [row for row in started(plain) if row["asked_s"] >= 1500.0]
    assert store.kept() == told([row for row in rows if row["start_s"] is not None])
    monkeypatch.setattr(promise_store, "MOST", 5)
    store.note((), 4000.0)
    assert store.kept() == told([row for row in rows[-5:] if row["start_s"] is not None])
    there = PromiseStore(store._store, THERE)
    assert there.kept() == told([row for row in other.rows["wait_promises"] if row["start_s"] is not None])
