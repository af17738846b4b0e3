"""The Standard Workload Format: -1 is unknown, and some files have 19 or 21 columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.table import TableEnding
from perdure.traces.read import read

HEAD = "; Computer: IBM SP2\n; UnixStartTime: 835823160\n"


def line(
    job: int = 1,
    submit: int = 0,
    wait: int = 5,
    run: int = 10,
    procs: int = 4,
    asked: int = 4,
    limit: int = 60,
    status: int = 1,
    user: int = 7,
    queue: int = 3,
) -> str:
    return f"{job} {submit} {wait} {run} {procs} -1 -1 {asked} {limit} -1 {status} {user} 1 -1 {queue} -1 -1 -1"


def test_a_log_is_read_column_by_column(file: Callable[..., Path]) -> None:
    trace = read(file("log.swf.gz", HEAD + line(submit=100) + "\n" + line(job=2, submit=160, status=5) + "\n"))
    jobs = trace.table
    assert trace.format == "swf"
    assert jobs.began_s == 835823260
    assert jobs.submit_s.tolist() == [0, 60]
    assert jobs.start_s.tolist() == [5, 65]
    assert jobs.end_s.tolist() == [15, 75]
    assert jobs.walltime_s.tolist() == [60, 60]
    assert jobs.ending.tolist() == [TableEnding.PASSED, TableEnding.KILLED]
    assert (jobs.user.tolist(), jobs.vc.tolist()) == (["7", "7"], ["3", "3"])


def test_a_partition_is_the_queue_only_where_no_line_names_one(file: Callable[..., Path]) -> None:
    assert read(file("log.swf", line())).table.partition.tolist() == ["3"]
    named = line(job=2).removesuffix("-1 -1 -1") + "5 -1 -1"
    jobs = read(file("log.swf", f"{line()}\n{named}\n")).table
    assert (jobs.partition.tolist(), jobs.vc.tolist()) == (["", "5"], ["3", "3"])


def test_minus_one_is_unknown_everywhere(file: Callable[..., Path]) -> None:
    unknown = line(job=2, wait=-1, procs=-1, asked=8, limit=-1, status=-1, user=-1, queue=-1)
    text = "\n".join([line(), unknown, line(job=3, run=-1), line(job=4, procs=-1, asked=-1)])
    trace = read(file("log.swf", text))
    assert trace.left_out == {"the run time is unknown": 1, "the processors are unknown": 1}
    jobs = trace.table
    assert jobs.gpus.tolist() == [4, 8]
    assert np.isnan([jobs.start_s[1], jobs.walltime_s[1]]).all()
    assert (jobs.user[1], jobs.vc[1], jobs.ending[1]) == ("", "", TableEnding.UNKNOWN)


def test_21_columns_have_a_queue_by_name_and_an_absolute_clock(file: Callable[..., Path]) -> None:
    row = "0 1356996147 0 100 2 1 1024 2 86400 68 1 62 1 1 -1 1 1 1 {1241,1241} q_1d 1:ppn=64\n"
    endless = "1 1356996148 2 -1356996150 2 1 1024 2 86400 68 1 62 1 1 -1 1 1 1 {12} q_1d 1:ppn=64\n"
    trace = read(file("wagap.swf", row + endless))
    assert trace.table.began_s == 1356996147
    assert trace.table.vc.tolist() == ["q_1d"]
    assert trace.left_out == {"the run time is unknown": 1}


def test_large_ids_of_groups_and_a_19th_column_are_no_trouble(file: Callable[..., Path]) -> None:
    row = "1 806 2176 6470 256 -1 -1 256 5400 -1 0 92605928607567 77085908864199 -1 -1 -1 -1 -1 0\n"
    assert read(file("theta.swf", row)).table.user.tolist() == ["92605928607567"]


def test_parts_of_a_job_are_left_out_for_the_line_that_sums_them_up(file: Callable[..., Path]) -> None:
    text = "\n".join([line(status=1), line(status=2), line(status=3), line(status=4)])
    assert read(file("log.swf", text)).left_out == {"a part of a job that another line sums up": 3}


@pytest.mark.parametrize(("row", "what"), [(line()[:20], "fewer than 18"), (line(run=-7), "the duration is negative")])
def test_a_broken_line_is_named(file: Callable[..., Path], row: str, what: str) -> None:
    path = file("log.swf", HEAD + line() + "\n" + row + "\n")
    with pytest.raises(InputError, match=f"log.swf:4: .*{what}"):
        read(path)
    assert len(read(path, skip_bad=True).table) == 1


@pytest.mark.parametrize(
    ("name", "jobs"),
    [("CTC-SP2-1996-3.1-cln", 77_222), ("cqgym-train", 3_000), ("lublin_256", 10_000), ("wagap-2013", 17_898)],
)
def test_the_public_logs_read_whole(public: Callable[[str], Path], name: str, jobs: int) -> None:
    trace = read(public(f"traces/swf/{name}.swf.gz"))
    assert len(trace.table) == jobs
    assert len(trace.table) + sum(trace.left_out.values()) in (jobs, 17_900)
