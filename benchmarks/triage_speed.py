"""How fast triage is, and how much memory it takes: python benchmarks/triage_speed.py [big files too: --big]

All times are of the processor (`time.process_time`), medians of several runs; each figure of memory is of a process
of its own, imports included.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

GIB, MIB = 1 << 30, 1 << 20
SIZE = 15 * MIB  # of a log that is measured: nearly all that one log's windows may have
END = b'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\nTypeError: not a number\n'
STEP = b"2025-01-01 00:00:01 INFO train: step 1007 loss 2.345 lr 1e-4 tokens/s 12345.6 accuracy 0.31\n"


def _words(count: int) -> list[str]:
    rng = random.Random(7)
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(3, 9))) for _ in range(count)]


def logs() -> Iterator[tuple[str, bytes]]:
    """Logs of several manners, ordinary and hostile."""
    rng, words = random.Random(7), _words(5000)
    yield "plain training", STEP
    yield (
        "training, all numbers differ",
        b"".join(
            b"2025-01-01 %02d:%02d:%02d INFO train: step %d loss %.4f lr 1e-4 tokens/s %.1f\n"
            % (i // 3600 % 24, i // 60 % 60, i % 60, i, 3 / (i + 1), 12000 + i % 997)
            for i in range(150_000)
        ),
    )
    yield "progress bars", b"\r 47%|####7     | 47/100 [00:09<00:11,  4.95it/s, loss=0.31]"
    yield "ranks and colours", b"[rank3]: \x1b[32m[2025-01-01 00:00:01,123]\x1b[0m [INFO] step=7 loss=2.34 norm=0.9\n"
    yield (
        "colours of 4,000 kinds",
        b"".join(
            b"\x1b[38;2;%d;%d;%dm#\x1b[0m" % (i % 256, i // 16 % 256, i % 17) + (b" step\n" if i % 20 == 0 else b"")
            for i in range(50_000)
        ),
    )
    yield "words at random", b"".join((" ".join(rng.choices(words, k=9)) + "\n").encode() for _ in range(60_000))
    yield "warnings", b"/home/u/env/lib/python3.11/site-packages/x.py:17: FutureWarning: `old` is deprecated\n"
    yield "handled errors", b"WARNING: connection refused, retrying in 3 s\n"
    yield (
        "tracebacks of 64 ranks",
        b"".join(
            b"[rank%d]: Traceback (most recent call last):\n[rank%d]: RuntimeError: no good %d\n" % (i % 64, i % 64, i)
            for i in range(50_000)
        ),
    )
    yield (
        "error lines, no two alike",
        b"".join(b"worker %d: Error: %x at %d\n" % (i % 7, i * 2654435761 % 2**32, i) for i in range(500_000)),
    )
    yield (
        "error lines of words",
        b"".join(f"Error: {' '.join(rng.choices(words, k=6))}\n".encode() for _ in range(300_000)),
    )
    yield (
        "errors of disks, no two alike",
        b"".join(
            f"OSError: [Errno 5] Input/output error: '/data/{'/'.join(rng.choices(words, k=2))}'\n".encode()
            for _ in range(200_000)
        ),
    )


def throughput() -> None:
    """Print the rates of reduction and rules, without and with a last good run."""
    from perdure.triage.evidence.excerpt import excerpt, last_block
    from perdure.triage.evidence.goodrun import GoodRun
    from perdure.triage.evidence.rules import own_rules
    from perdure.triage.text.logtext import LogText

    good = GoodRun.of(LogText.of(STEP * 1000))

    def reduced(text: LogText, good: GoodRun | None = None) -> None:
        hits = last_block(own_rules().hits(text))
        excerpt(text, hits, good)

    reduced(LogText.of(END))
    print(f"{'reduction and rules':32s} {'MB/s':>6s} {'lines/s':>12s}   with a good run: MB/s")
    for name, some in logs():
        data = (some * (SIZE // len(some) + 1))[:SIZE] + b"\n" + END
        text = LogText.of(data)
        alone, compared = median_s(lambda t=text: reduced(t), 5), median_s(lambda t=text: reduced(t, good), 3)
        size, lines = len(data) / 1e6, data.count(b"\n") + data.count(b"\r")
        print(f"{name:32s} {size / alone:6.0f} {lines / alone:12,.0f} {size / compared:23.0f}")


def templates() -> None:
    """Print how fast templates are learnt, and a running log followed."""
    from perdure.triage.evidence.goodrun import GoodRun
    from perdure.triage.evidence.rules import own_rules
    from perdure.triage.follow import Follower
    from perdure.triage.text.logtext import LogText
    from perdure.triage.text.masking import mask
    from perdure.triage.text.templates import TemplateTree

    lines = [b"step %d of node%d: loss %.4f at 0x%x" % (i, i % 97, 3 / (i + 1), i * 2654435761) for i in range(200_000)]
    text = LogText.of(b"\n".join(lines))
    seconds = median_s(lambda: GoodRun.of(text), 3)
    print(f"templates of lines that differ in numbers only: {len(lines) / seconds:,.0f} lines/s")
    words = _words(300)
    rng = random.Random(3)
    masked = [mask(" ".join(rng.choices(words, k=8)).encode()).decode() for _ in range(5000)]

    def learn() -> None:
        tree = TemplateTree()
        for line in masked:
            tree.learn(line)

    print(f"templates of masked lines of random words: {len(masked) / median_s(learn, 3):,.0f} lines/s")
    piece = STEP * 10_000
    follower = Follower(own_rules().matcher())
    print(f"following a running log: {len(piece) / 1e6 / median_s(lambda: follower.feed(piece, 0.0), 5):.0f} MB/s")


def verdict() -> None:
    """Print what the model's load and one verdict take."""
    started = time.process_time()
    from perdure.triage.classifiers.linear import own_model

    imported = time.process_time()
    own_model()
    loaded = time.process_time()
    from perdure.triage.judge import judge

    excerpt = (STEP * 100)[-8000:] + END
    judge(excerpt)
    ready = time.process_time()
    print(f"import of the model's module, NumPy included, {1e3 * (imported - started):.0f} ms")
    print(
        f"load of the model {1e3 * (loaded - imported):.1f} ms, "
        f"of the rules with a first verdict {1e3 * (ready - loaded):.0f} ms"
    )
    print(f"verdict on an excerpt of 8 KB {1e3 * median_s(lambda: judge(excerpt), 200):.2f} ms")
    storm = b"".join(b"[rank%d]: ValueError: %d is not %d\n" % (i % 8, i, i + 1) for i in range(220))[:8192]
    print(f"verdict on 8 KB of nothing but errors {1e3 * median_s(lambda: judge(storm), 50):.2f} ms")


