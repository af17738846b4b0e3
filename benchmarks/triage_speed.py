"""How fast triage is, and how much memory it takes: python benchmarks/triage_speed.py

Each memory figure is of a process of its own, imports included.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

GIB, MIB = 1 << 30, 1 << 20
END = b'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\nTypeError: not a number\n'
LINES = {
    "plain training": b"2025-01-01 00:00:01 INFO train: step 1007 loss 2.345 lr 1e-4 tokens/s 12345.6 accuracy 0.31\n",
    "ranks and colours": b"[rank3]: \x1b[32m[2025-01-01 00:00:01,123]\x1b[0m [INFO] step=7 loss=2.34 grad_norm=0.9\n",
    "progress bars": b"\r 47%|####7     | 47/100 [00:09<00:11,  4.95it/s, loss=0.31]",
    "warnings": b"/home/u/env/lib/python3.11/site-packages/x.py:17: FutureWarning: `old` is deprecated\n",
    "handled errors": b"WARNING: connection refused, retrying in 3 s\n",
}


def throughput() -> None:
    """Print the rate of cleaning and matching for logs of several manners."""
    from perdure.triage.logtext import LogText, Window
    from perdure.triage.rules import own_rules

    for name, line in LINES.items():
        data = line * (64 * MIB // len(line)) + b"\n" + END
        text = LogText.of(data[-15 * MIB :])
        own_rules().hits(LogText.of(line))
        size = sum(len(window.data) for window in text.windows)
        seconds = _best(lambda text=text: own_rules().hits(text), 3)  # type: ignore[misc]
        print(f"clean + rules, {name:18s} {size / seconds / 1e6:6.0f} MB/s {size / len(line) / seconds:12,.0f} lines/s")
    seen = b"".join(b"worker %d: Error: %x at %d\n" % (i % 7, i * 2654435761 % 2**32, i) for i in range(1_000_000))
    text = LogText((Window(seen),))
    seconds = _best(lambda: own_rules().hits(text), 1)
    size = sum(len(window.data) for window in text.windows)
    print(f"clean + rules, distinct error lines {size / seconds / 1e6:5.0f} MB/s {1e6 / seconds:12,.0f} lines/s")


def verdict() -> None:
    """Print what the model's load and one verdict take."""
    started = time.perf_counter()
    from perdure.triage.classifiers.linear import own_model

    imported = time.perf_counter()
    own_model()
    loaded = time.perf_counter()
    from perdure.triage.judge import judge

    excerpt = (LINES["plain training"] * 100)[-8000:] + END
    judge(excerpt)
    seconds = _best(lambda: judge(excerpt), 50)
    print(f"import of the model's module, NumPy included, {1e3 * (imported - started):.0f} ms")
    print(f"load of the model {1e3 * (loaded - imported):.1f} ms")
    print(f"verdict on an excerpt of 8 KB {1e3 * seconds:.2f} ms")


def _best(work: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def big_file(kind: str) -> None:
    """Judge one large file; print the time, the verdict and the peak memory."""
    from perdure.triage.judge import judge
    from perdure.triage.logtext import read_windows

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        with path.open("wb") as file:
            if kind == "sparse 2 GiB":
                file.truncate(2 * GIB)
                file.seek(0, os.SEEK_END)
            elif kind == "one line of 1 GB":
                for _ in range(1000):
                    file.write(b"x" * 1_000_000)
                file.write(b"\n")
            else:
                for _ in range(32):
                    file.write(LINES["plain training"] * (64 * MIB // len(LINES["plain training"])))
            file.write(END)
        started = time.perf_counter()
        found = judge(read_windows(path))
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / MIB
        last = found.evidence[-1]
        print(f"{kind:18s} {seconds:5.1f} s, {found.label} ({found.category}), line {last.line}, peak {peak:.0f} MiB")


def main() -> None:
    if len(sys.argv) > 1:
        big_file(sys.argv[1])
        return
    for kind in ("sparse 2 GiB", "one line of 1 GB", "2 GiB of lines"):
        sys.stdout.flush()
        subprocess.run([sys.executable, __file__, kind], check=True)
    verdict()
    throughput()


if __name__ == "__main__":
    main()
