"""Two services on one PostgreSQL: one acts, and where it is killed the other takes over, once and within seconds."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from perdure.cli.service_client import Client
from perdure.errors import NotFound
from perdure.service.access.service_file import ServiceFile
from tests.service.conftest import postgres_database, postgres_url  # noqa: F401, fixtures

PATIENCE_S = 120.0
JOB = {"workdir": "/tmp", "user": "ada"}


class Up:
    """One `perdure up` in a process of its own."""

    def __init__(self, home: Path, database: str, name: str, *words: str, **settings: Any) -> None:
        self.state = home / "state"
        self.log = home / f"{name}.log"
        command = [
            sys.executable,
            "-m",
            "perdure",
            "up",
            "--port",
            "0",
            "--no-demo",
            "--state",
            str(self.state),
            *words,
        ]
        env = {**os.environ, "HOME": str(home), "PERDURE_SERVICE_DATABASE": database, **settings}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log)

    def says(self, words: str) -> bool:
        return words in self.log.read_text()

    def is_ready(self) -> Any:
        """Whether this very process answers."""
        with suppress(Exception):
            found = ServiceFile.read(self.state)
            if found.pid == self.process.pid:
                with urlopen(f"{found.url}/readyz", timeout=2) as answer:
                    return answer.status == 200
        return False

    def client(self) -> Client:
        return Client.of(self.state, {})


def _actions(client: Client) -> Any:
    return client.get("/actions")["items"]


def seen(client: Client, job_id: str, what: str) -> Any:
    with suppress(NotFound):  # it was not looked at yet
        return client.get(f"/jobs/{job_id}")[what]


@contextmanager
def two(home: Path, database: str) -> Iterator[tuple[Up, Up]]:
    """A service that leads, and one that stands by."""
    leader = Up(home, database, "leader")
    ups = [leader]
    try:
        until(leader.is_ready, leader)
        other = Up(home, database, "other", "--standby")
        ups.append(other)
        until(lambda: other.says("stands by"), other)
        yield leader, other
    finally:
        for up in reversed(ups):
            if up.process.poll() is None:
                up.process.send_signal(signal.SIGINT)
        for up in ups:
            up.process.wait(PATIENCE_S)


def until(condition: Callable[[], Any], up: Up, patience_s: float = PATIENCE_S) -> float:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < patience_s, up.log.read_text()
        time.sleep(0.05)
    return time.monotonic() - begun


@pytest.mark.postgres
def test_one_of_two_acts_and_the_other_takes_over(tmp_path: Path, postgres_database: str) -> None:  # noqa: F811
    with two(tmp_path, postgres_database) as (leader, other):
        client = leader.client()
        fails = client.post("/jobs", {**JOB, "argv": ["sh", "-c", "echo ConnectionResetError; exit 1"]})["job_id"]
        until(lambda: seen(client, fails, "exceptions"), leader)
        long = client.post("/jobs", {**JOB, "argv": ["sleep", "60"]})["job_id"]
        until(lambda: seen(client, long, "attempts"), leader)
        raised = client.post("/exceptions", {"type": "app.nan", "subject": {"job": long}})["id"]
        leader.process.kill()
        leader.process.wait()
        until(other.is_ready, other)
        client = other.client()
        assert client.get(f"/exceptions/{raised}")["id"] == raised  # nothing that was acknowledged is lost
        again = client.post("/exceptions", {"type": "app.nan", "subject": {"job": long}, "id": raised})
        assert (again["id"], again["repeats"]) == (raised, 0)
        keys = [action["key"] for action in client.get("/actions")["items"]]
        assert len(keys) == len(set(keys))


@contextmanager
def two_clusters(home: Path, database: str) -> Iterator[dict[str, Up]]:
    """A service each for two clusters, whose names are all that tells them apart in their one database."""
    ups = {}
    try:
        for name in ("north", "south"):
            (home / name).mkdir()
            ups[name] = Up(home / name, database, name, PERDURE_SERVICE_CLUSTER_NAME=name)
        for up in ups.values():
            until(up.is_ready, up)
        yield ups
    finally:
        for up in ups.values():
            up.process.send_signal(signal.SIGINT)
        for up in ups.values():
            up.process.wait(PATIENCE_S)


@pytest.mark.postgres
def test_two_clusters_of_a_kind_share_a_database(tmp_path: Path, postgres_database: str) -> None:  # noqa: F811
    with two_clusters(tmp_path, postgres_database) as ups:
        for name, up in ups.items():
            words = ["sh", "-c", f"echo '{name}: ConnectionResetError: [Errno 104] Connection reset by peer'; exit 1"]
            job = {"workdir": str(tmp_path / name), "user": "ada", "argv": words}
            assert up.client().post("/jobs", job)["job_id"] == "1"
        for name, up in ups.items():
            client = up.client()
            until(partial(_actions, client), up)
            assert client.get("/status")["cluster"] == name
            assert [job["job_id"] for job in client.get("/jobs")["items"]] == ["1"]
            told = str(client.get("/jobs/1"))
            assert f"{name}: ConnectionResetError" in told
            assert ("south" if name == "north" else "north") not in told
            assert all(f":{name}/1#" in action["key"] for action in client.get("/actions")["items"])
