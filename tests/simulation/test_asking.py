"""What jobs ask for beside GPUs, from a table to the columns of a replay."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.scheduling.asks import After, Asks
from perdure.simulation.workload import Workload
from tests.simulation.tables import jobs

ROWS = (1, 10, 5), (1, 20, 5), (1, 30, 5)


def test_a_table_that_tells_nothing_takes_no_memory_for_it() -> None:
    table = jobs(*ROWS)
    assert Workload.of(table).asks == Asks()
    assert [table.tells(name) for name in ("partition", "nice", "eligible_s", "dependency")] == [False] * 4
    assert not table.take(np.array([0, 2])).tells("qos")
    assert not table.followed_by(table).tells("qos")


def test_texts_are_numbered_and_times_are_ticks_since_the_first_submit() -> None:
    told = jobs(*ROWS, partition=np.array(["b", "a", "b"]), eligible_s=np.array([np.nan, 50, 25]))
    asks = Workload.of(told).asks
    assert asks.partition is not None
    assert asks.eligible is not None
    assert (asks.partition.of.tolist(), asks.partition.words) == ([1, 0, 1], ("a", "b"))
    assert asks.eligible.tolist() == [0, 40, 20]


def test_dependencies_name_jobs_of_the_table_and_others_are_long_over() -> None:
    told = jobs(*ROWS, dependency=np.array(["singleton", "afterok:j0:gone,after:j2", "singleton"]))
    needs = Workload.of(told).asks.needs
    assert needs is not None
    found = list(zip(needs.of.tolist(), needs.on.tolist(), needs.kind.tolist(), strict=True))
    assert found == [(1, 0, After.OK), (1, 2, After.START), (2, 0, After.SINGLETON)]


@pytest.mark.parametrize("text", ["afterwards:j0", "afterok", "j0", "singleton:j0"])
def test_what_is_no_dependency_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"job j1: '{text}' is not a dependency"):
        Workload.of(jobs(*ROWS, dependency=np.array(["", text, ""])))


def test_tables_are_joined_with_what_either_tells() -> None:
    both = jobs(*ROWS).followed_by(jobs((2, 40, 1), qos=np.array(["high"])))
    assert both.qos.tolist() == ["", "", "", "high"]
    assert both.gpus.tolist() == [1, 1, 1, 2]
