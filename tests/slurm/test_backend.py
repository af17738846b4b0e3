"""The backend on a real Slurm: what it sees and does, how many processes that takes, and what it survives."""

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.spool import Spool
from perdure.backends.slurm.tools import Tools
from perdure.errors import ClusterBusy
from perdure.model.actions import Comment, Exclude, Outcome, OutcomeStatus, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, RetryPreference
from perdure.model.observation import Observation
from perdure.model.output import Why
from tests.slurm.cluster import SlurmCluster, await_

pytestmark = pytest.mark.slurm

PATIENCE_S = 60.0


def is_cleared_up(record: dict[str, Any]) -> bool:
    """Whether Slurm has done with the nodes of a job's last attempt: before that it takes no change."""
    return bool(record["JobState"] != "COMPLETING")


@dataclass
class Look:
    """A backend, and looks at the cluster until something is seen."""

    backend: SlurmBackend
    since_s: float = field(default_factory=time.time)

    def attempts(self, job_id: str) -> list[Attempt]:
        """All attempts of a job, oldest first."""
        return [a for a in self.backend.observe(self.since_s).attempts if a.id.job_id == job_id]

    def job(self, job_id: str) -> Job | None:
        return next((j for j in self.backend.observe(self.since_s).jobs if j.job_id == job_id), None)

    def ended(self, job_id: str, number: int = 1) -> Attempt:
        """The number-th attempt of a job, once it is over."""

        def over() -> Attempt | None:
            found = self.attempts(job_id)
            return found[number - 1] if len(found) >= number and found[number - 1].state.is_over else None

        return await_(f"the end of attempt {number} of job {job_id}", over, PATIENCE_S, lambda: self.words(job_id))

    def running(self, job_id: str, number: int = 1) -> Attempt:
        """The number-th attempt of a job, once it runs."""

        def runs() -> Attempt | None:
            found = self.attempts(job_id)
            return found[number - 1] if len(found) >= number and not found[number - 1].state.is_over else None

        return await_(f"attempt {number} of job {job_id}", runs, PATIENCE_S, lambda: self.words(job_id))

    def perform(self, action: Requeue) -> Outcome:
        """What became of an action, once slurmctld has cleared up after the last attempt."""

        def outcome() -> Outcome | None:
            with suppress(ClusterBusy):
                return self.backend.perform(action)
            return None

        return await_(f"an answer to {action.key}", outcome, PATIENCE_S)

    def words(self, job_id: str) -> str:
        """What a look sees of the job."""
        return "\n".join(("", *map(str, (self.job(job_id), *self.attempts(job_id)))))


