"""How many exceptions a second are accepted and durable, how soon a decision is there, and what a storm costs.

Run: python benchmarks/exceptions.py [EVENTS]. The real service but for the cluster, which is simulated: journal in
SQLite on a real disk, decisions, planned actions. What is counted is acknowledged, so it survives a power cut.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import uvicorn

from perdure.backends.simulated import Script, SimulatedBackend, SimulatedCluster
from perdure.errors import PerdureError
from perdure.service.access.auth import Identity, Role, TokenBook
from perdure.service.core.settings import ControllerSettings
from perdure.service.exceptions.coordinator import Coordinator
from perdure.service.store.journal import Journal
from perdure.service.web.app import create_app
from perdure.service.web.state import WebSettings
from perdure.service.workers.commands import ServiceCommands
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import STOP_FILE, Executor, ExecutorSettings
from perdure.service.workers.gc_tuning import keep_pauses_short
from perdure.triage.verdict import Label, Verdict

BATCH, NODES, STORM, RATE, LISTENERS = 1000, 2000, 100_000, 1000, 1000
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
        keep_pauses_short()
        try:
            yield engine
        finally:
            engine.close()


def distinct(n: int) -> list[dict[str, Any]]:
    """Faults that have nothing to do with each other: each walks the chain and is written down by itself."""
    return [note("d", i) for i in range(n)]


def note(name: str, i: int) -> dict[str, Any]:
    """The `i`-th of faults of which no two are equal."""
    node, kind = f"n{i % NODES + 1}", f"site.{name}{i // NODES}"
    return {"id": f"{name}{i}", "type": kind, "severity": 6, "subject": {"node": [node]}}


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
        began = time.perf_counter()
        coordinator.raise_exceptions([note("r", i)], ROOT)
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


@contextmanager
def served(engine: Engine) -> Iterator[tuple[int, str]]:
    """The engine's API on a port of its own, and a token for it."""
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0), backlog=LISTENERS) as sock:
        tokens = TokenBook(Path(name))
        desk = ServiceCommands(engine, "simulated", True, Path(name) / STOP_FILE)
        app = create_app(engine.journal.engine, desk, tokens, WebSettings())
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        try:
            yield sock.getsockname()[1], tokens.mint("bench", Role.OPERATOR)
        finally:
            server.should_exit = True
            thread.join(10)


def over_http(engine: Engine, records: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Wall and processor seconds of the same in JSON from a client, whose own work is not counted in the latter."""
    bodies = [json.dumps(records[i : i + BATCH]) for i in range(0, len(records), BATCH)]
    with served(engine) as (port, token), closing(HTTPConnection("127.0.0.1", port)) as client:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        wall, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
        for body in bodies:
            client.request("POST", "/api/v1/exceptions/batch", body, headers)
            if client.getresponse().read().count(b'"handled"') != BATCH:
                raise SystemExit("not all of a batch were taken in")
        return time.perf_counter() - wall, time.process_time() - cpu - (time.thread_time() - own)


def heard_by(engine: Engine, coordinator: Coordinator, listeners: int) -> float:
    """Seconds from raising ten exceptions to all listeners having heard of all of them, over HTTP."""
    with served(engine) as (port, token):
        return asyncio.run(_listen(port, token, listeners, coordinator))


async def _listen(port: int, token: str, listeners: int, coordinator: Coordinator) -> float:
    told = [note("h", i) for i in range(10)]
    opened = [await _open(port, token) for _ in range(listeners)]
    began = time.perf_counter()
    await asyncio.to_thread(coordinator.raise_exceptions, told, ROOT)
    await asyncio.gather(*(_hear(reader, len(told)) for reader, _ in opened))
    took = time.perf_counter() - began
    for _, writer in opened:
        writer.close()
    return took


async def _open(port: int, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = "/api/v1/events/stream?kind=exception_changed"
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"\nid: ")  # the place where the stream begins
    return reader, writer


async def _hear(reader: asyncio.StreamReader, times: int) -> None:
    for _ in range(times):
        await reader.readuntil(b"event: exception_changed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", nargs="?", type=int, default=20_000)
    n = parser.parse_args().events
    told: Callable[[str], None] = lambda text: print(text, flush=True)  # noqa: E731
    with service() as engine:
        coordinator = Coordinator(engine.tell, engine.view, engine.journal.recall, engine.look_now.set)
        in_batches(coordinator, [note("first", i) for i in range(2 * BATCH)])  # what is built at the first use
        wall, cpu = in_batches(coordinator, distinct(n))
        told(f"distinct, batches of {BATCH}: {n / wall:,.0f}/s by the wall clock, {n / cpu:,.0f}/s of processor time")
        wall, cpu = over_http(engine, [note("w", i) for i in range(n)])
        told(
            f"the same over HTTP: {n / wall:,.0f}/s by the wall clock, {n / cpu:,.0f}/s of the service's processor time"
        )
        wall, cpu = in_batches(coordinator, equal(STORM))
        planned = [row for row in engine.journal.planned() if row.action.kind == "drain"]
        told(f"storm of {STORM:,} equal faults: {STORM / wall:,.0f}/s, {len(planned)} action")
        took = sorted(reactions(coordinator, 5.0))
        p99 = took[int(0.99 * len(took))]
        wall = heard_by(engine, coordinator, LISTENERS)
        told(f"{LISTENERS:,} listeners over HTTP, 10 exceptions: all had heard of all after {wall:.2f} s")
        told(f"one at a time at {RATE}/s from 16 threads: median {statistics.median(took):.1f} ms, p99 {p99:.1f} ms")


if __name__ == "__main__":
    main()
