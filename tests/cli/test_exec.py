"""`perdure exec` hands the program over, options and all."""

import os
import subprocess
import sys

import pytest

from perdure.job import report, tracks


def run(tmp_path, *words, **variables):
    env = {**os.environ, "PERDURE_JOB_ID": "7", "PERDURE_INCARNATION": "1", **variables}
    return subprocess.run(
        [sys.executable, "-m", "perdure", "exec", *words],
        cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_options_of_the_program_are_the_programs_with_and_without_dashes(tmp_path):
    for dashes in ([], ["--"]):
        ran = run(tmp_path, *dashes, "sh", "-c", 'echo "$@"; exit 5', "sh", "--json", "-h")
        assert (ran.stdout, ran.returncode) == ("--json -h\n", 5)


def test_outside_of_a_job_it_is_refused_in_one_line(tmp_path):
    ran = run(tmp_path, "--", "true", PERDURE_JOB_ID="", SLURM_JOB_ID="")
    assert ran.returncode == 2
    assert ran.stderr == "perdure: exec: neither PERDURE_JOB_ID nor SLURM_JOB_ID is set. Run it inside a job.\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--signal-before", "soon"], "'soon' is not SECONDS[:SIGNAL]. Say for example 120:USR1."),
        (["--hang-signal", "USR9"], "'USR9' is none. Name one such as TERM, USR1 or USR2."),
        (["--framework", "x"], "'x' is none. Name one of auto, torchrun, lightning, submitit, plain."),
    ],
)
def test_settings_that_cannot_be_used_are_refused_in_one_line(tmp_path, options, complaint):
    ran = run(tmp_path, *options, "--", "true")
    assert (ran.returncode, ran.stderr) == (2, f"perdure: {options[0]}: {complaint}\n")


def test_settings_reach_the_launcher(tmp_path):
    """Walltime is over already: the program is told at the first look, by the signal that was named."""
    code = "import signal, sys, time; signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75)); time.sleep(60)"
    options = ["--signal-before", "60:USR2", "--hang-after", "0", "--framework", "plain"]
    ran = run(tmp_path, *options, "--", sys.executable, "-c", code, SLURM_JOB_END_TIME="1")
    assert ran.returncode == 75
    (task,) = tracks.tasks(tmp_path / ".perdure" / "7")
    assert report.read(task.last_breath).reason is report.Reason.WALLTIME
