"""What decides answers as it did. Where it is to answer otherwise: ``python -m tests.recorded``, and read the diff.

The answers are of thousands of random cases, which nobody has judged one by one: they show a change that nobody meant.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.model.jobs import Attempt
from tests.conftest import require
from tests.dst.simulation import Simulation
from tests.recorded import command_cases, commands, kept_chains, requests, runs, verdicts, visits, whole_runs
from tests.recorded.answers import FITTING, MODULES, answer, functions, recorded
from tests.recorded.drawn import Drawn, in_words
from tests.recorded.stories import telling


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the answers were written down; some tell a time of day."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("module", MODULES)
def test_every_answer_is_as_it_was(module: str) -> None:
    asked = functions(module)
    anew = f"if that is meant: python -m tests.recorded {module}"
    assert recorded(module)
    for name, case, before in recorded(module):
        assert name in asked, f"{module}.{name} is gone; {anew}"
        assert answer(module, name, asked[name], case) == before, f"case {case} of {module}.{name}; {anew}"


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("net", whole_runs.NETS)
def test_every_whole_run_answers_as_it_did(net: str) -> None:
    before = whole_runs.path_of(net).read_text().splitlines()
    found = [whole_runs.line(case) for case in whole_runs.cases(net)]
    other = [line for line in found if line not in before]
    how = f"python -m tests.recorded.whole_runs --case '{net}: {other[0].split(': ')[0]}'" if other else ""
    meant = f"if that is meant: python -m tests.recorded.whole_runs {net}; in words: {how}"
    assert found == before, f"{len(other)} of {len(found)} answer otherwise, {other[:3]}; {meant}"


def test_a_case_is_drawn_alike_each_time_and_unlike_others() -> None:
    drawn = [in_words(Drawn(case, FITTING)(Attempt, "attempt")) for case in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("seed", runs.kept())
def test_every_run_goes_as_it_went(simulation: Simulation, seed: int) -> None:
    meant = f"if that is meant: python -m tests.recorded.runs; its words: python -m tests.recorded.runs --seed {seed}"
    before = runs.path_of(seed).read_text().splitlines()
    for number, (now, then) in enumerate(zip(runs.run(simulation, seed), before, strict=True), 1):
        assert now == then, f"step {number} of seed {seed}; {meant}"


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("state", visits.kept())
def test_every_address_answers_as_it_did(state: str) -> None:
    meant = "if that is meant: python -m tests.recorded.visits; all words: python -m tests.recorded.visits --whole"
    before = visits.path_of(state).read_text().splitlines()
    for now, then in zip(visits.visits(state), before, strict=True):
        assert now == then, f"{meant} {state}"


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("state", requests.STATES)
def test_every_request_is_answered_and_carried_out_as_it_was(state: str) -> None:
    meant = "if that is meant: python -m tests.recorded.requests; all words: python -m tests.recorded.requests --whole"
    before = requests.path_of(state).read_text().splitlines()
    for now, then in zip(requests.requests(state), before, strict=True):
        assert now == then, f"{meant} {state}"


def test_runs_are_kept() -> None:
    assert runs.kept()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("name", [*verdicts.OWN, *verdicts.PUBLIC])
def test_of_every_log_the_same_is_said(name: str, data_dir: Path | None) -> None:
    logs = verdicts.OWN.get(name) or verdicts.public(require("data", data_dir, "no real logs here"), name)
    before = verdicts.path_of(name).read_text().splitlines()
    for now, then in zip(verdicts.verdicts(logs), before, strict=True):
        assert now.strip() == then, f"a log of {name}; if that is meant: python -m tests.recorded.verdicts"


@pytest.mark.parametrize("group", command_cases.GROUPS)
def test_every_command_prints_what_it_printed(group: str) -> None:
    before = commands.recorded(group)
    for (case, found), then in zip(commands.answers(group), before, strict=True):
        meant = f"if that is meant: python -m tests.recorded.commands {group}; the words:\n{found.whole}"
        assert commands.line(case, found) == then, meant


@pytest.mark.usefixtures("utc")
def test_every_chain_is_kept_as_it_was() -> None:
    meant = "if that is meant: python -m tests.recorded.kept_chains"
    for now, then in zip(kept_chains.lines(), kept_chains.recorded(), strict=True):
        assert now == then, meant


@pytest.mark.parametrize("name", telling.STORIES)
def test_every_story_ends_as_it_ended(name: str) -> None:
    before = telling.path_of(name).read_text().splitlines()
    assert len(before) == telling.STORIES[name].CASES
    for case, was in enumerate(before):
        meant = f"its words: python -m tests.recorded.stories.telling {name} --case {case}; if meant: without --case"
        assert telling.in_short(name, case) == was, f"case {case} of {name}; {meant}"
