"""What the service asks of a real Slurm, and what it says: budgets, arrays, jobs of components, refusals, doctor."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.counting import Shim, busiest_minute, rpcs

pytestmark = pytest.mark.slurm

LOOKS = 10
PASSES = """
[ -n "$SLURM_RESTART_COUNT" ] && exit 0
echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
exit 1
"""
HET = """#!/bin/sh
#SBATCH -n1 --mem=10 -o {out}
#SBATCH hetjob
#SBATCH -n1 --mem=10
[ -n "$SLURM_RESTART_COUNT" ] && exit 0
echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
exit 1
"""
LOOSE = {
    "PERDURE_RETRY_BACK_OFF_S": "1",
    "PERDURE_RETRY_PER_USER_PER_HOUR": "1000",
    "PERDURE_RETRY_PER_NODE_PER_HOUR": "1000",
    "PERDURE_RETRY_PER_CLUSTER_PER_HOUR": "1000",
    "PERDURE_RETRY_CLUSTER_FLOOR_PER_HOUR": "1000",
    "PERDURE_CAPS_ACTIONS_PER_HOUR": "1000",
    "PERDURE_CAPS_FLOOR_PER_HOUR": "1000",
    "PERDURE_BLAME_ENABLED": "false",
    "PERDURE_WHATIF_ENABLED": "false",
}


AS_NOBODY = """
import encodings.ascii, os
from perdure.cli.main import main
main(["doctor", "--json"])  # loads what the interpreter has where nobody may not read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
raise SystemExit(main(["doctor", "--json"]))
"""


class Up:
    """`perdure up --cluster slurm` with its defaults for how often it looks, and commands of its operator."""

    def __init__(self, cluster: SlurmCluster, home: Path) -> None:
        self.home, self.state = home, home / "state"
        home.mkdir(exist_ok=True)
        self.shim = Shim(home / "shim", cluster.env)
        self.environment = {**self.shim.environment, **LOOSE, "HOME": str(home)}
        self.log = home / "log"
        self._process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> Up:
        words = ("up", "--cluster", "slurm", "--port", "0", "--state", str(self.state), *(more or ("--act",)))
        with self.log.open("w") as log:
            self._process = process = subprocess.Popen(
                (sys.executable, "-m", "perdure", *words),
                env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line, self.log.read_text()
        return self

    def stop(self, sig: signal.Signals = signal.SIGINT) -> None:
        if self._process is not None:
            self._process.send_signal(sig)
            self._process.wait(60)
            self._process.stdout.close()
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-m", "perdure", *words, "--state", str(self.state))
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=180, check=False)

    def ask(self, *words: str) -> Any:
        ran = self.run(*words, "--json")
        assert ran.returncode in (0, 1), ran.stderr
        return json.loads(ran.stdout)

    def actions(self) -> Any:
        return self.ask("actions", "--limit", "1000")["actions"]


@pytest.fixture
def up(quiet_cluster: SlurmCluster, tmp_path: Path) -> Iterator[Up]:
    one = Up(quiet_cluster, tmp_path / "one")
    yield one
    one.stop()


def test_a_storm_stays_within_its_budget_and_tells_of_arrays_and_het_jobs_as_one(
    quiet_cluster: SlurmCluster, up: Up
) -> None:
    """Thirty failures in a few seconds, an array whose record becomes its last task's, a job of two components."""
    up.start()
    begun_s = time.time()
    before, _ = rpcs(quiet_cluster)
    script = HET.format(out=quiet_cluster.output / "het.out")
    het = quiet_cluster.run("sbatch", "--parsable", stdin=script).strip()
    array = quiet_cluster.submit("sleep 12", "--array=1-2%1", "--mem=10")
    jobs = [quiet_cluster.submit(PASSES, "--mem=10") for _ in range(30)]

    def all_put_back() -> list[Any] | None:
        done = [action for action in up.actions() if action["kind"] == "requeue" and action["state"] == "done"]
        return done if len(done) >= 31 else None

    requeues = await_("31 requeues", all_put_back, 180, lambda: f": {up.log.read_text()[-3000:]}")
    took_s = time.time() - begun_s
    assert sorted(action["job_id"] for action in requeues) == sorted([*jobs, het])  # each once, the het job as a whole
    told = rpcs(quiet_cluster)[0] - before
    assert told["REQUEST_JOB_INFO"] <= 2 + took_s * LOOKS / 60
    calls = up.shim.calls(begun_s)
    assert busiest_minute([at for at, _ in calls]) <= 60, calls

    why = up.run("why", het)
    assert "Connection reset" in why.stdout, why.stdout + why.stderr
    seen = {job["job_id"] for job in up.ask("jobs", "--limit", "1000")["jobs"]}
    assert het in seen
    assert not [job_id for job_id in seen if "+" in job_id or job_id == str(int(het) + 1)]

    def without_phantom() -> bool:
        found = {job["job_id"]: job["state"] for job in up.ask("jobs", "--limit", "1000")["jobs"]}
        return f"{array}_2" in found and array not in found

    await_("the array's own record to go", without_phantom, 60, lambda: f": {up.ask('jobs')}")
    log = up.log.read_text()
    assert sum(f"job {jobs[0]} of root: retry" in line for line in log.splitlines()) == 1, log
    assert f"action requeue:slurm/{het}#" in log


