"""Crews: whoever runs the cases of a sweep, the answers are the same, and what goes wrong is told in one line."""

from __future__ import annotations

import itertools
import logging
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from perdure.errors import ClusterBusy, ClusterError, InputError, PerdureError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.executors import dask_workers
from perdure.simulation.executors.dask_workers import DaskWorkers
from perdure.simulation.executors.processes import Processes
from perdure.simulation.executors.slurm_jobs import _in_queue
from perdure.simulation.sweep import Setting, SweepCase, cases, sweep
from perdure.traces.generate import generate
from tests.conftest import require
from tests.simulation.tables import jobs

CLUSTER = Cluster.parse("4x8")
SETTING = Setting(CLUSTER, "random", keep=True)

DEADLY = """
import os
from pathlib import Path
from perdure.scheduling.fifo import Fifo

class Deadly:
    name, preemptive, blocks = "deadly", False, True

    def ranking(self, view):
        try:
            Path(__file__).with_suffix(".met").touch(exist_ok={always})
        except FileExistsError:
            return Fifo().ranking(view)
        os._exit(1)
"""


def drawn(seed: int) -> JobTable:
    return generate(40, CLUSTER, 0.9, np.random.default_rng(seed))


@pytest.fixture(scope="module", autouse=True)
def extra() -> None:
    try:
        import dask_jobqueue  # noqa: F401
        import distributed  # noqa: F401
    except ImportError:
        require("dask", False, "the optional part dask is not installed")


def local(workers: int, processes: bool) -> Any:
    from distributed import LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a port that is taken, a dashboard that is not installed
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=processes,
            host="127.0.0.1",
            protocol="tcp://",
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        )


def executor_of(cluster: Any) -> DaskWorkers:
    return DaskWorkers(cluster.scheduler_address.removeprefix("tcp://"))


@pytest.fixture(scope="module")
def dask(extra: None) -> Iterator[Any]:
    """A scheduler here, and two workers in processes of their own."""
    with local(2, processes=True) as cluster:
        yield cluster


@pytest.fixture
def lone() -> Iterator[Any]:
    """A scheduler and one worker in this process; a test may do to it what it likes."""
    with local(1, processes=False) as cluster:
        yield cluster


def told(
    tables: Sequence[JobTable],
    wanted: list[SweepCase],
    executor: Processes | DaskWorkers | None,
    setting: Setting = SETTING,
) -> list[Any]:
    done = []
    runs = sweep(tables, setting, wanted, executor, done.append)
    assert done == list(range(1, len(wanted) + 1))
    assert [run.case for run in runs] == list(wanted)
    return [(run.metrics, run.result.digest()) for run in runs]


def test_every_executor_gives_the_same_answers_in_the_same_order(dask: Any) -> None:
    tables, wanted = [drawn(1), drawn(2)], cases(2, ["fifo", "las-2d"], seeds=2)
    alone = told(tables, wanted, None)
    assert told(tables, wanted, Processes(2)) == alone
    assert told(tables, wanted, executor_of(dask)) == alone


@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_an_error_in_a_run_arrives_whole(dask: Any, kind: str) -> None:
    executor = Processes(2) if kind == "processes" else executor_of(dask)
    wide = jobs((64, 0, 1))
    with pytest.raises(InputError, match="job j0: it asks for 64 GPUs"):
        sweep([wide, wide], Setting(CLUSTER), cases(2, ["fifo"]), executor)


def test_a_worker_that_dies_is_no_loss(dask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(DEADLY.format(always=False))
    monkeypatch.chdir(tmp_path)  # the workers are elsewhere
    found = told([drawn(1)], cases(1, ["mine.py:Deadly"], seeds=2), executor_of(dask))
    assert (tmp_path / "mine.met").exists()
    assert found == told([drawn(1)], cases(1, ["fifo"], seeds=2), None)


def test_a_run_that_kills_its_workers_is_given_up(dask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(DEADLY.format(always=True))
    monkeypatch.setattr(dask.scheduler, "allowed_failures", 0)
    with pytest.raises(ClusterError, match="several workers died at one and the same run"):
        sweep([drawn(1)], SETTING, cases(1, [f"{tmp_path / 'mine.py'}:Deadly"]), executor_of(dask))


def test_other_versions_there_are_refused(dask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "__version__", "0.0")  # here and in the scheduler, not in the workers
    with pytest.raises(ClusterError, match=r"Perdure \S+ runs there, and 0\.0 here\. Install the same there as here"):
        sweep([drawn(1)], SETTING, cases(1, ["fifo"]), executor_of(dask))


def test_a_scheduler_that_goes_away_is_told(lone: Any) -> None:
    with pytest.raises(ClusterBusy, match="the Dask scheduler went away during the sweep"):
        sweep([drawn(1)], SETTING, cases(1, ["fifo"], seeds=50), executor_of(lone), lambda _: lone.close())


def test_a_scheduler_without_workers_is_told(lone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "_PATIENCE_S", 0)
    monkeypatch.setattr(dask_workers, "_GLANCE_S", 0.1)
    lone.scale(0)
    with pytest.raises(ClusterBusy, match=r"has had no worker for 0 minutes\. Start some: dask worker 127\.0\.0\.1:"):
        sweep([drawn(1)], SETTING, cases(1, ["fifo"]), executor_of(lone))


def test_how_long_no_worker_was_there_counts_from_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes between two looks; there is a worker, then none, one again, and none."""
    ended: SimpleQueue[int] = SimpleQueue()
    looks = iter([1, 1, 1, 0, 0, 0, 1, 0, 0])
    waited: list[float] = []

    class SometimesThere:
        def nthreads(self) -> dict[str, int]:
            there = next(looks, None)
            if there is None:
                ended.put(7)
            return {"one": 1} if there else {}

    monkeypatch.setattr(dask_workers, "_GLANCE_S", 0.001)
    monkeypatch.setattr(dask_workers, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    assert dask_workers._next(ended, cast("Any", SometimesThere()), "x", waited.append) == 7
    assert waited == [1, 2, 3, 1, 2, 3]


def test_an_address_where_nobody_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "_CONNECT_S", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(PerdureError, match="no Dask scheduler answers there"):
            sweep([drawn(1)], SETTING, cases(1, ["fifo"]), DaskWorkers(f"127.0.0.1:{taken.getsockname()[1]}"))


def test_ctrl_c_means_what_it_meant(tmp_path: Path) -> None:
    """Importing a part of dask-jobqueue would have it end the process as if all were well."""
    code = """
import signal, sys
from pathlib import Path
from perdure.simulation.executors.slurm_jobs import _slurm_cluster
if __name__ == "__main__":
    with _slurm_cluster(Path(sys.argv[1])):
        sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
"""
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("said", "there"),
    [
        ("slurm_load_jobs error: Invalid job id specified", False),
        ("slurm_load_jobs error: Unable to contact slurm controller", True),
    ],
)
def test_a_manager_that_does_not_answer_is_no_word_that_jobs_are_gone(
    said: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert _in_queue(["7"], 0.0) is there
