"""What a fleet costs: many clusters on one PostgreSQL, each with its nodes and its share of the jobs of a day.

    python -m benchmarks.fleet live [--clusters 10] [--minutes 5]
    python -m benchmarks.fleet pages [--clusters 100] [--jobs 2000]

``live``: `perdure up --clusters` as it is, on clusters that a script plays in place of `scontrol`: each has 1,000 nodes
and its hundredth of 1,000,000 jobs a day in real time, one in ten of which fails. Prints CPU, memory and looks of each
cluster's process, PostgreSQL's CPU, and how long pages take meanwhile; last, how soon all clusters are served again
after the controller was killed with signal 9.

``pages``: a database that the real controller has filled for one cluster, copied for the others; prints what a job
takes of it, how fast retention removes jobs, and how long pages take. Exit code 1 where one takes 300 ms or more.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg

from benchmarks.fill import AT_ONCE, CLUSTER, SPACING_S, START_S
from benchmarks.journal_size import Site, live
from benchmarks.pages import LIMIT_MS, Standing, paths
from perdure.model.observation import Known
from perdure.service.access.auth import Role, TokenBook
from perdure.service.access.service_file import ServiceFile
from perdure.service.core.case import ControllerState
from perdure.service.store.database import in_own_schema, reading_engine, server_url
from perdure.service.store.journal import Journal
from perdure.service.store.queries.clusters import find_clusters
from perdure.service.web.app import create_app
from perdure.service.web.state import WebSettings
from tests.backends.slurm import text
from tests.service import postgres

NODES, CLUSTERS, JOBS_A_DAY = 1000, 100, 1_000_000
EVERY_S = 86400.0 * CLUSTERS / JOBS_A_DAY  # between two jobs of one cluster
RUN_S, LISTED_S, FAILS = 3600.0, 300.0, 10
SCONTROL = """#!/bin/sh
site=$(dirname "$SLURM_CONF")
while printf 'scontrol: ' && read -r line; do
  echo "$line"
  case $line in
    "show hostlist "*) echo "${line#show hostlist }" ;;
    "show config") echo "ClusterName = $(basename "$site")"; echo "SLURM_VERSION = 23.11.4" ;;
    "show job"*) sed "s/@MARK@/${SLURM_TIME_FORMAT#%s~}/g" "$site/jobs" ;;
    "show node"*) printf x >> "$site/looks"; sed "s/@MARK@/${SLURM_TIME_FORMAT#%s~}/g" "$site/nodes" ;;
    exit) exit 0 ;;
  esac
