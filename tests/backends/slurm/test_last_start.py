"""When a waiting job began to run last, where a look may not have seen it."""

import os
from pathlib import Path

import pytest

from perdure.backends.slurm.accounting import AccountingRow
from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.records import JobRecord, read_jobs
from perdure.backends.slurm.tools import Tools
from tests.backends.slurm.text import MARK, job

FORGOTTEN, UNSEEN = 100, 117


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmBackend:
    """One whose last look saw job 7 run from `FORGOTTEN`, not put back yet, and whose accounting knows both starts."""
    for tool in ("scontrol", "sacct", "scancel"):
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    found = SlurmBackend("sim", Tools(environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    found._look.latest["7"] = (FORGOTTEN, 0)
    rows = [
        AccountingRow("7", 7, "REQUEUED", 0, 0, 90, start, start + 1, 1000, "ada", ("n1",), 0, "None")
        for start in (FORGOTTEN, UNSEEN)
    ]
    monkeypatch.setattr(found._accounts, "ask", lambda *_which: rows)
    return found


def put_back(times: int) -> JobRecord:
    text = job(7, state="PENDING", nodes="", start="Unknown", submit=UNSEEN + 9, restarts=times, priority=0)
    (found,) = read_jobs(text.encode(), MARK).whole
    return found


def test_a_start_that_a_killed_controller_did_not_count_is_asked_of_accounting(backend: SlurmBackend) -> None:
    """Slurm started the job again with as many restarts: that start is the one which failed, and is to be released."""
    assert backend._actor._last_start(put_back(1), UNSEEN) == UNSEEN


def test_a_start_that_the_look_saw_needs_no_accounting(backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend._accounts, "ask", None)
    assert backend._actor._last_start(put_back(1), FORGOTTEN) == FORGOTTEN
    assert backend._actor._last_start(put_back(1), FORGOTTEN - 50) == FORGOTTEN  # the action is about an earlier one


def test_a_job_that_was_put_back_twice_since_the_look_is_asked_of_accounting(backend: SlurmBackend) -> None:
    assert backend._actor._last_start(put_back(2), FORGOTTEN) == UNSEEN
