"""What a batch script says of the jobs that it submits."""

import pytest

from perdure.backends.slurm.sbatch import asked_by


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ("#SBATCH --signal=B:USR1@80", (10, 80.0, "--signal=B:USR1@80")),
        ("#SBATCH -t 2 --signal SIGTERM@300 # save", (15, 300.0, "--signal=SIGTERM@300")),
        ("#SBATCH --signal='12'", (12, 60.0, "--signal=12")),
        ("#SBATCH --signal=usr2@5", (12, 5.0, "--signal=usr2@5")),
        ("#SBATCH --signal=TERM@9\n#SBATCH --signal=RB:INT@30", (2, 30.0, "--signal=RB:INT@30")),
        ("#SBATCH --signal=NONE@80", None),
        ("srun --signal=USR1@10 true", None),
        ("#SBATCH --time=2", None),
    ],
)
def test_the_signal_that_it_asks_for_before_its_walltime_is_read(
    options: str, warning: tuple[int, float, str] | None
) -> None:
    assert asked_by(f"#!/bin/sh\n{options}\nsleep 9\n".encode()).warning == warning


@pytest.mark.parametrize(
    ("script", "resubmits"),
    [
        ("#!/bin/sh\nsrun train\nsbatch next.sh\n", True),
        ("#!/bin/sh\ntrap 'scontrol requeue $SLURM_JOB_ID' USR1\n", True),
        ("#!/bin/sh\n#SBATCH -N1\n# then sbatch it\nsrun train\n", False),
    ],
)
def test_whether_a_script_submits_jobs_is_told(script: str, resubmits: bool) -> None:
    assert asked_by(script.encode()).resubmits is resubmits


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ("#SBATCH -p a,b", "a,b"),
        ("#SBATCH -N2 -pa,b-2 # both", "a,b-2"),
        ("#SBATCH --partition=a,b\n#SBATCH --partition c", "c"),
        ("#SBATCH --partition='a,b'", "a,b"),
        ("#SBATCH --comment=no-p", ""),
        ("srun -p a,b true", ""),
    ],
)
def test_the_partitions_that_it_asks_for_are_read(options: str, partitions: str) -> None:
    assert asked_by(f"#!/bin/sh\n{options}\nsleep 9\n".encode()).partitions == partitions
