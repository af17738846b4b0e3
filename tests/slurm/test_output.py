"""What real Slurm makes of jobs' output: every file is read, and nobody is judged by another's lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from perdure.model.jobs import AttemptState
from perdure.service.workers.commands import ServiceCommands
from perdure.service.workers.kill_switch import KillSwitch
from perdure.triage.judge import judge
from perdure.triage.verdict import Label, Verdict
from tests.e2e.service import await_, running
from tests.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

SHAPE = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)"
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"
NO_NAME = "socket.gaierror: [Errno -3] Temporary failure in name resolution"
RANKS = f"""
LOGS={{out}}/ranks
mkdir -p "$LOGS"
srun -n 2 --overcommit -o "$LOGS/rank.%j.%t.log" sh -c '
if [ "$SLURM_PROCID" = 1 ]; then echo "{SHAPE}"; exit 1; fi
until grep -q mat1 {{out}}/ranks/rank.$SLURM_JOB_ID.1.log; do sleep 0.2; done
sleep 2; echo "{RESET}"; exit 1'
exit 1
"""
LAUNCHER = f"""
torchrun() {{{{ # what it leaves behind
    for rank in 0 1; do mkdir -p "$2/none_x1/attempt_0/$rank"; done
    echo "{SHAPE}" > "$2/none_x1/attempt_0/1/stderr.log"
    echo "{RESET}" > "$2/none_x1/attempt_0/0/stderr.log"
}}}}
export BASE={{out}}/elastic
mkdir -p $BASE/old/attempt_0/0
echo "{NO_NAME}" > $BASE/old/attempt_0/0/stderr.log
touch -d '1 hour ago' $BASE/old/attempt_0/0/stderr.log
torchrun --log-dir $BASE train.py
exit 1
"""
# Two jobs that run side by side however busy the machine: each waits until both have begun.
MEET = """
touch $1-$2
until [ -e $1-1 ] && [ -e $1-2 ]; do sleep 0.2; done
"""
SHARED = f"[ $SLURM_ARRAY_TASK_ID = 1 ] && echo '{SHAPE}'; sleep 2; exit 1"
PROGRAM = 'program() { echo "$@"; }; '  # what echo itself writes counts as no program's log
SWEEP = (
    f"{PROGRAM}sleep 1; case $LR in 1) program '{SHAPE}' > e_$LR.txt;; "
    f"2) sleep 2; program '{RESET}' > e_$LR.txt;; esac; exit 1"
)
TEE = (
    PROGRAM.replace("{", "{{").replace("}", "}}")
    + "sleep {}; program '{}' | tee -a both.log >/dev/null; sleep 2; exit 1"
)
DATED = f"echo \"$(date '+%Y-%m-%d %H:%M:%S') ERROR {NO_NAME}\"; exit 1"


class Jobs:
    """All cases, submitted together; one look once all have ended."""

    def __init__(self, cluster: SlurmCluster) -> None:
        out = self.out = cluster.output
        foreign, appended = out / "foreign.out", out / "appended.out"
        foreign.touch()
        foreign.chmod(0o666)
        appended.write_text(SHAPE + "\n")
        silent = out / "silent.out"
        silent.write_text(SHAPE + "\n")
        time.sleep(1.0)  # Slurm tells starts in whole seconds

        def submit(script: str, *options: str, user: str | None = None) -> str:
            return cluster.submit(script, "--no-requeue", *options, user=user)

        meet = cluster.directory / "run" / "meet"
        meet.write_text(MEET)

        def met(name: str, who: str) -> str:
            return f"sh {meet} {meet}-{name} {who}; "

        streams = ("-o", f"{out}/sep.out", "-e", f"{out}/sep.err")
        self.ids = {
            "streams": submit(f"echo 'step 1 loss 0.5'; echo '{SHAPE}' >&2; exit 1", *streams),
            "ranks": submit(RANKS.format(out=out), "-n", "2"),
            "launcher": submit(LAUNCHER.format(out=out)),
            "by id": submit(f"echo '{SHAPE}' > train-job$SLURM_JOB_ID.log; exit 1", f"--chdir={out}"),
            "redirected": submit(f"exec > {out}/t.log 2>&1; echo '{SHAPE}'; exit 1"),
            "shared": submit(met("shared", "$SLURM_ARRAY_TASK_ID") + SHARED, "--array=1-2", "-o", f"{out}/shared.out"),
            "het": submit(f"echo '{SHAPE}'; exit 1", "-n1", ":", "-n1", "-o", f"{out}/het.out"),
            "cut": submit(f"sleep 1; echo '{RESET}'; exit 1", "-o", f"{out}/cut.out"),
            "appended": submit(DATED, "--open-mode=append", "-o", str(appended)),
            "silent": submit("#SBATCH --open-mode=append\nexit 1", "-o", str(silent)),
            "no directory": submit("true", "-o", f"{out}/typo/x.out"),
            "foreign": submit("echo hello; exit 1", "-o", str(foreign), user="nobody"),
            "names": submit(f"echo '{SHAPE}'; exit 1", "-J", "50%job", "-o", f"{out}/%x-%N-%A_%a-%4t-%b.log"),
            "removed": submit(f"rm {out}/removed.out; exit 1", "-o", f"{out}/removed.out"),
        }
        by_argument = out / "by_argument.sh"
        by_argument.write_text(f'#!/bin/sh\nlr=$1\n{PROGRAM}sleep 1; program "$2" > a_$lr.txt; sleep 2; exit 1\n')
        for lr, line in (("0.1", SHAPE), ("0.2", RESET)):
            options = ("--parsable", "--no-requeue", f"--chdir={out}", "-o/dev/null", str(by_argument), lr, line)
            self.ids[f"argument {lr}"] = cluster.run("sbatch", *options).strip()
        theirs = out / "theirs"
        theirs.mkdir()
        tasks = f"case $SLURM_ARRAY_TASK_ID in 1) echo '{SHAPE}';; 2) echo '{RESET}';; esac; exit 1"
        self.ids |= {
            "last task": submit(tasks, "--array=1-2%1", "-o", f"{out}/slurm-%A_%a.out", f"--chdir={out}"),
            "sweep 1": submit(met("sweep", "1") + SWEEP, f"--chdir={theirs}", "-o/dev/null", "--export=ALL,LR=1"),
            "sweep 2": submit(met("sweep", "2") + SWEEP, f"--chdir={theirs}", "-o/dev/null", "--export=ALL,LR=2"),
            "tee 1": submit(met("tee", "1") + TEE.format(1, SHAPE), f"--chdir={theirs}", "-o/dev/null", "-Jtee1"),
            "tee 2": submit(met("tee", "2") + TEE.format(2, RESET), f"--chdir={theirs}", "-o/dev/null", "-Jtee2"),
        }
        after = f"--dependency=afterany:{self.ids['cut']}"
        self.ids["cutter"] = submit(f"echo '{SHAPE}'; exit 1", after, "-o", f"{out}/cut.out")
        for name in self.ids:
            cluster.wait(self.ids[name], lambda job: job.get("JobState") in ("FAILED", "COMPLETED"))
        await_(lambda: not cluster.run("squeue", "-h").strip())  # an array's other tasks, too
        cluster.await_accounting()
        self.backend = SlurmBackend(cluster.name, Tools(timeout_s=15.0, environment=cluster.env))
        self.attempts = {a.id.job_id: a for a in self.backend.observe(cluster.since_s).attempts}

    def verdict(self, name: str, task: str = "") -> Verdict:
        attempt = self.attempts[self.ids[name] + task]
        return judge(self.backend.output(attempt), attempt)


@pytest.fixture(scope="module")
def jobs(cluster: SlurmCluster) -> Iterator[Jobs]:
    yield Jobs(cluster)
    cluster.cancel_all()


def shown(verdict: Verdict) -> list[Any]:
    return [(line.text, line.source) for line in verdict.evidence if line.line]


@pytest.mark.parametrize(
    ("name", "source"),
    [("streams", "sep.err"), ("ranks", "1.log"), ("launcher", "1/stderr.log"), ("by id", ""), ("redirected", "")],
)
def test_a_shape_error_is_found_in_whichever_file_it_stands(jobs: Jobs, name: str, source: str) -> None:
    verdict = jobs.verdict(name)
    assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "shape")
    found = [where for text, where in shown(verdict) if text == SHAPE]
    assert found, verdict
    assert found[0].endswith(source)  # "" where it is the only file with a word in it


def test_the_parts_of_one_job_share_its_file_rightly(jobs: Jobs) -> None:
    assert jobs.verdict("het").category == "shape"


def test_the_rank_that_broke_is_named(jobs: Jobs) -> None:
    assert "rank 1 on node1 failed first" in jobs.verdict("ranks").summary


@pytest.mark.parametrize("task", ["_1", "_2"])
def test_tasks_that_share_a_file_are_not_judged_by_it(jobs: Jobs, task: str) -> None:
    verdict = jobs.verdict("shared", task)
    assert verdict.label is Label.UNSURE
    assert f"is shared with job {jobs.ids['shared']}_" in verdict.summary


def test_the_last_task_of_an_array_is_not_judged_by_the_others_files(jobs: Jobs) -> None:
    """It has the array's own number, with which all their names begin."""
    verdict = jobs.verdict("last task", "_2")
    assert (verdict.label, verdict.category) == (Label.TRANSIENT, "net")
    assert "rank" not in verdict.summary
    assert "shared" not in verdict.summary


