"""Alibaba's PAI: two tables without headers, joined by the names of jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import InputError
from perdure.model.table import TableEnding
from perdure.traces.read import read

JOBS = """a1,i1,ann,Terminated,1000.0,1500.0
b2,i2,bob,Failed,1100.0,1300.0
c3,i3,ann,Running,1200.0,
d4,i4,ann,Waiting,1300.0,
e5,i5,cy,Terminated,1400.0,1500.0
f6,i6,cy,Failed,1500.0,1600.0
"""
TASKS = """a1,ps,1.0,Terminated,1020.0,1500.0,600.0,29.3,,CPU
a1,worker,2.0,Terminated,1010.0,1490.0,400.0,29.3,50.0,T4
b2,tensorflow,3.0,Failed,1150.0,1300.0,150.0,10.0,200.0,V100
c3,tensorflow,1.0,Running,1250.0,,600.0,29.3,100.0,MISC
e5,tensorflow,1.0,Terminated,1410.0,1500.0,600.0,29.3,0.0,CPU
f6,tensorflow,1.0,Failed,,,600.0,29.3,100.0,MISC
zz,tensorflow,9.0,Terminated,1.0,2.0,600.0,29.3,100.0,MISC
"""


@pytest.fixture
def tables(file: Callable[..., Path]) -> Callable[..., Path]:
    def write(jobs: str = JOBS, tasks: str = TASKS, suffix: str = "") -> Path:
        file(f"pai_task_table.csv{suffix}", tasks)
        return file(f"pai_job_table.csv{suffix}", jobs)

    return write


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_job_holds_the_gpus_of_all_its_tasks_from_the_first_start_to_the_last_end(
    tables: Callable[..., Path], suffix: str
) -> None:
    trace = read(tables(suffix=suffix))
    jobs = trace.table
    assert (trace.format, jobs.job_id.tolist(), jobs.user.tolist()) == ("pai", ["a1", "b2"], ["ann", "bob"])
    assert (jobs.gpus.tolist(), jobs.cpus.tolist(), jobs.gpu_type.tolist()) == ([2, 6], [14, 5], ["T4", "V100"])
    assert jobs.mem_mib.tolist() == [90010, 30720]  # of three instances of 29.3 GiB, and of three of 10
    assert (jobs.submit_s.tolist(), jobs.start_s.tolist()) == ([0.0, 100.0], [10.0, 150.0])
    assert (jobs.duration_s.tolist(), jobs.end_s.tolist()) == ([490.0, 150.0], [500.0, 300.0])
    assert jobs.ending.tolist() == [TableEnding.PASSED, TableEnding.FAILED]
    assert (jobs.began_s, trace.left_out) == (1000.0, {"never started": 2, "not ended yet": 1, "no GPUs": 1})
    assert trace.notes == ("1 jobs share GPUs; each instance counts as one whole GPU",)
    assert [path.name for path in trace.beside] == [f"pai_task_table.csv{suffix}"]


def test_a_job_that_runs_has_not_ended_though_all_its_tasks_have(tables: Callable[..., Path]) -> None:
    trace = read(
        tables(tasks=TASKS.replace("c3,tensorflow,1.0,Running,1250.0,,", "c3,tensorflow,1.0,Failed,1250.0,1260.0,"))
    )
    assert trace.table.job_id.tolist() == ["a1", "b2"]
    assert trace.left_out["not ended yet"] == 1


def test_in_what_order_tasks_are_listed_does_not_matter(tables: Callable[..., Path]) -> None:
    plain = read(tables()).table
    turned = read(tables(tasks="".join(reversed(TASKS.splitlines(keepends=True))))).table
    for name in ("job_id", "gpus", "cpus", "mem_mib", "gpu_type", "start_s", "end_s"):
        assert getattr(turned, name).tolist() == getattr(plain, name).tolist(), name


def test_names_above_the_columns_do_no_harm(tables: Callable[..., Path]) -> None:
    plain = read(tables())
    jobs = "job_name,inst_id,user,status,start_time,end_time\n" + JOBS
    tasks = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n" + TASKS
    named = read(tables(jobs, tasks))
    assert named.table.gpus.tolist() == plain.table.gpus.tolist()
    assert named.left_out == plain.left_out


def test_without_its_tasks_a_table_of_jobs_tells_no_gpus(file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"pai_task_table\.csv: the GPUs of PAI's jobs .* Put it next to"):
        read(file("pai_job_table.csv", JOBS))
    with pytest.raises(InputError, match="Put it next to"):
        read(file("trace.csv", JOBS))


def test_a_bad_row_is_named_by_its_line_in_its_own_table(tables: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"pai_job_table\.csv:7: start_time is not a number"):
        read(tables(JOBS + "g7,i7,ann,Failed,soon,1.0\n"))
    with pytest.raises(InputError, match=r"pai_task_table\.csv:8: plan_gpu is not a number"):
        read(tables(tasks=TASKS + "b2,x,1.0,Failed,1.0,2.0,600.0,29.3,lots,T4\n"))
    found = read(tables(tasks=TASKS + "b2,x,1.0,Failed,1.0,2.0,600.0,29.3,lots,T4\n"), skip_bad=True)
    assert found.left_out["the row cannot be read (of a task)"] == 1
    assert found.table.job_id.tolist() == ["a1", "b2"]
