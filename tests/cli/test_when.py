"""``perdure when bench`` on the command line: figures, the file of answers, and bad input in one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.waits.checks import made_up_looks
from tests.cli.conftest import Ran

HEADER = "job,submit_s,start_s,poll_s,time_limit_s,partition,account,cpus,mem_mb,nodes,gpus,priority_poll"


@pytest.fixture
def looks(home: Path) -> str:
    """Twelve days from 2021-05-01 on."""
    made = made_up_looks(jobs=20)
    columns = (
        made.job, made.submit_s, made.start_s, made.poll_s, made.limit_s, made.partition, made.account, made.cpus,
        made.mem_mib, made.nodes, made.gpus, made.priority,
    )  # fmt: skip
    rows = [",".join("" if np.isnan(cell) else f"{cell:g}" for cell in row) for row in zip(*columns, strict=True)]
    (home / "looks.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return "looks.csv"


def bench(perdure: Callable[..., Ran], *options: str) -> Any:
    ran = perdure("when", "bench", *options, "--predictor", "median", "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_figures(perdure: Callable[..., Ran], looks: str) -> None:
    found = bench(perdure, looks, "--cut", "2021-05-10")
    assert found["schema"] == "perdure.when-bench/1"
    assert [day["day"] for day in found["days"]] == ["2021-05-10", "2021-05-11", "2021-05-12"]
    assert found["n"] == sum(day["n"] for day in found["days"])
    assert {"mse_log10", "within_2x", "pinball_log10", "coverage", "width_decades", "thresholds"} <= found.keys()
    text = perdure("when", "bench", looks, "--cut", "2021-05-10", "--predictor", "median")
    assert f"within a factor of 2: {found['within_2x']:.1%}" in text.out


def test_answers_are_written_in_seconds(perdure: Callable[..., Ran], looks: str, home: Path) -> None:
    bench(perdure, looks, "--cut", "2021-05-12", "--predictions-out", "answers.csv")
    with (home / "answers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "p10", "p50", "p90", "truth"]
    assert len(rows) == 20
    for row in rows:
        assert float(row["p10"]) <= float(row["p50"]) <= float(row["p90"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--cut", "2021-05-10", "--predictor", "oracle"), "no predictor has that name"),
        (("--cut", "2022-01-01"), "the cut 2022-01-01 leaves nothing before it, or nothing after it"),
        (("--cut", "2021-05-01"), "leaves nothing before it"),
        (("--cut", "june"), "is not a day"),
        (("--cut", "2021-05-10", "--format", "swf"), "no such format of snapshots"),
        (
            ("--cut", "2021-05-12", "--predictor", "median", "--predictions-out", "no/such/place.csv"),
            "cannot be written",
        ),
    ],
)
def test_bad_input_is_one_line(perdure: Callable[..., Ran], looks: str, options: tuple[str, ...], said: str) -> None:
    ran = perdure("when", "bench", looks, *options)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_file_of_other_columns_is_told_what_it_lacks(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "jobs.csv").write_text("job_id,submit_s\n1,2\n")
    ran = perdure("when", "bench", "jobs.csv", "--cut", "2021-05-10")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "no column" in ran.err
