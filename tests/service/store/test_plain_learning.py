"""What was learnt and corrected is told as by reading all rows one by one, on random rows of two clusters."""

from __future__ import annotations

from functools import partial

import pytest

from perdure.service.store.queries import learning
from perdure.service.store.queries.reader import Reader
from tests.service.store.drawn_rows import HERE, IDS, drawn, written
from tests.service.store.plain_reading import Plain, Row

LOW = 3


def as_told(row: Row, readings: list[Row]) -> learning.CorrectionRow:
    names = ("job_id", "incarnation", "time_s", "transient", "by", "for_all", "confirmed_by")
    read = next((one for one in readings if all(one[name] == row[name] for name in names[:2])), None)
    return learning.CorrectionRow(**{name: row[name] for name in names}, message=read["message"] if read else "")


@pytest.mark.parametrize("seed", range(3))
def test_corrections_and_rounds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MOST_OF_JOB", 2)
    rows = drawn(seed)
    plain, reader = Plain(rows, HERE), Reader(written(rows), HERE)
    told_of = partial(as_told, readings=plain.rows["readings"])
    said = sorted(plain.rows["corrections"], key=lambda row: -row["time_s"])
    place = {id(row): sum(one["by"] == row["by"] for one in said[:n]) for n, row in enumerate(said)}
    told = sorted(sorted(said, key=lambda row: place[id(row)])[:LOW], key=lambda row: -row["time_s"])
    assert learning.all_corrections(reader, LOW) == tuple(map(told_of, told))  # as many of one person as of another
    for by in {row["by"] for row in said}:
        of_one = [told_of(row) for row in said if row["by"] == by]
        assert learning.all_corrections(reader, LOW, by) == tuple(of_one[:LOW])
    for job_id in IDS:
        mine = {row["incarnation"]: told_of(row) for row in said if row["job_id"] == job_id}
        for incarnation in range(5):
            assert learning.correction_of(reader, job_id, incarnation) == mine.get(incarnation)
        latest = [mine[incarnation] for incarnation in sorted(mine, reverse=True)]
        assert learning.corrections_of(reader, job_id) == tuple(latest[:2])
    terms = plain.rows["terms"][::-1]
    newest = next((row["seq"] for row in terms[:LOW] if row["model"] is not None), None)
    assert learning.rounds(reader, LOW) == tuple(
        learning.TermRow(row["seq"], row["time_s"], row["payload"], row["seq"] == newest) for row in terms[:LOW]
    )


@pytest.mark.parametrize("seed", range(3))
def test_failures_that_look_alike(seed: int) -> None:
    rows = drawn(seed)
    plain, reader = Plain(rows, HERE), Reader(written(rows), HERE)
    passed = [e for e in plain.rows["exceptions"] if e["of_attempt"] and e["state"] == "recovered"]
    instants = sorted(row["time_s"] for row in plain.rows["readings"])
    for fingerprint in ("f", "g", ""):
        for since_s in (0.0, instants[len(instants) // 2]):
            alike = [r for r in plain.rows["readings"] if r["fingerprint"] == fingerprint and r["time_s"] >= since_s]
            runs = {(row["job_id"], row["incarnation"]) for row in alike}
            recovered = [e for e in passed if (e["job_id"], e["incarnation"]) in runs]
            jobs, users = ({row[name] for row in alike} for name in ("job_id", "user"))
            told = learning.Similar(len(alike), len(jobs), len(users), len(recovered))
            assert learning.similar(reader, fingerprint, since_s) == told