done
"""


@dataclass
class PlayedCluster:
    """A cluster in steady state: as many jobs end as come; what `scontrol` says of it lies in its folder."""

    folder: Path
    number: int = 0
    live: list[tuple[float, int, bool]] = field(default_factory=list)  # end, job, whether it fails
    over: list[tuple[float, int, bool]] = field(default_factory=list)

    def begin(self, now: float) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "slurm.conf").write_text("")
        (self.folder / "looks").write_text("")
        (self.folder / "log").write_text("step 1 loss 2.0\n" * 200 + "RuntimeError: CUDA error: out of memory\n")
        names = (f"n{number}" for number in range(NODES))
        (self.folder / "nodes").write_text("".join(text.node(name, mark="@MARK@") for name in names))
        for end in range(int(RUN_S / EVERY_S)):
            self._start(now + (end + 1) * EVERY_S)
        self.write(now)

    def play(self, now: float) -> None:
        """Let jobs end, and others start in their place."""
        ended = [one for one in self.live if one[0] <= now]
        if not ended:
            return
        self.live = [one for one in self.live if one[0] > now]
        self.over = [one for one in self.over if one[0] > now - LISTED_S] + ended
        for one in ended:
            self._start(one[0] + RUN_S)
        self.write(now)

    def _start(self, end_s: float) -> None:
        self.number += 1
        self.live.append((end_s, self.number, self.number % FAILS == 0))

    def write(self, now: float) -> None:
        lines = []
        for end_s, number, fails in (*self.over, *self.live):
            start = int(end_s - RUN_S)
            ended: dict[str, Any] = {}
            if end_s <= now:
                state, code = ("FAILED", "1:0") if fails else ("COMPLETED", "0:0")
                ended = {"state": state, "exit_code": code, "end": int(end_s)}
            log, node = str(self.folder / "log"), f"n{number % NODES}"
            lines.append(text.job(number, user="root", uid=0, start=start, submit=start - 60, nodes=node, stdout=log,
                                  mark="@MARK@", **ended))  # fmt: skip
        draft = self.folder / "jobs.new"
        draft.write_text("".join(lines))
        draft.replace(self.folder / "jobs")

    @property
    def looks(self) -> int:
        return (self.folder / "looks").stat().st_size


class Fleet:
    """The played clusters, and the controller that serves them."""

    def __init__(self, home: Path, database: str, clusters: int) -> None:
        self.home, self.database, self.state = home, database, home / "state"
        self.reading = reading_engine(server_url(database).render_as_string(hide_password=False))
        self.clusters = [PlayedCluster(home / "sites" / f"c{number}") for number in range(clusters)]
        self.names = [cluster.folder.name for cluster in self.clusters]
        tools, settings = home / "bin", home / "clusters"
        tools.mkdir()
        settings.mkdir()
        for tool in ("scontrol", "sacct", "scancel", "squeue"):
            (tools / tool).write_text(SCONTROL if tool == "scontrol" else "#!/bin/sh\n")
            (tools / tool).chmod(0o755)
        for cluster in self.clusters:
            cluster.begin(time.time())
            words = f'[service]\ncluster = "slurm"\n[slurm]\nconf = "{cluster.folder}/slurm.conf"\n'
            (settings / f"{cluster.folder.name}.toml").write_text(words)

    def start(self) -> subprocess.Popen[bytes]:
        words = ["up", "--clusters", str(self.home / "clusters"), "--port", "0", "--state", str(self.state)]
        env = {**os.environ, "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}", "HOME": str(self.home)}
        env |= {"PERDURE_SERVICE_DATABASE": self.database, "PYTHONUNBUFFERED": "1"}
        with (self.home / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "perdure", *words], cwd=self.home, env=env, stdout=log, stderr=log
            )

    def pids(self) -> list[int]:
        """Of the clusters that have been looked at by an owner that lives."""
        rows = find_clusters(self.reading, self.names, frozenset(self.names), time.time())
        pids = [int(row.owner.rpartition(":")[2]) for row in rows if row.looked_s is not None]
        return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]

    def until_all_served(self) -> float:
        """Seconds until each cluster has been looked at."""
        begun = time.monotonic()
        while len(self.pids()) < len(self.clusters):
            self.play(0.2)
        return time.monotonic() - begun

    def play(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while True:
            for cluster in self.clusters:
                cluster.play(time.time())
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(1.0, left_s))


def measure_live(home: Path, database: str, clusters: int, minutes: float) -> int:
    fleet = Fleet(home, database, clusters)
    controller = fleet.start()
    try:
        print(f"{clusters} clusters of {NODES} nodes, a job every {EVERY_S:.1f} s each: all served after "
              f"{fleet.until_all_served():.0f} s", flush=True)  # fmt: skip
        fleet.play(30.0)  # the first looks are dear
        processes = [psutil.Process(pid) for pid in fleet.pids()]
        server = _server(database)
        begun, looks = time.monotonic(), [cluster.looks for cluster in fleet.clusters]
        before, server_before = [each.cpu_times() for each in processes], _cpu_s(server)
        fleet.play(60.0 * minutes)
        spent_s = time.monotonic() - begun
        seen = sum(cluster.looks for cluster in fleet.clusters) - sum(looks)
        after = [each.cpu_times() for each in processes]
        own_s = sum(a.user + a.system - b.user - b.system for a, b in zip(after, before, strict=True))
        tools_s = sum(a.children_user + a.children_system - b.children_user - b.children_system
                      for a, b in zip(after, before, strict=True))  # fmt: skip
        print(f"CPU of a cluster's process: {own_s / spent_s / clusters:.4f} cores, {1e3 * own_s / seen:.0f} ms a look "
              f"with all that it does between two; {seen / spent_s / clusters * 60:.1f} looks a minute; its tools "
              f"{1e3 * tools_s / seen:.0f} ms a look")  # fmt: skip
        print(f"PostgreSQL: {(_cpu_s(server) - server_before) / spent_s / clusters:.4f} cores a cluster")
        memory = [each.memory_full_info() for each in processes]
        pss = [each.pss / 2**20 for each in memory]
        print(f"memory of a cluster's process: PSS {statistics.median(pss):.0f} MiB, at most {max(pss):.0f}; "
              f"its own {statistics.median(each.uss for each in memory) / 2**20:.0f} MiB")  # fmt: skip
        with psycopg.connect(database) as db:
            asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            print("connections:", *db.execute(asked).fetchone() or ())
        slow = _pages("front", ServiceFile.read(fleet.state), ("/", "/api/v1/clusters"))
        one = ServiceFile.read(fleet.state / fleet.clusters[0].folder.name)
        slow += _pages("a cluster", one, ("/", "/jobs", "/nodes", "/exceptions", "/api/v1/jobs?limit=200"))
        controller.send_signal(signal.SIGKILL)
        controller.wait()
        with psycopg.connect(database) as db:
            for name in fleet.names:
                db.execute(f"UPDATE {name}.owners SET looked_s = NULL")
        controller = fleet.start()
        print(f"all looked at {fleet.until_all_served():.0f} s after the controller was killed and started again")
        return slow
    finally:
        controller.terminate()
        controller.wait(60)
        print((home / "log").read_text()[-600:] if controller.returncode else "", end="")


def _server(database: str) -> psutil.Process:
    directory = Path(database.partition("host=")[2])
    return psutil.Process(int((directory / "data" / "postmaster.pid").read_text().split()[0]))


def _cpu_s(server: psutil.Process) -> float:
    times = [server.cpu_times()]
    for each in server.children():
        with suppress(psutil.NoSuchProcess):
            times.append(each.cpu_times())
    return sum(t.user + t.system for t in times) + times[0].children_user + times[0].children_system


def _pages(what: str, service: ServiceFile, wanted: tuple[str, ...]) -> int:
    parts = urlsplit(service.url)
    return sum(_page(what, parts.port or 0, service.token, path) for path in wanted)


def _page(what: str, port: int, token: str, path: str, rounds: int = 10) -> bool:
    """Print how long a page takes; True where that is too long."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        took.append(1e3 * (time.perf_counter() - began))
        if answer.status != 200:
            sys.exit(f"{what}{path}: HTTP {answer.status}")
    print(f"{statistics.median(took):8.1f} ms median {max(took):8.1f} ms slowest   {what} {path}", flush=True)
    return statistics.median(took) >= LIMIT_MS


