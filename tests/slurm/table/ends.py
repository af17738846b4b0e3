"""How programs end: exit codes, signals, limits."""

from __future__ import annotations

from collections.abc import Iterator

from tests.slurm.cluster import await_
from tests.slurm.table.programs import LOST_PEER, OUT_OF_MEMORY, SHAPE, fails_with
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

ENDS = Group("ends")


def _signalled(stage: Stage, *words: str, script: str = "") -> tuple[str, Iterator[None]]:
    """A job that is at work, as its mark tells, when its owner sends a signal to it."""
    job = stage.submit(f"echo step 1; {script or f'touch {stage.mark}; sleep 600 & wait'}")

    def rest() -> Iterator[None]:
        yield
        stage.await_begun(job)
        stage.cluster.run("scancel", *words, job)

    return job, rest()


def _with_step(stage: Stage, then: str, begin: str = "") -> str:
    """A job whose step has two ranks."""
    step = f"srun -n 2 sh -c 'touch {stage.mark}-$SLURM_PROCID; exec sleep 600'"
    return stage.submit(f"{begin}echo step 1; {step}; {then}", "-n", "2")


def _signal_step(stage: Stage, job: str, signal: str = "") -> None:
    """Send a signal to the step once both ranks are at work; cancel it where none is named."""
    stage.site.await_known(job)
    for rank in range(2):
        await_(f"rank {rank}", stage.mark.with_name(f"mark-{rank}").exists)
    stage.cluster.run("scancel", *(("-s", signal) if signal else ()), f"{job}.0")


@ENDS.row(quick=True)
def unknown_failure(stage: Stage) -> Iterator[None]:
    """Exit code 1, and nothing in the log tells why: one probing retry, then a stop."""
    job = stage.submit("echo step 1; sleep 1; exit 1")
    yield
    stage.site.await_outcome(job, "stopped", 150)
    assert len(stage.requeues(job)) == 1
    assert stage.states(job) == ["FAILED", "FAILED"] or stage.states(job) == ["REQUEUED", "FAILED"]
    stage.check()


@ENDS.row(quick=True)
def deterministic(stage: Stage) -> Iterator[None]:
    """A shape error."""
    job = stage.submit(SHAPE)
    yield
    stage.stopped(job)
    stage.check()


@ENDS.row(quick=True)
def transient(stage: Stage) -> Iterator[None]:
    """A peer resets the connection, once."""
    job = stage.submit(stage.once() + LOST_PEER)
    yield
    stage.recovered(job)
    assert len(stage.requeues(job)) == 1
    stage.check()


@ENDS.row()
def walltime_warning(stage: Stage) -> Iterator[None]:
    """`#SBATCH --signal=B:USR1@50` without a trap, and `sbatch --signal=TERM@50` with `perdure:timeout=requeue`."""
    job = stage.submit("#SBATCH --signal=B:USR1@50\nsleep 100", "-t", "1")
    again = f"[ -e {stage.mark} ] && exit 0; touch {stage.mark}; srun -n 1 sleep 100"
    saves = stage.submit(again, "-t", "1", "--signal=TERM@50", "--comment=perdure:timeout=requeue")
    yield
    stage.stopped(job)
    assert "its walltime warning ended it (--signal=B:USR1@50" in stage.says(job)
    stage.recovered(saves)
    assert "its walltime warning ended it (--signal=TERM@50" in stage.says(saves)
    assert "its owner asks for it" in stage.says(saves)
    stage.check()


@ENDS.row()
def caught_walltime_warning(stage: Stage) -> Iterator[None]:
    """`#SBATCH --signal=B:USR1@50`, which its script catches, saves and ends with exit code 85: no retry."""
    script = "#SBATCH --signal=B:USR1@50\ntrap 'echo saving; exit 85' USR1; echo step 1; sleep 100 & wait"
    job = stage.submit(script, "-t", "1")
    yield
    stage.stopped(job)
    assert "when its walltime was near, as --signal=B:USR1@50 shows: it would take as long again" in stage.says(job)


@ENDS.row(quick=True)
def cancelled(stage: Stage) -> Iterator[None]:
    """`scancel JOB`."""
    job, rest = _signalled(stage)
    next(rest)
    yield
    next(rest, None)
    stage.cluster.wait(job, lambda fields: fields["JobState"] == "CANCELLED")
    stage.left_alone(job)


@ENDS.row(quick=True)
def sent_term(stage: Stage) -> Iterator[None]:
    """`scancel -s TERM -f JOB`: Slurm says FAILED 0:15, JobLaunchFailure."""
    job, rest = _signalled(stage, "-s", "TERM", "-f")
    next(rest)
    yield
    next(rest, None)
    stage.stopped(job)
    assert "never got as far" not in stage.says(job)


