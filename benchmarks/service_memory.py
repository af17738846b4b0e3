"""Resident memory of the service while the demonstration runs: ``python benchmarks/service_memory.py [SECONDS]``.

Also prints how long it took from the command to the printed address, and to the first decision.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

LIMIT_MB = 250


def decided(state: Path) -> bool:
    """Whether any failure has been answered."""
    service = json.loads((state / "service.json").read_text())
    request = urllib.request.Request(
        f"{service['url']}/api/v1/jobs?limit=50", headers={"Authorization": f"Bearer {service['token']}"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return any(job["failure"] and job["failure"]["decision"] for job in json.load(answer)["items"])


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory)
        began = time.monotonic()
        command = [sys.executable, "-m", "perdure", "up", "--port", "0", "--state", str(state)]
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            watch(service, state, began, seconds)
        finally:
            service.terminate()
            service.wait(30)


def watch(service: subprocess.Popen[str], state: Path, began: float, seconds: float) -> None:
    """Print each figure as soon as it is known."""
    assert service.stdout is not None
    service.stdout.readline()
    print(f"address printed after   {time.monotonic() - began:6.1f} s", flush=True)
    while not decided(state):
        time.sleep(0.2)
    print(f"first decision after    {time.monotonic() - began:6.1f} s", flush=True)
    process, peak = psutil.Process(service.pid), 0
    while time.monotonic() - began < seconds:
        peak = max(peak, process.memory_info().rss)
        time.sleep(0.5)
    print(f"peak resident memory    {peak / 1e6:6.1f} MB over {seconds:.0f} s (limit {LIMIT_MB} MB)")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 90.0)
