"""Small tables of jobs for tests, and tables drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from perdure.model.table import Attempts, JobTable
from perdure.simulation.faults import NodeFaults


def jobs(*rows: Sequence[float], vc: Sequence[str] = (), user: Sequence[str] = (), **columns: Any) -> JobTable:
    """A table of ``(gpus, submit, duration)`` rows."""
    gpus, submit, duration = np.array(rows, np.float64).reshape(-1, 3).T
    ids = np.array([f"j{i}" for i in range(len(rows))])
    users, vcs = np.array(user, "U8"), np.array(vc, "U8")
    return JobTable(ids, submit, gpus.astype(np.int64), duration, user=users, vc=vcs, **columns)


def with_attempts(table: JobTable, lists: Sequence[Sequence[tuple[float, bool]]]) -> Attempts:
    """Attempts from one list of ``(duration, passed)`` a job."""
    flat = [attempt for attempts in lists for attempt in attempts]
    first = np.concatenate([[0], np.cumsum([len(attempts) for attempts in lists])])
    assert len(lists) == len(table)
    return Attempts(first, np.array([d for d, _ in flat], np.float64), np.array([ok for _, ok in flat], bool))


@st.composite
def tables(draw: st.DrawFn, max_jobs: int = 12, max_gpus: int = 8, attempts: bool = False) -> JobTable:
    """Tables of a few short jobs that meet, tie and repeat."""
    n = draw(st.integers(1, max_jobs))
    whole = st.integers(0, 40)
    submit = sorted(draw(st.lists(whole, min_size=n, max_size=n)))
    duration = draw(st.lists(whole, min_size=n, max_size=n))
    gpus = draw(st.lists(st.integers(1, max_gpus), min_size=n, max_size=n))
    names = st.lists(st.sampled_from("abc"), min_size=n, max_size=n)
    table = jobs(*zip(gpus, submit, duration, strict=True), vc=draw(names), user=draw(names))
    if not attempts:
        return table
    tries = st.lists(st.tuples(whole, st.just(False)), max_size=3)
    lists = [[*draw(tries), (float(d), draw(st.booleans()))] for d in duration]
    return jobs(
        *zip(gpus, submit, duration, strict=True),
        vc=table.vc.tolist(),
        user=table.user.tolist(),
        attempts=with_attempts(table, lists),
    )


def faults_of(table: JobTable, found: Mapping[int, tuple[float, float]], again: Sequence[int] = ()) -> NodeFaults:
    """Faults from a `pick` and a repair for each bound attempt."""
    assert table.attempts is not None
    n = len(table.attempts.passed)
    bound, repeated, pick, repair_s = np.zeros(n, bool), np.zeros(n, bool), np.zeros(n), np.zeros(n)
    for record, (of, seconds) in found.items():
        bound[record], pick[record], repair_s[record] = True, of, seconds
    repeated[list(again)] = True
    return NodeFaults(bound, repeated, pick, repair_s)


@st.composite
def faulty(draw: st.DrawFn, max_jobs: int = 12) -> tuple[JobTable, NodeFaults]:
    """Tables in which some failed attempts, none of them a job's last, are bound to nodes."""
    table = draw(tables(attempts=True, max_jobs=max_jobs))
    assert table.attempts is not None
    last = set((table.attempts.first[1:] - 1).tolist())
    could = [i for i, ok in enumerate(table.attempts.passed) if not ok and i not in last]
    bound = draw(st.sets(st.sampled_from(could))) if could else set()
    values = st.tuples(st.sampled_from([0.0, 0.3, 0.7, 0.99]), st.sampled_from([0.0, 1.0, 50.0, 500.0]))
    again = draw(st.sets(st.sampled_from(sorted(bound)))) if bound else set()
    return table, faults_of(table, {record: draw(values) for record in bound}, sorted(again))
