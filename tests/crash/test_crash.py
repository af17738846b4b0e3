"""Whatever the instant at which the service is killed, each failure is recovered exactly once."""

import os
import subprocess
import sys

import pytest


def crash(*arguments):
    """Run a campaign in an interpreter of its own: it forks, which a process with threads must not."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.crash", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout.splitlines()


def test_200_kills_lose_and_double_nothing():
    code, lines = crash("--kills", "200")
    assert (code, lines[-1]) == (0, "200 kills, 0 lost, 0 doubled"), "\n".join(lines)


@pytest.mark.parametrize(("mutant", "fault"), [("no-intent", "doubled"), ("deaf", "doubled"), ("trusting", "lost")])
def test_a_service_that_breaks_the_rules_is_caught(mutant, fault):
    code, lines = crash("--kills", "6", "--mutant", mutant)
    assert code == 1
    assert any(line.startswith(f"  {fault}: ") for line in lines)
