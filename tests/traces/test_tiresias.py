"""Tiresias, Muri and Chronus: one form, three units."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import InputError
from perdure.traces.read import read
from tests.conftest import SCHEDULES

TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority\n"
)
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
    "best_effort,job_type\n"
)


@pytest.mark.parametrize(
    ("text", "form", "seconds"),
    [
        (TIRESIAS + "7,2,10,606,vgg19,164,30\n", "tiresias", 164),
        (MURI + "7,2,10,100,dqn,128,164000,30,490,446,8,0,1\n", "muri", 164),
        (CHRONUS + "7,vc_a,2,10,5049,vgg16,3,14,1105,10,0,strict\n", "chronus", 180),
    ],
)
def test_each_simulator_has_its_unit_of_time(file: Callable[..., Path], text: str, form: str, seconds: int) -> None:
    trace = read(file("jobs.csv.gz", text))
    assert trace.format == form
    assert trace.table.duration_s.tolist() == [seconds]
    assert trace.table.gpus.tolist() == [2]
    assert trace.table.job_id.tolist() == ["7"]


def test_chronus_jobs_without_gpus_are_left_out_and_counted(file: Callable[..., Path]) -> None:
    text = CHRONUS + "".join(f"{n},vc_a,{n % 2},10,5049,vgg16,3,14,1105,10,0,strict\n" for n in range(5))
    trace = read(file("jobs.csv", text))
    assert len(trace.table) == 2
    assert trace.left_out == {"no GPUs": 3}
    assert trace.table.vc.tolist() == ["vc_a", "vc_a"]


def test_an_id_that_comes_twice_is_refused_by_its_line(file: Callable[..., Path]) -> None:
    path = file("jobs.csv", TIRESIAS + "7,2,10,606,vgg19,164,30\n8,2,10,606,vgg19,164,30\n7,2,11,606,vgg19,164,30\n")
    with pytest.raises(InputError, match=r"jobs.csv:4: the job id was used before \(7\)"):
        read(path)
    assert read(path, skip_bad=True).left_out == {"the job id was used before": 1}


@pytest.mark.parametrize(
    ("name", "jobs", "left_out"),
    [
        ("traces/philly/chronus_trace_job_Philly_MIX1.csv.gz", 30_940 - 184, {"no GPUs": 184}),
        ("traces/philly/muri_trace2.csv.gz", 5_755, {}),
    ],
)
def test_the_public_lists_read_whole(
    public: Callable[[str], Path], name: str, jobs: int, left_out: dict[str, int]
) -> None:
    trace = read(public(name))
    assert len(trace.table) == jobs
    assert trace.left_out == left_out


def test_a_trace_of_ours_reads_whole() -> None:
    trace = read(SCHEDULES / "syn480.csv.gz")
    assert (len(trace.table), trace.left_out) == (480, {})