def test_doctor_asks_the_running_service_for_its_hooks(quiet_cluster: SlurmCluster, up: Up) -> None:
    up.environment["PERDURE_SLURM_SPOOL"] = str(quiet_cluster.events)
    up.start("--shadow")
    del up.environment["PERDURE_SLURM_SPOOL"]
    said = up.run("doctor").stdout
    assert "no hooks" not in said
    assert f"slurm.spool {quiet_cluster.events}" in said


def test_a_second_actor_is_refused_and_a_killed_one_leaves_no_lock(
    quiet_cluster: SlurmCluster, up: Up, tmp_path: Path
) -> None:
    up.start()
    second = Up(quiet_cluster, tmp_path / "two")
    ran = second.run("up", "--cluster", "slurm", "--act", "--port", "0")
    assert ran.returncode == 2
    (line,) = [line for line in ran.stderr.splitlines() if line.startswith("perdure:")]
    assert str(up.pid) in line
    assert str(up.state) in line
    try:
        second.start("--shadow")  # may watch
        second.stop()
        doctor = second.run("doctor")
        assert f"process {up.pid} of root" in doctor.stdout
        up.stop(signal.SIGKILL)
        second.start("--act")
    finally:
        second.stop()


def test_a_node_that_somebody_else_drained_is_not_returned(quiet_cluster: SlurmCluster, up: Up) -> None:
    up.start()
    await_("the first look", lambda: up.ask("nodes")["nodes"])
    quiet_cluster.run("scontrol", "update", "nodename=node2", "state=drain", "reason=bad fan \x1b[2J")
    try:
        ran = up.run("node", "undrain", "node2")
        assert (ran.returncode, ran.stdout.isprintable()) == (1, False)
        assert "node2: refused: root drained it: bad fan" in ran.stdout
        assert "\x1b" not in ran.stdout
        assert quiet_cluster.node_states()["node2"].startswith("drain")
    finally:
        quiet_cluster.run("scontrol", "update", "nodename=node2", "state=resume")


@pytest.mark.slow
def test_a_node_that_is_taken_out_of_slurm_conf_is_not_listed_any_more(quiet_cluster: SlurmCluster, up: Up) -> None:
    up.environment["PERDURE_SERVICE_POLL_S"] = "1"
    up.start()

    def listed() -> tuple[Any, ...]:
        return tuple(sorted(node["name"] for node in up.ask("nodes")["nodes"]))

    await_("all nodes", lambda: listed() == quiet_cluster.nodes)
    *left, last = quiet_cluster.nodes
    with quiet_cluster.without(last):
        await_("it to go", lambda: listed() == tuple(left), 120, lambda: f": {listed()}")
    await_("it to come back", lambda: listed() == quiet_cluster.nodes, 120, lambda: f": {listed()}")


