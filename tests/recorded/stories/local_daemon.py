"""The embedded cluster's daemon on a real database, with played processes: what it answers, starts and keeps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Any

import pytest

from perdure.backends.local import daemon as local_daemon
from perdure.backends.local.processes import Orders, TaskKey
from perdure.backends.local.records import Timing
from perdure.backends.local.store import Leftover
from perdure.backends.local.wire import encode
from perdure.errors import PerdureError
from tests.recorded.drawn import NOW, in_words
from tests.recorded.stories.actions import an_action
from tests.recorded.stories.local_cluster import a_spec

CASES, LIVES, STEPS = 25, 3, 25
NODES = ("n1", "n2", "n3")
FAULTS = ("fail", "return", "freeze")
STATUSES = (0, 0, 1, 78, -9, -15)


@dataclass(frozen=True)
class _Task:
    key: TaskKey
    node: str
    pid: int

    @property
    def born(self) -> str:
        return f"born {self.pid}"

    def leftover(self) -> Leftover:
        return Leftover(self.pid, self.born, str(self.key))


class _Tasks:
    """Stands for the processes of a machine."""

    def __init__(self, world: _World) -> None:
        self._world, self._tasks = world, dict[TaskKey, _Task]()

    def spawn(self, key: TaskKey, node: str, log: IO[bytes]) -> _Task:
        if self._world.rng.random() < 0.04:
            raise OSError(11, "no more processes")
        self._world.pid += 1
        self._tasks[key] = _Task(key, node, self._world.pid)
        self._world.note("spawn", key, node)
        return self._tasks[key]

    def open_gate(self, task: _Task, orders: Orders) -> None:
        env = sorted(
            (name, value) for name, value in orders.env.items() if name.startswith(("SLURM", "PERDURE", "CUDA"))
        )
        self._world.note("gate", task.key, orders.argv, orders.nice, sorted(orders.limits.items()), env)

    def signal(self, keys: Iterable[TaskKey], signum: int) -> None:
        self._world.note("signal", [str(key) for key in keys], int(signum))

    def signal_node(self, node: str, signum: int) -> None:
        self._world.note("node", node, int(signum))

    def reap(self) -> list[tuple[_Task, int]]:
        """Some have ended."""
        rng = self._world.rng
        over = [(task, rng.choice(STATUSES)) for task in self._tasks.values() if rng.random() < 0.25]
        for task, _ in over:
            del self._tasks[task.key]
        return over

    def kill_all(self) -> None:
        self._world.note("kill all")
        self._tasks.clear()

    def __len__(self) -> int:
        return len(self._tasks)


class _World:
    """The clock, and what was done to processes."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.now, self.pid = rng, NOW, 100
        self.told: list[str] = []

    def note(self, *words: object) -> None:
        self.told.append(" ".join(map(str, words)))


def story(_case: int, rng: Random) -> Iterator[str]:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a disk takes its time
    world = _World(rng)
    with tempfile.TemporaryDirectory(dir=memory) as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.backends.local.daemon.Tasks", lambda: _Tasks(world))
        patch.setattr(
            "perdure.backends.local.daemon.kill_leftover", lambda left, mark: world.note("left over", left, mark)
        )
        patch.setattr("perdure.backends.local.daemon.PRUNE_EVERY_S", 10.0)
        patch.setattr("perdure.backends.local.store.MAX_ENDED_JOBS", 4)
        patch.setattr("perdure.backends.local.store.MAX_ACTIONS", 6)
        patch.setattr("time.monotonic", lambda: world.now)
        patch.setattr("time.sleep", lambda seconds: None)
        patch.setattr("os.environ", {"PATH": "/bin", "HOME": "/root", "SECRET": "x"})
        lines = [line for life in range(LIVES) for line in _life(world, Path(name), life)]
    return iter([line.replace(name, "/state") for line in lines])


def _life(world: _World, folder: Path, life: int) -> Iterator[str]:
    """A daemon from its start to its end, which it may not see coming."""
    setup = local_daemon.Setup(folder, "c", 3 - (life == 2), 4, 4, timing=Timing(1.0, 2.0, 3.0, 0.0))
    daemon = local_daemon.Daemon(setup, lambda: world.now)
    for _ in range(STEPS):
        world.now += world.rng.choice((0.0, 0.5, 1.0, 3.0, 11.0))
        try:
            yield f"{world.now - NOW:g} {_asked(world, daemon, folder)}"
        except PerdureError as err:
            yield f"{world.now - NOW:g} {err}"
        yield f" due {daemon.advance()}"
        yield from (f" {line}" for line in world.told)
        world.told.clear()
    if world.rng.random() < 0.5:
        daemon.shut_down("stopped")
    else:
        _kill(daemon)
    yield from (*world.told, f"files {sorted(str(path) for path in folder.glob('*/*') if path.suffix in ('', '.log'))}")
    world.told.clear()


def _kill(daemon: local_daemon.Daemon) -> None:
    daemon._store.close()
    daemon._lock.close()


def _asked(world: _World, daemon: local_daemon.Daemon, folder: Path) -> str:
    rng = world.rng
    request = _REQUESTS[rng.choice("sssssppppplloofrqnx")](world, folder)
    return f"{in_words(request)} {in_words(daemon.answer(request))}"


def _submit(world: _World, folder: Path) -> dict[str, Any]:
    told = encode(a_spec(world.rng))
    (folder / "fence" / str(world.rng.randrange(1, 20))).mkdir(parents=True, exist_ok=True)
    workdir = str(folder) if world.rng.random() < 0.95 else "/nowhere"
    limits = {"memory_mib": 64} if world.rng.random() < 0.2 else {}
    return {"op": "submit", "spec": told | {"workdir": workdir, "env": {"A": "b"}, **limits}}


def _action(world: _World) -> Any:
    rng = world.rng
    return an_action(rng, "c", str(rng.randrange(1, 16)), rng.choice((1, 1, 1, 2)), NODES)


_REQUESTS: dict[str, Callable[[_World, Path], dict[str, Any]]] = {
    "s": _submit,
    "p": lambda world, _: {"op": "perform", "action": encode(_action(world))},
    "l": lambda world, _: {"op": "lookup", "key": _action(world).key},
    "o": lambda world, _: {"op": "observe", "since_s": world.now - world.rng.choice((0.0, 10.0, 900.0))},
    "f": lambda world, _: {
        "op": "fault",
        "node": world.rng.choice(NODES),
        "what": world.rng.choice(("fail", "return")),
    },
    "r": lambda world, _: {"op": "runs", "job_id": str(world.rng.randrange(1, 12)), "incarnation": 1},
    "q": lambda world, _: {"op": "queue"},
    "n": lambda world, _: {"op": "set_nice", "nice": {str(world.rng.randrange(1, 12)): world.rng.choice((0, 5))}},
    "x": lambda world, _: {"op": world.rng.choice(("nothing", "observe"))},
}
