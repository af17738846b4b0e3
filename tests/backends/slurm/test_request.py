"""What a batch script asks for."""

from __future__ import annotations

import pytest

from perdure.backends.slurm.request import SbatchRequest, request_of
from perdure.errors import InputError
from perdure.waits.queue import Queue, QueuedPartition

QUEUE = Queue(0.0, (), (), (QueuedPartition("main", is_default=True, default_time_s=600.0), QueuedPartition("big")))


def asked(*lines: str) -> SbatchRequest:
    return request_of("\n".join(("#!/bin/bash", *lines)).encode())


@pytest.mark.parametrize(
    ("line", "gpus", "nodes"),
    [
        ("#SBATCH --gres=gpu:4", 4, 1),
        ("#SBATCH --gres=gpu:a100:2 -N 3", 6, 3),
        ("#SBATCH --gpus=5", 5, 1),
        ("#SBATCH -G h100:6 --nodes=2-4", 6, 2),
        ("#SBATCH --gpus-per-node=2 -N2", 4, 2),
        ("#SBATCH -n 8 --gpus-per-task=1 --ntasks-per-node=4", 8, 2),
        ("#SBATCH --gres gpu:1,tmp:5", 1, 1),
        ("#SBATCH -c 4", 0, 1),
    ],
)
def test_gpus_and_nodes_are_counted_however_they_are_asked_for(line: str, gpus: int, nodes: int) -> None:
    found = asked(line)
    assert (found.gpus, found.nodes) == (gpus, nodes)


def test_lines_behind_the_first_command_are_no_options() -> None:
    assert asked("# a comment", "#SBATCH -N 2", "", "echo hello", "#SBATCH -N 9").nodes == 2


def test_the_command_line_wins_over_the_script() -> None:
    found = request_of(b"#SBATCH -N 2 --time=10 -p main\n", ["--nodes=3", "-t", "20"])
    assert (found.nodes, found.walltime_s, found.partitions) == (3, 1200.0, ("main",))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), ("10:30", 630), ("1:00:00", 3600), ("1-0", 86400), ("1-12:30", 131_400), ("2-01:02:03", 176_523),
        ("UNLIMITED", None), ("0", None),
    ],
)  # fmt: skip
def test_limits_of_all_forms_that_sbatch_takes(text: str, seconds: float | None) -> None:
    assert asked(f"#SBATCH --time={text}").walltime_s == seconds


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --time=soon",
        "#SBATCH --nodes=two",
        "#SBATCH --gpus=x",
        "#SBATCH --gpus-per-node=a100:",
        "#SBATCH --comment='open",
    ],
)
def test_what_sbatch_refuses_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(line)
    assert "\n" not in str(caught.value)


def test_a_job_without_partition_and_time_has_those_of_the_default() -> None:
    job = asked("#SBATCH --gres=gpu:1").as_job(QUEUE, "mira", 7)
    assert (job.partitions, job.walltime_s, job.priority, job.gpus) == (("main",), 600.0, 7, 1)


def test_a_partition_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(InputError, match="main, big"):
        asked("#SBATCH -p man").as_job(QUEUE, "mira", 7)
