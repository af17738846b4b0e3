"""How soon the kill switch holds Perdure's hands while exceptions come in and actions are due.

    python benchmarks/kill_switch.py [--turns 20]

The real service but for the cluster, which takes `CALL_S` for every order, as a command of Slurm's does: journal in
SQLite on a real disk, all threads of the engine. `RATE` exceptions a second come in from 16 threads, ten at once, some
of which call for a drain; the caps are lifted, so that more drains are due than can be handed over. Then the file
appears. Prints, over all turns, the time from that moment to the last order handed to the cluster; exit code 1 where
one was later than `BAR_S`, or where no order was due.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perdure.backends.simulated import Script, SimulatedBackend, SimulatedCluster
from perdure.coordination.record import ExceptionRecord
from perdure.model.actions import Action, Outcome
from perdure.service.access.auth import Identity, Role
from perdure.service.core.settings import Caps, ControllerSettings
from perdure.service.exceptions.coordinator import Coordinator
from perdure.service.store.journal import Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import STOP_FILE, Executor, ExecutorSettings
from perdure.service.workers.threads import end, threads
from perdure.triage.verdict import Label, Verdict

BAR_S, CALL_S, RATE, CLIENTS, AT_ONCE, NODES, DRAIN_EVERY = 1.0, 0.01, 1000, 16, 10, 20_000, 10
LIFTED = Caps(10**6, 1.0, 10**6, 10**6, 1.0)
ROOT = Identity("root", Role.OPERATOR)


class Watched(SimulatedBackend):
    """A cluster that remembers when it was handed an order."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster)
        self.handed_s: list[float] = []

    def perform(self, action: Action) -> Outcome:
        self.handed_s.append(time.perf_counter())
        time.sleep(CALL_S)
        return super().perform(action)


@contextmanager
def service(state: Path) -> Iterator[tuple[Engine, Watched]]:
    """An engine at work on a simulated cluster of many nodes."""
    cluster = SimulatedCluster(0, NODES, name="bench")
    cluster.submit(Script(run_s=1e6))
    backend, journal = Watched(cluster), Journal.open(state, "bench")
    executor = Executor(journal, backend, ExecutorSettings(True, state / STOP_FILE, LIFTED))
    verdict = Verdict(Label.UNSURE, 0.5, "unknown", "")
    engine = Engine(backend, journal, executor, lambda *_: verdict, ControllerSettings(), time.time)
    engine.look()
    stop = threading.Event()
    hands = threads(engine, stop, look_every_s=30.0)
    for hand in hands:
        hand.start()
    try:
        yield engine, backend
    finally:
        end(hands, stop, engine)
        engine.close()
        journal.close()


class Load:
    """Exceptions at `RATE` a second until told to end; of every `DRAIN_EVERY` one calls for a drain."""

    def __init__(self, engine: Engine) -> None:
        self._coordinator = Coordinator(engine.tell, engine.view, engine.journal.recall, engine.look_now.set)
        self._over = threading.Event()
        self._began = time.perf_counter()
        self.told = [0] * CLIENTS
        self._threads = [threading.Thread(target=self._client, args=(k,)) for k in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> float:
        """Exceptions a second that were taken in."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        return sum(self.told) / (time.perf_counter() - self._began)

    def _client(self, k: int) -> None:
        i = k * AT_ONCE
        while not self._over.is_set():
            time.sleep(max(0.0, self._began + i / RATE - time.perf_counter()))
            became = self._coordinator.raise_exceptions([fault(j) for j in range(i, i + AT_ONCE)], ROOT)
            self.told[k] += sum(isinstance(one, ExceptionRecord) for one in became)
            i += CLIENTS * AT_ONCE


def fault(i: int) -> dict[str, Any]:
    """The `i`-th of faults of which no two are equal."""
    kind, severity = ("gpu.xid79", 0) if i % DRAIN_EVERY == 0 else (f"site.note{i // NODES}", 6)
    return {"id": f"r{i}", "type": kind, "severity": severity, "subject": {"node": [f"n{i % NODES + 1}"]}}


def turn(backend: Watched, switch: Path) -> tuple[float, int]:
    """Turn the switch on for a while: seconds to the last order after it (0 where none came), and how many came."""
    time.sleep(1.0)
    before = len(backend.handed_s)
    switch.touch()
    on_s = time.perf_counter()
    time.sleep(2.0)
    late = [handed_s - on_s for handed_s in backend.handed_s[before:] if handed_s > on_s]
    switch.unlink()
    return max(late, default=0.0), len(late)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    n = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as name, service(Path(name)) as (engine, backend):
        load = Load(engine)
        turns = [turn(backend, Path(name) / STOP_FILE) for _ in range(n)]
        due = len(engine.journal.planned())
        rate = load.end()
    late, orders = zip(*turns, strict=True)
    print(f"{rate:,.0f} exceptions/s taken in, {len(backend.handed_s)} orders handed over, {due} due at the end")
    print(
        f"{n} turns: last order after median {1e3 * statistics.median(late):.0f} ms, at most {1e3 * max(late):.0f} ms"
    )
    print(f"orders after the switch: at most {max(orders)} in one turn")
    return 0 if due and max(late) < BAR_S else 1


if __name__ == "__main__":
    sys.exit(main())
