"""The partitions that a job may start in, of which Slurm tells only while it waits."""

from typing import Any

import pytest

from perdure.backends.slurm.outputs import outputs_of
from perdure.backends.slurm.partitions import Partitions
from perdure.backends.slurm.records import JobRecord, read_jobs
from tests.backends.slurm.text import MARK, job
from tests.copying import replace


def record(number: int = 7, partition: str = "a", **words: Any) -> JobRecord:
    (found,) = read_jobs(job(number, **words).encode(), MARK).whole
    return replace(found, partition=partition)


def waiting(partition: str, **words: Any) -> JobRecord:
    return record(partition=partition, state="PENDING", start="Unknown", nodes="(null)", **words)


def failed(partition: str = "a", **words: Any) -> JobRecord:
    return record(partition=partition, state="FAILED", exit_code="3:0", end="110", **words)


def listed(known: Partitions, now: JobRecord, script: str = "") -> str:
    outputs = {now.job_id: outputs_of(now, script.encode(), {})} if script else {}
    (found,) = known.of_ended([now], outputs)
    return found.partition


def test_what_was_told_while_it_waited_is_told_of_its_failure() -> None:
    known = Partitions()
    known.note([waiting("b,a")])
    known.note([record(partition="a")])
    assert (listed(known, record(partition="a")), listed(known, failed())) == ("a", "b,a")


def test_of_an_array_the_waiting_record_tells() -> None:
    known = Partitions()
    known.note([waiting("b,a")])
    assert listed(known, replace(failed(), job_id="7_2")) == "b,a"


@pytest.mark.parametrize("now", [failed("c"), record(partition="a", state="COMPLETED", end="110")])
def test_a_job_that_was_moved_or_went_well_keeps_the_one_that_slurm_tells(now: JobRecord) -> None:
    known = Partitions()
    known.note([waiting("b,a")])
    assert listed(known, now) == now.partition


def test_its_owner_may_take_one_back() -> None:
    known = Partitions()
    known.note([waiting("b,a")])
    known.note([waiting("a")])
    assert listed(known, failed()) == "a"


def test_of_a_job_that_never_waited_its_script_tells() -> None:
    assert listed(Partitions(), failed(), "#!/bin/sh\n#SBATCH -p a,b\ntrue\n") == "a,b"
    assert listed(Partitions(), failed(), "#!/bin/sh\n#SBATCH -p b,c\ntrue\n") == "a"


def test_what_the_controller_has_forgotten_is_forgotten() -> None:
    known = Partitions()
    known.note([waiting("b,a")])
    known.note([record(8)])
    assert listed(known, failed()) == "a"
