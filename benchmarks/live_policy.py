"""A policy above a real Slurm: mean JCT under its own backfill, and under policies driven by Perdure, and as simulated.

Eight pretended nodes of four GPUs; jobs of seconds that stand for hours, which save their progress once a second and
opted in by their comment. In each run slurmctld is killed once and Perdure, where it decides, five times, all with -9.
What every job did and when is written beside the figures: submit, starts, ends, and when Perdure put it back.

    python -m benchmarks.live_policy --jobs 200 --seed 1 --arms slurm,las-2d,gittins-2d --out build/live_policy.json
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.las import Gittins2D, LeastAttained
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.protocol import Policy
from perdure.scheduling.slurm.conf import settings_of
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import Partition
from perdure.simulation.fairness import mean_present
from perdure.simulation.restart_cost import restart_cost
from perdure.simulation.simulate import simulate
from tests.slurm.cluster import SlurmCluster

NODES, GPUS = 8, 4
LIMITS_S = (60.0, 400.0)  # GPU-seconds at which a job sinks a queue
LOAD = 2.0  # what comes, over what the nodes can do, while jobs come
LEAST_RUN_S = 10.0
KNOWN_S = 20.0  # after slurmctld was killed it is asked whose jobs it knows
OPERATES_S = 10.0  # so long an operator waits between two looks
UNSAVED_S = 10.0  # slurmctld saves its jobs every 5 s; what it had not saved when it is killed, it runs again
COST_S = 2.0  # in the simulation: what is run twice after a preemption, and the start
KILLS = (*((part, "perdure") for part in (0.1, 0.25, 0.4, 0.55, 0.7)), (0.32, "slurmctld"))  # of the time it takes
ACCOUNTS = 4  # whose shares are equal, under Slurm's fair tree
FAIR_TREE = "PriorityWeightFairshare=100000\nPriorityDecayHalfLife=00:05:00\nPriorityCalcPeriod=00:01:00\n"
PRIORITIES = "PriorityType=priority/multifactor\nPriorityWeightPartition=100000\nPriorityWeightAge=1000\n"
SCRIPT = """
saved="{folder}/{at}"
done_s=$(cat "$saved" 2>/dev/null || echo 0)
echo "$(date +%s.%N) start {at} $done_s $SLURM_JOB_ID" >> "{folder}/log"
while [ "$done_s" -lt {run_s} ]; do
  sleep 1; done_s=$((done_s + 1)); echo $done_s > "$saved.new"; mv "$saved.new" "$saved"
