"""What a batch script says of the jobs that it submits."""

import pytest

from perdure.backends.slurm.script import read_script


@pytest.mark.parametrize(
    ("script", "resubmits"),
    [
        ("#!/bin/sh\nsrun train\nsbatch next.sh\n", True),
        ("#!/bin/sh\ntrap 'scontrol requeue $SLURM_JOB_ID' USR1\n", True),
        ("#!/bin/sh\n#SBATCH -N1\n# then sbatch it\nsrun train\n", False),
    ],
)
def test_whether_a_script_submits_jobs_is_told(script, resubmits):
    assert read_script(script.encode(), {}, {}).resubmits is resubmits
