"""Gavel's traces: steps become seconds by a table of rates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import InputError
from perdure.traces.gavel import read_steps
from perdure.traces.read import read

RATES = "job,scale_factor,steps_per_s\nA (batch size 8),1,4.0\nA (batch size 8),1,10.0\nA (batch size 8),2,16.0\n"
LINE = "A (batch size 8)\tpython3 main.py\tcifar\t--num_steps\t1\t1000\t{gpus}\t1\t-1.000000\t{arrival}\n"
MSR = "A (batch size 8)\tpython3 main.py\t-step\t1\t1000\t{arrival}\t{gpus}\n"


def test_steps_over_the_best_rate_are_seconds(file: Callable[..., Path]) -> None:
    file("g.trace.rates.csv", RATES)
    text = LINE.format(gpus=1, arrival=0) * 2 + LINE.format(gpus=2, arrival=7.5)
    trace = read(file("g.trace", text))
    assert trace.format == "gavel"
    assert trace.table.duration_s.tolist() == [100, 100, 62.5]
    assert trace.table.submit_s.tolist() == [0, 0, 7.5]


def test_the_best_rate_counts_wherever_it_stands(file: Callable[..., Path]) -> None:
    file("g.trace.rates.csv", "job,scale_factor,steps_per_s\n" + "".join(
        f"A (batch size 8),1,{rate}\n" for rate in (4.0, 10.0, 5.0)
    ))  # fmt: skip
    assert read(file("g.trace", LINE.format(gpus=1, arrival=0))).table.duration_s.tolist() == [100]


def test_jobs_in_steps_come_in_the_order_of_their_arrivals(file: Callable[..., Path]) -> None:
    jobs = read_steps(file("g.trace", "".join(LINE.format(gpus=gpus, arrival=at) for gpus, at in ((2, 9), (1, 3)))))
    assert (jobs.submit_s.tolist(), jobs.gpus.tolist(), jobs.steps.tolist()) == ([3, 9], [1, 2], [1000, 1000])
    with pytest.raises(InputError, match=r"g\.trace:2: a job without steps, GPUs or arrival"):
        read_steps(file("g.trace", LINE.format(gpus=1, arrival=0) + LINE.format(gpus=0, arrival=0)))


def test_comments_name_the_virtual_clusters_of_the_seven_column_form(file: Callable[..., Path]) -> None:
    file("g.tsv.rates.csv", RATES)
    text = "# vc1\n" + MSR.format(arrival=5, gpus=1) + "# vc2\n" + MSR.format(arrival=0, gpus=2)
    jobs = read(file("g.tsv", text)).table
    assert jobs.vc.tolist() == ["vc2", "vc1"]
    assert jobs.gpus.tolist() == [2, 1]


def test_without_rates_it_is_said_where_to_put_them(file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"g.trace.rates.csv: .* there are no rates"):
        read(file("g.trace", LINE.format(gpus=1, arrival=0)))


WIDE, NONE, WORD = LINE.format(gpus=8, arrival=0), LINE.format(gpus=0, arrival=0), LINE.format(gpus=1, arrival="x")


@pytest.mark.parametrize("bad", [WIDE, NONE, WORD, "A (batch size 8)\t1\n"])
def test_a_bad_line_is_named_or_skipped(file: Callable[..., Path], bad: str) -> None:
    file("g.trace.rates.csv", RATES)
    path = file("g.trace", LINE.format(gpus=1, arrival=0) + bad)
    with pytest.raises(InputError, match=r"g\.trace:2: "):
        read(path)
    assert len(read(path, skip_bad=True).table) == 1
