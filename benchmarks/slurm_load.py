"""What the service costs Slurm, and how soon it decides, on a real Slurm (root and Debian's packages).

    python -m benchmarks.slurm_load storm [--hooks] [--jobs 500] [--seconds 80]
    python -m benchmarks.slurm_load queue [--pending 20000] [--running 500]

``storm``: that many jobs fail one after the other, half of them in a way that passes. Prints the processes and looks of
the busiest minute, slurmctld's own count of requests, and the seconds from a job's end, which Slurm tells in whole
seconds, to the decision in the journal. With ``--hooks`` the service hears of ends from jobcomp and EpilogSlurmctld.

``queue``: the pending jobs are the tasks of one array, each updated once by itself, which makes it a record of its own;
the running ones are allocations without a process (``salloc --no-shell``). Prints what one look costs slurmctld and the
service. Exit code 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from perdure.service.store.packed import unpack
from tests.slurm.cluster import SlurmCluster, missing
from tests.slurm.counting import Shim, busiest_minute, rpcs

BARS = {
    "decision p99 s": 10.0,
    "looks a minute": 10,
    "processes a minute": 60,
    "slurmctld s a look": 1.0,
    "RSS MB": 400,
}
UNLIMITED = {
    "PERDURE_RETRY_BACK_OFF_S": "1",
    "PERDURE_RETRY_PER_USER_PER_HOUR": "100000",
    "PERDURE_RETRY_PER_NODE_PER_HOUR": "100000",
    "PERDURE_RETRY_PER_CLUSTER_PER_HOUR": "100000",
    "PERDURE_RETRY_CLUSTER_FLOOR_PER_HOUR": "100000",
    "PERDURE_CAPS_ACTIONS_PER_HOUR": "100000",
    "PERDURE_CAPS_FLOOR_PER_HOUR": "100000",
    "PERDURE_BLAME_ENABLED": "false",
    "PERDURE_WHATIF_ENABLED": "false",
}
PASSES = """
[ -n "$SLURM_RESTART_COUNT" ] && exit 0
echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
exit 1
"""
STAYS = "echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2; exit 1\n"


@dataclass
class Service:
    """`perdure up --act` at work, with its Slurm tools counted."""

    process: subprocess.Popen[str]
    state: Path
    shim: Shim

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(f"file:{self.state}/journal.db?mode=ro", uri=True) as db:
            return list(db.execute(query))

    def rss_mb(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


@contextmanager
def running(cluster: SlurmCluster, home: Path, settings: Mapping[str, str]) -> Iterator[Service]:
    shim = Shim(home / "shim", cluster.env)
    environment = {**shim.environment, **UNLIMITED, **settings, "HOME": str(home)}
    words = ("up", "--cluster", "slurm", "--act", "--port", "0", "--state", str(home / "state"))
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            (sys.executable, "-m", "perdure", *words), env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            assert "http" in process.stdout.readline()
            yield Service(process, home / "state", shim)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@contextmanager
def slurm(extra: str = "") -> Iterator[tuple[SlurmCluster, Path]]:
    with tempfile.TemporaryDirectory(prefix="perdure-load-", dir="/tmp") as directory:
        cluster = SlurmCluster(Path(directory) / "c", extra_conf=extra)
        try:
            cluster.start()
            yield cluster, Path(directory)
        finally:
            cluster.stop()


def until(condition: Callable[[], bool], within_s: float) -> bool:
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def storm(jobs: int, seconds: float, hooks: bool) -> dict[str, float]:
    """Returns the figures by their names."""
    with slurm("FirstJobId=100000\n") as (cluster, home):  # ids as they are where Slurm has run for a year
        settings = {"PERDURE_SLURM_SPOOL": str(cluster.events)} if hooks else {}
        with running(cluster, home, settings) as service:
            time.sleep(5)
            before, _ = rpcs(cluster)
            begun_s = time.time()
            transient = {one for i in range(jobs) if (one := _submit(cluster, i, begun_s, jobs, seconds))}
            submitted_s = time.time() - begun_s
            judged = "select count(*) from events where kind = 'judged'"
            until(lambda: int(str(service.rows(judged)[0][0])) >= jobs, 120)
            done = "select count(*) from actions where kind = 'requeue' and state = 'done'"
            until(lambda: int(str(service.rows(done)[0][0])) >= len(transient), 120)
            after, _ = rpcs(cluster)
            took_s, told = time.time() - begun_s, after - before
            figures = _figures(service, begun_s, transient)
            looks = (told["REQUEST_JOB_INFO"] - 1) / took_s * 60.0  # by the intervals between them
            return {**figures, "looks a minute": looks, "submitted in s": submitted_s, "took s": took_s, **_shown(told)}


def _submit(cluster: SlurmCluster, number: int, begun_s: float, jobs: int, seconds: float) -> str:
    """Submit the next job in its turn; returns its id where its failure passes."""
    time.sleep(max(0.0, begun_s + number * seconds / jobs - time.time()))
    passes = number % 2 == 0
    job = cluster.submit(PASSES if passes else STAYS, "--mem=10")
    return job if passes else ""


def _shown(told: Mapping[str, int]) -> dict[str, float]:
    return {name: told.get(name, 0) for name in ("REQUEST_JOB_INFO", "REQUEST_JOB_INFO_SINGLE", "REQUEST_NODE_INFO")}


def _figures(service: Service, begun_s: float, transient: set[str]) -> dict[str, float]:
    ends = {
        (job, incarnation): end
        for job, incarnation, end in service.rows("select job_id, incarnation, end_s from attempts where end_s > 0")
    }
    delays = []
    for job, payload, at in service.rows("select job_id, payload, time_s from events where kind = 'judged'"):
        incarnation = json.loads(unpack(payload))["attempt"]["incarnation"]
        delays.append(float(str(at)) - float(str(ends[job, incarnation])))
    delays.sort()
    requeues = "select job_id, count(*) from actions where kind = 'requeue' and state = 'done' group by 1"
    once = {job for job, times in service.rows(requeues) if times == 1}
    calls = service.shim.calls(begun_s)
    return {
        "decided": len(delays),
        "decision p50 s": statistics.median(delays),
        "decision p99 s": delays[int(len(delays) * 0.99)],
        "decision most s": delays[-1],
        "transient": len(transient),
        "transient requeued once": len(once & transient),
        "others requeued": len(once - transient),
        "processes a minute": busiest_minute([at for at, _ in calls]),
        "sacct a minute": busiest_minute([at for at, argv in calls if argv.startswith("sacct")]),
        "scontrol a minute": busiest_minute([at for at, argv in calls if argv.startswith("scontrol")]),
    }


def queue(pending: int, running_: int) -> dict[str, float]:
    """Returns the figures by their names."""
    shared = f"PartitionName=shared Nodes=node[1-4] OverSubscribe=FORCE:{running_} DefMemPerCPU=1 MaxTime=INFINITE\n"
    extra = f"MaxJobCount={2 * (pending + running_)}\nMaxArraySize={pending + 1}\n{shared}"
    with slurm(extra) as (cluster, home):
        for _ in range(running_):
            argv = ("salloc", "--no-shell", "-n1", "--mem=1", "-p", "shared", "-Q")
            subprocess.run(argv, env=cluster.env, check=True, capture_output=True, cwd="/tmp")
        array = cluster.submit("true", f"--array=0-{pending - 1}", "--begin=now+20hours")
        told = "".join(f"update jobid={array}_{task} nice=1\n" for task in range(pending))
        subprocess.run(("scontrol",), input=told, env=cluster.env, check=True, capture_output=True, text=True)
        records = cluster.run("scontrol", "-o", "show", "job").count("JobName=")
        with running(cluster, home, {}) as service:
            until(lambda: service.rows("select count(*) from jobs")[0][0] >= records - 5, 120)
            begun, spent = rpcs(cluster)
            cpu_s, begun_s = service.cpu_s(), time.monotonic()
            most_mb = 0.0
            while time.monotonic() < begun_s + 60:
                most_mb = max(most_mb, service.rss_mb())
                time.sleep(0.2)
            after, spent_after = rpcs(cluster)
            looks = after["REQUEST_JOB_INFO"] - begun["REQUEST_JOB_INFO"]
            spent_s = (spent_after["REQUEST_JOB_INFO"] - spent["REQUEST_JOB_INFO"]) / 1e6
            return {
                "records": records,
                "looks a minute": looks,
                "slurmctld s a look": spent_s / looks,
                "service processor s a look": (service.cpu_s() - cpu_s) / looks,
                "RSS MB": most_mb,
            }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("storm", "queue"))
    parser.add_argument("--hooks", action="store_true", help="the service hears of ends from Slurm's hooks")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--pending", type=int, default=20_000)
    parser.add_argument("--running", type=int, default=500)
    args = parser.parse_args()
    if why := missing():
        parser.error(why)
    storms = args.what == "storm"
    figures = storm(args.jobs, args.seconds, args.hooks) if storms else queue(args.pending, args.running)
    missed = 0
    for name, figure in figures.items():
        is_missed = name in BARS and figure > BARS[name]
        missed += is_missed
        print(f"{name:32} {figure:10.3f}{'  over the bar' if is_missed else ''}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
