"""Jobs as columns: taking rows, joining and sorting lose nothing, and a job keeps its attempts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import Attempts, JobTable


@st.composite
def tables(draw: st.DrawFn) -> JobTable:
    """A table of some jobs, of which each has some recorded attempts, or none has any."""
    n = draw(st.integers(0, 8))
    counts = draw(st.none() | st.lists(st.integers(0, 3), min_size=n, max_size=n))
    attempts = None
    if counts is not None:
        total = sum(counts)
        seconds = draw(st.lists(st.integers(1, 100), min_size=total, max_size=total))
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        attempts = Attempts(first, np.array(seconds, float), np.array([s % 2 == 0 for s in seconds], bool))
    columns: dict[str, Any] = {"nodes": np.arange(n)} if draw(st.booleans()) else {}
    columns |= {"nice": np.arange(n) - 2} if draw(st.booleans()) else {}
    submits = draw(st.lists(st.integers(0, 20), min_size=n, max_size=n))
    return JobTable(
        np.array([f"j{i}" for i in range(n)], "U8"), np.array(submits, float), np.ones(n, np.int64),
        np.arange(n, dtype=float), attempts=attempts, **columns,
    )  # fmt: skip


def jobs(table: JobTable) -> list[tuple[Any, ...]]:
    """Each job with all that is known of it, by its row."""
    known = table.attempts
    rows = []
    for i in range(len(table)):
        ran = () if known is None else tuple(known.duration_s[known.first[i] : known.first[i + 1]].tolist())
        passed = () if known is None else tuple(known.passed[known.first[i] : known.first[i + 1]].tolist())
        values = (table.job_id, table.submit_s, table.gpus, table.duration_s, table.nodes, table.nice, table.user)
        rows.append((*(column[i].item() for column in values), ran, passed))
    return rows


@given(tables(), st.data())
def test_the_rows_that_are_taken_are_the_same_jobs_in_that_order(table: JobTable, data: DataObject) -> None:
    places = st.lists(st.integers(0, len(table) - 1), max_size=10) if len(table) else st.just([])
    rows = data.draw(places)
    assert jobs(table.take(np.array(rows, np.intp))) == [jobs(table)[row] for row in rows]


@given(tables(), tables())
def test_one_table_after_another_has_the_jobs_of_both(one: JobTable, other: JobTable) -> None:
    assert jobs(one.followed_by(other)) == jobs(one) + jobs(other)


@given(tables())
def test_sorting_by_submit_is_stable_and_loses_no_job(table: JobTable) -> None:
    assert jobs(table.by_submit()) == sorted(jobs(table), key=lambda job: job[1])


@given(tables())
def test_a_column_that_was_left_out_tells_nothing_and_takes_no_memory(table: JobTable) -> None:
    if len(table) > 1:
        assert not table.tells("qos")
        assert table.qos.strides == (0,)
        assert table.tells("submit_s")


@pytest.mark.parametrize("name", ["submit_s", "gpus", "user", "nice"])
def test_columns_of_two_lengths_are_no_table(name: str) -> None:
    columns: dict[str, Any] = {
        "job_id": np.array(["a", "b"]),
        "submit_s": np.zeros(2),
        "gpus": np.ones(2),
        "duration_s": np.ones(2),
    }
    with pytest.raises(ValueError, match="differ in length"):
        JobTable(**columns | {name: np.ones(3)})


def test_attempts_of_other_jobs_are_no_attempts_of_a_table() -> None:
    of_one = Attempts(np.array([0, 2]), np.ones(2), np.ones(2, bool))
    with pytest.raises(ValueError, match="its attempts are of 1"):
        JobTable(np.array(["a", "b"]), np.zeros(2), np.ones(2, np.int64), np.ones(2), attempts=of_one)
    with pytest.raises(ValueError, match="must end at the number of attempts"):
        Attempts(np.array([0, 1]), np.ones(2), np.ones(2, bool))


groups = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 64)), min_size=1, max_size=5)


@given(groups, st.integers(1, 10))
def test_a_cluster_has_the_nodes_that_its_spec_names(found: list[tuple[int, int]], rack_nodes: int) -> None:
    spec = "+".join(f"{nodes}x{gpus}" for nodes, gpus in found)
    cluster = Cluster.parse(f"{spec}/{rack_nodes}")
    assert cluster.gpus.tolist() == [gpus for nodes, gpus in found for _ in range(nodes)]
    assert cluster.total_gpus == sum(nodes * gpus for nodes, gpus in found)
    assert cluster.rack.tolist() == [node // rack_nodes for node in range(len(cluster))]
    assert Cluster.parse(spec).rack.tolist() == [0] * len(cluster)


@pytest.mark.parametrize(
    "spec", ["", "x", "4", "4x", "0x8", "4x0", "4x8+", "4x8/0", "4x8/x", "-4x8", "4x8:a b", "9999999x1"]
)
def test_what_is_no_cluster_is_refused_with_the_form_that_is_one(spec: str) -> None:
    with pytest.raises(InputError) as caught:
        Cluster.parse(spec)
    assert "32x8" in caught.value.fix or "fewer" in caught.value.fix
