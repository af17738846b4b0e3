"""Hundreds of runs of the whole service among faults, each decided by its seed; see `tests.dst.simulation`.

``make dst N=2000`` runs more of them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest
from sqlalchemy import true

from perdure.retry.budget import BudgetRoom
from perdure.service.store.journal import ActionRow, Journal
from perdure.service.store.reads import IN_STATE
from tests.dst.simulation import LEAST_EVENTS, LEAST_FAULTS, Simulation

SEEDS, SHARES = 800, 4


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation()


@pytest.mark.parametrize("share", range(SHARES))
def test_all_laws_hold_after_every_step(simulation: Simulation, share: int) -> None:
    for seed in range(share * SEEDS // SHARES, (share + 1) * SEEDS // SHARES):
        told = simulation.run(seed)
        assert not told.broken, str(told)
        assert told.events >= LEAST_EVENTS
        assert told.faults >= LEAST_FAULTS


@pytest.mark.parametrize("seed", [7, 129])
def test_one_seed_replays_one_run(simulation: Simulation, seed: int) -> None:
    """In another process, whatever the order of its sets."""
    runs = {f"{simulation.run(seed)}\n"}
    for order in ("1", "2"):
        command = [sys.executable, "-m", "tests.dst", "--seed", str(seed)]
        env = {**os.environ, "PYTHONHASHSEED": order}
        runs.add(subprocess.run(command, env=env, capture_output=True, text=True, timeout=280, check=True).stdout)
    assert len(runs) == 1
    assert len(runs.pop().splitlines()) > LEAST_EVENTS


@pytest.mark.parametrize("seed", [96783, 110162, 129424, 224335, 236743, 1701, 312169, 922289, 951145])
def test_a_seed_that_once_broke_a_law_holds(simulation: Simulation, seed: int) -> None:
    """A clock ahead, a restart, what another service did of what this one gave up, a retry of what went well.

    And a line that was written into a job's record by a service that died before it heard so, and a retry that was put
    off since what it needs was down.
    """
    told = simulation.run(seed)
    assert not told.broken, str(told)


# -- services that break a law must be caught


def broken_by(simulation: Simulation, seeds: range = range(40)) -> Generator[Any, None, None]:
    return (told.broken for told in map(simulation.run, seeds) if told.broken)


def test_who_acts_before_it_is_written_down_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.service.store.journal.Journal.begin", lambda self, key, now: True)
    assert any("written down as begun" in broken for broken in broken_by(simulation))


def test_who_takes_silence_for_a_no_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.dst.cluster.Line.lookup", lambda self, action: None)
    assert any("once" in broken or "at most one recovery" in broken for broken in broken_by(simulation))


def test_who_forgets_annotations_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.coordination.chain.with_annotations", lambda record, annotations: record)
    assert any("annotations" in broken for broken in broken_by(simulation))


def test_who_heeds_no_kill_switch_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.service.workers.executor.Executor.stopped", False)
    assert any("kill switch" in broken for broken in broken_by(simulation))


@pytest.mark.parametrize(
    ("module", "law"),
    [
        ("service.live_policy.policy_store", "a policy knows when|a life is|a job's life"),
        ("service.waits.promise_store", "was promised"),
        ("service.store.queries.jobs", "its own"),
        ("service.store.queries.actions", "what was done to it"),
    ],
)
def test_who_mistakes_a_job_for_the_one_that_had_its_id_is_caught(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, module: str, law: str
) -> None:
    monkeypatch.setattr(f"perdure.{module}.of_this_job", lambda table: true())
    assert any(re.search(law, broken) for broken in broken_by(simulation, range(60)))


def test_who_keeps_no_caps_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.service.workers.executor._cap_reached", lambda *given: ("", None))
    assert any("the cap on" in broken for broken in broken_by(simulation, range(150)))


def test_who_lets_nobody_own_an_action_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.service.workers.executor.Journal.planned", _unowned)
    assert any("owns it" in broken for broken in broken_by(simulation, range(60)))


def _unowned(journal: Journal) -> list[ActionRow]:
    """What waits, with the verdicts that own it forgotten."""
    owns, declines = '"kind":"handled"', '"kind":"declined"'
    store: Any = journal.store  # of the simulation
    store.raw.execute("UPDATE exceptions SET payload = replace(payload, ?, ?)", (owns, declines))
    return journal._actions(IN_STATE, state="planned")


def test_who_never_passes_a_turn_on_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.coordination.chain._Batch._tick", lambda self: None)
    assert any("ends" in broken for broken in broken_by(simulation))


def test_who_believes_one_user_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.coordination.handlers.node.is_vouched_for", lambda record: True)
    assert any("takes no node out of service" in broken for broken in broken_by(simulation, range(200)))


def test_who_never_charges_a_job_s_tries_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.retry.decide._own_limit_reached", lambda *given: "")
    assert any("so many tries" in broken for broken in broken_by(simulation))


def test_who_spends_more_retries_than_there_are_is_caught(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "perdure.retry.decide.room", lambda job, attempt, fleet, rules, start_s, now: BudgetRoom(start_s, "")
    )
    assert any("retries is kept" in broken for broken in broken_by(simulation, range(200)))


def test_who_lets_one_user_spend_all_retries_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.retry.budget._share", lambda limit, rules: limit)
    assert any("retries is kept" in broken for broken in broken_by(simulation, range(200)))


def test_who_lets_users_hold_others_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.coordination.record.ExceptionRecord.is_of_the_site", True)
    monkeypatch.setattr("perdure.service.exceptions.permissions._check_is_used", lambda *given: None)
    assert any("no user holds" in broken for broken in broken_by(simulation, range(80)))


def test_who_lets_users_write_on_others_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.service.exceptions.coordinator._check_visible", lambda *given: None)
    assert any("each writes on his own" in broken for broken in broken_by(simulation))


def test_who_lets_users_take_the_services_names_is_caught(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.service.exceptions.permissions._id", lambda given, identity: given)
    assert any("in another's name" in broken for broken in broken_by(simulation))


def test_who_lets_anybody_add_what_decides_is_caught(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.service.exceptions.permissions._check_key", lambda key: None)
    assert any("nobody adds what decides" in broken for broken in broken_by(simulation))
