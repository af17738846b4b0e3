"""Every listing: its filters go along with each link, and its links and its file lead to the rows that are meant.

Pages and listings of the API are found by their routes: a new one is tested as it is; a new filter needs a value here.
"""

import csv
import io
import re
from collections.abc import Iterator
from datetime import datetime
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from fastapi.dependencies.models import Dependant

from perdure.service.web.pages.jobs import STATES
from perdure.service.web.pages.labels import BADGES
from perdure.service.web.pages.listing import _instant
from tests.service.full_world import full_site, get_routes, readers
from tests.service.web_world import Site, TestClient

SEVERAL = ("state", "sort", "cursor", "format", "table")  # they choose among views rather than narrow


def queries_of(dependant: Dependant) -> Iterator[Any]:
    """Names of what an address may say."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from queries_of(inner)


ROUTES = {path: tuple(queries_of(route.dependant)) for path, route in get_routes()}
PAGES = {path: names for path, names in ROUTES.items() if "format" in names and "{" not in path}
PAGED = {path: names for path, names in ROUTES.items() if "limit" in names and "cursor" in names}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return full_site(tmp_path_factory.mktemp("listings"))


@pytest.fixture(scope="module")
def operator(place: Site) -> TestClient:
    return readers(place)["operator"]


@pytest.fixture(scope="module")
def values(place: Site) -> dict[Any, Any]:
    """A value of each filter, which leaves some rows and not all."""
    world = place.world
    from_, to = (datetime.fromtimestamp(at).isoformat() for at in (world.now - 14_000, world.now - 300))
    return {
        "user": "mira", "partition": "gpu", "from": from_, "to": to, "q": "train", "job": "102", "job_id": "102",
        "type": "process.exit", "target": "ops", "kind": "requeue", "open": "true", "last": "1h", "like": "",
    }  # fmt: skip


def links_of(text: str, path: str | tuple[str, str]) -> list[Any]:
    """What each link to the same listing asks for."""
    found = [urlsplit(unescape(link)) for link in re.findall(r'href="([^"]*)"', text)]
    return [{name: said[0] for name, said in parse_qs(link.query).items()} for link in found if link.path == path]


def rows_of(client: TestClient, path: tuple[str, str] | str, **asked: Any) -> list[Any]:
    answer = client.get(f"{path}?{urlencode({**asked, 'format': 'csv'})}")
    assert answer.status_code == 200, answer.text
    return [tuple(row.items()) for row in csv.DictReader(io.StringIO(answer.text))]


HAS_TABS = ("/jobs", "/nodes", "/exceptions", "/actions", "/notices")
OWN = {"/jobs": ("q",), "/exceptions": ("type", "job"), "/actions": ("job",), "/notices": ("target",)}
SORT = {"/exceptions": "-what", "/blame": "-since", "/learning": "-by"}
SHARED = ("user", "partition", "from", "to")


@pytest.mark.parametrize("path", PAGES)
def test_each_link_of_a_listing_keeps_all_filters_and_changes_one(
    operator: TestClient, values: dict[Any, Any], path: str
) -> None:
    own = tuple(name for name in PAGES[path] if name not in (*SHARED, *SEVERAL, "last", "like"))
    asked = {name: values[name] for name in (*SHARED, *own)} | {"sort": SORT.get(path, "-state")}
    for narrowed in (asked, {**asked, "last": "24h"}):
        text = operator.get(f"{path}?{urlencode(narrowed)}").text
        links = [link for link in links_of(text, path) if "sort" in link]
        for link in links:
            changed = {name for name in {*narrowed, *link} if narrowed.get(name) != link.get(name)}
            assert len(changed - {"cursor"}) <= 1, link
            assert changed <= {"sort", "state", "partition", "format", "table", "cursor", "last", "target"}, link
        assert links or path not in HAS_TABS


NARROWED = {
    "user": lambda row, value: row.get("user") == value,
    "partition": lambda row, value: value in row.get("partition", row.get("partitions", "")).split(),
    "q": lambda row, value: value in row["name"],
    "job": lambda row, value: row["job_id"] == value,
    "type": lambda row, value: row["type"] == value,
    "target": lambda row, value: row["target"] == value,
}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *((path, name) for path, names in PAGES.items() for name in names if name in OWN.get(path, ())),
        *((path, name) for path in ("/jobs", "/exceptions") for name in ("user", "partition")),
    ],
)
def test_what_narrows_a_listing_leaves_the_rows_that_it_says_and_all_of_them(
    operator: TestClient, values: dict[str, str], path: str, name: str
) -> None:
    whole = rows_of(operator, path)
    found = rows_of(operator, path, **{name: values[name]})
    assert found == [row for row in whole if NARROWED[name](dict(row), values[name])]
    assert 0 < len(found) < len(whole)
    links = links_of(operator.get(f"{path}?{urlencode({name: values[name]})}").text, path)
    assert [link for link in links if "format" in link] == [{name: values[name], "format": "csv"}]


@pytest.mark.parametrize(
    ("path", "column"), [("/jobs", "submitted"), ("/exceptions", "raised"), ("/actions", "decided")]
)
def test_a_stretch_of_time_has_both_its_ends(operator: TestClient, path: str, column: str) -> None:
    whole = rows_of(operator, path)
    times = {row: datetime.fromisoformat(dict(row)[column]).timestamp() for row in whole}
    instants = sorted(set(times.values()))
    from_, to = instants[1], instants[-2]
    asked = {"from": datetime.fromtimestamp(from_).isoformat(), "to": datetime.fromtimestamp(to).isoformat()}
    kept = {"from": [row for row in whole if times[row] >= from_], "to": [row for row in whole if times[row] <= to]}
    for name, rows in kept.items():
        assert rows_of(operator, path, **{name: asked[name]}) == rows
        assert 0 < len(rows) < len(whole), name
    assert rows_of(operator, path, **asked) == [row for row in kept["from"] if row in kept["to"]]


@pytest.mark.parametrize(
    ("path", "column"), [("/jobs", "submitted"), ("/exceptions", "raised"), ("/actions", "decided")]
)
@pytest.mark.parametrize(("last", "seconds"), [("1h", 3600), ("24h", 86_400), ("7d", 604_800), ("30d", 2_592_000)])
def test_the_last_hours_and_days_are_as_long_as_they_say(
    place: Site, operator: TestClient, path: str, column: str, last: str, seconds: int
) -> None:
    world, now = place.world, place.world.now
    whole = rows_of(operator, path)
    newest = max(datetime.fromisoformat(dict(row)[column]).timestamp() for row in whole)
    try:
        world.now = newest + seconds
        assert rows_of(operator, path, last=last)
        world.now += 1
        assert not rows_of(operator, path, last=last)
    finally:
        world.now = now


STATES_OF = {
    "/jobs": STATES,
    "/nodes": tuple(BADGES["node"]),
    "/actions": tuple(BADGES["action"]),
    "/notices": tuple(BADGES["message"]),
}


@pytest.mark.parametrize("path", STATES_OF)
def test_the_rows_of_all_states_are_all_rows(operator: TestClient, path: str) -> None:
    whole = rows_of(operator, path)
    by_state = [(state, rows_of(operator, path, state=state)) for state in STATES_OF[path]]
    assert all(dict(row)["state"] == state for state, rows in by_state for row in rows)
    assert sorted(row for _, rows in by_state for row in rows) == sorted(whole)


def sorts_of(operator: TestClient, path: str) -> list[Any]:
    found = {link["sort"].removeprefix("-") for link in links_of(operator.get(path).text, path) if "sort" in link}
    return sorted(found)


@pytest.mark.parametrize("path", PAGES)
def test_sorting_moves_rows_and_loses_none_and_falling_is_rising_turned_round(operator: TestClient, path: str) -> None:
    whole = rows_of(operator, path)
    for name in sorts_of(operator, path):
        rising, falling = (rows_of(operator, path, sort=f"{sign}{name}") for sign in ("", "-"))
        assert sorted(rising) == sorted(falling) == sorted(whole), name
        for column in {name, name.removesuffix("s")} & dict(next(iter(whole), ())).keys():
            texts = [dict(row)[column] for row in rising]
            if not any(text[:1].isdigit() for text in texts):
                assert texts == sorted(texts), name
                assert [dict(row)[column] for row in falling] == texts[::-1], name


@pytest.mark.parametrize("path", PAGED)
def test_pages_of_an_answer_add_up_to_the_whole_with_and_without_a_filter(
    operator: TestClient, values: dict[Any, Any], path: str
) -> None:
    for name in ("", *(name for name in PAGED[path] if name in ("user", "q", "job_id", "type", "kind", "open"))):
        narrowed = {name: values[name]} if name else {}
        whole = operator.get(path, params={**narrowed, "limit": 200}).json()["items"]
        found, cursor = [], {}
        while True:
            page = operator.get(path, params={**narrowed, **cursor, "limit": 7}).json()
            assert len(page["items"]) <= 7
            found += page["items"]
            if not page["next_cursor"]:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert found == whole
        assert found, (path, name)


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?state=banana", "/jobs?sort=banana", "/jobs?last=banana", "/actions?state=banana",
        "/actions?sort=-banana", "/exceptions?state=open", "/nodes?state=banana", "/blame?sort=banana",
        "/learning?sort=banana", "/whatif?sort=banana",
    ],
)  # fmt: skip
def test_what_a_listing_cannot_filter_or_sort_by_is_refused(operator: TestClient, path: str) -> None:
    answer = operator.get(path)
    assert answer.status_code == 422
    assert "is not known. Use " in " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def test_the_tabs_of_actions_count_what_is_listed(operator: TestClient, values: dict[Any, Any]) -> None:
    def counted(path: str) -> Any:
        return sum(int(number) for number in re.findall(r'<span class="count">(\d+)</span>', operator.get(path).text))

    assert counted("/actions") > counted("/actions?user=mira") == len(rows_of(operator, "/actions", user="mira"))


def test_the_jobs_page_says_what_it_is_narrowed_to(operator: TestClient) -> None:
    text = operator.get("/jobs?user=mira&partition=gpu&last=24h").text
    assert "The latest first, of mira, in gpu, of the last 24 hours</p>" in text


@pytest.mark.usefixtures("kolkata")
def test_a_moment_without_a_zone_is_of_this_machines() -> None:
    assert _instant("from", "1970-01-01T05:30") == 0.0
    assert _instant("from", "1970-01-01T00:00+00:00") == 0.0
