"""What decides answers as it did. Where it is to answer otherwise: ``python -m tests.recorded``, and read the diff.

The answers are of thousands of random cases, which nobody has judged one by one: they show a change that nobody meant.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.model.jobs import Attempt
from tests.conftest import require
from tests.recorded import verdicts
from tests.recorded.alike import ALIKE
from tests.recorded.answers import FITTING, LEAST_KEPT
from tests.recorded.drawn import Drawn, in_words
from tests.recorded.groups import GROUPS, PLACE, lines_of, names

WIDEST = 2000  # characters of what is shown where it differs
FAULT = "This is a fault in Perdure"  # what a command says of an error that nobody foresaw


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the answers were written down; some tell a time of day."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("name", names())
def test_every_answer_is_as_it_was(name: str) -> None:
    before = (PLACE / f"{name}.txt").read_text().splitlines()
    assert before
    meant = f"if that is meant: python -m tests.recorded {name}"
    for now, then in zip(lines_of(name), before, strict=True):
        assert now.short == then, f"{meant}; it says\n{now.whole[:WIDEST]}"
        assert FAULT not in now.whole


def test_no_functions_answers_are_all_alike() -> None:
    """Such answers show no change. What is drawn for a new one: `GIVEN`, `FITTING`, `MAKING`."""
    told: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path in (PLACE / "modules").iterdir():
        for line in path.read_text().splitlines():
            case, _, said = line.partition(": ")
            told[f"{path.stem}.{case.split()[0]}"][said] += 1
    alike = {name for name, answers in told.items() if len(answers) == 1 and answers.total() >= LEAST_KEPT}
    named = {name for names in ALIKE.values() for name in names}
    assert not alike - named, "draw what makes them differ"
    assert not named - alike, "they differ now: take them off the list"


def test_every_kind_of_answers_is_asked_for(data_dir: Path | None) -> None:
    assert {name.partition("/")[0] for name in names()} == {*GROUPS}
    require("data", data_dir, "no real logs here")
    assert {f"verdicts/{name}" for name in verdicts.PUBLIC} <= {*names()}


def test_a_case_is_drawn_alike_each_time_and_unlike_others() -> None:
    drawn = [in_words(Drawn(case, FITTING)(Attempt, "attempt")) for case in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]
