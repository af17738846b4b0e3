"""Words and files that nobody means: each ends in one line that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

LONG = "9" * 300  # of digits, as a job's id, and too long for a file's name
HALF = "\udcff"  # as a byte that is no UTF-8 comes in


@pytest.mark.parametrize(
    "words",
    [
        ("why", "ranks", LONG),
        ("why", "explain", LONG),
        ("why", LONG),
        ("when", LONG),
        ("node", "thaw", HALF),
        ("jobs", "--user", HALF),
        ("jobs", "why", HALF),
        ("events", "replay", "deep.json"),
        ("events", "raise", "app.x", "--", "[" * 4000),
        ("whatif", "again", "deep.json"),
        ("learn", "labels", "deep.json"),
        ("who", "colocation", "deep.json"),
        ("why", "ranks", HALF),
        ("emulate", LONG),
    ],
)
def test_what_nobody_means_is_no_fault_of_perdures(
    perdure: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (home / "deep.json").write_text("[" * 200_000)
    monkeypatch.chdir(home)
    monkeypatch.setenv("PERDURE_URL", "http://127.0.0.1:9")
    ran = perdure(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "fault in Perdure" not in ran.complaint