@ENDS.row(quick=True)
def sent_int(stage: Stage) -> Iterator[None]:
    """`scancel -s INT -f JOB`: Slurm says FAILED 0:2, JobLaunchFailure."""
    job, rest = _signalled(stage, "-s", "INT", "-f")
    next(rest)
    yield
    next(rest, None)
    stage.stopped(job)
    assert "never got as far" not in stage.says(job)


@ENDS.row(quick=True)
def sent_int_to_its_program(stage: Stage) -> Iterator[None]:
    """`scancel -s INT JOB`, without `-f`: the program under `srun` is interrupted, Slurm says FAILED 130."""
    job, rest = _signalled(stage, "-s", "INT", script=f"srun sh -c 'touch {stage.mark}; exec sleep 600'")
    next(rest)
    yield
    next(rest, None)
    stage.stopped(job)
    assert "scancel -s INT" in stage.says(job)


@ENDS.row(quick=True)
def sent_term_that_it_catches(stage: Stage) -> Iterator[None]:
    """`scancel --batch -s TERM JOB`, which its script catches, saves and ends with exit code 1."""
    catches = f"trap 'echo caught TERM, saving; exit 1' TERM; touch {stage.mark}; sleep 600 & wait"
    job, rest = _signalled(stage, "--batch", "-s", "TERM", script=catches)
    next(rest)
    yield
    next(rest, None)
    stage.stopped(job)
    assert "was told to end the job" in stage.says(job)


@ENDS.row(quick=True)
def step_cancelled(stage: Stage) -> Iterator[None]:
    """`scancel JOB.STEP`, upon which its script ends with exit code 7: a person's word, and no failed rank."""
    job = _with_step(stage, "exit 7")
    yield
    _signal_step(stage, job)
    stage.stopped(job)
    assert "its step was cancelled" in stage.says(job)
    stage.check()


@ENDS.row(quick=True)
def step_sent_usr1(stage: Stage) -> Iterator[None]:
    """`scancel -s USR1 JOB.STEP`, which its program does not catch; its script ends with exit code 7."""
    job = _with_step(stage, "exit 7")
    yield
    _signal_step(stage, job, "USR1")
    stage.stopped(job)
    assert "scancel -s" in stage.says(job)
    stage.check()


@ENDS.row()
def step_sent_hup(stage: Stage) -> Iterator[None]:
    """`scancel -s HUP JOB.STEP`, of which nothing but srun's word is kept; its script ends with the step's code."""
    job = _with_step(stage, "exit $?")
    yield
    _signal_step(stage, job, "HUP")
    stage.stopped(job)
    assert "scancel -s" in stage.says(job)


@ENDS.row()
def step_sent_term(stage: Stage) -> Iterator[None]:
    """`scancel -s TERM JOB.STEP`: the step daemon reports it, as for `scancel JOB.STEP`."""
    job = _with_step(stage, "exit $?")
    yield
    _signal_step(stage, job, "TERM")
    stage.stopped(job)
    assert "its step was cancelled" in stage.says(job)


@ENDS.row()
def step_sent_kill(stage: Stage) -> Iterator[None]:
    """`scancel -s KILL JOB.STEP`: Slurm keeps no word of who did it, as of any `kill -9`: one probing retry."""
    job = _with_step(stage, "exit $?", begin=stage.once())
    yield
    _signal_step(stage, job, "KILL")
    stage.recovered(job)
    assert len(stage.requeues(job)) == 1
    assert "nothing says by whom" in stage.says(job)
    assert stage.decisions(job)[-1]["decided"]["kind"] == "probe"
    stage.check()


@ENDS.row()
def sent_usr1(stage: Stage) -> Iterator[None]:
    """`scancel -s USR1 -f JOB`, which its script does not catch."""
    job, rest = _signalled(stage, "-s", "USR1", "-f")
    next(rest)
    yield
    next(rest, None)
    stage.stopped(job)


@ENDS.row()
def sent_kill(stage: Stage) -> Iterator[None]:
    """`scancel -s KILL -f JOB`: Slurm takes it for a plain `scancel`."""
    job, rest = _signalled(stage, "-s", "KILL", "-f")
    next(rest)
    yield
    next(rest, None)
    stage.cluster.wait(job, lambda fields: fields["JobState"] == "CANCELLED")
    stage.left_alone(job)


@ENDS.row(quick=True)
def script_crashes(stage: Stage) -> Iterator[None]:
    """The batch script dies of SIGSEGV each time: never called a launch failure, tried once more at most."""
    job = stage.submit("echo step 1; sleep 1; kill -SEGV $$")
    yield
    stage.site.await_outcome(job, "stopped", 150)
    assert len(stage.requeues(job)) <= 1
    assert "never got as far" not in stage.says(job)


