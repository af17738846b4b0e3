"""Which jobs beside a failed one may have written to its files."""

import math
from typing import Any

import pytest

from perdure.backends.rank_files import rivals
from perdure.backends.slurm.outputs import JobOutputs, outputs_of
from perdure.backends.slurm.records import JobRecord, read_jobs
from perdure.backends.slurm.siblings import MAX_SIBLINGS, siblings, writing
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from tests.backends.slurm.text import MARK, job
from tests.copying import replace

START = 1_800_000_000


def record(number: int, start: int = 0, end: int | None = 100, **more: Any) -> JobRecord:
    (found,) = read_jobs(job(number).encode(), MARK).whole
    ended = None if end is None else START + end
    given = {"work_dir": "/w", "stdout": f"/w/slurm-{number}.out", "stderr": "", "nodes": ("n7",)} | more
    return replace(found, start_s=START + start, end_s=ended, **given)


def attempt(number: int = 17) -> Attempt:
    return Attempt(AttemptId("c", str(number), 0), AttemptState.FAILED, ("n7",), START, START + 100.0)


def written(record: JobRecord, script: str) -> JobOutputs:
    return outputs_of(record, script.encode(), {})


def test_siblings_are_others_of_one_user_in_one_directory_that_have_run() -> None:
    mine = record(17)
    beside = [record(18), record(19, work_dir="/other"), record(20, uid=4), record(21, nodes=()), mine]
    assert [r.job_id for r in siblings(mine, beside)] == ["18"]
    het = record(17, job_id="17+1")
    assert siblings(mine, [het]) == ()


def test_of_many_the_latest_count() -> None:
    many = [record(100 + at, start=at) for at in range(2 * MAX_SIBLINGS)]
    assert siblings(record(17), reversed(many)) == tuple(many[-MAX_SIBLINGS:])


@pytest.mark.parametrize(
    ("start", "end", "counts"),
    [(-50, -1, False), (-50, 0, True), (50, None, True), (104, None, True), (200, None, False)],
)
def test_only_who_ran_at_the_same_time_can_have_written(start: int, end: int | None, counts: bool) -> None:
    beside = record(18, start, end)
    found = rivals("/w/run.log", attempt(), writing([beside], {"18": written(beside, "python t.py | tee -a run.log")}))
    assert [span.job_id for span in found] == (["18"] if counts else [])
    assert all(span.end_s == math.inf for span in found if end is None)


@pytest.mark.parametrize(
    ("script", "path", "counts"),
    [
        ("python t.py > run.log", "/w/run.log", True),
        ("python t.py > run.log", "/w/other.log", False),
        ("python t.py > log_$LR.txt", "/w/log_0.1.txt", True),
        ("python t.py > log_$LR.txt", "/w/sub/log_0.1.txt", False),
        ("lr=$1; python t.py > log_${1:-x}.txt", "/w/log_0.1.txt", True),
        ("torchrun --log-dir=logs t.py", "/w/logs/r1/attempt_0/0/stderr.log", True),
        ("python t.py > $SLURM_JOB_ID.log", "/w/17.log", False),
        ("", "/w/run.log", False),
    ],
)
def test_its_script_tells_where_it_writes(script: str, path: str, counts: bool) -> None:
    beside = record(18)
    assert bool(rivals(path, attempt(), writing([beside], {"18": written(beside, script)}))) is counts


def test_who_is_not_known_may_write_anywhere() -> None:
    assert rivals("/w/run.log", attempt(), writing([record(18)], {}))


def test_arguments_are_written_out() -> None:
    (outputs,) = [written(record(17, command="/h/job.sh 0.1 x"), "lr=$1\npython t.py > log_$lr.txt")]
    assert outputs.files.plain == ("/w/log_0.1.txt",)


@pytest.mark.parametrize(
    ("job_id", "path", "own"),
    [
        ("6000_3", "/w/slurm-6000_3.out", True),
        ("6000_3", "/w/slurm-6000_2.out", False),
        ("6000_3", "/w/train-6000.log", True),
        ("6000_3", "/w/train_6000_rank.log", True),
        ("6000", "/w/slurm-6000_2.out", True),  # no array: rank 2
    ],
)
def test_the_last_task_of_an_array_has_its_number(job_id: str, path: str, own: bool) -> None:
    assert written(replace(record(6000), job_id=job_id), "true").bears_id(path) is own
