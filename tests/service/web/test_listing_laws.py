"""Every listing, in several states of the service and for drawn combinations of what it may be asked for.

What is listed is what all rows hold, narrowed one by one; pages of any length add up to it; a page of the dashboard
and its file have the same rows.
"""

from __future__ import annotations

import csv
import io
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest

from perdure.service.web.app import API
from tests.recorded.states import ServiceState, state_of
from tests.service.store.drawn_rows import HERE
from tests.service.store.plain_reading import has_kind
from tests.service.web_world import TestClient

Row = dict[str, Any]
Fits = Callable[[Row, Any], bool]
STATES = ("in-need", "rows-1", "seed-3")
COMBINATIONS = 8  # of each listing


@pytest.fixture(scope="module", params=STATES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceState]:
    with ExitStack() as stack:
        yield stack.enter_context(state_of(request.param, tmp_path_factory.mktemp("laws") / "site"))


@pytest.fixture
def operator(place: ServiceState) -> TestClient:
    return place.readers["operator"]


def is_sought(row: Row, text: str) -> bool:
    job_id, name, user = row["job_id"], row["name"], row["user"]
    return text in (job_id, user) or job_id.startswith(f"{text}_") or text.lower() in name.lower()


def is_kind(row: Row, kind: str) -> bool:
    return bool(row["kind"] == {"retry": "requeue"}.get(kind, kind))


def in_states(row: Row, states: list[str]) -> bool:
    return row["state"] in states


def has_type(row: Row, kinds: list[str]) -> bool:
    return has_kind(row["type"], kinds)


def is_of(row: Row, user: str) -> bool:
    return bool(row["user"] == user)


FILTERS: Mapping[str, Mapping[str, Fits]] = {
    "jobs": {"state": in_states, "user": is_of, "q": is_sought},
    "actions": {"state": in_states, "kind": is_kind},
    "exceptions": {"state": in_states, "type": has_type},
    "chains": {"user": is_of},
    "nodes": {},
}


def asked(client: TestClient, path: str, **query: Any) -> Row:
    answer = client.get(f"{path}?{urlencode(query, doseq=True)}")
    assert answer.status_code == 200, answer.text
    found: Row = answer.json()
    return found


def every_item(client: TestClient, name: str, limit: int, **query: Any) -> list[Row]:
    """All items of a listing of the API, `limit` at a time."""
    found: list[Row] = []
    while True:
        page = asked(client, f"{API}/{name}", **query, limit=limit)
        found += page["items"]
        assert len(page["items"]) == limit or page["next_cursor"] is None
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


def values_of(whole: list[Row], rng: random.Random) -> dict[str, Any]:
    """A value of each filter, of what there is."""
    row = rng.choice(whole)
    states = [each["state"] for each in rng.sample(whole, min(2, len(whole)))]
    kind = str(row.get("type", ""))
    return {
        "state": states, "user": row.get("user"), "kind": rng.choice(("retry", row.get("kind"))),
        "q": rng.choice((str(row.get("name", "x"))[-3:].upper(), row.get("job_id"), row.get("user"))),
        "type": [rng.choice((kind, kind.partition(".")[0], kind[:-1]))],
    }  # fmt: skip


def is_drawn(rows: list[Row]) -> bool:
    """Whether these are exceptions whose records do not say the state that was drawn for them."""
    return any("subject" in row and row["subject"]["cluster"] == HERE for row in rows)


@pytest.mark.parametrize("name", FILTERS)
def test_the_api_lists_what_fits_on_pages_of_any_length(operator: TestClient, name: str) -> None:
    whole, rng = every_item(operator, name, 200), random.Random(name)
    filters = {each: fits for each, fits in FILTERS[name].items() if not (each == "state" and is_drawn(whole))}
    for _ in range(COMBINATIONS if whole and filters else 0):
        values = values_of(whole, rng)
        chosen = rng.sample(list(filters), rng.randint(1, len(filters)))
        wanted = [row for row in whole if all(filters[each](row, values[each]) for each in chosen)]
        query = {each: values[each] for each in chosen}
        for limit in (200, rng.choice((1, 2, 5))):
            assert every_item(operator, name, limit, **query) == wanted, (query, limit)
    assert every_item(operator, name, 3) == whole


def test_what_is_said_to_be_open_is_not_answered(operator: TestClient) -> None:
    is_open = [each["id"] for each in every_item(operator, "exceptions", 7, open="true")]
    whole = every_item(operator, "exceptions", 200)
    assert [each["id"] for each in whole if each["id"] in is_open] == is_open
    for limit in (1, 200):
        assert every_item(operator, "exceptions", limit, open="false") == whole


