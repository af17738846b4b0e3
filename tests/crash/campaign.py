"""A campaign: many lives of the service, each killed, on one cluster that goes on; then the reckoning."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy import Text, cast
from sqlalchemy import select as query

from perdure.coordination.record import AnswerKind
from perdure.service.store.codec import EXCEPTION
from perdure.service.store.schema import attempts, exceptions, handlers
from tests.crash.life import MANY, POINTS, PROGRAM, Fuse, Life
from tests.crash.remote import RemoteBackend
from tests.crash.world import CLUSTER, Tally, World, listen

LIFE_S = 0.2  # of a service that is killed by the clock, at most
LONGEST_LIFE_S = 1.0  # of one that is to reach a point
FIRST_TURNS = 25  # of a service that nobody kills, so that the cluster is under load when the killing begins


@dataclass(frozen=True, slots=True)
class Result:
    """What a campaign came to."""

    kills: int
    at_points: int  # of them, at a point in the code; the others at an instant
    tally: Tally
    unknown: tuple[str, ...]  # failures that the journal does not hold
    said: Said  # to programs, and what the journal holds of it

    @property
    def lost(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.tally.lost, *self.unknown, *self.said.lost)))

    @property
    def doubled(self) -> tuple[str, ...]:
        return (*self.tally.doubled, *self.said.doubled)


@dataclass(frozen=True, slots=True)
class Said:
    """What was acknowledged to programs: how much, what of it is not written down, and which exceptions two own."""

    count: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]


def run(kills: int, seed: int, *, guarded: bool, mutant: str = "none") -> Result:
    """Kill the service `kills` times on a cluster of its own, let it finish, and count.

    Raises `RuntimeError` where a service died of something else.
    """
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(prefix="perdure-crash-") as name, _world(Path(name), seed, guarded) as path:
        directory = Path(name) / "state"
        _in_child(lambda: _turns(Life(directory, path, mutant), FIRST_TURNS), lambda pid, ended: _wait(ended))
        at_points = sum(_live_and_die(directory, path, mutant, *_fate(rng)) for _ in range(kills))
        _in_child(lambda: _finish(Life(directory, path, mutant)), lambda pid, ended: _wait(ended))
        return Result(kills, at_points, *_reckon(directory, path))


def _live_and_die(directory: Path, path: Path, mutant: str, fuse: Fuse, delay_s: float) -> bool:
    """One life; True where it ended at the fuse's point, before the clock ended it."""
    blew = False

    def watch(pid: int, ended: int) -> None:
        nonlocal blew
        blew = bool(select.select([ended], [], [], delay_s)[0])
        os.kill(pid, signal.SIGKILL)

    _in_child(lambda: Life(directory, path, mutant, fuse).run(), watch)
    return blew


def _fate(rng: np.random.Generator) -> tuple[Fuse, float]:
    """How the next life ends: at an instant, or at a point in the code."""
    if rng.random() < 0.5:
        return Fuse(), float(rng.uniform(0.0, LIFE_S))
    return Fuse(str(rng.choice(POINTS)), int(rng.integers(1, 6))), LONGEST_LIFE_S


def _turns(life: Life, count: int) -> None:
    for _ in range(count):
        life.turn()
        life.talk()
    life.close()


def _finish(life: Life) -> None:
    life.run_until_quiet()
    life.close()


def _reckon(directory: Path, path: Path) -> tuple[Tally, tuple[str, ...], Said]:
    """The truth, which failures of it were never written down, and what came of what programs said."""
    life = Life(directory, path)
    raw = life.backend.ask("tally")
    tally = Tally(raw["failures"], tuple(raw["lost"]), tuple(raw["doubled"]))
    with life.journal.engine.connect() as db:
        written = {
            f"{CLUSTER}/{job_id}#{incarnation}"
            for job_id, incarnation in db.execute(
                query(attempts.c.job_id, attempts.c.incarnation).where(attempts.c.end_s.is_not(None))
            )
        }
    unknown = tuple(attempt for attempt in life.backend.ask("failures") if attempt not in written)
    said = _reckon_said(life)
    life.close()
    return tally, unknown, said


def _reckon_said(life: Life) -> Said:
    acknowledged = Counter(tuple(said) for said in life.backend.ask("all_acknowledged"))
    with life.journal.engine.connect() as db:
        payloads = [EXCEPTION.decode(text) for text in db.scalars(query(cast(exceptions.c.payload, Text)))]
        leases = [json.loads(text)["until_s"] for text in db.scalars(query(cast(handlers.c.payload, Text)))]
    held: Counter[tuple[str, str]] = Counter()
    doubled = []
    for record in payloads:
        owning = [v for v in record.verdicts if v.kind is AnswerKind.HANDLED]
        held["raised", record.id] = 1 + record.repeats
        held["answered", record.id] = sum(v.handler == PROGRAM for v in owning)
        doubled += [record.id] * max(0, len(owning) - 1)
    for what, until in acknowledged:  # a lease that was renewed or has run out is no more
        if what == "registered until" and float(until) <= max((life.now, *leases)):
            held[what, until] = MANY
    lost = [" ".join(said) for said, times in acknowledged.items() if held[said] < times]
    return Said(acknowledged.total(), tuple(lost), tuple(doubled))


@contextmanager
def _world(directory: Path, seed: int, guarded: bool) -> Iterator[Path]:
    """A cluster in a process of its own."""
    path = directory / "world"
    listener = listen(path)
    pid = os.fork()
    if pid == 0:
        _exit_after(lambda: World(seed, guarded).serve(listener))
    listener.close()
    try:
        yield path
        RemoteBackend(path, CLUSTER).ask("stop")
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.waitpid(pid, 0)


# -- processes


def _in_child(job: Callable[[], None], watch: Callable[[int, int], None]) -> None:
    """Fork, do `job` there, and `watch` it from here: by its process id and a descriptor that ends with it."""
    ended, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ended)
        _exit_after(job)
    os.close(held)
    try:
        watch(pid, ended)
    finally:
        os.close(ended)
        _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the service ended by itself, with {code}")


def _exit_after(job: Callable[[], None]) -> None:
    """Do `job`, then leave at once: nothing of the parent's is to be flushed or cleaned up a second time."""
    code = 1
    try:
        job()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(ended: int) -> None:
    select.select([ended], [], [])


def rehearse(seed: int = 0) -> None:
    """Run the service once in this process, so that forks of it start with all they need."""
    with tempfile.TemporaryDirectory(prefix="perdure-crash-") as name:
        path = Path(name) / "world"
        with listen(path) as listener:
            world = threading.Thread(target=World(seed, True).serve, args=(listener,))
            world.start()
            life = Life(Path(name) / "state", path)
            for _ in range(20):
                life.turn()
                life.talk()
            life.backend.ask("stop")
            life.close()
            world.join()
    gc.collect()
    gc.freeze()