@pytest.mark.parametrize("name", ["sweep 2", "tee 2"])
def test_who_ran_beside_it_in_one_directory_is_no_rank_of_it(jobs: Jobs, name: str) -> None:
    verdict = jobs.verdict(name)
    assert verdict.label is Label.UNSURE
    assert f"may hold lines of job {jobs.ids[name.replace('2', '1')]}" in verdict.summary


def test_arguments_of_a_script_tell_its_files_apart(jobs: Jobs) -> None:
    assert jobs.verdict("argument 0.1").category == "shape"
    assert jobs.verdict("argument 0.2").category == "net"


def test_what_a_later_job_wrote_over_is_nobodys_word_against_the_first(jobs: Jobs) -> None:
    first, later = jobs.verdict("cut"), jobs.verdict("cutter")
    assert first.label is Label.UNSURE
    assert f"has been overwritten since by job {jobs.ids['cutter']}" in first.summary
    assert (later.label, later.category) == (Label.DETERMINISTIC, "shape")


def test_of_an_appended_file_only_lines_of_this_attempts_time_count(jobs: Jobs) -> None:
    verdict = jobs.verdict("appended")
    assert verdict.category != "shape"
    assert [text for text, _ in shown(verdict) if "gaierror" in text], verdict
    assert (verdict.label, verdict.category) == (Label.UNSURE, "net")  # no name was resolved before


