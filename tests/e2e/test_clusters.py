"""Several controllers share many clusters on one PostgreSQL: each has one owner, whoever is killed, and when."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import psycopg
import pytest

from perdure.cli.service_client import Client
from perdure.errors import PerdureError
from perdure.service.access.service_file import ServiceFile
from tests.service.conftest import postgres_database, postgres_url  # noqa: F401, fixtures

PATIENCE_S = 180.0
KILLS = int(os.environ.get("PERDURE_TEST_KILLS", "5"))
FAILS = ["sh", "-c", "echo 'ConnectionResetError: [Errno 104] Connection reset by peer'; exit 1"]
WRITTEN = ("events", "jobs", "attempts", "nodes", "exceptions", "actions", "cases", "memory", "owners")
AUDIT = """
CREATE TABLE audit (seq bigserial, cluster text, pid int);
CREATE FUNCTION audited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO public.audit (cluster, pid) VALUES (NEW.cluster, pg_backend_pid());
  RETURN NULL; END $$;
"""


class Controllers:
    """Processes of `perdure up --clusters`, by name, on one directory of settings."""

    def __init__(self, home: Path, database: str, clusters: int) -> None:
        self.home, self.database, self.state = home, database, home / "state"
        self.names = [f"c{number}" for number in range(clusters)]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        (home / "clusters").mkdir()
        for name in self.names:
            words = '[service]\ncluster = "local"\n[local]\nnodes = 1\ngpus = 1\ndemo = false\n'
            (home / "clusters" / f"{name}.toml").write_text(words)

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "perdure", "up", "--clusters", str(self.home / "clusters"), "--port", "0"]
        env = {**os.environ, "HOME": str(self.home), "PERDURE_SERVICE_DATABASE": self.database}
        env |= {"PERDURE_WHATIF_ENABLED": "no", "PERDURE_WAITS_EVERY_S": "0", "PERDURE_TRIAGE_LEARN": "no"}
        with (self.home / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*command, "--state", str(self.state)], cwd=self.home, env=env, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGINT)
        for process in self.running.values():
            process.wait(PATIENCE_S)

    def owners(self) -> dict[str, tuple[int, int]]:
        """Of each cluster its owner's process, and how often it has changed hands."""
        found = {}
        for name in self.names:
            with psycopg.connect(self.database) as db, suppress(psycopg.errors.UndefinedTable):
                for owner, epoch in db.execute(f"SELECT owner, epoch FROM {name}.owners"):
                    found[name] = (int(owner.rpartition(":")[2]), epoch)
        return found

    def unready(self) -> list[str]:
        """Clusters of which no process answers that it is ready."""
        return [name for name in self.names if not self._is_ready(name)]

    def _is_ready(self, name: str) -> bool:
        with suppress(OSError, PerdureError):
            found = ServiceFile.read(self.state / name)
            if found.pid == self.owners().get(name, (0, 0))[0] and _lives(found.pid):
                with urlopen(f"{found.url}/readyz", timeout=2) as answer:
                    return bool(answer.status == 200)
        return False

    def client(self, name: str) -> Client:
        return Client.of(self.state / name, {})

    def log(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.home.glob("*.log")))


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(condition: Callable[[], Any], controllers: Controllers) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < PATIENCE_S, controllers.log()
        time.sleep(0.1)


@contextmanager
def running(home: Path, database: str, clusters: int, names: tuple[str, ...]) -> Iterator[Controllers]:
    controllers = Controllers(home, database, clusters)
    try:
        for name in names:
            controllers.start(name)
        until(lambda: not controllers.unready(), controllers)
        yield controllers
    finally:
        controllers.end()


def _audit(database: str, names: Sequence[str]) -> None:
    """From now on the database itself notes which connection writes about which cluster."""
    each_row = "AFTER INSERT OR UPDATE ON {}.{} FOR EACH ROW EXECUTE FUNCTION public.audited()"
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(AUDIT)
        for name, table in product(names, WRITTEN):
            db.execute("CREATE TRIGGER audited " + each_row.format(name, table))


def _submit(controllers: Controllers, name: str) -> None:
    """Have a job fail on a cluster, as far as anybody serves it."""
    with suppress(PerdureError, OSError):
        controllers.client(name).post("/jobs", {"workdir": "/tmp", "user": "ada", "argv": FAILS})


def _break_in(controllers: Controllers, way: str, rng: random.Random) -> None:
    name = rng.choice(sorted(controllers.running))
    if way == "controller":
        controllers.kill(name)
        controllers.start(f"{name}+")
    elif way == "cluster":
        os.kill(rng.choice(sorted(controllers.owners().values()))[0], signal.SIGKILL)
    else:
        with psycopg.connect(controllers.database, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                       " AND datname = current_database() AND random() < 0.5")  # fmt: skip


@pytest.mark.postgres
def test_each_cluster_has_one_owner_whoever_is_killed(tmp_path: Path, postgres_database: str) -> None:  # noqa: F811
    rng = random.Random(24)
    with running(tmp_path, postgres_database, 4, ("first", "second")) as controllers:
        _audit(postgres_database, controllers.names)
        ways = (["controller", "cluster", "connections"] * KILLS)[:KILLS]
        for way in ways:
            for name in controllers.names:
                _submit(controllers, name)
            time.sleep(rng.uniform(0.0, 1.5))
            _break_in(controllers, way, rng)
            until(lambda: not controllers.unready(), controllers)
        epochs = {name: epoch for name, (_, epoch) in controllers.owners().items()}
        assert max(epochs.values()) > 1, epochs
    with psycopg.connect(postgres_database) as db:
        wrote = db.execute("SELECT cluster, pid FROM audit ORDER BY seq").fetchall()
        held = db.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    assert held == (0,)
    for name in controllers.names:
        writers = [pid for cluster, pid in wrote if cluster == name]
        turns = [one for one, before in zip(writers, [None, *writers], strict=False) if one != before]
        assert len(writers) > 5, name
        assert len(set(turns)) == len(turns), f"{name}: an owner of before wrote after a later one"


@pytest.mark.postgres
def test_the_list_leads_to_the_pages_of_each_cluster(tmp_path: Path, postgres_database: str) -> None:  # noqa: F811
    with running(tmp_path, postgres_database, 2, ("only",)) as controllers:
        front = Client.of(controllers.state, {})
        until(lambda: all(row["state"] == "watched" for row in front.get("/clusters")["items"]), controllers)
        code = front.post("/login-codes")["code"]
        opener = build_opener(HTTPCookieProcessor())
        assert opener.open(f"{front.url}/?code={code}").status == 200
        listed = opener.open(front.url).read().decode()
        assert all(f'href="/clusters/{name}"' in listed for name in controllers.names)
        opener.open(f"{front.url}/clusters/c1/nodes")  # logs in there, and goes on from a page of its own
        url = ServiceFile.read(controllers.state / "c1").url
        assert "n1" in opener.open(f"{url}/nodes").read().decode()
        (controllers.home / "clusters" / "c1.toml").unlink()
        until(lambda: [row["name"] for row in front.get("/clusters")["items"]] == ["c0"], controllers)
        until(lambda: not _lives(controllers.owners()["c1"][0]), controllers)