@pytest.fixture
def look(quiet_cluster: SlurmCluster) -> Look:
    return Look(SlurmBackend(quiet_cluster.name, Tools(environment=quiet_cluster.env)))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all programs that are started."""
    started = []
    real = subprocess.Popen

    def counting(argv: tuple[str, ...], *args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        started.append(Path(argv[0]).name)
        return real(argv, *args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", counting)
    return started


def test_a_look_takes_one_process_and_an_action_one(
    look: Look, quiet_cluster: SlurmCluster, processes: list[str]
) -> None:
    job_id = quiet_cluster.submit("exit 1", "-w", "node2")
    first = look.ended(job_id)
    quiet_cluster.wait(job_id, is_cleared_up)

    def controller_alone() -> bool:
        processes.clear()
        look.backend.observe(look.since_s)
        return processes == ["scontrol"]

    await_("a look to which accounting has nothing to add, as of jobs that others cancelled", controller_alone, 60)
    processes.clear()
    action = Requeue(first.id, exclude=first.nodes, delay_s=30.0)
    assert look.backend.perform(action).status is OutcomeStatus.DONE
    assert processes == ["scontrol"]
    job = look.job(job_id)
    assert (job.state, job.excluded, job.required, job.restarts) == (JobState.PENDING, ("node2",), (), 1)
    processes.clear()
    assert look.backend.perform(Exclude(first.id, ("node3",))).status is OutcomeStatus.DONE
    assert processes == ["scontrol"]
    assert look.job(job_id).excluded == ("node2", "node3")


@pytest.mark.parametrize("changed", [(), ("ExcNodeList=node2", "NumNodes=1", "NumTasks=2", "NumCPUs=2")])
def test_an_action_broken_off_is_taken_up_where_it_stands(
    look: Look, quiet_cluster: SlurmCluster, changed: tuple[str, ...]
) -> None:
    """A crash of ours after the job was put back, or changed, leaves it held; another life of ours finds it so."""
    job_id = quiet_cluster.submit(
        "exit 1", "-w", "node2,node3", "-N2", "--ntasks-per-node=2", "--comment=perdure:nodes=1-2"
    )
    action = Requeue(look.ended(job_id).id, exclude=("node2",), node_count=1, delay_s=60.0)
    quiet_cluster.wait(job_id, is_cleared_up)
    quiet_cluster.run("scontrol", "requeuehold", job_id)
    if changed:
        quiet_cluster.run("scontrol", "update", f"jobid={job_id}", "ReqNodeList=node3", *changed)
    again = SlurmBackend(quiet_cluster.name, Tools(environment=quiet_cluster.env))
    assert again.lookup(action) is None
    assert again.perform(action).status is OutcomeStatus.DONE
    job = look.job(job_id)
    assert (job.state, job.excluded, job.required) == (JobState.PENDING, ("node2",), ("node3",))
    assert (job.node_count, job.restart_nodes) == (1, (1, 2))
    assert again.lookup(action).status is OutcomeStatus.DONE


COMMENT = "perdure: the job's Node can't be asked. perdure why {} #0a1b2c"


def test_a_comment_on_a_job_that_was_put_back_since_the_last_look_stands_in_the_queue(
    look: Look, quiet_cluster: SlurmCluster
) -> None:
    job_id = quiet_cluster.submit("exit 1")
    quiet_cluster.wait(job_id, lambda fields: fields["JobState"] == "FAILED")
    first = look.ended(job_id)
    quiet_cluster.run("scontrol", "requeuehold", job_id)
    quiet_cluster.wait(job_id, lambda fields: fields["JobState"] == "PENDING")
    line, printed = COMMENT.format(job_id), COMMENT.format(job_id).replace("'", "’")
    assert [said.detail for said in look.backend.write_comments([Comment(first.id, line)])] == ["written"]
    assert f'AdminComment="{printed}"' in quiet_cluster.run("scontrol", "show", "job", job_id)


def test_a_comment_on_a_job_that_slurmctld_has_forgotten_since_the_last_look_is_accounted(
    look: Look, quiet_cluster: SlurmCluster
) -> None:
    job_id = quiet_cluster.submit("exit 1")
    quiet_cluster.wait(job_id, lambda fields: fields["JobState"] == "FAILED")
    first = look.ended(job_id)
    quiet_cluster.await_accounting()
    line = COMMENT.format(job_id)
    with quiet_cluster.forgetful(int(job_id) + 1000):
        (outcome,) = look.backend.write_comments([Comment(first.id, line)])
    assert outcome.detail == "written to accounting"
    accounted = quiet_cluster.run("sacct", "-nPX", "-j", job_id, "-o", "AdminComment")
    said = line.replace("'", "’")
    assert accounted.strip() in (said, said.lower())  # sacctmgr of 22.05 leaves no capitals


def test_a_task_of_an_array_is_put_back_alone(look: Look, quiet_cluster: SlurmCluster) -> None:
    job_id = quiet_cluster.submit("exit $((SLURM_ARRAY_TASK_ID - 1))", "--array=1-3")
    failed = look.ended(f"{job_id}_2")
    assert failed.exit_code == 1
    assert look.ended(f"{job_id}_1").state is AttemptState.COMPLETED
    assert look.ended(f"{job_id}_3").exit_code == 2
    assert look.perform(Requeue(failed.id, exclude=failed.nodes, delay_s=30)).status is OutcomeStatus.DONE
    states = {t: look.job(f"{job_id}_{t}").state for t in (1, 2, 3)}
    assert states == {1: JobState.COMPLETED, 2: JobState.PENDING, 3: JobState.FAILED}


def test_slurms_own_requeue_keeps_how_the_attempt_ended(look: Look, quiet_cluster: SlurmCluster) -> None:
    """Exit code 75 is the site's RequeueExit: the job waits again, the attempt is a failure with its code."""
    job_id = quiet_cluster.submit("exit 75")
    first = look.ended(job_id)
    assert (first.state, first.exit_code) == (AttemptState.FAILED, 75)
    assert await_("the job to wait", lambda: look.job(job_id).state is JobState.PENDING, PATIENCE_S)