def test_a_silent_failure_is_not_explained_by_what_stood_in_its_file(jobs: Jobs) -> None:
    verdict = jobs.verdict("silent")
    assert verdict.label is Label.UNSURE
    assert "may hold lines from before this attempt" in verdict.summary


def test_whether_a_log_was_cut_is_known_though_its_job_failed_at_once(jobs: Jobs, cluster: SlurmCluster) -> None:
    """Accounting tells how a job was submitted seconds after it tells that it has ended."""
    cut, appended = (jobs.out / name for name in ("cut-at-once.out", "appended-at-once.out"))
    cut.write_text(f"{NO_NAME}\n")
    appended.write_text(f"{SHAPE}\n")
    time.sleep(1.0)
    begun_s = time.time()
    ids = [
        cluster.submit(f"echo '{SHAPE}'; exit 1", "--no-requeue", "-o", str(cut)),
        cluster.submit(f"echo '{NO_NAME}'; exit 1", "--no-requeue", "-o", str(appended), "--open-mode=append"),
    ]
    for job in ids:
        cluster.wait(job, lambda fields: fields.get("JobState") == "FAILED")
    backend = SlurmBackend(cluster.name, Tools(timeout_s=15.0, environment=cluster.env))
    attempts = {attempt.id.job_id: attempt for attempt in backend.observe(begun_s).attempts}
    first, second = (judge(backend.output(attempts[job]), attempts[job]) for job in ids)
    assert (first.label, first.category) == (Label.DETERMINISTIC, "shape")
    assert (second.label, second.category) == (Label.UNSURE, "unknown")
    assert "may hold lines from before this attempt" in second.summary


