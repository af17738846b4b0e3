"""A controller's processes: few start at a time, what ended is tried again later, what does not end is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import active_children
from pathlib import Path

import pytest

from perdure.service.runtime import cluster_processes
from perdure.service.runtime.cluster_processes import ClusterProcesses
from perdure.service.runtime.presence import LockSight, Presence
from tests.service.runtime.serving import brief, deaf

PATIENCE_S = 60.0


@dataclass
class SaidLocks(Presence):
    """What a database would tell of the locks, as it is said here."""

    controllers: int = 1
    rank: int = 0
    held: set[str] = field(default_factory=set)

    def look(self, names: object) -> LockSight:
        return LockSight(self.controllers, self.rank, frozenset(self.held))

    def close(self) -> None:
        pass


@dataclass
class ControllerWorld:
    """A controller with its settings files, and what it sees."""

    processes: ClusterProcesses
    sight: SaidLocks
    state: Path

    def turn(self) -> set[str]:
        """The clusters that have a process after a turn."""
        self.processes.turn()
        return {process.name for process in active_children() if process.name.startswith("cluster-")}

    def turn_until(self, condition: Callable[[], object]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s
            self.turn()
            time.sleep(0.02)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControllerWorld]:
    monkeypatch.setattr(cluster_processes, "SHARED", "time")
    monkeypatch.setattr(cluster_processes, "ENDING_S", 0.2)
    for name in ("files", "state"):
        (tmp_path / name).mkdir()
    for number in range(5):
        (tmp_path / "files" / f"cluster-{number}.toml").write_text("")
    sight = SaidLocks()
    processes = ClusterProcesses(tmp_path / "files", tmp_path / "state", {}, sight)
    yield ControllerWorld(processes, sight, tmp_path / "state")
    processes.close()


def test_few_clusters_start_at_a_time(world: ControllerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has its lock has started."""
    monkeypatch.setattr(cluster_processes, "serve_cluster", deaf)
    monkeypatch.setattr(cluster_processes, "MOST_STARTING", 2)
    assert [len(world.turn()) for _ in range(3)] == [2, 2, 2]
    world.sight.held = {"cluster-0"}
    assert [len(world.turn()) for _ in range(2)] == [3, 3]


def test_a_cluster_that_is_let_go_and_does_not_end_is_killed(
    world: ControllerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_processes, "serve_cluster", deaf)
    monkeypatch.setattr(cluster_processes, "MOST_STARTING", 1)
    (name,) = world.turn()
    world.turn_until((world.state / name).exists)
    world.sight.controllers, world.sight.rank, world.sight.held = 9, 8, {name}
    world.turn_until(lambda: not world.turn())


def test_a_cluster_whose_process_ended_by_itself_is_tried_again_after_a_while(
    world: ControllerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_processes, "serve_cluster", brief)
    monkeypatch.setattr(cluster_processes, "AGAIN_S", 0.5)
    told = world.state / "cluster-0"
    world.turn_until(lambda: told.exists() and len(told.read_text().splitlines()) >= 3)
    instants = [float(line) for line in told.read_text().splitlines()]
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(instants))
