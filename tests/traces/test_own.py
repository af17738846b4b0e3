"""Our own form: what is written is read back unchanged, and a hand-made file needs four columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.errors import InputError, MissingExtra
from perdure.installation import to_install
from perdure.model.table import Attempts, JobTable, TableEnding
from perdure.traces import columns
from perdure.traces.own import write
from perdure.traces.read import read

seconds = st.floats(0, 1e9)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@st.composite
def tables(draw: st.DrawFn) -> JobTable:
    n = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)))

    counts = column(st.integers(0, 3))
    first = np.concatenate([[0], np.cumsum(counts)])
    total = int(first[-1])
    tries = Attempts(
        first,
        np.array(draw(st.lists(seconds, min_size=total, max_size=total)), np.float64),
        np.array(draw(st.lists(st.booleans(), min_size=total, max_size=total)), bool),
    )
    start_s = column(seconds | st.just(np.nan))
    ids = draw(st.lists(texts.filter(bool), min_size=n, max_size=n, unique=True))
    return JobTable(
        job_id=np.array(ids),
        submit_s=np.sort(column(seconds)),
        gpus=column(st.integers(1, 10_000)),
        duration_s=column(seconds),
        user=column(texts),
        vc=column(texts),
        ending=column(st.sampled_from(list(TableEnding))).astype(np.int8),
        start_s=start_s,
        end_s=start_s + column(seconds | st.just(np.nan)),
        walltime_s=column(seconds | st.just(np.nan)),
        nodes=column(st.integers(0, 1000)),
        gpu_type=column(texts),
        **(
            {
                "partition": column(texts),
                "account": column(texts),
                "qos": column(texts),
                "dependency": column(texts),
                "nice": column(st.integers(-10_000, 10_000)),
                "cpus": column(st.integers(0, 1000)),
                "mem_mib": column(st.integers(0, 10**9)),
                "eligible_s": column(seconds | st.just(np.nan)),
                "preempted": column(st.integers(0, 9)),
            }
            if draw(st.booleans())
            else {}
        ),
        attempts=tries if total else None,
        began_s=draw(st.floats(0, 2e9)),
    )


def assert_same(one: JobTable, other: JobTable) -> None:
    for field in fields(JobTable):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name == "attempts" and mine is not None:
            for name in ("first", "duration_s", "passed"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        elif field.name == "attempts":
            assert theirs is None
        else:
            np.testing.assert_array_equal(mine, theirs, err_msg=field.name)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
@given(table=tables())
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_written_is_read_back_unchanged(table: JobTable, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"it's a 'trace' [1].{suffix}"
    write(table, path)
    trace = read(path)
    assert trace.format == "perdure"
    assert trace.left_out == {}
    assert_same(table, trace.table)


def test_a_job_of_very_many_attempts_is_read_back(tmp_path: Path) -> None:
    tries = Attempts(np.array([0, 1000]), np.arange(1000.0), np.arange(1000) == 999)
    table = JobTable(np.array(["a"]), np.zeros(1), np.ones(1, np.int64), np.ones(1), attempts=tries)
    write(table, tmp_path / "jobs.csv")
    assert_same(table, read(tmp_path / "jobs.csv").table)


def test_a_file_made_by_hand_needs_four_columns_in_any_order(file: Callable[..., Path]) -> None:
    jobs = read(file("jobs.csv", "gpus,job_id,duration_s,submit_s\n8,b,60,5\n1,a,60,0\n")).table
    assert jobs.job_id.tolist() == ["a", "b"]
    assert jobs.submit_s.tolist() == [0, 5]
    assert jobs.attempts is None


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("b,0,1,5,passed,10", "the attempts are not seconds with"),
        ("b,0,1,5,passed,nan-", "the attempts are not seconds with"),
        ("b,0,1,5,done,", r"the ending is not known \(done\)"),
        ("a,0,1,5,passed,", "the job id was used before"),
        (",0,1,5,passed,", "the job has no id"),
    ],
)
def test_a_bad_row_is_named_or_skipped(file: Callable[..., Path], row: str, what: str) -> None:
    path = file("jobs.csv", f"job_id,submit_s,gpus,duration_s,ending,attempts\na,0,1,5,passed,2-3+\n{row}\n")
    path.write_text(path.read_text().replace("2-3+", "2- 3+"))
    with pytest.raises(InputError, match=f"jobs.csv:3: {what}"):
        read(path)
    assert len(read(path, skip_bad=True).table) == 1


def test_another_suffix_or_an_unwritable_place_is_refused(tmp_path: Path) -> None:
    table = JobTable(np.array(["a"]), np.zeros(1), np.ones(1, np.int64), np.ones(1))
    with pytest.raises(InputError, match=r"End it in .csv, .csv.gz, .parquet"):
        write(table, tmp_path / "jobs.xlsx")
    with pytest.raises(InputError, match="Name a file that you may write"):
        write(table, tmp_path / "none" / "jobs.csv")


def test_without_duckdb_it_is_said_what_to_install(file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = file("jobs.csv", "job_id,submit_s,gpus,duration_s\na,0,1,5\n")
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    assert len(read(path).table) == 1  # a small plain file needs none
    monkeypatch.setattr(columns, "_SMALL_BYTES", 0)
    with pytest.raises(MissingExtra, match=re.escape(to_install("sim"))):
        read(path)


def test_an_end_before_its_start_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,gpus,duration_s,start_s,end_s\na,0,1,10,5,15\nb,0,1,10,20,10\n")
    with pytest.raises(InputError, match=r"jobs.csv:3: the end is before the start"):
        read(path)
    assert read(path, skip_bad=True).left_out == {"the end is before the start": 1}
