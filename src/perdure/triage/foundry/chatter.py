"""Ordinary output of a training program, in several manners; copied beside each program of the foundry."""

import os
import sys
import time
from collections.abc import Iterator
from typing import TextIO

STYLE = int(os.environ.get("CHATTER", "0")) % 6


def say(text: str, stream: TextIO | None = None) -> None:
    print(text, file=stream or sys.stdout, flush=True)


def greet() -> None:
    """What a job prints before it begins."""
    if STYLE == 0:
        say(f"job started on {os.environ.get('NODE', 'n1')}, python {sys.version.split()[0]}")
    elif STYLE == 1:
        say("2025-03-02 10:11:12,345 INFO main: seed 17, 4 workers, batch 32")
        say("2025-03-02 10:11:13,007 WARNING data: cache is cold, the first epoch will be slower", sys.stderr)
    elif STYLE == 2:
        say("=" * 60 + "\n model: 3 layers, 12,416 parameters\n" + "=" * 60)
    elif STYLE == 3:
        say("Loading `train` is finished\nLoading `validation` is finished")
    elif STYLE == 4:
        say("/home/user/env/lib/x.py:17: FutureWarning: `old` is deprecated, use `new`\n  warnings.warn(", sys.stderr)
    else:
        say("[rank0]: world size 4, backend gloo")


def steps(count: int = 12) -> Iterator[int]:
    """Yield the numbers of the steps and print a line for each."""
    greet()
    for step in range(count):
        _tell(step, count, 2.3 / (1 + step) + 0.1)
        yield step


def _tell(step: int, count: int, loss: float) -> None:
    if STYLE == 0:
        say(f"step {step} loss {loss:.4f}")
    elif STYLE == 1:
        say(f"2025-03-02 10:12:{step % 60:02d},120 INFO train: it {step} loss={loss:.3f} lr=1e-3 error_rate=0.31")
    elif STYLE == 2:
        say(f"| {step:5d} | {loss:8.4f} | {time.monotonic() % 1:.3f} s |")
    elif STYLE == 3:
        bar = "#" * step + " " * (count - step)
        sys.stderr.write(f"\r{step / count:4.0%}|{bar}| {step}/{count} [00:0{step % 9}<00:09,  1.2it/s]")
        sys.stderr.flush()
    elif STYLE == 4:
        say(f'{{"step": {step}, "loss": {loss:.4f}, "retries": 0}}')
    else:
        say(f"[rank{step % 4}]: step={step} loss={loss:.4f} grad_norm=0.9")