def test_events_are_read_from_anywhere_on_in_pages_of_any_length(operator: TestClient) -> None:
    def after(seq: int, limit: int) -> list[Row]:
        found: list[Row] = []
        while True:
            page = asked(operator, f"{API}/events", after=seq, limit=limit)
            found += page["items"]
            if not page["items"]:
                assert page["next_cursor"] == str(seq)
                return found
            seq = int(page["next_cursor"])
            assert seq == page["items"][-1]["seq"]

    whole = after(0, 200)
    assert [row["seq"] for row in whole] == sorted({row["seq"] for row in whole})
    for at in (0, len(whole) // 2, len(whole) - 1):
        seq = whole[at]["seq"]
        assert after(seq, 7) == whole[at + 1 :]


# -- pages of the dashboard


def file_of(client: TestClient, path: str, **query: Any) -> list[Row]:
    answer = client.get(f"{path}?{urlencode({**query, 'format': 'csv'})}")
    assert answer.status_code == 200, answer.text
    rows = csv.DictReader(io.StringIO(answer.text))
    return [{name: value.removeprefix("'") for name, value in row.items()} for row in rows]


def rows_of_pages(client: TestClient, path: str, **query: Any) -> list[str]:
    """The rows of all pages of a listing, as their links lead from one to the next."""
    found, address = [], f"{path}?{urlencode(query)}"
    while address:
        answer = client.get(address)
        assert answer.status_code == 200, answer.text
        found += re.findall(r'<tr id="[a-z]+-\d+">(.*?)</tr>', answer.text, re.DOTALL)
        onward = [unescape(link) for link in re.findall(r'href="([^"]*)"', answer.text) if "cursor=" in link]
        address = next((link for link in onward if link.startswith(path)), "")
    return found


def within(column: str) -> Mapping[str, Fits]:
    def at(row: Row) -> float:
        return datetime.fromisoformat(row[column]).timestamp()

    return {
        "from": lambda row, value: at(row) >= datetime.fromisoformat(value).timestamp(),
        "to": lambda row, value: at(row) <= datetime.fromisoformat(value).timestamp(),
    }


def of_state(row: Row, state: str) -> bool:
    return bool(row["state"] == state)


def of_partition(row: Row, partition: str) -> bool:
    return partition in row["partition"].split(",")


PAGES: Mapping[str, Mapping[str, Fits]] = {
    "/jobs": {
        "state": of_state, "user": is_of, "partition": of_partition, "q": is_sought, **within("submitted"),
    },
    "/exceptions": {
        "type": lambda row, kind: has_kind(row["type"], [kind]), "user": is_of, **within("raised"),
    },
    "/actions": {"state": of_state, **within("decided")},
    "/nodes": {"state": of_state},
}  # fmt: skip
ID = {"/jobs": "job_id", "/actions": "node"}  # of pages with one table, in whose rows that stands


@pytest.mark.parametrize("path", PAGES)
def test_a_page_and_its_file_list_what_fits(operator: TestClient, path: str) -> None:
    whole, rng = file_of(operator, path), random.Random(path)
    for _ in range(COMBINATIONS if whole else 0):
        row, other = rng.choice(whole), rng.choice(whole)
        values = {
            **row, "from": _earlier(row, other), "to": _later(row, other),
            "q": rng.choice((row.get("name", "")[-3:], row.get("job_id", ""))),
            "partition": row.get("partition", "").split(",")[0],
        }  # fmt: skip
        chosen = [each for each in rng.sample(list(PAGES[path]), rng.randint(1, len(PAGES[path]))) if values.get(each)]
        query = {each: values[each] for each in chosen}
        wanted = [row for row in whole if all(PAGES[path][each](row, values[each]) for each in chosen)]
        assert file_of(operator, path, **query) == wanted, query
        if path in ID:
            shown = rows_of_pages(operator, path, **query)
            assert all(row[ID[path]] in text for row, text in zip(wanted, shown, strict=True)), query
    assert path not in ID or len(rows_of_pages(operator, path)) == len(whole)


def _earlier(row: Row, other: Row) -> str:
    return min(_instants(row, other), default="")


def _later(row: Row, other: Row) -> str:
    return max(_instants(row, other), default="")


def _instants(*rows: Row) -> list[str]:
    return [row[column] for row in rows for column in ("submitted", "raised", "decided") if column in row]


@pytest.mark.parametrize("path", PAGES)
def test_what_is_sorted_is_the_same_rows(operator: TestClient, path: str) -> None:
    whole = file_of(operator, path)
    sorts = set(re.findall(r"[?;]sort=-?(\w+)", operator.get(path).text))
    for name in sorted(sorts):
        for sort in (name, f"-{name}"):
            rows = file_of(operator, path, sort=sort)
            assert sorted(map(str, rows)) == sorted(map(str, whole)), sort
            shown = rows_of_pages(operator, path, sort=sort) if path in ID else []
            assert all(row[ID[path]] in text for row, text in zip(rows, shown, strict=path in ID)), sort
