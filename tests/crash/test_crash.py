"""Whatever the instant at which the service is killed, each failure is recovered exactly once."""

import os
import subprocess
import sys
from random import Random

import pytest

from perdure.service.store import database as store
from tests.crash import cuts
from tests.crash.power import PowerSupply


def crash(*arguments: str) -> tuple[int, list[str]]:
    """Run a campaign in an interpreter of its own: it forks, which a process with threads must not."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.crash", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout.splitlines()


def test_30_kills_lose_and_double_nothing() -> None:
    """As many as catch each of the mutants below; ``make crash N=10000`` kills more often."""
    code, lines = crash("--kills", "30")
    assert (code, lines[-1]) == (0, "30 kills, 0 lost, 0 doubled"), "\n".join(lines)


def test_100_power_cuts_lose_nothing(watched: None) -> None:
    result = cuts.run(100, seed=1)
    assert (result.cuts, result.lost) == (100, ())
    assert result.states > 100


@pytest.mark.parametrize("carelessness", ["OFF", "NORMAL"])
def test_a_journal_that_is_not_synced_at_each_commit_is_caught(
    watched: None, monkeypatch: pytest.MonkeyPatch, carelessness: str
) -> None:
    monkeypatch.setattr(store, "_PRAGMAS", ("journal_mode=WAL", f"synchronous={carelessness}"))
    assert cuts.run(20, seed=1).lost


@pytest.fixture
def watched() -> None:
    """SQLite can be watched only where it is a library of its own."""
    try:
        PowerSupply(Random(0), 0)
    except OSError as err:
        pytest.skip(str(err))


@pytest.mark.parametrize(
    ("mutant", "fault"), [("no-intent", "doubled"), ("deaf", "doubled"), ("hasty", "lost"), ("trusting", "lost")]
)
def test_a_service_that_breaks_the_rules_is_caught(mutant: str, fault: str) -> None:
    """Within thirty kills: when the service dies is a matter of real time, and six of them can miss a fault."""
    runs = (crash("--kills", "6", "--mutant", mutant, "--seed", str(seed)) for seed in range(1, 10, 2))
    assert any(code == 1 and any(line.startswith(f"  {fault}: ") for line in lines) for code, lines in runs)
