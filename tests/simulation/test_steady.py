"""When a cluster has filled, how busy it was while jobs came, and traces that are too short."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.simulation.metrics import summary
from perdure.simulation.simulate import simulate
from perdure.simulation.steady import too_short, window_of
from perdure.traces.generate import generate
from tests.simulation.tables import jobs, with_attempts


def test_the_window_begins_where_jobs_first_ask_for_their_mean_and_ends_with_the_last_submit() -> None:
    """1 GPU from 0 to 100, 2 more from 40 on: from 0 to 100 the mean is (40 + 3 * 60) / 100 = 2.2."""
    table = jobs((1, 0, 100), (2, 40, 500), (1, 100, 10))
    found = window_of(table, 4)
    assert (found.first_s, found.since_s, found.until_s) == (0.0, 40.0, 100.0)
    assert found.load == (100 + 1000 + 10) / (4 * 100)
    figures = summary(table, simulate(table, Cluster.parse("1x4"), "fifo"))
    assert figures.used_in_window == 3 / 4
    assert figures.utilisation == (100 + 1000 + 10) / (4 * 540)  # the tail, where nobody comes, counts here


def test_a_window_is_never_fuller_than_the_cluster() -> None:
    """The first job runs from 0 to 10 and from 60 on: spread over its whole time, it would overlap the second one."""
    table = jobs((1, 0, 100), (1, 10, 50), (1, 60, 500))
    found = simulate(table, Cluster.parse("1x1"), "srtf")
    assert found.preempted.tolist() == [1, 0, 0]
    assert summary(table, found).used_in_window == 1.0


def test_attempts_count_as_they_were_recorded() -> None:
    rows = (1, 0, 5), (1, 10, 5)
    table = jobs(*rows, attempts=with_attempts(jobs(*rows), [[(5, False), (15, True)], [(5, True)]]))
    assert window_of(table, 1).load == 25 / 10


@pytest.mark.parametrize("rows", [[], [(1, 0, 5)], [(1, 3, 5), (1, 3, 9)], [(1, 0, 0), (1, 9, 0)]])
def test_jobs_that_come_at_once_or_ask_for_nothing_have_no_window(rows: Sequence[tuple[int, int, int]]) -> None:
    table = jobs(*rows)
    assert window_of(table, 8) is None
    assert too_short(table) is None
    found = summary(table, simulate(table, Cluster.parse("1x8"), "fifo"))
    assert found.used_in_window == found.utilisation


def test_at_a_load_below_one_the_window_is_as_busy_as_what_is_asked_for() -> None:
    table = generate(4000, Cluster.parse("8x8"), 0.7, np.random.default_rng(4))
    found = summary(table, simulate(table, Cluster.parse("8x8"), "fjf"))
    assert found.window.load == pytest.approx(0.7, abs=0.01)
    assert found.utilisation < found.used_in_window < 1


def test_a_trace_is_short_where_long_jobs_ask_for_most() -> None:
    short = jobs(*[(1, 10 * i, 5) for i in range(100)])
    assert too_short(short) is None
    one_long = jobs(*[(1, 10 * i, 5) for i in range(100)], (1, 1000, 500))
    assert too_short(jobs(*[(1, 10 * i, 5) for i in range(100)], (1, 1000, 150))) is not None  # 150 of 650 s
    said = too_short(one_long) or ""
    assert said.startswith("The trace is short against its longest jobs: 1 that run for more than a tenth")
    assert "50% of the GPU time" in said


def test_more_load_than_the_cluster_can_bear_is_said() -> None:
    over, below = (window_of(jobs((1, 0, 100), (1, 50, 100), (1, 100, 100)), gpus) for gpus in (2, 4))
    assert over is not None
    assert below is not None
    assert over.says.startswith("Jobs ask for 1.50 of the GPU time; the window is ")
    assert over.says.endswith(
        "That is more than there is: the queue grows as long as jobs come, and waits with the trace's length."
    )
    assert "more than there is" not in below.says
