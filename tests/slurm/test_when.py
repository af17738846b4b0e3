"""When jobs will start, asked of a real Slurm by an ordinary user: what holds each, and how often Slurm is asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.queue import read_queue
from perdure.backends.slurm.tools import Tools
from tests.slurm.cluster import SlurmCluster, await_

pytestmark = pytest.mark.slurm

AS_NOBODY = (
    "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)  # fmt: skip
Asked = Callable[..., Any]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    for above in (folder, folder.parent):
        above.chmod(0o755)
    shutil.chown(folder, "nobody")
    return folder


@pytest.fixture
def when(quiet_cluster: SlurmCluster, tmp_path: Path, compiled: Path) -> Asked:
    """Ask as a user without any rights; the picture of the queue is made anew each time, unless it is to be `kept`.

    Compiled loops are kept for all tests: to make them takes the better part of a minute of a processor.
    """
    cache = tmp_path / "cache"
    tmp_path.chmod(0o755)
    tries = iter(range(1000))

    def ask(*words: str, kept: str = "", json_too: bool = True) -> Any:
        folder = cache / (kept or str(next(tries)))
        if not folder.exists():
            made = folder / "perdure"
            made.mkdir(parents=True)
            (made / "compiled").symlink_to(compiled)
            for each in (folder, made):
                shutil.chown(each, "nobody")
        environment = {**quiet_cluster.env, "HOME": "/nonexistent", "XDG_CACHE_HOME": str(folder)}
        argv = (*AS_NOBODY, sys.executable, "-m", "perdure", "when", *words, *(("--json",) if json_too else ()))
        done = subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, timeout=240, check=False)
        if not json_too or done.returncode == 2:
            return done
        return {**json.loads(done.stdout), "code": done.returncode}

    return ask


def fill(cluster: SlurmCluster, minutes: int = 10) -> list[str]:
    """A job of all GPUs on each node."""
    jobs = [cluster.submit("sleep 600", "--gres=gpu:4", f"--time={minutes}") for _ in cluster.nodes]
    for job in jobs:
        cluster.wait(job, lambda seen: seen.get("JobState") == "RUNNING")
    return jobs


def reason(cluster: SlurmCluster, job: str, words: str) -> None:
    """Wait until Slurm gives a reason."""
    cluster.wait(job, lambda seen: seen.get("Reason", "").startswith(words))


def test_each_kind_of_hold_is_told_with_its_own_words(quiet_cluster: SlurmCluster, when: Asked) -> None:
    cluster = quiet_cluster
    first = fill(cluster)[0]
    following = cluster.submit("true", "--gres=gpu:4", "--time=5")
    behind = cluster.submit("true", "--gres=gpu:4", "--time=5")
    depends = cluster.submit("true", "--gres=gpu:1", "--time=5", f"--dependency=afterok:{first}")
    later = cluster.submit("true", "--gres=gpu:1", "--time=5", "--begin=now+3600")
    held = cluster.submit("true", "--gres=gpu:1", "--time=5", "--hold")
    reason(cluster, following, "Resources")
    reason(cluster, behind, "Priority")
    reason(cluster, depends, "Dependency")

    found = {job: when(job) for job in (following, behind, depends, later, held, first)}
    kinds = {job: each["held_by"]["kind"] for job, each in found.items()}
    assert kinds == {
        following: "resources", behind: "priority", depends: "dependency", later: "begin_time", held: "held",
        first: "nothing",
    }  # fmt: skip
    assert found[behind]["held_by"]["jobs_ahead"] == 1
    assert f"job {first} to end well" in found[depends]["held_by"]["says"]
    assert (found[held]["code"], found[held]["start"]) == (1, None)
    assert found[later]["start"]["wait_s"]["p10"] >= 3000
    for job in (following, behind):
        wait = found[job]["start"]["wait_s"]
        assert 0 <= wait["p10"] <= wait["p50"] <= wait["p90"] <= 605
    assert found[following]["start"]["wait_s"]["p50"] <= found[behind]["start"]["wait_s"]["p50"]


def test_a_reservation_and_a_limit_are_what_holds_a_job(quiet_cluster: SlurmCluster, when: Asked) -> None:
    cluster = quiet_cluster
    made = ("starttime=now+1800", "duration=60", "nodes=ALL", "flags=maint", "users=root")
    cluster.run("scontrol", "create", "reservation", "reservationname=upkeep", *made)
    try:
        long = cluster.submit("true", "--gres=gpu:1", "--time=120")
        reason(cluster, long, "ReqNodeNotAvail")
        assert when(long)["held_by"]["kind"] == "reservation"
    finally:
        cluster.run("scontrol", "delete", "reservationname=upkeep", check=False)
        cluster.run("scancel", long, check=False)
    array = cluster.submit("sleep 60", "--gres=gpu:1", "--time=5", "--array=0-3%1")
    await_("a limit of the array", lambda: "JobArrayTaskLimit" in cluster.run("squeue", "-h", "-j", array, "-o", "%r"))
    assert when(array)["held_by"]["kind"] == "limit"
    cluster.run("scancel", array)


def test_limits_of_qos_and_accounts_hold_jobs_until_others_end(quiet_cluster: SlurmCluster, when: Asked) -> None:
    """A group's GPUs, a user's GPUs and a user's jobs; what is said comes true when the others end."""
    cluster = quiet_cluster
    qos = "qos wide maxtresperuser=gres/gpu=2", "qos single maxjobsperuser=1"
    for made in (*qos, "account group grptres=gres/gpu=3"):
        cluster.run("sacctmgr", "-i", "add", *made.split(), check=False)
    cluster.run("sacctmgr", "-i", "add", "user", "root", "account=group", "qos=normal,wide,single", check=False)
    asking = {"AssocGrpGRES": ("--account=group", 3), "QOSMaxGRESPerUser": ("--account=group --qos=wide", 2),
              "QOSMaxJobsPerUserLimit": ("--account=group --qos=single", 1)}  # fmt: skip
    told = {"AssocGrpGRES": "account group allows 3 GPUs to all its jobs together; 3 are in use by job {} of root",
            "QOSMaxGRESPerUser": "QOS wide allows 2 GPUs to one user; 2 are in use by root's job {}",
            "QOSMaxJobsPerUserLimit": "QOS single allows one running job to one user; one is in use by root's job {}",
            }  # fmt: skip
    with cluster.configured("AccountingStorageEnforce=associations,limits,qos"):
        for words, (options, gpus) in asking.items():
            its = (*options.split(), "--time=2", f"--gres=gpu:{gpus}")
            first = cluster.submit("sleep 45", *its)
            cluster.wait(first, lambda seen: seen.get("JobState") == "RUNNING")
            second = cluster.submit("true", *its)
            reason(cluster, second, words)
            found = when(second)
            assert found["held_by"]["kind"] == "limit"
            assert found["held_by"]["says"].startswith(told[words].format(first))
            wait = found["start"]["wait_s"]
            assert 0 < wait["p10"] <= wait["p90"] <= 150
            assert not [each for each in found["start"]["remarks"] if "simulated" in each]
            cluster.run("scancel", first)
            cluster.wait(second, lambda seen: seen.get("JobState") == "COMPLETED")


