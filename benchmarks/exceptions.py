"""How many exceptions a second are accepted and durable, how soon a decision is there, and what a storm costs.

Run: python benchmarks/exceptions.py [EVENTS]. The real service but for the cluster, which is simulated: journal in SQLite
on a real disk, decisions, planned actions. What is counted is acknowledged, so it survives a power cut.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perdure.backends.simulated import Script, SimulatedBackend, SimulatedCluster
from perdure.errors import PerdureError
from perdure.service.auth import Identity, Role
from perdure.service.controller import ControllerSettings
from perdure.service.coordinator import Coordinator
from perdure.service.engine import Engine
from perdure.service.executor import STOP_FILE, Executor, ExecutorSettings
from perdure.service.journal import Journal
from perdure.triage.verdict import Label, Verdict

BATCH, NODES, STORM, RATE = 1000, 2000, 100_000, 1000
ROOT = Identity("root", Role.OPERATOR)


@contextmanager
def service() -> Iterator[Engine]:
    """An engine on a simulated cluster of many nodes."""
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        cluster = SimulatedCluster(0, NODES, name="bench")
        backend = SimulatedBackend(cluster)
        journal = Journal.open(state, "bench")
        executor = Executor(journal, backend, ExecutorSettings(True, state / STOP_FILE))
        verdict = Verdict(Label.UNSURE, 0.5, "unknown", "")
        engine = Engine(backend, journal, executor, lambda *_: verdict, ControllerSettings(), time.time)
        cluster.submit(Script(run_s=1e6))
        engine.look()
        try:
            yield engine
        finally:
            engine.close()


def distinct(n: int) -> list[dict[str, Any]]:
    """Faults that have nothing to do with each other: each is its own exception, walks the chain and is written down."""
    return [{"id": f"d{i}", "type": "site.note", "severity": 6, "subject": {"node": [f"x{i}"]}} for i in range(n)]


def equal(n: int) -> list[dict[str, Any]]:
    """A storm: one broken node, told of again and again."""
    return [{"id": f"s{i}", "type": "gpu.xid79", "severity": 0, "subject": {"node": ["n1"]}} for i in range(n)]


def in_batches(coordinator: Coordinator, records: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    for i in range(0, len(records), BATCH):
        for became in coordinator.raise_exceptions(records[i : i + BATCH], ROOT):
            if isinstance(became, PerdureError):
                raise became
    return time.perf_counter() - wall, time.process_time() - cpu


def reactions(coordinator: Coordinator, seconds: float) -> list[float]:
    """Milliseconds from a fault that calls for an action to the action in the journal, at `RATE` events a second."""
    took, begun = [], time.perf_counter()
    lock = threading.Lock()

    def one(i: int) -> None:
        record = {"id": f"r{i}", "type": "site.note", "severity": 6, "subject": {"node": [f"y{i}"]}}
        began = time.perf_counter()
        coordinator.raise_exceptions([record], ROOT)
        with lock:
            took.append(1000 * (time.perf_counter() - began))

    def client(k: int, of: int) -> None:
        for i in range(k, int(seconds * RATE), of):
            wait = begun + i / RATE - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            one(i)

    threads = [threading.Thread(target=client, args=(k, 16)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", nargs="?", type=int, default=20_000)
    n = parser.parse_args().events
    told: Callable[[str], None] = lambda text: print(text, flush=True)  # noqa: E731
    with service() as engine:
        coordinator = Coordinator(engine.tell, engine.view)
        wall, cpu = in_batches(coordinator, distinct(n))
        told(f"distinct, batches of {BATCH}: {n / wall:,.0f}/s by the wall clock, {n / cpu:,.0f}/s of processor time")
        wall, cpu = in_batches(coordinator, equal(STORM))
        planned = [row for row in engine.journal.planned() if row.action.kind == "drain"]
        told(f"storm of {STORM:,} equal faults: {STORM / wall:,.0f}/s, {len(planned)} action")
        took = sorted(reactions(coordinator, 5.0))
        p99 = took[int(0.99 * len(took))]
        told(f"one at a time at {RATE}/s from 16 threads: median {statistics.median(took):.1f} ms, p99 {p99:.1f} ms")


if __name__ == "__main__":
    main()
