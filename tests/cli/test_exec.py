"""`perdure exec` hands the program over, options and all."""

import os
import subprocess
import sys


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