@pytest.mark.slow
def test_a_silent_controller_is_told_of_once_and_how_old_the_picture_is(quiet_cluster: SlurmCluster, up: Up) -> None:
    up.environment["PERDURE_SERVICE_POLL_S"] = "1"
    up.start()
    await_("the first look", lambda: up.ask("nodes")["nodes"])
    quiet_cluster.stop_ctld()
    try:
        await_("a warning", lambda: "controller cannot be asked" in up.run("jobs").stderr, 120)
        assert "controller" in up.ask("nodes")["picture"]["unseen"]
        time.sleep(3)
    finally:
        quiet_cluster.start_ctld()
    await_("its return", lambda: "controller can be seen again" in up.log.read_text(), 120)
    assert up.log.read_text().count("controller cannot be seen") == 1


def test_what_cannot_be_reached_is_an_error_at_the_start(quiet_cluster: SlurmCluster, up: Up, tmp_path: Path) -> None:
    up.environment["SLURM_CONF"] = str(tmp_path / "nowhere.conf")
    ran = up.run("up", "--cluster", "slurm", "--port", "0")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert "nowhere.conf: is not there" in ran.stderr
    assert up.shim.calls() == []  # Slurm's tools would try for a minute
    assert up.run("doctor").returncode == 2


@pytest.mark.slow
def test_a_controller_that_is_down_is_an_error_unless_one_waits(quiet_cluster: SlurmCluster, up: Up) -> None:
    quiet_cluster.stop_ctld()
    try:
        ran = up.run("up", "--cluster", "slurm", "--port", "0")
        assert ran.returncode == 2
        assert "scontrol ping" in ran.stderr
    finally:
        quiet_cluster.start_ctld()


def test_the_doctor_finds_what_is_wrong(quiet_cluster: SlurmCluster, up: Up, tmp_path: Path) -> None:
    """As root, then as an ordinary user, on a site with all that it warns of."""
    waits = quiet_cluster.submit("true", "--begin=now+1hour", "--mem=10")
    quiet_cluster.submit("true", "-d", f"afterok:{waits}", "--mem=10")
    gone = quiet_cluster.submit(
        f"rm {quiet_cluster.output}/gone.out", "--mem=10", "-o", f"{quiet_cluster.output}/gone.out"
    )
    quiet_cluster.wait(gone, lambda fields: fields["JobState"] == "COMPLETED")
    quiet_cluster.await_accounting()
    spool = tmp_path / "spool"
    spool.mkdir()
    spool.chmod(0o777)
    up.environment["PERDURE_SLURM_SPOOL"] = str(spool)
    since_s = time.time()
    ran = up.run("doctor")
    assert len(up.shim.calls(since_s)) <= 10
    lines = ran.stdout.splitlines()
    assert ran.returncode == 1
    assert [line for line in lines if line.startswith("fail") and "everybody may write" in line and "chmod o-w" in line]
    assert [line for line in lines if "RequeueExit=75" in line]
    assert [line for line in lines if "gone.out" in line and "logs of recent jobs can be read" in line]
    assert [line for line in lines if "jobs wait for others: " in line and "afterok" in line], ran.stdout
    assert [line for line in lines if line.startswith("ok") and "root may act" in line]

    del up.environment["PERDURE_SLURM_SPOOL"]
    nobody = {**up.environment, "PATH": quiet_cluster.env["PATH"], "HOME": "/tmp"}
    argv = (sys.executable, "-c", AS_NOBODY)
    told = subprocess.run(argv, env=nobody, capture_output=True, text=True, cwd="/", check=False, timeout=180)
    assert told.returncode == 1, told.stderr
    found = json.loads(told.stdout.splitlines()[-1])["findings"]
    assert any(f["mark"] == "fail" and "own jobs only" in f["what"] and "adminlevel" in f["fix"] for f in found)
    assert any("is not root" in f["what"] for f in found)