done
echo "$(date +%s.%N) end {at} $done_s $SLURM_JOB_ID" >> "{folder}/log"
"""


@dataclass(frozen=True)
class Load:
    """Jobs as columns, in the order of their coming."""

    at_s: list[float]
    run_s: list[int]
    gpus: list[int]
    limit_min: list[int]

    @classmethod
    def drawn(cls, jobs: int, seed: int) -> Load:
        """Three of four are short; the others take most of the time. The queue grows while jobs come."""
        rng = np.random.default_rng(seed)
        short = rng.random(jobs) < 0.75
        run_s = np.where(short, rng.integers(5, 25, jobs), rng.integers(60, 240, jobs))
        gpus = rng.choice([1, 2, 4], jobs, p=[0.4, 0.3, 0.3])
        span_s = float((run_s * gpus).sum()) / (NODES * GPUS) / LOAD
        limit = np.ceil(run_s * rng.uniform(1.5, 5.0, jobs) / 60.0).astype(int)
        return cls(np.sort(rng.uniform(0, span_s, jobs)).tolist(), run_s.tolist(), gpus.tolist(), limit.tolist())

    @property
    def takes_s(self) -> float:
        """About until all have ended."""
        return float(np.dot(self.run_s, self.gpus)) / (NODES * GPUS) * 1.2

    def table(self) -> JobTable:
        n = len(self.at_s)
        return JobTable(
            np.arange(n).astype(np.str_), np.array(self.at_s), np.array(self.gpus), np.array(self.run_s, float),
            walltime_s=np.array(self.limit_min) * 60.0, partition=np.full(n, "main"), nodes=np.ones(n, np.int64),
        )  # fmt: skip


@dataclass
class Arm:
    """What one run gave."""

    name: str
    mean_jct_s: float = 0.0
    max_rho: float = 0.0
    lost: int = 0
    forgotten: int = 0  # by slurmctld, which was killed before it saved that they had come; they were submitted again
    doubled: int = 0
    doubled_by_slurm: int = 0  # of these, those that started or ended shortly before slurmctld was killed
    preempted: int = 0  # by Perdure
    put_back: int = 0
    most_put_back: int = 0
    most_calls_in_a_minute: int = 0
    undrained: int = 0  # nodes that slurmctld drained when it came back, and that were returned to service
    miscounted: list[int] = field(default_factory=list)  # GPUs taken by no job, each time they were counted again
    took_s: float = 0.0
    kills: list[tuple[str, float]] = field(default_factory=list)
    records: list[JobRecord] = field(default_factory=list)


@dataclass
class JobRecord:
    """What one job did. Times are seconds since the epoch; `starts` go with the seconds that were done before."""

    job_ids: list[str]  # several where slurmctld forgot it, and it was submitted again
    run_s: int
    gpus: int
    submit_s: float
    starts: list[tuple[float, int]]
    ends: list[float]
    put_back_s: list[float]  # by Perdure's journal


def slurm_as_configured() -> Slurm:
    """Slurm in the simulation, with what the clusters here are configured with."""
    told = {"schedulerparameters": "sched_interval=1,bf_interval=2"}
    told |= dict(line.lower().split("=") for line in PRIORITIES.split())
    main = Partition("main", nodes=tuple(range(NODES)), is_default=True, default_time_s=3600.0)
    return Slurm(replace(settings_of(told)[0], partitions=(main,)))


def simulated_policy(name: str) -> Policy | None:
    """What stands for an arm in the simulation; None for one that plans with profiles."""
    if name in ("themis", "sia", "fair-tree"):
        return None
    if name == "gittins-2d":
        return Gittins2D(queue_limits=LIMITS_S, quantum=LIMITS_S[0])  # the law of the very jobs, which flatters it
    return slurm_as_configured() if name == "slurm" else LeastAttained(queue_limits=LIMITS_S)


def promised(load: Load, policy: Policy) -> float:
    """Mean JCT of the same jobs in the simulation, in seconds."""
    placement = AsAsked((1,) * len(load.at_s))
    cost = restart_cost(f"{COST_S:g}")
    cluster = Cluster(np.full(NODES, GPUS))
    result = simulate(load.table(), cluster, policy, placement, engine="plain", cost=cost)
    return float(np.mean(result.end_s - np.array(load.at_s)))


class Service:
    """`perdure up` on a cluster, with its calls of Slurm's tools counted; it can be killed and comes back."""

    def __init__(self, cluster: SlurmCluster, folder: Path, policy: str) -> None:
        self._calls, self._state = folder / "calls", folder / "state"
        tools = folder / "bin"
        tools.mkdir()
        for tool in ("scontrol", "sacct", "scancel", "sacctmgr"):
            real = next(path for path in map(Path, (f"/usr/bin/{tool}", f"/usr/local/bin/{tool}")) if path.exists())
            wrapper = tools / tool
            wrapper.write_text(f'#!/bin/sh\ndate +%s >> "{self._calls}"\nexec {real} "$@"\n')
            wrapper.chmod(0o755)
        settings = {
            "FIRST_LIMIT_S": LIMITS_S[0], "SECOND_LIMIT_S": LIMITS_S[1], "LEAST_RUN_S": LEAST_RUN_S, "EVERY_S": 2,
            "PREEMPTIONS_PER_JOB": 6, "PREEMPTIONS_PER_HOUR": 1000, "LEASE_S": 30, "ROUND_S": 5,
        }  # fmt: skip
        others = dict.fromkeys(("BLAME_ENABLED", "WHATIF_ENABLED", "TRIAGE_LEARN"), "false")
        self._env = {
            **cluster.env, "PATH": f"{tools}:{cluster.env['PATH']}", "PERDURE_SERVICE_POLL_S": "2.5",
            "PERDURE_CAPS_FLOOR_PER_HOUR": "5000", "PERDURE_WAITS_EVERY_S": "0",
            **{f"PERDURE_{key}": value for key, value in others.items()},
            **{f"PERDURE_POLICY_{key}": str(value) for key, value in settings.items()},
        }  # fmt: skip
        self._command = (
            sys.executable, "-m", "perdure", "up", "--cluster", "slurm", "--act", "--port", "0",
            "--state", str(folder / "state"), "--policy", policy,
        )  # fmt: skip
        self._log = (folder / "perdure.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._env, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def preempted(self) -> dict[str, list[float]]:
        """When preemptions were carried out, by job and by the journal."""
        found: dict[str, list[float]] = {}
        with sqlite3.connect(self._state / "journal.db") as journal:
            query = "SELECT job_id, started_s FROM actions WHERE kind = 'preempt' AND state = 'done'"
            for job_id, started_s in journal.execute(query):
                found.setdefault(job_id, []).append(started_s)
        return found

    def most_calls(self) -> int:
        """In any minute."""
        times = sorted(map(int, self._calls.read_text().split())) if self._calls.exists() else []
        return max((sum(at <= each < at + 60 for each in times) for at in times), default=0)


def run(load: Load, policy: str, folder: Path) -> Arm:
    """Submit the load to a new cluster and wait until all of it has ended. A `policy` of "" is Slurm's own backfill."""
    arm = Arm(policy or "slurm")
    is_fair = policy == "fair-tree"
    cluster = SlurmCluster(folder / "slurm", NODES, GPUS, PRIORITIES + FAIR_TREE * is_fair)
    cluster.start()
    for at in range(ACCOUNTS * is_fair):
        cluster.run("sacctmgr", "-i", "add", "account", f"team{at}")
        cluster.run("sacctmgr", "-i", "add", "user", "root", f"account=team{at}")
    work = folder / "work"
    work.mkdir()
    service = Service(cluster, folder, policy) if policy and not is_fair else None
    begun_s = time.time()
    sent = [Submission() for _ in load.at_s]
    put_back: dict[str, list[float]] = {}
    accounts = [f"--account=team{at % ACCOUNTS}" if is_fair else "--requeue" for at in range(len(sent))]
    over = threading.Event()
    operator = threading.Thread(target=_operate, args=(cluster, arm, over))
    stops = _killing(cluster, service, load, sent, accounts, work, arm, operator)
    try:
        for at, at_s in enumerate(load.at_s):
            time.sleep(max(0.0, begun_s + at_s - time.time()))
            sent[at].submit(cluster, load, at, work, accounts[at])
        _await_all(work / "log", len(sent), patience_s=3 * sum(load.run_s))
        stops.join()
    finally:
        over.set()
        if operator.is_alive():
            operator.join()
        if service is not None:
            service.stop()
            arm.most_calls_in_a_minute, put_back = service.most_calls(), service.preempted()
            arm.preempted = sum(map(len, put_back.values()))
        cluster.stop()
    arm.took_s = round(time.time() - begun_s, 1)
    arm.records = _records(_ends(work / "log"), load, sent, put_back)
    return _judged(arm)


@dataclass
class Submission:
    """A job as its user sent it: again and again while slurmctld is away, and again where that forgot it."""

    job_ids: list[str] = field(default_factory=list)
    first_s: float = 0.0

    def submit(self, cluster: SlurmCluster, load: Load, at: int, folder: Path, account: str) -> None:
        options = ("--comment=perdure:preempt", "--requeue", "-o", "/dev/null", f"--job-name={at}")
        asks = (f"--gres=gpu:{load.gpus[at]}", f"--time={load.limit_min[at]}")
        script = SCRIPT.format(folder=folder, at=at, run_s=load.run_s[at])
        self.first_s = self.first_s or time.time()
        while True:
            try:
                self.job_ids.append(cluster.submit(script, *asks, *options, account))
                return
            except AssertionError:
                time.sleep(1.0)


def _killing(
    cluster: SlurmCluster,
    service: Service | None,
    load: Load,
    sent: list[Submission],
    accounts: list[str],
    work: Path,
    arm: Arm,
    operator: threading.Thread,
) -> threading.Thread:
    def kill_all() -> None:
        for part, what in sorted(KILLS):
            if what == "perdure" and service is None:
                continue
            time.sleep(max(0.0, begun_s + part * load.takes_s - time.time()))
            arm.kills.append((what, round(time.time(), 1)))
            if what == "perdure" and service is not None:
                service.kill()
                time.sleep(5.0)
                service.start()
            else:
                cluster.crash_ctld()
                operator.start()
                time.sleep(KNOWN_S)
                told = [at for at, each in enumerate(sent) if each.job_ids]
                known = cluster.run("scontrol", "-o", "show", "job").split()
                for at in told:  # who was told a number, and is not there
                    if f"JobName={at}" not in known:
                        sent[at].submit(cluster, load, at, work, accounts[at])

    begun_s = time.time()
    thread = threading.Thread(target=kill_all)
    thread.start()
    return thread


def _operate(cluster: SlurmCluster, arm: Arm, over: threading.Event) -> None:
    """What an operator would do after slurmctld was killed, until the run is over.

    It starts jobs again that run, drains their nodes for it ("Duplicate jobid") for good, and counts GPUs as taken that
    no job has; ``scontrol reconfigure`` counts them again.
    """
    while not over.wait(OPERATES_S):
        for line in cluster.run("scontrol", "-o", "show", "node").splitlines():
            if "Reason=Duplicate jobid" in line:
                name = line.partition("NodeName=")[2].partition(" ")[0]
                cluster.run("scontrol", "update", f"nodename={name}", "state=resume")
                arm.undrained += 1
        if found := _miscounted(cluster):
            cluster.run("scontrol", "reconfigure")
            arm.miscounted.append(found)


def _miscounted(cluster: SlurmCluster) -> int:
    """GPUs that Slurm counts as taken, and that no job has: the fewest in some seconds, as jobs start and end."""
    found = []
    for _ in range(5):
        nodes = cluster.run("scontrol", "-o", "-d", "show", "node")
        jobs = cluster.run("squeue", "-h", "-t", "running,completing", "-o", "%b")
        counted, taken = re.findall(r"GresUsed=gpu:\w+:(\d+)", nodes), re.findall(r"gpu:(\d+)", jobs)
        found.append(sum(map(int, counted)) - sum(map(int, taken)))
        time.sleep(1.0)
    return max(0, min(found))


def _ends(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def _await_all(log: Path, jobs: int, patience_s: float) -> None:
    end_s = time.time() + patience_s
    while time.time() < end_s:
        if len({line[2] for line in _ends(log) if line[1] == "end"}) == jobs:
            return
        time.sleep(1.0)


def _records(
    lines: list[list[str]], load: Load, sent: list[Submission], put_back: dict[str, list[float]]
) -> list[JobRecord]:
    last = {each.job_ids[-1]: each for each in sent}
    return [
        JobRecord(
            each.job_ids, load.run_s[at], load.gpus[at], each.first_s,
            [(float(line[0]), int(line[3])) for line in lines if line[1:3] == ["start", str(at)]],
            [float(line[0]) for line in lines if line[1:3] == ["end", str(at)]],
            [
                at_s
                for job_id in dict.fromkeys(each.job_ids)
                if last.get(job_id, each) is each
                for at_s in put_back.get(job_id, [])
            ],
        )
        for at, each in enumerate(sent)
    ]  # fmt: skip


def rho_of(records: list[JobRecord]) -> list[float]:
    """Of each job that has ended; as `perdure.simulation.fairness.rho`."""
    lives = [(job.submit_s, job.ends[0], job.run_s, job.gpus) for job in records if job.ends]
    came_s, end_s, run_s, gpus = np.array(lives, float).T
    alone_s = run_s * np.maximum(1.0, gpus * mean_present(came_s, end_s) / (NODES * GPUS))
    return list(((end_s - came_s) / alone_s).tolist())


def _judged(arm: Arm) -> Arm:
    crashes = [at_s for what, at_s in arm.kills if what == "slurmctld"]
    doubled = [job for job in arm.records if len(job.ends) > 1]
    arm.forgotten = sum(len(job.job_ids) > 1 for job in arm.records)
    arm.lost, arm.doubled = sum(not job.ends for job in arm.records), len(doubled)
    arm.doubled_by_slurm = sum(
        any(at_s - UNSAVED_S < each_s < at_s for each_s in (job.ends[0], *dict(job.starts)) for at_s in crashes)
        for job in doubled
    )
    arm.mean_jct_s = round(float(np.mean([job.ends[0] - job.submit_s for job in arm.records if job.ends])), 1)
    arm.max_rho = round(max(rho_of(arm.records)), 2)
    again = [len(job.starts) - 1 for job in arm.records if job.starts]
    arm.put_back, arm.most_put_back = sum(again), max(again, default=0)
    return arm


def main(argv: Sequence[str] | None = None) -> None:
    """Print what was measured, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arms", default="slurm,las-2d", help="slurm, fair-tree, and policies")
    parser.add_argument("--out", type=Path, default=Path("build/live_policy.json"))
    given = parser.parse_args(argv)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    load = Load.drawn(given.jobs, given.seed)
    arms: list[Arm] = []
    told: dict[str, float | None] = {}
    for name in given.arms.split(","):
        policy = simulated_policy(name)
        told[name] = None if policy is None else round(promised(load, policy), 1)
        print(f"{given.jobs} jobs, seed {given.seed}; simulated mean JCT under {name}: {told[name]} s", flush=True)
        with tempfile.TemporaryDirectory(prefix="live-policy-", ignore_cleanup_errors=True) as folder:
            arms.append(run(load, "" if name == "slurm" else name, Path(folder)))
            print({key: value for key, value in asdict(arms[-1]).items() if key != "records"}, flush=True)
            logged = Path(folder) / "perdure.log"
            if logged.exists():
                given.out.with_suffix(f".{name}.log").write_bytes(logged.read_bytes())
    row = {"jobs": given.jobs, "seed": given.seed, "simulated": told, "arms": [asdict(arm) for arm in arms]}
    with given.out.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