def test_a_script_is_asked_about_before_it_is_submitted(
    quiet_cluster: SlurmCluster, when: Asked, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:4 -t 5\nsleep 1\n")
    assert when(str(script))["start"]["wait_s"]["p90"] < 60
    fill(quiet_cluster)
    busy = when(str(script), "--by", "+1h")
    assert busy["start"]["wait_s"]["p50"] > 0
    assert busy["chance_by"] > 0.9
    assert (busy["gpus"], busy["walltime_s"], busy["job"]) == (4, 300, "")


def test_slurm_is_asked_once_a_minute_whatever_is_asked_here(quiet_cluster: SlurmCluster, when: Asked) -> None:
    job = quiet_cluster.submit("sleep 60", "--gres=gpu:1", "--time=5")
    quiet_cluster.wait(job, lambda seen: seen.get("JobState") == "RUNNING")
    assert when(job, kept="one")["held_by"]["kind"] == "nothing"
    later = quiet_cluster.submit("sleep 60", "--gres=gpu:1", "--time=5")
    refused = when(later, kept="one")  # the picture is from before
    assert refused.returncode == 2
    assert f"job {later}" in refused.stderr
    assert when(later)["job"] == later


def test_the_board_tells_of_each_partition(quiet_cluster: SlurmCluster, when: Asked) -> None:
    fill(quiet_cluster)
    queued = quiet_cluster.submit("true", "--gres=gpu:4", "--time=5")
    reason(quiet_cluster, queued, "Resources")
    partitions = {each["partition"]: each for each in when()["partitions"]}
    main = next(iter(partitions.values()))
    assert (main["gpus"], main["gpus_free"], main["waiting"], main["waiting_gpus"]) == (16, 0, 1, 4)
    table = when(json_too=False)
    assert table.returncode == 0
    assert "0 of 16" in table.stdout


def test_the_service_has_the_queue_of_its_last_look_without_asking_again(quiet_cluster: SlurmCluster) -> None:
    """As ``perdure when`` reads it, but for what changed in between: the instant."""
    cluster = quiet_cluster
    fill(cluster)
    job = cluster.submit("sleep 600", "--gres=gpu:4", "--time=10")
    reason(cluster, job, "")
    tools = Tools(environment=cluster.env)
    backend = SlurmBackend("here", tools)
    assert backend.queue() is None  # from now on looks ask for what it needs
    backend.observe(0.0)
    look = backend.queue()
    asked = read_queue(tools)
    assert look is not None
    assert abs(look.queue.now_s - asked.queue.now_s) < 5
    assert {one.job_id for one in look.queue.running()} == {one.job_id for one in asked.queue.running()}
    assert [one.job_id for one in look.queue.waiting()] == [job]
    assert look.queue.nodes == asked.queue.nodes
    assert look.queue.partitions == asked.queue.partitions
    assert look.config == asked.config
    past = backend.past_jobs(look, look.queue.now_s - 3600)
    assert past.text is not None
    assert past.text.startswith(b"JobID|User")
    backend.close()
