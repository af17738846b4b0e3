"""The Philly job list: west coast clock, no ids, not sorted, and every broken row named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.traces.read import read

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_rows_that_are_not_sorted_are_sorted_and_numbered_by_their_place(file: Callable[..., Path]) -> None:
    path = file("p.csv", HEADER + "2017-10-02 00:01:00,30.0,8,240.0,b\n2017-10-02 00:00:00,60.0,1,60.0,a\n")
    trace = read(path)
    assert trace.format == "philly-csv"
    assert trace.table.submit_s.tolist() == [0, 60]
    assert trace.table.gpus.tolist() == [1, 8]
    assert trace.table.vc.tolist() == ["a", "b"]
    assert trace.table.job_id.tolist() == ["2", "1"]
    assert trace.table.began_s == np.datetime64("2017-10-02T07:00:00", "s").astype(int)  # UTC-7 in summer


def test_the_night_of_the_clock_change_has_25_hours(file: Callable[..., Path]) -> None:
    rows = "2017-11-05 00:30:00,1,1,1,a\n2017-11-05 23:30:00,1,1,1,a\n"
    assert read(file("p.csv", HEADER + rows)).table.submit_s.tolist() == [0, 24 * 3600]


def test_rows_that_are_repeated_are_kept_and_counted(file: Callable[..., Path]) -> None:
    row = "2017-10-02 00:00:00,60.0,1,60.0,a\n"
    trace = read(file("p.csv", HEADER + 3 * row))
    assert len(trace.table) == 3
    assert trace.notes[0].startswith("2 rows repeat")


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("2017-10-02 00:00:00,-5,1,1,a", "the duration is negative"),
        ("2017-10-02 00:00:00,nan,1,1,a", "the duration is missing"),
        ("2017-10-02 00:00:00,inf,1,1,a", "the duration is missing"),
        ("2017-10-02 00:00:00,,1,1,a", "the duration is missing"),
        ("2017-10-02 00:00:00,abc,1,1,a", "duration is not a number"),
        ("yesterday,5,1,1,a", "timestamp is not a time"),
        (",5,1,1,a", "the submit time is missing"),
        ("2017-10-02 00:00:00,5,0,1,a", "the job has 0 GPUs"),
        ("2017-10-02 00:00:00,5,1.5,1,a", "the number of GPUs is missing or not a whole number"),
        ("2017-10-02 00:00:00,5,1", "the row is cut off"),
        ("2017-10-02 00:00:00,5,1,1,a,b", "the row is cut off or has columns too many"),
        ("2017-10-02 00:00:00,5,1,1," + "a" * 200, "cluster has more than 128 characters"),
    ],
)
def test_a_bad_row_is_named_by_its_line_or_skipped_and_counted(file: Callable[..., Path], row: str, what: str) -> None:
    good = "2017-10-02 00:00:00,5,1,1,a\n"
    path = file("bad [1].csv", HEADER + good + row + "\n" + good)
    with pytest.raises(InputError, match="--skip-bad") as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:3: {what}")
    assert "\n" not in str(caught.value)
    trace = read(path, skip_bad=True)
    assert len(trace.table) == 2
    assert sum(trace.left_out.values()) == 1


def test_a_packed_file_that_was_cut_off_is_refused(file: Callable[..., Path]) -> None:
    whole = file("p.csv.gz", HEADER + "2017-10-02 00:00:00,5,1,1,a\n" * 5000).read_bytes()
    with pytest.raises(InputError, match="cut off or damaged"):
        read(file("cut.csv", whole[: len(whole) // 2]))


def test_the_public_list_reads_whole(public: Callable[[str], Path]) -> None:
    jobs = read(public("traces/philly/philly_jobs_until_2017-11-12.csv.gz")).table
    assert len(jobs) == 62_194
    assert set(np.unique(jobs.vc).tolist()) >= {"6214e9", "ee9e8c"}
    assert (np.diff(jobs.submit_s) >= 0).all()
