"""Run the failing programs anew: python -m benchmarks.gpu_failures.run OUT [--groups cpu,gpu] [--only ID,ID]

Needs an NVIDIA GPU, root (for mounts of its own) and the frameworks of the programs. Groups ``tenant`` and ``tenant2``
are run while ``python benchmarks/gpu_failures/helpers/hold.py 1500 60 READY`` holds the card but for 1,500 MiB
(tenant2: 3,600). Each program leaves OUT/ID/log.txt and OUT/ID/result.json. The programs end processes and mount file
systems: use a machine where nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu_failures.programs import FailingProgram, read_programs

HERE = Path(__file__).parent
FIRST_PORT, PORTS_EACH = 21000, 20
LONGEST_LOG, KEPT_HEAD, KEPT_TAIL = 400_000, 100_000, 300_000


class Run:
    """One program in its folder, with what happens beside it."""

    def __init__(self, program: FailingProgram, out: Path, place: int) -> None:
        self.program, self.keys = program, program.keys
        self.out = out / self.keys["id"]
        self.work = Path(self.keys.get("as", f"/scratch/users/{self.keys['id']}"))
        self.side = self.out / "side"
        self.log = self.out / "log.txt"
        self.env = self._environment(FIRST_PORT + place * PORTS_EACH)
        self.ours: list[subprocess.Popen[bytes]] = []

    def result(self) -> dict[str, Any]:
        """Run it to its end; its exit code, and whether its event came about."""
        self._lay_out()
        self._shell("before", "ab")
        self._start("beside")
        if "beside" in self.keys:
            time.sleep(1.5)
        started = time.monotonic()
        with self._ended_at_last():
            code, fired = self._follow(started)
        self._shell("after", "ab")
        self._shorten()
        shutil.rmtree(self.work)
        return {"exit_code": code, "fired": fired, "seconds": round(time.monotonic() - started, 1)}

    def _environment(self, port: int) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(HERE / "helpers"),
            "SITE": str(HERE / "helpers"),
            "SIDE": str(self.side),
            "WORK": str(self.work),
            "PORT": str(port),
            "MASTER_PORT": str(port + 1),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "2",
            "USER": self.keys.get("user", "mkowalski"),
            "TERM": "dumb",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TRITON_CACHE_DIR": str(self.side / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.side / "inductor"),
        }

    def _lay_out(self) -> None:
        if self.work.exists():
            raise SystemExit(f"{self.work}: exists, and would be removed. Run on a machine of its own.")
        self.side.mkdir(parents=True)
        self.work.mkdir(parents=True)
        for path, text in self.program.sources.items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).write_text(text)
        prologue = tomllib.loads((HERE / "prologues.toml").read_text())[self.keys.get("pro", "plain")]
        (self.work / "job.sh").write_text(f"#!/bin/bash\n{prologue}\n{self.keys['run']}\n")

    def _shell(self, key: str, mode: str) -> None:
        if key in self.keys:
            with (self.side / f"{key}.log").open(mode) as sink:
                subprocess.run(["bash", "-c", self.keys[key]], cwd=self.work, env=self.env, stdout=sink, check=False)

    def _start(self, key: str) -> None:
        if key in self.keys:
            with (self.side / f"{key}.log").open("ab") as sink:
                self.ours.append(self._opened(["bash", "-c", self.keys[key]], sink))

    def _opened(self, command: list[str], sink: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self.work,
            env=self.env,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )

    def _follow(self, started: float) -> tuple[int, bool]:
        command = ["bash", "job.sh"]
        if "ns" in self.keys:
            mounts = f"mount --make-rprivate /\n{self.keys['ns']}\nexec bash job.sh"
            command = ["unshare", "-m", "bash", "-c", mounts]
        fired = "when" not in self.keys
        with self.log.open("wb") as sink:
            job = self._opened(command, sink)
        self.ours.append(job)
        self.env["JOB"] = str(job.pid)
        while job.poll() is None and time.monotonic() - started < self.program.limit_s:
            time.sleep(0.1)
            if not fired and self.keys["when"].encode() in self.log.read_bytes():
                fired = True
                self._start("event")
        _end(job)
        return job.wait(), fired

    @contextmanager
    def _ended_at_last(self) -> Iterator[None]:
        try:
            yield
        finally:
            for process in self.ours:
                _end(process)

    def _shorten(self) -> None:
        data = self.log.read_bytes()
        if len(data) > LONGEST_LOG:
            self.log.write_bytes(data[:KEPT_HEAD] + b"\n[...]\n" + data[-KEPT_TAIL:])


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def main() -> None:
    """Run the programs of some groups, the longest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--groups", default="cpu,gpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, default=1, help="programs at a time")
    options = parser.parse_args()
    groups, only = options.groups.split(","), [each for each in options.only.split(",") if each]
    picked = [p for p in read_programs() if p.group in groups and (not only or p.keys["id"] in only)]
    picked.sort(key=lambda program: -program.limit_s)

    def of(numbered: tuple[int, FailingProgram]) -> None:
        run = Run(numbered[1], options.out.resolve(), numbered[0])
        result = run.result()
        (run.out / "result.json").write_text(json.dumps(result))
        print(run.keys["id"], result, flush=True)

    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(of, enumerate(picked)))


if __name__ == "__main__":
    main()
