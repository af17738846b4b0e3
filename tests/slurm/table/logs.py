"""Where a job's output lies, and whose lines they are."""

from __future__ import annotations

import time
from collections.abc import Iterator

from perdure.backends.slurm.backend import MAKES_DIRECTORIES
from tests.slurm.table.programs import LOST_PEER, SHAPE, fails_with
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

LOGS = Group("logs")


@LOGS.row(quick=True)
def separate_error_file(stage: Stage) -> Iterator[None]:
    """`--output` and `--error` name two files; the traceback is in the second."""
    job = stage.submit(SHAPE, f"--error={stage.folder}/%j.err")
    yield
    stage.stopped(job)
    assert "mat1 and mat2" in stage.says(job)


@LOGS.row(quick=True)
def ranks_own_files(stage: Stage) -> Iterator[None]:
    """`srun -o rank.%j.%t.log`: a shape error in one rank's file, a closed connection in the other's."""
    ranks = f"""
cd {stage.folder}
srun -n 2 -o rank.%j.%t.log sh -c 'if [ $SLURM_PROCID = 1 ]
then {fails_with(SHAPE)}
else until grep -q mat1 rank.$SLURM_JOB_ID.1.log; do sleep 0.2; done; sleep 2
  echo "RuntimeError: Connection closed by peer [10.0.0.2]:29500"; exit 1; fi'
"""
    job = stage.submit(ranks, "-n", "2")
    yield
    stage.stopped(job)
    said = stage.says(job)
    assert "mat1 and mat2" in said
    assert "rank 1" in said or f"rank.{job}.1" in said


@LOGS.row()
def name_without_patterns(stage: Stage) -> Iterator[None]:
    """A backslash in `-o`: Slurm switches patterns off, writes to `run%j.out` and tells another name; it is found."""
    job = stage.submit(SHAPE, "-o", f"{stage.folder}/run\\%j.out")
    yield
    stage.stopped(job)
    assert [path.name for path in stage.folder.iterdir()] == ["run%j.out"]
    assert "mat1 and mat2" in stage.says(job)


@LOGS.row()
def same_failure_twice_in_a_ranks_file(stage: Stage) -> Iterator[None]:
    """An error that nobody knows comes back in a rank's file: the second time it is less likely to pass."""
    script = "srun -n 1 -o rank.%t.log sh -c 'echo \"FluxError: capacitor 7 refused\"; exit 3'"
    job = stage.submit(f"cd {stage.folder}\n{script}")
    yield
    stage.await_failures(job, 1)
    stage.site.await_outcome(job, "stopped", 150)
    chances = [each["decided"]["p_transient"] for each in reversed(stage.decisions(job))]
    assert chances == sorted(chances, reverse=True)
    assert len(stage.requeues(job)) <= 1


@LOGS.row(quick=True)
def shared_by_array_tasks(stage: Stage) -> Iterator[None]:
    """All tasks of an array write to one fixed `-o`: one fails with a traceback, one says nothing."""
    script = f"""
if [ $SLURM_ARRAY_TASK_ID = 1 ]; then {fails_with(SHAPE)}; fi
{stage.once()}
sleep 2; kill -9 $$
"""
    array = stage.submit(script, "--array=1-2", "-o", f"{stage.folder}/fixed.out", "--open-mode=append")
    stage.main = f"{array}_2"
    yield
    stage.recovered(f"{array}_2")
    assert len(stage.requeues(f"{array}_2")) == 1


@LOGS.row(quick=True)
def overwritten_by_the_next_job(stage: Stage) -> Iterator[None]:
    """The next job truncates the same `-o` and leaves its traceback there."""
    path = f"{stage.folder}/fixed.out"
    first = stage.submit(f"{stage.once()}sleep 1; kill -9 $$", "-o", path)
    second = stage.submit(fails_with(SHAPE), "-o", path, f"--dependency=afterany:{first}")
    yield
    stage.recovered(first)
    stage.site.await_outcome(second, "stopped")  # after a probing retry where it began as the first one ended


@LOGS.row(quick=True)
def silent_second_failure(stage: Stage) -> Iterator[None]:
    """`--open-mode=append`: the first attempt loses its peer, the second one fails without a word."""
    job = stage.submit(stage.once("exit 9") + LOST_PEER, "--open-mode=append")
    yield
    stage.await_failures(job, 2)
    latest = stage.verdicts(job)[0]
    assert "Connection reset" not in str(latest["evidence"])
    assert latest["category"] != stage.verdicts(job)[-1]["category"]