@ENDS.row()
def script_aborts(stage: Stage) -> Iterator[None]:
    """The batch script dies of SIGABRT each time: the same end makes the next less likely to be another."""
    job = stage.submit("echo step 1; sleep 1; kill -ABRT $$")
    yield
    stage.site.await_outcome(job, "stopped", 150)
    assert len(stage.requeues(job)) <= 2


@ENDS.row(quick=True)
def program_not_found(stage: Stage) -> Iterator[None]:
    """`srun /nonsense/train.py`."""
    job = stage.submit("srun /nonsense/train.py")
    yield
    record = stage.stopped(job)
    assert record["verdicts"][-1]["component"] == "scheduler"
    stage.check()


@ENDS.row()
def command_not_found(stage: Stage) -> Iterator[None]:
    """The shell does not find the program: exit code 127."""
    job = stage.submit("torchrunn train.py")
    yield
    stage.stopped(job)


@ENDS.row()
def make_runs_the_program(stage: Stage) -> Iterator[None]:
    """`make train`, whose program loses its peer: make's own line does not hide that."""
    said = "echo 'make: *** [Makefile:3: train] Error 1' >&2; exit 2"  # make itself is not on every machine
    job = stage.submit(f"{stage.once()}( {LOST_PEER} )\n{said}")
    yield
    stage.recovered(job)
    assert "a peer closed the connection" in stage.says(job)
    stage.check()


@ENDS.row()
def killed_under_timeout(stage: Stage) -> Iterator[None]:
    """`timeout -s KILL 2 python train.py` reaches that limit: nobody is looked for who killed it."""
    job = stage.submit("echo step 1\nbash -c 'timeout -s KILL 2 sleep 600; exit $?'")
    yield
    stage.stopped(job)
    assert "timeout killed the program at its limit" in stage.says(job)


@ENDS.row()
def not_executable(stage: Stage) -> Iterator[None]:
    """The program may not be executed: exit code 126."""
    job = stage.submit(f"touch {stage.folder}/train; {stage.folder}/train")
    yield
    stage.stopped(job)


@ENDS.row()
def asks_for_a_retry(stage: Stage) -> Iterator[None]:
    """Exit code 75, and the site requeues on it (RequeueExit=75): Slurm's own doing is left at that."""
    job = stage.submit(f"{stage.once()}echo step 1; exit 75")
    yield
    stage.done(job)
    assert stage.requeues(job) == []
    stage.check()


@ENDS.row()
def asks_not_to_be_run_again(stage: Stage) -> Iterator[None]:
    """Exit code 93: NVIDIA's resiliency extension says that a restart makes no progress."""
    job = stage.submit("echo step 1; exit 93")
    yield
    stage.stopped(job)


@ENDS.row()
def held_by_the_sites_rule(stage: Stage) -> Iterator[None]:
    """Exit code 78, and the site holds on it (RequeueExitHold=78): it stays held."""
    job = stage.submit("echo step 1; exit 78")
    yield
    stage.cluster.wait(job, lambda fields: fields["JobState"] in ("SPECIAL_EXIT", "PENDING"))
    stage.await_failures(job, 1)
    assert stage.requeues(job) == []
    assert stage.cluster.job(job)["Restarts"] in ("0", "1")
    assert stage.cluster.job(job)["JobState"] != "RUNNING"


@ENDS.row()
def gpu_memory(stage: Stage) -> Iterator[None]:
    """CUDA out of memory."""
    job = stage.submit(OUT_OF_MEMORY)
    yield
    stage.stopped(job)
    stage.check()


@ENDS.row(quick=True)
def killed_rank(stage: Stage) -> Iterator[None]:
    """One of two ranks is killed (signal 9), once; `--kill-on-bad-exit` ends the other."""
    script = f"""
srun -n 2 --kill-on-bad-exit=1 sh -c '[ $SLURM_PROCID = 1 ] && [ ! -e {stage.mark} ] && touch {stage.mark} &&
kill -9 $$; sleep 2'
"""
    job = stage.submit(script, "-n", "2")
    yield
    record = stage.recovered(job)
    assert record["verdicts"][-1]["component"] == "scheduler"
    assert stage.states(job)[1:] == ["COMPLETED"]
    stage.check()


@ENDS.row()
def rank_with_a_code_of_its_own(stage: Stage) -> Iterator[None]:
    """One of two ranks exits with code 3; `srun -K` ends the other by signal 15: as a plain `exit 3`, one retry."""
    job = stage.submit("srun -n 2 -K sh -c '[ $SLURM_PROCID = 1 ] && exit 3; sleep 60'", "-n", "2")
    yield
    stage.site.await_outcome(job, "stopped", 150)
    assert len(stage.requeues(job)) == 1
    assert "exit code 3" in stage.says(job)
    assert "from outside" not in stage.says(job)


