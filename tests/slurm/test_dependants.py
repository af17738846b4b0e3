"""Dependants of a job that fails and is retried: with the hook none hears of it; without it, they are repaired."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import Site

pytestmark = pytest.mark.slurm

ONCE = """
sleep 2
[ -n "$SLURM_RESTART_COUNT" ] && exit 0
[ "${SLURM_ARRAY_TASK_ID:-1}" = 1 ] || exit 0
echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
exit 1
"""
SHAPE = """
sleep 2
echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2
exit 1
"""


PATIENT_S = 120  # what is stated is the order of things, however busy the machine


@contextmanager
def acting(
    cluster: SlurmCluster, home: Path, settings: dict[str, str] | None = None, epilogs_wait_s: int = PATIENT_S
) -> Iterator[Site]:
    one = Site(cluster, home, settings)
    cluster.let_epilogs_wait(epilogs_wait_s)
    try:
        yield one.start()
    finally:
        one.stop()
        cluster.let_epilogs_wait(5)


@pytest.fixture
def site(quiet_cluster: SlurmCluster, tmp_path: Path) -> Iterator[Site]:
    with acting(quiet_cluster, tmp_path) as one:
        yield one


@pytest.fixture
def site_of_default_hooks(quiet_cluster: SlurmCluster, tmp_path: Path) -> Iterator[Site]:
    with acting(quiet_cluster, tmp_path, epilogs_wait_s=5) as one:
        yield one


@pytest.fixture
def deaf_site(quiet_cluster: SlurmCluster, tmp_path: Path) -> Iterator[Site]:
    """A service to which no hook talks: it looks every three seconds."""
    (tmp_path / "spool").mkdir(mode=0o700)
    settings = {"PERDURE_SLURM_SPOOL": str(tmp_path / "spool"), "PERDURE_SERVICE_POLL_S": "3"}
    with acting(quiet_cluster, tmp_path, settings) as one:
        yield one


def submit_all(cluster: SlurmCluster, script: str) -> tuple[str, str, dict[str, str]]:
    """A job and an array that fail, and one job of each kind that depends on them."""
    job = cluster.submit(script, "--requeue", "--job-name=first")
    array = cluster.submit(script, "--requeue", "--array=0-1")
    other = cluster.submit("sleep 600", "--requeue")
    options = {
        "afterok": (f"afterok:{job}",),
        "afterok_killed": (f"afterok:{job}", "--kill-on-invalid-dep=yes"),
        "afterany": (f"afterany:{job}",),
        "afternotok": (f"afternotok:{job}",),
        "singleton": ("singleton", "--job-name=first"),
        "array_ok": (f"afterok:{array}",),
        "array_killed": (f"afterok:{array}", "--kill-on-invalid-dep=yes"),
        "task_ok": (f"afterok:{array}_1",),
        "corr": (f"aftercorr:{array}", "--array=0-1"),
        "both": (f"afterok:{job},afterany:{other}",),
        "either": (f"afterok:{job}?afternotok:{other}",),
    }
    return job, array, {kind: cluster.submit("true", "-d", *given) for kind, given in options.items()}


def await_ends(cluster: SlurmCluster, job_id: str, state: str) -> None:
    def ended() -> bool:
        rows = cluster.ends(job_id)
        return bool(rows) and rows[-1]["State"].startswith(state)

    await_(f"job {job_id} {state}", ended, words=lambda: f": {cluster.ends(job_id)} {cluster.job(job_id)}")


def await_given_up(cluster: SlurmCluster, job_id: str) -> None:
    """Slurm weighs dependencies in turns of its own, after the job that they are on has ended."""
    cluster.wait(job_id, lambda fields: fields["Reason"] == "DependencyNeverSatisfied")


def await_half_met(cluster: SlurmCluster, job_id: str) -> None:
    """Of a job that waits for two others, one dependency is met and the other is left."""
    cluster.wait(job_id, lambda fields: fields["Dependency"].startswith("afterany"))


def starts(cluster: SlurmCluster, job_id: str) -> list[Any]:
    """The seconds in which each start of a job began and ended."""
    return [(int(row["Start"]), int(row["End"])) for row in cluster.ends(job_id)]


def test_with_the_hook_no_dependant_hears_of_a_failure_that_is_retried(site: Site) -> None:
    """A singleton does not wait for a job that is completing: it may run first, but never beside the retry."""
    cluster = site.cluster
    job, array, waiting = submit_all(cluster, ONCE)
    await_ends(cluster, job, "COMPLETED")
    await_ends(cluster, f"{array}_1", "COMPLETED")
    assert [(row["State"], row["ExitCode"]) for row in cluster.ends(job)] == [("REQUEUED", "1:0"), ("COMPLETED", "0:0")]
    for kind in ("afterok", "afterok_killed", "afterany", "array_ok", "array_killed", "task_ok", "either"):
        await_ends(cluster, waiting[kind], "COMPLETED")
        target = f"{array}_1" if kind.startswith(("array", "task")) else job
        assert starts(cluster, waiting[kind])[0][0] >= starts(cluster, target)[-1][1], (kind, site.told(job))
    await_ends(cluster, f"{waiting['corr']}_1", "COMPLETED")
    await_ends(cluster, waiting["singleton"], "COMPLETED")
    ordered = sorted([*starts(cluster, waiting["singleton"]), *starts(cluster, job)])
    assert all(before[1] <= after[0] for before, after in pairwise(ordered)), (ordered, site.told(job))
    await_half_met(cluster, waiting["both"])
    await_given_up(cluster, waiting["afternotok"])
    assert len(site.actions(job)) == 1


def test_no_two_retries_of_a_chain_of_singletons_run_side_by_side(site: Site) -> None:
    """Each of three fails at its first start, and Slurm starts the next one while it completes."""
    cluster = site.cluster
    chain = [cluster.submit(ONCE, "--requeue", "-J", "chain", "-d", "singleton") for _ in range(3)]
    for job in chain:
        await_ends(cluster, job, "COMPLETED")
    ordered = sorted(run for job in chain for run in starts(cluster, job))
    assert len(ordered) == 6
    assert all(before[1] <= after[0] for before, after in pairwise(ordered)), (ordered, *map(site.told, chain))


def test_in_a_burst_at_the_pace_of_a_site_no_dependant_sees_a_failure(
    quiet_cluster: SlurmCluster, tmp_path: Path
) -> None:
    """Twelve jobs fail within ten seconds, one of them heterogeneous: its parts ask by numbers of their own."""
    cluster = quiet_cluster
    with acting(cluster, tmp_path, {"PERDURE_SERVICE_POLL_S": "30"}) as site:
        await_("the first look", lambda: site.ask("/nodes"))
        het = "#!/bin/sh\n#SBATCH -n1 --requeue\n#SBATCH hetjob\n#SBATCH -n1\n" + ONCE
        jobs, dependants = [cluster.run("sbatch", "--parsable", stdin=het).strip()], []
        for number in range(11):
            script = f'[ -n "$SLURM_RESTART_COUNT" ] || sleep {number * 0.8}\n{ONCE}'
            jobs.append(cluster.submit(script, "--requeue", "--mem=10"))
        for job in jobs:
            dependants.append(cluster.submit("true", "-d", f"afternotok:{job}"))
            dependants.append(cluster.submit("true", "-d", f"afterok:{job}", "--kill-on-invalid-dep=yes"))
        for job, wrong, right in zip(jobs, dependants[::2], dependants[1::2], strict=True):
            await_ends(cluster, right, "COMPLETED")
            assert starts(cluster, wrong) == [], (job, site.told(job))
            assert len(site.actions(job)) == 1, site.told(job)


def test_with_the_hook_a_failure_that_is_stopped_ends_as_slurm_ends_it(site: Site) -> None:
    cluster = site.cluster
    job = cluster.submit(SHAPE, "--requeue")
    after, unlike = (cluster.submit("true", "-d", f"{kind}:{job}") for kind in ("afternotok", "afterok"))
    await_ends(cluster, after, "COMPLETED")
    await_given_up(cluster, unlike)
    assert [(row["State"], row["ExitCode"]) for row in cluster.ends(job)] == [("FAILED", "1:0")]
    assert starts(cluster, after)[0][0] - starts(cluster, job)[0][1] < PATIENT_S / 2  # an answer ended the epilog


@pytest.mark.slow
def test_without_the_hook_dependants_are_repaired_and_what_cannot_be_is_said(deaf_site: Site) -> None:
    """Whether a dependant sees the failure before the retry is a race that nobody decides; what is said is true."""
    site = deaf_site
    cluster = site.cluster
    job, array, waiting = submit_all(cluster, ONCE.replace("sleep 2", "sleep 5"))  # long enough to be seen waiting
    await_ends(cluster, job, "COMPLETED")
    await_ends(cluster, f"{array}_1", "COMPLETED")
    for kind in ("afterok", "array_ok", "task_ok", "either"):
        await_ends(cluster, waiting[kind], "COMPLETED")
        target = f"{array}_1" if kind.startswith(("array", "task")) else job
        assert starts(cluster, waiting[kind])[0][0] >= starts(cluster, target)[-1][1], (kind, site.told(job))
    await_ends(cluster, f"{waiting['corr']}_1", "COMPLETED")
    await_half_met(cluster, waiting["both"])
    (action,) = site.actions(job)
    told, retried_s = action["detail"], starts(cluster, job)[-1][0]
    assert "waits without success" not in told
    for kind in ("afterany", "afternotok"):
        for start_s, _ in starts(cluster, waiting[kind]):
            said = f"job {waiting[kind]} ran at this failure ({kind})" in told
            assert said or start_s >= int(action["created_s"]), (kind, action)  # Slurm may not see the failure either
            assert not said or start_s <= retried_s, (kind, action)
    was_cancelled = not starts(cluster, waiting["afterok_killed"])
    assert (f"job {waiting['afterok_killed']} was cancelled" in told) is was_cancelled, action


@pytest.mark.slow
def test_a_service_killed_while_epilogs_wait_loses_no_job_and_starts_none_twice(site_of_default_hooks: Site) -> None:
    """Killed as soon as the first job is put back: some are held, some wait for a decision, some have just failed."""
    site = site_of_default_hooks
    cluster = site.cluster
    jobs = [cluster.submit(ONCE, "--requeue") for _ in range(8)]
    await_("a job that is put back", lambda: any(cluster.job(job)["Restarts"] == "1" for job in jobs))
    site.kill()
    await_("no job completes", lambda: not any(cluster.job(job)["JobState"] == "COMPLETING" for job in jobs))
    site.start()
    for job in jobs:
        await_ends(cluster, job, "COMPLETED")
    for job in jobs:
        assert len(cluster.ends(job)) == 2, site.told(job)
        assert [action["state"] for action in site.actions(job)] == ["done"], site.told(job)


def test_the_kill_switch_lets_every_epilog_go_on(site: Site, tmp_path: Path) -> None:
    (tmp_path / "state" / "STOP").touch()
    await_("no sign of life", lambda: not (site.cluster.events / "alive").exists())
    job = site.cluster.submit(ONCE, "--requeue")
    after = site.cluster.submit("true", "-d", f"afterany:{job}")
    await_ends(site.cluster, after, "COMPLETED")
    assert starts(site.cluster, after)[0][0] - starts(site.cluster, job)[0][1] < PATIENT_S / 2


def test_a_retry_that_was_broken_off_is_left_to_a_person_by_a_service_that_may_not_act(
    site: Site, tmp_path: Path
) -> None:
    """The service dies between putting a job back and releasing it, and comes again in shadow mode."""
    (tmp_path / "state" / "STOP").touch()
    job = site.cluster.submit(ONCE, "--requeue")
    await_("a retry that waits", lambda: [a for a in site.actions(job) if a["state"] == "planned"])
    site.kill()
    (tmp_path / "state" / "STOP").unlink()
    site.cluster.run("scontrol", "requeuehold", job)
    site.start("--shadow")
    (record,) = await_("a person", lambda: [r for r in site.records(job) if r["state"] == "escalated"])
    assert record["verdicts"][-1]["note"].endswith(f"until somebody runs scontrol release {job}")
    (action,) = site.actions(job)
    assert action["state"] == "refused"
    site.cluster.run("scontrol", "release", job)
    await_ends(site.cluster, job, "COMPLETED")


def test_who_came_between_the_look_and_the_requeue_is_repaired_as_well(
    quiet_cluster: SlurmCluster, tmp_path: Path
) -> None:
    """Jobs that are submitted twice a second wait for one that fails, is seen, and is put back."""
    (tmp_path / "spool").mkdir(mode=0o700)
    cluster = quiet_cluster
    settings = {"PERDURE_SLURM_SPOOL": str(tmp_path / "spool"), "PERDURE_SERVICE_POLL_S": "3"}
    with acting(cluster, tmp_path, settings) as site:
        job = cluster.submit(ONCE, "--requeue")
        await_ends(cluster, job, "FAILED")
        waiting, killed = [], []
        while not cluster.job(job).get("Restarts", "0") > "0":
            waiting.append(cluster.submit("true", "-d", f"afterok:{job}"))
            killed.append(cluster.submit("true", "-d", f"afterok:{job}", "--kill-on-invalid-dep=yes"))
            time.sleep(0.5)
        await_ends(cluster, job, "COMPLETED")
        assert waiting
        for each in waiting:
            await_ends(cluster, each, "COMPLETED")
        said = str(site.actions(job))
        assert f"job {waiting[-1]} depends on it again" in said
        cancelled = [each for each in killed if cluster.job(each)["JobState"] == "CANCELLED"]
        assert f"job {cancelled[-1]} was cancelled at this failure (afterok)" in said