@LOGS.row(quick=True)
def old_error_before_a_new_one(stage: Stage) -> Iterator[None]:
    """An appended log holds an older job's shape error; this attempt cannot resolve a name."""
    path = stage.folder / "train.log"
    path.write_text("step 1 loss 0.5\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)\n")
    path.chmod(0o666)
    time.sleep(1.1)  # Slurm tells a start in whole seconds: a file that came into being in the same one is the job's
    error = "socket.gaierror: [Errno -3] Temporary failure in name resolution"
    script = f"{stage.once()}echo 'step 1 loss 0.4'; echo '{error}'; sleep 1; exit 1"
    job = stage.submit(script, "-o", str(path), "--open-mode=append")
    yield
    stage.recovered(job)
    assert len(stage.requeues(job)) == 1


@LOGS.row(quick=True)
def corrected_error_before_a_new_one(stage: Stage) -> Iterator[None]:
    """The attempt before met a shape error, since corrected, in the same appended log; now a name is not resolved."""
    shape = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)"
    name = "socket.gaierror: [Errno -3] Temporary failure in name resolution"
    script = f"""
    case "$SLURM_RESTART_COUNT" in
    "") echo 'step 1 loss 0.5'; echo '{shape}'; exit 1;;
    1) echo 'step 1 loss 0.4'; echo '{name}'; exit 1;;
    esac"""
    job = stage.submit(script, "--open-mode=append", "-o", f"{stage.folder}/train.log")
    yield
    stage.stopped(job)
    stage.cluster.run("scontrol", "requeue", job)
    stage.await_failures(job, 2)
    verdict = stage.verdicts(job)[0]
    assert verdict["category"] == "net", verdict
    assert not [line for line in verdict["evidence"] if line["text"] == shape], verdict


@LOGS.row(quick=True)
def silent_end_below_an_older_attempts_lines(stage: Stage) -> Iterator[None]:
    """An appended log has words on memory from a start that its owner put back, then one step and a silent end."""
    words = "slurmstepd: error: Job $SLURM_JOB_ID exceeded memory limit (2048 > 1024), being killed"
    script = f"""
    echo "=== job $SLURM_JOB_ID begins ==="
    if [ ! -e {stage.mark} ]; then touch {stage.mark}; echo "{words}"; scontrol requeue $SLURM_JOB_ID; sleep 60; fi
    echo 'step 1 loss 0.5'; exit 9"""
    job = stage.submit(script, "--open-mode=append")
    yield
    stage.site.await_outcome(job, "stopped", 150)
    assert len(stage.requeues(job)) == 1  # a probing one, as nobody knows
    for verdict in stage.verdicts(job):
        assert not [line for line in verdict["evidence"] if "memory" in line["text"]], verdict
    stage.check()


@LOGS.row(quick=True)
def misspelt_output(stage: Stage) -> Iterator[None]:
    """A typing error in `--output`: its folder does not exist, and cannot be made, which newer versions try."""
    (stage.folder / "lgos").write_text("a file")
    job = stage.submit("true", "-o", f"{stage.folder}/lgos/run/%j.out")
    yield
    stage.stopped(job)
    assert f"{stage.folder}/lgos" in stage.says(job)


@LOGS.row()
def output_directory_deleted(stage: Stage) -> Iterator[None]:
    """The job's output directory is deleted while it runs: without it 22.05 could not start a retry; 24.11 makes it."""
    logs = stage.folder / "logs"
    logs.mkdir(mode=0o1777)
    job = stage.submit(f"{stage.once()}rm -r {logs}; sleep 2; exit 1", "-o", f"{logs}/%j.out")
    yield
    if stage.cluster.run("scontrol", "--version").split()[-1] >= MAKES_DIRECTORIES:
        stage.recovered(job)
        return
    stage.stopped(job)
    assert f"mkdir -p {logs}" in stage.says(job)


@LOGS.row()
def output_where_its_user_may_not_write(stage: Stage) -> Iterator[None]:
    """`-o` in a colleague's private directory: no node changes that."""
    private = stage.folder / "private"
    private.mkdir(mode=0o700)
    job = stage.submit("true", "-o", f"{private}/%j.out", user="nobody")
    yield
    stage.stopped(job)
    assert "may not write its output there" in stage.says(job)