@ENDS.row()
def asked_too_often(stage: Stage) -> Iterator[None]:
    """A hub answers HTTP 429 at the first start: the retry waits, and may go to the same node."""
    said = "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://hub/api"
    job = stage.submit(f"{stage.once()}echo '{said}' >&2; exit 1")
    yield
    stage.recovered(job, 240)  # it waits for a minute
    assert [act["exclude"] for act in stage.requeues(job)] == [[]]
    assert "the node did nothing wrong" in stage.says(job)


@ENDS.row()
def step_that_its_script_survived(stage: Stage) -> Iterator[None]:
    """`srun ... || true` fails by a shape error, and the script ends later with exit code 7: one retry tells."""
    job = stage.submit(f"srun sh -c '{fails_with(SHAPE)}' || true\n{stage.once()}exit 7")
    yield
    stage.recovered(job)
    assert "its script went on after that step" in stage.says(job)
    assert len(stage.requeues(job)) == 1


@ENDS.row()
def last_word_names_the_problem(stage: Stage) -> Iterator[None]:
    """`sys.exit("config.yaml: unknown optimiser")` below srun: its own word, new here: a probe, then a stop."""
    said = "config.yaml: unknown optimiser adamx"
    job = stage.submit(f"echo loading\nsrun sh -c 'echo {said} >&2; exit 1' || exit 1")
    yield
    stage.site.await_outcome(job, "stopped", 150)
    assert len(stage.requeues(job)) == 1
    assert said in stage.says(job)
    stage.check()


@ENDS.row()
def step_in_the_background(stage: Stage) -> Iterator[None]:
    """A step in the background fails; the script waits for it and passes its code on."""
    job = stage.submit(f"srun -n 1 sh -c '{SHAPE.replace(chr(39), chr(34))}' & wait $!")
    yield
    stage.stopped(job)
    assert "mat1 and mat2" in stage.says(job)


@ENDS.row()
def step_whose_code_is_lost(stage: Stage) -> Iterator[None]:
    """A step in the background fails, and the script ends with 0: the job went well, by its owner's word."""
    job = stage.submit("srun -n 1 sh -c 'exit 3' & wait; exit 0")
    yield
    stage.done(job)
    stage.left_alone(job)


@ENDS.row()
def time_limit(stage: Stage) -> Iterator[None]:
    """The walltime is reached, and its owner did not opt in: it would take as long again."""
    job = stage.submit("echo step 1; sleep 600", "--time=1")
    yield
    stage.site.await_outcome(job, "stopped", 240)
    assert stage.requeues(job) == []


@ENDS.row()
def time_limit_of_a_step(stage: Stage) -> Iterator[None]:
    """`srun -t 1` in a job of ten minutes: the step's own limit is reached, not the walltime."""
    job = stage.submit("srun -t 1 sleep 600", "--time=10")
    yield
    stage.site.await_outcome(job, "stopped", 240)
    assert stage.requeues(job) == []
    assert "srun -t" in stage.says(job)


@ENDS.row()
def time_limit_of_a_job_that_goes_on(stage: Stage) -> Iterator[None]:
    """The walltime is reached; `--comment=perdure:timeout=requeue`, and the second start ends the work."""
    job = stage.submit(f"{stage.once('echo step 9; exit 0')}echo step 1; sleep 600", "--time=1",
                       "--comment=perdure:timeout=requeue", "--open-mode=append")  # fmt: skip
    yield
    stage.recovered(job, 300)
    assert len(stage.requeues(job)) == 1


@ENDS.row()
def deadline(stage: Stage) -> Iterator[None]:
    """The job's `--deadline` passes."""
    job = stage.submit("sleep 600", "--deadline=now+75seconds", "--time=1", "--time-min=1")
    yield
    stage.cluster.wait(job, lambda fields: fields["JobState"] in ("DEADLINE", "TIMEOUT"), 240)
    stage.await_failures(job, 1, 60)
    assert stage.requeues(job) == []


@ENDS.row()
def many_tasks_fail_at_once(stage: Stage) -> Iterator[None]:
    """A storm: 24 tasks of an array lose the same store at once; each is put back once."""
    array = stage.submit(stage.once_each() + LOST_PEER, "--array=1-24")
    stage.main = f"{array}_1"
    yield
    for task in range(1, 25):
        stage.recovered(f"{array}_{task}", 300)
    for task in range(1, 25):
        assert len(stage.requeues(f"{array}_{task}")) == 1