def measure_pages(home: Path, database: str, clusters: int, jobs: int) -> int:
    own = in_own_schema(database, CLUSTER)
    site = Site(Journal.open(own, CLUSTER), ControllerState(CLUSTER, Known()))
    empty = _size(database)
    for start in range(0, jobs, AT_ONCE):
        live(site, range(start, min(start + AT_ONCE, jobs)))
    site.journal.close()
    job_bytes = (_size(database) - empty) / jobs
    day_gib = job_bytes * JOBS_A_DAY / 2**30
    print(f"{job_bytes / 1024:.1f} KiB a job: {day_gib:.1f} GiB a day for {JOBS_A_DAY} jobs, {30 * day_gib:.0f} GiB "
          f"in the 30 days that are kept", flush=True)  # fmt: skip
    _copy(database, clusters)
    journal = Journal.open(own, CLUSTER)
    slow = _served(home, journal, jobs)
    names, engine = (
        [f"c{number}" for number in range(1, clusters)],
        reading_engine(server_url(database).render_as_string(hide_password=False)),
    )
    took = []
    for _ in range(5):
        began = time.perf_counter()
        find_clusters(engine, names, frozenset(names), site.now)
        took.append(1e3 * (time.perf_counter() - began))
    print(f"{statistics.median(took):8.1f} ms median {max(took):8.1f} ms slowest   how {len(names)} clusters stand")
    began, gone = time.perf_counter(), 0
    while more := journal.prune(site.now + 60 * 86400.0):
        gone += more
    rate = jobs / (time.perf_counter() - began)
    print(f"retention: {gone} rows of {jobs} jobs removed at {rate:.0f} jobs a second; a cluster ends "
          f"{1 / EVERY_S:.2f} a second")  # fmt: skip
    journal.close()
    return slow


def _size(database: str) -> int:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("VACUUM")
        return int(db.execute("SELECT pg_database_size(current_database())").fetchone()[0])  # type: ignore[index]


def _copy(database: str, clusters: int) -> None:
    """What the first cluster's schema holds for the others, too, each in its own."""
    with psycopg.connect(database, autocommit=True) as db:
        wanted = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
        tables = [name for (name,) in db.execute(wanted, (CLUSTER,))]
        for number in range(1, clusters):
            db.execute(f"CREATE SCHEMA c{number}")
            for table in tables:
                db.execute(f"CREATE TABLE c{number}.{table} (LIKE {CLUSTER}.{table} INCLUDING ALL)")
                db.execute(f"INSERT INTO c{number}.{table} SELECT * FROM {CLUSTER}.{table}")
            with suppress(psycopg.errors.UndefinedTable):
                db.execute(f"UPDATE c{number}.owners SET cluster = 'c{number}'")
        db.execute("ANALYZE")


def _served(home: Path, journal: Journal, jobs: int) -> int:
    import socket
    import threading

    import uvicorn

    now = START_S + SPACING_S * jobs
    tokens = TokenBook(home)
    app = create_app(journal.engine, Standing(now), tokens, WebSettings(clock=lambda: now))
    token = tokens.mint("bench", Role.OPERATOR)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        slow = sum(_page("a cluster", sock.getsockname()[1], token, path) for path in paths(jobs))
        server.should_exit = True
        thread.join()
    return slow


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("live", "pages"))
    parser.add_argument("--clusters", type=int)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=2000)
    given = parser.parse_args()
    programs = postgres.programs()
    if programs is None:
        sys.exit("PostgreSQL's server programs are not installed")
    with postgres.server(programs) as url, tempfile.TemporaryDirectory() as home:
        database = postgres.new_database(url, "fleet")
        if given.what == "live":
            slow = measure_live(Path(home), database, given.clusters or 10, given.minutes)
        else:
            slow = measure_pages(Path(home), database, given.clusters or CLUSTERS, given.jobs)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
