"""A store that is down, a service, ``perdure exec`` and a program: it stands still until the store is back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure.client as client
from perdure.service.web.api import events
from tests.job.launching import finish, is_stopped, on_linux, python, start, wait_until
from tests.service.exceptions.test_taking_part import Reachable, reachable

WAITS = """
import os, sys
print(os.getpid(), flush=True)
sys.stdin.read()
"""
CARE = "ExecOptions(pause_signal=signal.SIGSTOP, look_s=0.05, poll_s=0.05)"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reachable]:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(events, "PATIENCE_S", 0.1)
    with reachable(tmp_path, "tcp") as place:
        yield place


@on_linux
def test_a_job_stands_still_while_its_store_is_down(place: Reachable, tmp_path: Path) -> None:
    incarnation = next(a.id.incarnation for a in place.world.view().running() if a.id.job_id == "200")
    reach = {"PERDURE_URL": place.service.url, "PERDURE_TOKEN": place.mira, "PERDURE_JOB_ID": "200"}
    process = start(tmp_path / "fence", python(WAITS), incarnation, CARE, reach)
    pid = int(process.stdout.readline())
    site_ = client.Service(place.service.url, place.operator)
    client.raise_exception("storage.down", resource="pfs:/scratch", severity=1, job="", service=site_)
    assert "because of storage.down of pfs:/scratch: the program is stopped" in process.stderr.readline()
    wait_until(lambda: is_stopped(pid))
    client.raise_exception("storage.restored", resource="pfs:/scratch", severity=6, job="", service=site_)
    wait_until(lambda: not is_stopped(pid))
    assert finish(process)[0] == 0