def test_a_typing_error_in_the_output_is_its_owners_mistake(jobs: Jobs) -> None:
    if (jobs.out / "typo").exists():
        pytest.skip("this version of Slurm makes the directory")
    attempt = jobs.attempts[jobs.ids["no directory"]]
    assert attempt.state in (AttemptState.LAUNCH_FAILED, AttemptState.FAILED)
    verdict = jobs.verdict("no directory")
    assert verdict.label is Label.DETERMINISTIC
    assert not verdict.infrastructure
    assert next(line.rule for line in verdict.evidence) == "output-directory-missing"
    assert f"{jobs.out}/typo" in verdict.summary


def test_what_cannot_be_read_is_said(jobs: Jobs) -> None:
    assert "it belongs to user 0" in jobs.verdict("foreign").summary
    assert f"its log {jobs.out}/removed.out is not there" in jobs.verdict("removed").summary


def test_names_are_written_out_as_slurm_does(jobs: Jobs) -> None:
    assert jobs.verdict("names").category == "shape"


def test_each_failure_is_judged_by_what_it_wrote_itself_and_its_log_is_kept(
    quiet_cluster: SlurmCluster, tmp_path: Path
) -> None:
    """One job appends to its file, where the first attempt's line stands still; Slurm cuts that of the other."""
    backend = SlurmBackend(quiet_cluster.name, Tools(timeout_s=15.0, environment=quiet_cluster.env))
    script = f"[ -z \"$SLURM_RESTART_COUNT\" ] && echo '{RESET}'; exit 1"
    with running(backend, tmp_path, look_every_s=1.0, armed=False) as service:
        engine = service.engine
        appending, cut = quiet_cluster.submit(script, "--open-mode=append"), quiet_cluster.submit(script)

        def verdicts(tried: int) -> list[Any]:
            """Those on the latest failures of jobs that have failed so often."""
            cases = [engine.state.cases.get(job) for job in (appending, cut)]
            latest = [case.failure for case in cases if case and len(case.past) == tried - 1]
            return [failure.verdict for failure in latest if failure and failure.verdict]

        await_(lambda: len(verdicts(1)) == 2)
        firsts = [engine.state.cases[job].failure.attempt.id for job in (appending, cut)]
        quiet_cluster.run("scontrol", "requeue", f"{appending},{cut}")
        await_(lambda: len(verdicts(2)) == 2, within_s=90.0)
        for second in verdicts(2):
            assert [line for line in second.evidence if line.line] == []
            assert "this attempt wrote nothing" in second.summary
        of_appending = engine.state.cases[appending].failure.verdict.logs[0]
        assert of_appending.start == of_appending.end == len(RESET) + 1
        desk = ServiceCommands(engine, "slurm", armed=False, switch=KillSwitch(tmp_path))
        for first in firsts:
            assert desk.log_text(first.job_id, first.incarnation, 1000) == f"{RESET}\n".encode()
            assert desk.kept_log(first.job_id, first.incarnation).endswith(".log.gz")
    assert (quiet_cluster.output / f"{cut}.out").read_text() == ""