def median_s(work: Callable[[], object], times: int) -> float:
    """Seconds of the processor that `work` takes, the median of so many runs."""
    taken = []
    for _ in range(times):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


BIG = ("sparse 2 GiB", "one line of 1 GB", "2 GiB of lines", "2 GiB storm", "1 GiB in gz", "40 ranks of 50 MB")


def write_big(kind: str, path: Path) -> None:
    if kind == "sparse 2 GiB":
        with path.open("wb") as file:
            file.truncate(2 * GIB)
            file.seek(0, os.SEEK_END)
            file.write(END)
    elif kind == "40 ranks of 50 MB":
        path.mkdir()
        for rank in range(40):
            with (path / f"rank{rank}.log").open("wb") as file:
                file.write(STEP * (50_000_000 // len(STEP)) + (END if rank == 17 else b""))
    else:
        storm = b"".join(b"worker %d: Error: %x at %d\n" % (i % 7, i * 2654435761 % 2**32, i) for i in range(1_800_000))
        block = {"one line of 1 GB": b"x" * 1_000_000, "2 GiB storm": storm}.get(kind, STEP * (64 * MIB // len(STEP)))
        times = {"one line of 1 GB": 1000, "1 GiB in gz": 16}.get(kind, 32)
        with gzip.open(path, "wb", 1) if kind == "1 GiB in gz" else path.open("wb") as file:
            for _ in range(times):
                file.write(block)
            file.write(b"\n" + END)


def big(kind: str) -> None:
    """Judge one large log as `perdure why` does; print the time, the verdict and the peak memory."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        path = Path(directory) / "log"
        subprocess.run([sys.executable, __file__, "--write", kind, str(path)], check=True)
        from perdure.cli.logs import read_log
        from perdure.triage.evidence.rules import own_rules
        from perdure.triage.judge import judge

        started, began = time.perf_counter(), time.process_time()
        found = judge(read_log(str(path), own_rules().matcher()).text)
        seconds, spent = time.perf_counter() - started, time.process_time() - began
        last = found.evidence[-1]
        where = f"line {last.line} {last.source}".strip()
        cost = f"{seconds:5.1f} s ({spent:.1f} s of the processor)"
        print(f"{kind:18s} {cost}, {found.category}, {where}, {peak_mib():.0f} MiB")


def peak_mib() -> float:
    """The peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss also has what the process was before it became this program
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--big", action="store_true", help="also logs of gigabytes; needs 3 GB on disk")
    parser.add_argument("--one", choices=BIG, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_big(options.write[0], Path(options.write[1]))
    elif options.one:
        big(options.one)
    else:
        verdict()
        throughput()
        templates()
        for kind in BIG if options.big else ():
            sys.stdout.flush()
            subprocess.run([sys.executable, __file__, "--one", kind], check=True)


if __name__ == "__main__":
    main()
