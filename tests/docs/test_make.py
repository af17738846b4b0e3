"""The doors that the README names: `make setup` and `make up`, as a newcomer opens them."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[Any, Any]:
    """The Makefile's own environment is set up already where `make test` runs; else these tests would install one."""
    if not (ROOT / ".venv" / ".base").exists():
        pytest.skip("not run by `make test`: no environment of the Makefile's own")
    ours = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return {**ours, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_setup_done_once_has_nothing_left_to_do(environment: dict[Any, Any]) -> None:
    done = subprocess.run(["make", "setup"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Installing" in done.stdout) == (0, False)


def test_up_prints_its_address_and_ends_on_ctrl_c(environment: dict[Any, Any], tmp_path: Path) -> None:
    command = ["make", "up", "ARGS=--port 0 --no-demo"]
    up = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert up.stdout is not None
        assert "http://127.0.0.1:" in up.stdout.readline()
        os.killpg(up.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
        assert up.wait(60) in (0, -signal.SIGINT)  # make itself ends by the signal, once what it ran has ended
        left = list((tmp_path / "state").rglob("service.json")) + list((tmp_path / "state").rglob("cluster.address"))
        assert left == []
    finally:
        if up.poll() is None:
            os.killpg(up.pid, signal.SIGKILL)
        up.wait(10)
        up.stdout.close()
