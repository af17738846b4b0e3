"""The API keeps to its own description: schemathesis, with all that it checks, against a served application."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from perdure.service.web.app import API
from tests.browser.conftest import served
from tests.service.web_world import Site, fill, site

ROOT = Path(__file__).resolve().parents[3]
TESTER = Path(sys.executable).with_name("st")
LONGEST_S = 30  # what a slow machine has not asked by then it leaves out
SLOW = "^/api/v1/learning/rounds$"  # teaches a model at each request
ENDLESS = "/stream$"
# What makes sense here depends on more than a form: a type must be in the playbook, a name in a registry, and so on.
OF_MEANING = tuple(
    f"POST {API}/{name}" for name in ("exceptions", "jobs", "actions", "learning/aside", "whatif/comparisons")
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = site(tmp_path_factory.mktemp("conformance"))
    fill(place.world)
    return place


def ask(place: Site, directory: Path, longest_s: float, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the tester; it keeps what it notes in `directory`."""
    with served(place) as url:
        return subprocess.run(
            [
                TESTER, "run", f"{url}{API}/openapi.json", "--header", f"Authorization: Bearer {place.operator}",
                "--phases", "coverage,fuzzing", "--max-examples", "3", "--seed", "1", "--no-shrink",
                "--continue-on-failure", "--max-time", str(round(longest_s)), "--request-timeout", "60",
                "--warnings", "off", *words,
            ],
            cwd=directory, capture_output=True, text=True, timeout=280, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.service.conformance_hooks"},
        )  # fmt: skip


def test_what_is_described_is_what_is_answered(place: Site, tmp_path: Path) -> None:
    but = [word for name in OF_MEANING for word in ("--exclude-name", name)]
    ran = ask(place, tmp_path, LONGEST_S, "--exclude-path-regex", f"{SLOW}|{ENDLESS}", *but)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_a_description_alone_cannot_tell_is_refused_as_described(place: Site, tmp_path: Path) -> None:
    only = [word for name in OF_MEANING for word in ("--include-name", name)]
    ran = ask(place, tmp_path, LONGEST_S / 3, "--exclude-checks", "positive_data_acceptance", *only)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("jobs", "GET, POST"),
        ("handlers/x", "DELETE, PUT"),
        ("whatif/comparisons/0123456789abcdef", "DELETE, GET"),
        ("exceptions/batch", "POST"),
    ],
)
def test_all_methods_of_a_path_are_named(place: Site, path: str, allowed: str) -> None:
    answer = place.client(place.operator).request("OPTIONS", f"{API}/{path}")
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "kill-switch", {"on": 0}),
        ("POST", "tokens", {"user": "mira\x85"}),
        ("PUT", "handlers/a%C2%85", {"component": "job", "types": [""]}),
        ("PUT", "handlers/a", {"component": "job", "types": [""], "lease_s": "60"}),
        ("GET", "jobs?cursor=1234567890123456789", None),
        ("GET", "jobs?cursor=next", None),
    ],
)
def test_what_is_not_described_is_not_taken(
    place: Site, method: str, path: str, body: Mapping[str, int | str] | dict[str, Sequence[str]] | None
) -> None:
    answer = place.client(place.operator).request(method, f"{API}/{path}", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["where"]
