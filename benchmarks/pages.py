"""How long pages and listings take with many jobs in the store.

    python benchmarks/pages.py [--jobs 100000] [--rounds 20] [--store DIRECTORY]

A journal as `benchmarks/fill.py` writes it (kept in DIRECTORY where that is given, and taken from there the next
time), the real application behind a real server on this machine, one request at a time over HTTP. Prints the median
and the slowest of each in milliseconds; exit code 1 where the median of one is not below 300 ms.
"""

from __future__ import annotations

import argparse
import http.client
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from fill import CLUSTER, SPACING_S, START_S, fill

from perdure.coordination.playbook import own_playbook
from perdure.model.actions import Action
from perdure.retry.rules import RetryRules
from perdure.service.access.auth import Role, TokenBook
from perdure.service.core.case import ControllerState
from perdure.service.core.view import SiteView
from perdure.service.exceptions.coordinator import Coordinator
from perdure.service.store.database import FILE_NAME
from perdure.service.store.journal import Journal
from perdure.service.web.app import create_app
from perdure.service.web.state import WebSettings
from perdure.service.workers.operations import Status

LIMIT_MS = 300.0


class Standing:
    """Operations of a service that nobody asks to do anything."""

    def __init__(self, now: float) -> None:
        self._status = Status(CLUSTER, "slurm", armed=True, stopped=False, last_look_s=now, ready=True)

        view = SiteView(ControllerState(CLUSTER), own_playbook(), RetryRules(), now)
        self.coordinator = Coordinator(lambda _: [], lambda: view, lambda _: {}, lambda: None)

    def status(self) -> Status:
        return self._status

    def log_text(self, job_id: str, incarnation: int, max_bytes: int) -> bytes:
        return b"step 1 loss 2.0\n" * (max_bytes // 16)

    def kept_log(self, job_id: str, incarnation: int) -> str:
        return ""

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError

    withhold = stop_all = fault = submit = undo = _refuse

    def order(self, action: Action, by: str, reason: str) -> str:
        raise NotImplementedError


def measure(port: int, token: str, path: str, rounds: int) -> list[float]:
    """Milliseconds from the request to the last byte, of each of `rounds`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        took.append(1e3 * (time.perf_counter() - began))
        if answer.status != 200:
            sys.exit(f"{path}: HTTP {answer.status}")
    return took


def paths(jobs: int) -> list[str]:
    """Pages and listings, the dear ones among them: a search without a match has to read every job."""
    middle = jobs // 2
    return [
        "/",
        "/jobs",
        "/jobs?state=failed",
        f"/jobs?cursor={middle}",
        "/jobs?q=train-5",
        "/jobs?q=matches-nothing",
        "/jobs?user=user7",
        f"/jobs/{jobs - 301}",
        f"/jobs/{middle}",
        f"/jobs/{middle}/log",
        "/nodes",
        "/actions",
        "/exceptions",
        "/exceptions?type=job.shape",
        "/exceptions?type=matches.nothing",
        "/exceptions?state=expired",
        "/api/v1/jobs?limit=200",
        "/api/v1/nodes?limit=200",
        "/api/v1/actions?limit=200",
        "/api/v1/events?limit=200",
        "/metrics",
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        store = given.store or Path(temporary)
        if not (store / FILE_NAME).exists():
            fill(store, given.jobs)
        return report(store, given.jobs, given.rounds)


def report(store: Path, jobs: int, rounds: int) -> int:
    now = START_S + SPACING_S * jobs
    journal, tokens = Journal.open(store, CLUSTER), TokenBook(store)
    app = create_app(journal.engine, Standing(now), tokens, WebSettings(clock=lambda: now))
    token = tokens.mint("bench", Role.OPERATOR)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        slow = 0
        for path in paths(jobs):
            took = measure(sock.getsockname()[1], token, path, rounds)
            median = statistics.median(took)
            slow += median >= LIMIT_MS
            print(f"{median:8.1f} ms median {max(took):8.1f} ms slowest   {path}")
        server.should_exit = True
        thread.join(10)
    journal.close()
    print(f"{jobs} jobs; {slow} above {LIMIT_MS:.0f} ms")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
