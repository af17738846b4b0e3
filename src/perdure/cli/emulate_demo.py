"""``perdure emulate demo``: emulated GPUs on the embedded cluster; two nodes break, and jobs recover elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import json

from perdure.cli.output import print_line
from perdure.cli.service_client import Client
from perdure.errors import PerdureError, StateError

NODES, GPUS = 8, 8
JOBS, GPUS_OF_JOB = 14, 4  # one node stays free, for those that fail
USERS = ("mira", "jonas", "aiko", "tunde")
MODELS = (("resnet50", 64, 0.0405), ("vit-b16", 32, 0.0465), ("bert-base", 64, 0.0475), ("unet", 16, 0.049))
FIRST_S, SECOND_S, BREAK_AFTER_S, WAVE_AFTER_S = 25.0, 10.0, 8.0, 22.0
SECOND_JOBS, GPUS_OF_SECOND = 8, 2
READY_S, LONGEST_S = 90.0, 115.0
HANG_AFTER_S = 5
SETTINGS = "[blame]\nstep_s = 4.0\n"


@dataclass(slots=True)
class DemoTale:
    """What has been seen so far, so that each thing is told once."""

    begun: float
    told: set[str] = field(default_factory=set)
    seen: dict[str, float] = field(default_factory=dict)

    def tell(self, key: str, text: str) -> None:
        if key not in self.told:
            self.told.add(key)
            self.seen[key] = time.monotonic() - self.begun
            print_line(f"{self.seen[key]:5.1f} s  {text}")


def demonstrate(port: int, stay: bool) -> int:
    """Run it; 0 where both faults were found, blamed and recovered, else 1."""
    with tempfile.TemporaryDirectory(prefix="perdure-emulate-") as folder, _service(Path(folder), port) as client:
        tale = DemoTale(time.monotonic())
        print_line(f"{NODES * GPUS} emulated GPUs on {NODES} nodes. Dashboard: {_link(client)}", whole=True)
        code = _play(client, Path(folder), tale)
        if stay:
            print_line("The dashboard stays until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                signal.pause()
        return code


@contextmanager
def _service(folder: Path, port: int) -> Iterator[Client]:
    """A service of its own beside a cluster of its own, ended with the block."""
    state, config = folder / "state", folder / "config.toml"
    config.write_text(SETTINGS, "utf-8")
    words = ["up", "--nodes", str(NODES), "--gpus", str(GPUS), "--no-demo", "--port", str(port)]
    command = [sys.executable, "-m", "perdure", *words, "--state", str(state), "--config", str(config)]
    with (folder / "service.log").open("wb") as log:
        started = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield _ready(state, started, folder / "service.log")
    finally:
        started.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            started.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)


def _ready(state: Path, started: subprocess.Popen[bytes], log: Path) -> Client:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and started.poll() is None:
        with suppress(PerdureError):
            client = Client.of(state, {})
            if len(client.get("/nodes")["items"]) == NODES:
                return client
        time.sleep(0.2)
    said = (log.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
    raise StateError("perdure up", f"the service did not start: {said[:200]}", "Try: perdure up --no-demo")


def _link(client: Client) -> str:
    return f"{client.url}/?code={client.post('/login-codes')['code']}"


def _play(client: Client, folder: Path, tale: DemoTale) -> int:
    faults, kernel = folder / "faults.json", folder / "kernel.log"
    kernel.touch()
    nodes = sorted(row["name"] for row in client.get("/nodes")["items"])
    broken, standing = nodes[2], nodes[4]
    begins = time.time() + BREAK_AFTER_S
    faults.write_bytes(json.encode({broken: [("ecc@0", begins)], standing: [("hang600@0", begins + 2)]}))
    for number in range(JOBS):
        client.post("/jobs", _job(number, GPUS_OF_JOB, FIRST_S, faults, kernel))
    tale.tell(
        "jobs",
        f"{JOBS} jobs train; in {BREAK_AFTER_S:g} s {broken} gets memory errors, then {standing} hangs",
    )
    while (now := time.monotonic() - tale.begun) < LONGEST_S:
        if now > WAVE_AFTER_S and "more" not in tale.told:
            for number in range(JOBS, JOBS + SECOND_JOBS):
                client.post("/jobs", _job(number, GPUS_OF_SECOND, SECOND_S, faults, kernel))
            tale.tell("more", f"{SECOND_JOBS} more jobs come")
        jobs = client.get("/jobs", limit=200)["items"]
        _watch(client, tale, kernel, jobs, {broken, standing})
        ended = "more" in tale.told and all(job["state"] == "completed" for job in jobs)
        if ended and f"blamed {standing}" in tale.told and f"drained {broken}" in tale.told:
            tale.tell("recovered", f"all {len(jobs)} jobs are completed")
            break
        time.sleep(0.5)
    return _sum_up(tale, broken, standing)


def _job(number: int, gpus: int, seconds: float, faults: Path, kernel: Path) -> Mapping[str, Any]:
    model, batch, step_s = MODELS[number % len(MODELS)]
    program = [
        sys.executable,
        "-m",
        "perdure.emulation.trainer",
        "--gpu",
        "h100",
        "--model",
        model,
        "--batch",
        str(batch),
    ]
    program += ["--steps", str(round(seconds / step_s)), "--faults", str(faults), "--kernel-log", str(kernel)]
    watched = [sys.executable, "-m", "perdure", "exec", "--hang-after", str(HANG_AFTER_S), "--hang-grace", "2", "--"]
    return {
        "argv": [*watched, *program], "name": f"{model}-{number}", "user": USERS[number % len(USERS)],
        "gpus_per_node": gpus, "walltime_s": 300.0,
        "env": {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
    }  # fmt: skip


def _watch(client: Client, tale: DemoTale, kernel: Path, jobs: list[dict[str, Any]], broken: set[str]) -> None:
    """Tell what is new, and raise what the kernel log says, as a node's health monitor would."""
    for line in kernel.read_text("utf-8").splitlines():
        node = line.partition(" ")[0]
        if f"kernel {node}" not in tale.told:
            tale.tell(f"kernel {node}", f"the kernel log of {node}: {line.partition('kernel: ')[2]}")
            client.post(
                "/exceptions", {"type": "gpu.xid48", "severity": 1, "note": line[:200], "subject": {"node": [node]}}
            )
    for node in client.get("/nodes")["items"]:
        if node["name"] in broken and node["state"] not in ("up", "idle", "busy"):
            tale.tell(
                f"drained {node['name']}", f"{node['name']} takes no new jobs: {node['state']}, {node['reason'][:60]}"
            )
    for job in jobs:
        failure = job["failure"]
        if failure and failure["decision"]:
            key = f"{job['job_id']} {job['restarts']} {failure['category']}"
            if key not in tale.told and job["state"] in ("failed", "pending"):
                tale.tell(
                    key, f"job {job['job_id']} ({job['name']}) failed: {failure['category']}; {failure['decision']}"
                )
    for suspect in client.get("/suspects")["suspects"]:
        if (name := suspect["component"]) in broken:
            tale.tell(f"blamed {name}", suspect["said"])


def _sum_up(tale: DemoTale, broken: str, standing: str) -> int:
    """One line for each thing that should have been seen; 0 where all were."""
    wanted = {
        f"drained {broken}": f"the memory errors of {broken} found, and the node drained",
        f"blamed {standing}": f"the hanging of {standing} found, and the node blamed",
        "recovered": "all jobs recovered elsewhere",
    }
    for key, says in wanted.items():
        print_line(
            f"{'yes' if key in tale.told else 'NO '}  {says}"
            + (f" ({tale.seen[key]:.0f} s)" if key in tale.seen else "")
        )
    return 0 if wanted.keys() <= tale.told else 1