def test_what_slurm_is_about_to_put_back_is_not_over_whatever_a_hook_tells(quiet_cluster: SlurmCluster) -> None:
    """Exit code 75, while the epilog waits: where the job stands after its end is for Slurm to say first."""
    spool = Spool(quiet_cluster.events)
    backend = SlurmBackend(quiet_cluster.name, Tools(environment=quiet_cluster.env), spool)
    look = Look(backend)
    spool.take()
    spool.write_alive(time.time())
    try:
        job_id = quiet_cluster.submit("exit 75")
        record = quiet_cluster.wait(job_id, lambda fields: fields["JobState"] == "COMPLETING")
        start_s = int(time.mktime(time.strptime(record["StartTime"], "%Y-%m-%dT%H:%M:%S")))
        said = {"JOBID": job_id, "UID": 0, "USERNAME": "root", "JOBSTATE": "FAILED", "EXITCODE": "75:0"}
        said |= {"SUBMIT": start_s, "START": start_s, "END": start_s + 1, "NODES": record["NodeList"]}
        lines = ["perdure-event 1 end", *(f"{key}={value}" for key, value in said.items())]
        (quiet_cluster.events / "1.event").write_text("\n".join(lines) + "\n")
        assert not [attempt for attempt in look.attempts(job_id) if attempt.state.is_over]
        await_("the epilog's question", lambda: backend.listen() and backend.waiting(), PATIENCE_S)
        backend.answer(job_id)
        await_("Slurm's own requeue", lambda: quiet_cluster.job(job_id)["JobState"] == "PENDING", PATIENCE_S)
        ended = backend.observe(look.since_s)
        assert [job.state for job in ended.jobs if job.job_id == job_id] == [JobState.PENDING]
        assert [a.exit_code for a in ended.attempts if a.id.job_id == job_id] == [75]
    finally:
        spool.remove_alive()


def test_a_frozen_node_is_named_and_the_job_goes_on_elsewhere(look: Look, quiet_cluster: SlurmCluster) -> None:
    """With --no-requeue in one job and not in the other, both attempts end as NODE_FAIL with that node's name."""
    stays = quiet_cluster.submit("sleep 600", "--no-requeue", "-w", "node2", "--gres=gpu:1")
    wide = quiet_cluster.submit("sleep 600", "-N2", "-w", "node[2-3]", "--time=UNLIMITED")
    look.running(stays)
    first = look.running(wide)
    quiet_cluster.freeze_node("node2")
    try:
        for attempt in (look.ended(stays), look.ended(wide)):
            assert (attempt.state, attempt.failed_nodes) == (AttemptState.NODE_FAIL, ("node2",))
        assert look.job(wide).state is JobState.PENDING
        # A look at a job that waits while its old nodes clear up must not see a start that is none.
        assert len(look.attempts(wide)) == 1
        assert look.perform(Requeue(first.id, exclude=("node2",))).status is OutcomeStatus.DONE
        job = look.job(wide)
        assert (job.excluded, job.required) == (("node2",), ("node3",))
        second = look.running(wide, number=2)
        assert "node2" not in second.nodes
        assert second.id.incarnation > first.id.incarnation
    finally:
        quiet_cluster.return_node("node2")


def test_a_start_that_slurmctld_forgot_is_told_from_the_next(look: Look, quiet_cluster: SlurmCluster) -> None:
    """Killed right after a start, slurmctld starts the job again under the same restart count, not under our number."""
    job_id = quiet_cluster.submit("sleep 600", "--begin=now+1hour", "-J", "forgotten")
    saved = quiet_cluster.await_saved("forgotten")
    quiet_cluster.run("scontrol", "update", f"jobid={job_id}", "StartTime=now")
    first = look.running(job_id)
    quiet_cluster.crash_ctld(saved)
    await_("the job to wait", lambda: look.job(job_id).state is JobState.PENDING, PATIENCE_S)
    assert look.attempts(job_id) == []
    quiet_cluster.run("scontrol", "update", f"jobid={job_id}", "StartTime=now")
    (second,) = await_("the next start", lambda: look.attempts(job_id), PATIENCE_S)
    assert second.id.incarnation > first.id.incarnation
    assert quiet_cluster.job(job_id)["Restarts"] == "0"


def test_without_accounting_the_rest_is_seen(look: Look, quiet_cluster: SlurmCluster) -> None:
    running = quiet_cluster.submit("sleep 600")
    first = look.running(running)
    quiet_cluster.kill_dbd()
    try:

        def misses_accounting() -> Observation | None:  # it is asked for all but once a minute
            seen = look.backend.observe(look.since_s)
            return seen if seen.unseen else None

        seen = await_("a look that misses accounting", misses_accounting, 120)
        assert list(seen.unseen) == ["accounting"]
        assert "\n" not in seen.unseen["accounting"]
        assert [a.id for a in seen.attempts if a.id.job_id == running] == [first.id]
        failed = quiet_cluster.submit("exit 3")
        assert look.ended(failed).exit_code == 3
        assert look.perform(Requeue(look.ended(failed).id, delay_s=60)).status is OutcomeStatus.DONE
        assert look.job(failed).state is JobState.PENDING
    finally:
        quiet_cluster.start_dbd()
    await_("accounting", lambda: not look.backend.observe(look.since_s).unseen, PATIENCE_S)


