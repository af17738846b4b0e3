"""Small tables of jobs for tests, and tables drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from perdure.model.table import Attempts, JobTable


def jobs(*rows: Sequence[float], vc: Sequence[str] = (), user: Sequence[str] = (), **columns: object) -> JobTable:
    """A table of ``(gpus, submit, duration)`` rows."""
    gpus, submit, duration = np.array(rows, np.float64).reshape(-1, 3).T
    ids = np.array([f"j{i}" for i in range(len(rows))])
    names = {"user": np.array(user, "U8"), "vc": np.array(vc, "U8")}
    return JobTable(ids, submit, gpus.astype(np.int64), duration, **names, **columns)


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
        *zip(gpus, submit, duration, strict=True), vc=table.vc.tolist(), user=table.user.tolist(),
        attempts=with_attempts(table, lists),
    )