@LOGS.row(quick=True)
def names_of_nodes_and_jobs(stage: Stage) -> Iterator[None]:
    """`-o %x_%N_%A-%a_%u.log`: the node's name is not the host's, and the job's name stands in it."""
    array = stage.submit(fails_with(SHAPE), "--array=3", "-J", "fine tune", "-o", f"{stage.folder}/%x_%N_%A-%4a_%u.log")
    stage.main = f"{array}_3"
    yield
    stage.stopped(f"{array}_3")
    assert "mat1 and mat2" in stage.says(f"{array}_3")


@LOGS.row()
def torchrun_log_dir(stage: Stage) -> Iterator[None]:
    """`torchrun --log-dir`: a folder for each run, a file for each rank."""
    script = f"""
torchrun() {{ while [ "$1" != --log-dir ]; do shift; done
  mkdir -p $2/none_ab12/attempt_0/0 $2/none_ab12/attempt_0/1
  {{ {LOST_PEER.replace("exit 1", "true")} }} >$2/none_ab12/attempt_0/0/stderr.log 2>&1
  ( {SHAPE} ) >$2/none_ab12/attempt_0/1/stderr.log 2>&1
  return 1; }}
torchrun --nproc-per-node 2 --redirects 3 --log-dir {stage.folder}/tr train.py || exit 1
"""
    job = stage.submit(script)
    yield
    stage.stopped(job)
    assert "mat1 and mat2" in stage.says(job)


@LOGS.row()
def file_named_by_the_job(stage: Stage) -> Iterator[None]:
    """The program writes `train-JOBID.log` into its working directory; Slurm's own files stay empty."""
    job = stage.submit(f"( {SHAPE} ) >train-$SLURM_JOB_ID.log 2>&1", f"--chdir={stage.folder}")
    yield
    stage.stopped(job)
    assert "mat1 and mat2" in stage.says(job)


@LOGS.row()
def log_is_a_link(stage: Stage) -> Iterator[None]:
    """The log is a link to another user's file: it is not read, and that is said."""
    secret = stage.folder / "secret"
    secret.write_text("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)\n")
    secret.chmod(0o600)
    script = f"rm -f {stage.folder}/it.out; ln -s {secret} {stage.folder}/it.out; exit 1"
    job = stage.submit(script, "-o", f"{stage.folder}/it.out", user="nobody")
    yield
    stage.await_failures(job, 1)
    said = stage.says(job)
    assert "mat1 and mat2" not in said
    assert "belongs to user 0" in said


@LOGS.row()
def log_by_way_of_a_link_and_upward(stage: Stage) -> Iterator[None]:
    """`-o logs/%j.out`, where `logs` is a link that its owner made; `-o ../logs/%j.out` from below it."""
    scratch = stage.folder / "scratch" / "runs"
    scratch.mkdir(parents=True)
    for each in (scratch.parent, scratch):
        each.chmod(0o777)
    stage.cluster.run("ln", "-s", str(scratch), str(stage.folder / "logs"), user="nobody")
    linked = stage.submit(SHAPE, "-o", f"{stage.folder}/logs/%j.out", user="nobody")
    upward = stage.submit(SHAPE, "-D", str(scratch), "-o", "../runs/%j.out", user="nobody")
    sent = stage.submit(f"( {SHAPE} ) >../sent.log 2>&1", "-D", str(scratch), user="nobody")
    yield
    for job in (linked, upward, sent):
        stage.stopped(job)
        assert "mat1 and mat2" in stage.says(job)
    stage.check()


@LOGS.row()
def log_that_its_owner_cannot_read(stage: Stage) -> Iterator[None]:
    """The job takes its owner's right to read the log: that is said."""
    job = stage.submit(f"{SHAPE.replace('exit 1', '')}chmod 0 {stage.folder}/it.out; exit 1", "-o",
                       f"{stage.folder}/it.out", user="nobody")  # fmt: skip
    yield
    stage.await_failures(job, 1)
    assert "mat1 and mat2" not in stage.says(job)
    assert "it.out" in stage.says(job)


@LOGS.row()
def log_of_a_hundred_megabytes(stage: Stage) -> Iterator[None]:
    """The error is the last of two million lines."""
    job = stage.submit(f"yes 'step 1 loss 0.5 lr 0.001 tokens 4096' | head -n 2500000\n{SHAPE}")
    yield
    stage.stopped(job, 180)
    assert "mat1 and mat2" in stage.says(job)


@LOGS.row()
def output_sent_to_nowhere(stage: Stage) -> Iterator[None]:
    """`-o /dev/null`: there is nothing to read, and that is said."""
    job = stage.submit(SHAPE, "-o", "/dev/null")
    yield
    stage.await_failures(job, 1)
    assert "/dev/null" in stage.says(job)
