"""Which of the two loops replays a trace."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.simulate import simulate

MANY = 1200


def many_jobs() -> JobTable:
    rng = np.random.default_rng(0)
    submit, duration = np.sort(rng.integers(0, 9000, MANY)), rng.integers(1, 100, MANY)
    return JobTable(np.arange(MANY).astype(str), submit.astype(float), rng.integers(1, 5, MANY), duration.astype(float))


def test_without_numba_long_traces_are_replayed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    table, cluster = many_jobs(), Cluster.parse("4x8")
    wanted = simulate(table, cluster, "srtf", "best-fit", engine="plain").digest()
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in [each for each in sys.modules if each.startswith("perdure.simulation.compiled.")]:
        monkeypatch.delitem(sys.modules, name)
    assert simulate(table, cluster, "srtf", "best-fit").digest() == wanted


def test_long_traces_are_replayed_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    run = pytest.importorskip("perdure.simulation.compiled.run", reason="numba is not installed")
    asked: list[str] = []
    monkeypatch.setattr(run, "compiled", lambda jobs, cluster, policy, placement: asked.append(policy.name))
    simulate(many_jobs(), Cluster.parse("4x8"), "fifo")
    assert asked == ["fifo"]