def test_hooks_tell_what_polling_cannot_see(look: Look, quiet_cluster: SlurmCluster) -> None:
    """Put back at once, and no accounting: only the hook knows that the attempt was, and how it ended.

    Exit code 78 is the site's RequeueExitHold.
    """
    spool = Spool(quiet_cluster.events)
    spool.take()
    hearing = Look(SlurmBackend(quiet_cluster.name, Tools(environment=quiet_cluster.env), spool))
    quiet_cluster.kill_dbd()
    try:
        job_id = quiet_cluster.submit("exit 78")
        await_("a hook", hearing.backend.spool.has_news, PATIENCE_S)
        first = hearing.ended(job_id)
        assert (first.state, first.exit_code) == (AttemptState.FAILED, 78)
        await_("the site's hold", lambda: hearing.job(job_id).state is JobState.HELD, PATIENCE_S)
        assert hearing.attempts(job_id) == [first]
        assert look.attempts(job_id) == []
    finally:
        quiet_cluster.start_dbd()


EVIL = (
    "a|b c",
    "x UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 Nice=0 Account=a QOS=b JobState=COMPLETED",
    "x\nJobId={victim} JobName=forged UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1",
    "$(touch /tmp/owned); `id` \x1b]0;x\x07 %n%s <b>é</b>",
    "--flag",
)


def test_hostile_text_deceives_nobody(look: Look, quiet_cluster: SlurmCluster) -> None:
    """Names, comments, accounts, keys, networks and paths of one user; another user's job among them is unharmed."""
    victim = quiet_cluster.submit("sleep 600", "-w", "node4")
    look.running(victim)
    evil = [name.format(victim=victim) for name in EVIL]
    forged = evil[2]
    options = (
        *(("-J", name) for name in evil),
        ("--comment", f"perdure:retry=never\n{forged}"),
        ("--network", forged),
        ("--account", evil[1]),
        ("--wckey", evil[1]),
        ("-D", "/tmp", "-J", "tame", "-o", f"/tmp/{forged}"[:200]),
    )
    ids = [quiet_cluster.submit("exit 5", "-w", "node3", *option, user="nobody") for option in options]
    last = quiet_cluster.submit("exit 6", "-w", "node4")
    ended = {job_id: look.ended(job_id) for job_id in (*ids, last)}

    def told_apart() -> Observation | None:
        seen = look.backend.observe(look.since_s)
        return None if "records" in seen.unseen else seen

    seen = await_("accounting's word on whose the records are", told_apart)
    jobs = {job.job_id: job for job in seen.jobs}
    for job_id in ids:
        assert (jobs[job_id].user, ended[job_id].user) == ("nobody", "nobody")
        assert ended[job_id].nodes == ("node3",)
    assert [jobs[job_id].name for job_id in ids[: len(evil)]] == evil
    assert jobs[ids[len(evil)]].wish is RetryPreference.NEVER
    assert (jobs[victim].user, jobs[victim].state, jobs[victim].name) == ("root", JobState.RUNNING, "sbatch")
    assert (jobs[last].user, ended[last].exit_code) == ("root", 6)
    hostile = AttemptId(quiet_cluster.name, ids[2], ended[ids[2]].id.incarnation)
    assert look.perform(Requeue(hostile, exclude=("node3",), delay_s=60)).status is OutcomeStatus.DONE
    assert look.job(victim).state is JobState.RUNNING


def test_a_log_is_read_with_its_owners_rights(look: Look, quiet_cluster: SlurmCluster) -> None:
    mine = quiet_cluster.submit("echo says nobody; exit 1", user="nobody")
    attempt = look.ended(mine)
    assert attempt.user == "nobody"
    assert b"says nobody" in look.backend.output(attempt).main.tail
    secret = quiet_cluster.directory / "secret"
    secret.write_text("of root's")
    secret.chmod(0o600)
    link = quiet_cluster.output / "link.out"
    linked = quiet_cluster.submit(f"rm {link}; ln -s {secret} {link}", "-o", str(link), user="nobody")
    output = look.backend.output(look.ended(linked))
    assert (output.files, [absent.why for absent in output.absent]) == ((), [Why.REFUSED])


def test_a_missing_output_directory_is_a_launch_failure(look: Look, quiet_cluster: SlurmCluster) -> None:
    job_id = quiet_cluster.submit("true", "-o", "/nowhere/at/all")
    attempt = look.ended(job_id)
    assert (attempt.state, attempt.signal) == (AttemptState.LAUNCH_FAILED, 53)


def test_the_version_is_told(look: Look) -> None:
    assert look.backend.version.count(".") >= 1
