"""What every address answers in some states of the service.

A line is an address, and for each reader the status and a hash of headers and body.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi.dependencies.models import Dependant

import perdure
from perdure.model.jobs import JobState
from perdure.service.store.journal import ActionState
from perdure.service.web.app import API
from perdure.service.web.pages.labels import BADGES
from tests.recorded.line import Line, hash_of
from tests.recorded.states import READERS, STATES, ServiceState, state_of
from tests.service.full_world import get_routes
from tests.service.web_world import TestClient

ELSEWHERE = {"/docs/api", "/metrics"}  # what they show is generated, or told by the process
OF_USERS = ("exceptions", "learning", "whatif")  # listings that differ from reader to reader
MOST_OF_A_KIND = 6  # things that each have a page
QUERIES = 6  # of each address that takes any, where anything has happened
HEADERS = (
    "content-type", "location", "cache-control", "content-disposition", "retry-after", "allow", "www-authenticate",
    "content-security-policy", "x-frame-options", "x-content-type-options", "referrer-policy", "vary",
)  # fmt: skip
_NAMED = re.compile(r"{(\w+)(?::path)?}")
_OF_ONE_VISIT = re.compile(
    r"""(name="csrf" (?:content|value)="|nonce="|'nonce-|name="code" value=")[^"']*|/static/[^"]*"""
)
EMPTY, SECOND_SEED = "empty", "seed-57"  # the second shows little that the first does not
_DIGITS = re.compile(r"\d+\.\d{9,}")  # more than machines agree on
STANDINGS = ("raised", "handled", "escalated", "recovered", "closed", "clearing")


def names() -> Sequence[str]:
    return tuple(name for name in STATES if name != SECOND_SEED)


def lines_of(state: str) -> Iterator[Line]:
    """The lines of a state."""
    with tempfile.TemporaryDirectory() as folder, state_of(state, Path(folder) / "site") as place:
        for path, query in addresses(place, state):
            address = f"{path}?{urlencode(query, doseq=True)}" if query else path
            readers = [name for name in READERS if _asks(name, path, query)]
            told = [said(place.readers[name], address, folder) for name in readers]
            whole = "".join(f"## {name} {address}\n{each}\n" for name, each in zip(readers, told, strict=True))
            yield Line(f"{address}: {' '.join(_short(each) for each in told)}", whole)


def said(client: TestClient, address: str, folder: str) -> str:
    """What an address answers, as `text_of` has it."""
    return text_of(client.get(address), folder)


def text_of(answer: Any, folder: str) -> str:
    """Status, headers and body, without what is of this visit or this machine alone."""
    head = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    text = f"{answer.status_code}\n{head}\n{answer.text}"
    text = _DIGITS.sub(lambda found: f"{float(found[0]):.9g}", text)
    return _OF_ONE_VISIT.sub(r"\1", text).replace(perdure.__version__, "VERSION").replace(folder, "FOLDER")


def _asks(reader: str, path: str, query: Mapping[str, Any]) -> bool:
    """Most of what a stranger sees everybody sees, and without a token one sees no pages."""
    if reader == "operator":
        return True
    if reader == "owner":
        return not query or path.rsplit("/", 1)[-1] in OF_USERS
    is_of_one = path.count("/") > (3 if path.startswith(API) else 1)
    return not query and (path.startswith(API) if reader == "socket" else is_of_one)


def _short(told: str) -> str:
    return f"{told[:3]} {hash_of(told)}"


