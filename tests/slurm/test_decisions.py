"""What is decided on a real Slurm, and whether it is done: all jobs are submitted together, then looked at in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import Site

pytestmark = pytest.mark.slurm

SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2")
STEPS = "for i in $(seq 300); do echo step $i; sleep 0.2; done"
AGAIN = '[ "${SLURM_RESTART_COUNT:-0}" != 0 ] && exit 0; kill -9 $$'  # it passes the second time
XID = "echo 'NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus.'; exit 1"
SUCCESSOR = 'sbatch -J chained -o /dev/null <<"END"\n#!/bin/sh\nsleep 120\nEND\nkill -9 $$'
PARTS = """#!/bin/sh
#SBATCH -n1 -o {output}
#SBATCH hetjob
#SBATCH -n1
srun --het-group=0,1 sh -c '
if [ $SLURM_PROCID = 1 ]; then sleep 1; echo "RuntimeError: mat1 and mat2 shapes cannot be multiplied" >&2; exit 1; fi
sleep 20'
"""
SETTINGS = {
    "PERDURE_SCOPE_NOT_USERS": "daemon",
    "PERDURE_RETRY_PER_USER_PER_HOUR": "6",
    "PERDURE_CAPS_NODES_OUT_SHARE": "0.75",
}


class Submitted:
    """A service at work, and the jobs by what they show."""

    def __init__(self, cluster: SlurmCluster, home: Path) -> None:
        self.cluster, self.site = cluster, Site(cluster, home, SETTINGS)
        self.site.start()
        submit = partial(cluster.submit)
        self.signalled = {name: submit(STEPS) for name in SIGNALS}
        self.crashed = submit("echo step 1; sleep 1; kill -SEGV $$")
        parts = PARTS.format(output=cluster.output / "parts-%j.out")
        self.parts = cluster.run("sbatch", "--parsable", stdin=parts).strip()
        self.chained = submit(SUCCESSOR, "-J", "chained")
        self.off = submit(AGAIN, "--comment=PERDURE:retry=Off")
        self.misread = submit(AGAIN, "--comment=perdure:retry=nevr")
        self.outside = submit(AGAIN, user="daemon")
        self.broken = [submit(XID, "-w", "node3", "--comment=perdure:retry=no", user=user) for user in (None, "nobody")]
        self.many = [submit(AGAIN, user="nobody") for _ in range(8)]
        self.raised = self.site.raise_("node.disk", nodes=["node4"], note="by its health check")
        for job in self.signalled.values():
            await_("some steps", partial(self._has_said, job, "step 5"))
        for name, job in self.signalled.items():
            cluster.run("scancel", "-s", name, "-f", job)

    def _has_said(self, job: str, line: str) -> bool:
        log = self.cluster.output / f"{job}.out"
        return log.exists() and line in log.read_text()

    def faults_of(self, node: str, kind: str) -> list[Any]:
        return [r for r in self.site.ask("/exceptions", type=kind) if r["subject"].get("node") == [node]]

    def is_drained(self, node: str) -> bool:
        return "DRAIN" in self.cluster.run("scontrol", "-o", "show", "node", node)


@pytest.fixture(scope="module")
def submitted(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitted]:
    one = Submitted(cluster, tmp_path_factory.mktemp("decisions"))
    yield one
    one.site.stop()
    cluster.cancel_all()


@pytest.mark.parametrize("name", SIGNALS)
def test_a_job_that_its_user_stopped_by_a_signal_stays_stopped(submitted: Submitted, name: str) -> None:
    """Slurm 22.05 says JobLaunchFailure of it."""
    job = submitted.signalled[name]
    record = submitted.site.await_outcome(job, "stopped")
    assert record["type"] == "job.cancelled"
    assert f"({name}), as scancel -s {name} -f does" in record["verdicts"][-1]["note"]
    assert "nobody starts it again but its owner" in record["verdicts"][-1]["note"]
    assert submitted.site.actions(job) == []


def test_a_script_that_crashed_is_no_failed_launch_and_gets_one_probe(submitted: Submitted) -> None:
    """Of two equal failures the second is less likely to pass, and no third one is tried."""
    site, job = submitted.site, submitted.crashed
    site.await_outcome(job, "stopped")
    second, first = [r for r in site.records(job) if r["type"].startswith("job.")]
    assert first["type"] == second["type"] == "job.native_crash"
    assert [action["kind"] for action in site.actions(job)] == ["requeue"]
    assert "it was retried once after this failure, and fails the same way again" in second["verdicts"][-1]["note"]


def test_a_job_that_submitted_its_own_successor_is_not_put_back_beside_it(submitted: Submitted) -> None:
    record = submitted.site.await_outcome(submitted.chained, "stopped")
    assert "it has submitted its own successor, job " in record["verdicts"][-1]["note"]
    assert submitted.site.actions(submitted.chained) == []


def test_what_srun_counts_within_a_component_is_called_no_rank(submitted: Submitted) -> None:
    """The task that failed is rank 1 of the job, and task 0 of its component."""
    submitted.site.await_outcome(submitted.parts, "stopped")
    (attempt,) = submitted.site.service.ask("GET", f"/jobs/{submitted.parts}")["attempts"]
    assert attempt["verdict"]["rank"] == ""
    assert f"; a task on {attempt['verdict']['node']} failed first, as srun tells" in attempt["verdict"]["summary"]


def test_the_owners_wish_is_read_in_any_case(submitted: Submitted) -> None:
    record = submitted.site.await_outcome(submitted.off, "stopped")
    assert "the owner asked that this job is never recovered" in record["verdicts"][-1]["note"]


def test_a_word_that_nobody_understands_is_answered(submitted: Submitted) -> None:
    record = submitted.site.await_outcome(submitted.misread, "recovered")
    assert '"perdure:retry=nevr" in its comment is not understood' in record["verdicts"][-1]["note"]


def test_what_lies_outside_the_scope_is_shown_and_not_done(submitted: Submitted) -> None:
    site, job = submitted.site, submitted.outside
    (action,) = await_("a decision", lambda: [a for a in site.actions(job) if a["state"] == "shadow"])
    assert action["kind"] == "requeue"
    assert action["detail"] == "outside the scope: user daemon is left alone (scope.not_users)"
    submitted.cluster.wait(job, lambda fields: fields["JobState"] == "FAILED")


def test_a_budget_that_is_spent_means_later(submitted: Submitted) -> None:
    """A user has 6 retries an hour here: what comes after that is in the queue, and starts when there is room."""
    site, cluster = submitted.site, submitted.cluster

    def put_back() -> bool:
        states = [[action["state"] for action in site.actions(job)] for job in submitted.many]
        return all("done" in each for each in states)

    await_("all in the queue", put_back, 180, lambda: "".join(map(site.told, submitted.many)))
    late = [job for job in submitted.many if "later, at " in site.records(job)[0]["verdicts"][-1]["note"]]
    assert len(late) == 2
    for job in late:
        note = site.records(job)[0]["verdicts"][-1]["note"]
        assert "user nobody's share of the cluster's retries of an hour is spent (6 of 6)" in note
        fields = cluster.wait(job, lambda seen: (seen["JobState"], seen["Reason"]) == ("PENDING", "BeginTime"))
        starts_s = time.mktime(time.strptime(fields["StartTime"], "%Y-%m-%dT%H:%M:%S"))
        assert 3000 < starts_s - time.time() < 3700
    for job in set(submitted.many) - set(late):
        site.await_outcome(job, "recovered")


def test_hard_evidence_of_two_users_takes_a_node_out_of_service_as_soon_as_both_are_judged(
    submitted: Submitted,
) -> None:
    await_("node3 drained", lambda: submitted.is_drained("node3"), 120)
    (record,) = submitted.faults_of("node3", "node.hardware")
    assert record["detected_by"] == "perdure"
    assert all(f"job {job} of" in " ".join(record["evidence"]) for job in submitted.broken)
    assert "Xid" in record["evidence"][0]
    judged_s = [submitted.site.records(job)[-1]["verdicts"][-1]["time"] for job in submitted.broken]
    assert record["time"] == max(judged_s)
    drained = await_("read back", lambda: _read_back(submitted.faults_of("node3", "node.hardware")[0]))
    assert drained["value"].startswith("drained: perdure: node.hardware")


def _read_back(record: dict[str, Any]) -> Any:
    return next((each for each in record["annotations"] if each["key"] == "read_back"), None)


def test_a_fault_that_is_raised_again_after_its_node_was_returned_acts_anew(submitted: Submitted) -> None:
    first = await_(
        "node4 drained",
        lambda: _read_back(submitted.site.record(submitted.raised)),
        120,
        lambda: f"\n{submitted.site.record(submitted.raised)}\n{submitted.cluster.node_states()}",
    )
    assert submitted.is_drained("node4")
    submitted.cluster.run("scontrol", "update", "nodename=node4", "state=resume")
    time.sleep(max(0.0, first["time"] + 11.0 - time.time()))  # so long what was read back is believed
    again = submitted.site.raise_("node.disk", nodes=["node4"], note="by its health check")
    assert again != submitted.raised
    await_("node4 drained again", lambda: submitted.is_drained("node4"), 120)
    await_("said so", lambda: _read_back(submitted.site.record(again)), 120)


@pytest.mark.slow
def test_a_job_that_saves_checkpoints_goes_on_at_its_walltime(submitted: Submitted) -> None:
    site, cluster = submitted.site, submitted.cluster
    job = cluster.submit(f"echo run; {STEPS}", "--time=1", "--comment=perdure:timeout=requeue")
    left = cluster.submit(STEPS, "--time=1", "--comment=perdure:timeout=requeue", "--no-requeue")
    site.await_done(job, "requeue", within_s=180)
    assert "it goes on from its checkpoint (its owner asks for it)" in site.records(job)[-1]["verdicts"][-1]["note"]
    cluster.wait(job, lambda fields: fields["JobState"] == "RUNNING")
    record = site.await_outcome(left, "stopped")
    assert "--no-requeue" in record["verdicts"][-1]["note"]