def addresses(place: ServiceState, state: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each path with what there is put in, and with some queries where it takes any."""
    known = things(place.readers["operator"])
    for path, route in get_routes():
        if path in ELSEWHERE:
            continue
        names = _NAMED.findall(path)
        asked = [*dict.fromkeys(queries_of(route.dependant))]
        pictures = {"name": ["waits"], "theme": ["dark"]} if "theme" in names else {}
        for given in product(*(({**known, **pictures})[name] for name in names)):
            address = path
            for value in given:
                address = _NAMED.sub(quote(value, safe="+:/"), address, count=1)
            yield address, {}
        if asked and not names and state != EMPTY:
            rng = random.Random(f"{state} {path}")
            sorts = re.findall(r"[?;]sort=-?(\w+)", place.readers["operator"].get(path).text)
            known["sort"] = [f"{sign}{each}" for each in dict.fromkeys(sorts) for sign in ("", "-")] or ["none"]
            drawn = [drawn_query(rng, path, asked, known) for _ in range(QUERIES)]
            yield from ((path, query) for at, query in enumerate(drawn) if query not in drawn[:at])


def things(operator: TestClient) -> dict[str, list[str]]:
    """What there is by the name that it has in paths, and something that is not there."""

    def listed(name: str, key: str) -> list[str]:
        items = operator.get(f"{API}/{name}?limit=200").json().get("items", [])
        return [*dict.fromkeys(item[key] for item in items)]

    def few(found: list[str]) -> list[str]:
        step = max(1, len(found) / MOST_OF_A_KIND)
        return [found[int(at * step)] for at in range(min(len(found), MOST_OF_A_KIND))]

    comparisons = operator.get(f"{API}/whatif/comparisons")
    found = {
        "job_id": listed("jobs", "job_id"),
        "exception_id": listed("exceptions", "id"),
        "comparison_id": [each["id"] for each in comparisons.json()["items"]] if comparisons.status_code == 200 else [],
        "name": listed("nodes", "name"),
        "user": listed("chains", "user"),
        "chain": listed("chains", "chain"),
    }
    return {name: [*few(some), "none-such"] for name, some in found.items()} | {
        "users": [*dict.fromkeys(item["user"] for item in operator.get(f"{API}/jobs?limit=200").json()["items"])],
    }


def queries_of(dependant: Dependant) -> Iterator[str]:
    """Names of what an address may say."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from queries_of(inner)


def drawn_query(
    rng: random.Random, path: str, names: Sequence[str], known: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Some parameters of an address, mostly with values that leave some of what there is."""
    chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 2, 3, 4))))
    return {name: rng.choice(_values(name, path, known)) for name in names if name in chosen}


STATE_WORDS: Mapping[str, Sequence[str]] = {
    "jobs": tuple(state.value for state in JobState),
    "actions": tuple(state.value for state in ActionState),
    "exceptions": STANDINGS,
    "nodes": tuple(BADGES["node"]),
    "notices": tuple(BADGES["message"]),
}
VALUES: Mapping[str, Sequence[str]] = {
    "q": ("train", "7", "2", "nothing", "%", "<b>1"),
    "partition": ("gpu", "a", "debug", "none"),
    "from": ("2026-09-21T12:00+00:00", "1970-01-01T00:30+00:00"),
    "to": ("2026-09-21T20:00+00:00", "1970-01-01T00:40+00:00"),
    "last": ("1h", "24h", "7d", "30d"),
    "cursor": ("", "3", "9", "40"),
    "limit": ("1", "2", "7", "200"),
    "format": ("csv", "csv", "csv"),
    "table": ("corrections", "terms", "models", "aside"),
    "type": ("job", "job.net", "storage.down", "process.exit", "app", ""),
    "kind": ("requeue", "retry", "hold", "drain", "comment", "explode"),
    "open": ("true", "false"),
    "target": ("ops", "tickets", "none"),
    "after": ("0", "5", "40", "100000"),
    "model": ("resnet-50", "none"),
    "batch": ("32", "64", "0"),
    "nodes": ("1", "4"),
    "gpus_per_node": ("1", "8"),
}


def _values(name: str, path: str, known: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if name == "state":
        return (*STATE_WORDS[path.rsplit("/", 1)[-1]], "banana")
    if name in ("job", "job_id"):
        return known["job_id"]
    if name == "user":
        return (*known["users"], "none-such")
    if name == "cursor" and path.endswith("/nodes"):
        return known["name"]
    if name == "like":
        return known["comparison_id"]
    if name == "sort":
        return known["sort"]
    return VALUES.get(name, ("", "1"))
