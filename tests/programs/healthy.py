"""A run that is well and silent for longer than usual, of the kind that its argument names."""

import os
import sys
import time

import torch
import torch.distributed as dist
from training import rank, train

kind, silent_s, shorter_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])


def compute(until_s):
    matrix = torch.randn(128, 128)
    while time.monotonic() < until_s:
        matrix = torch.tanh(matrix @ matrix)


def save(until_s):
    """To a disk that takes a MiB in a fifth of a second."""
    with open("checkpoint.pt", "wb") as file:
        while time.monotonic() < until_s:
            file.write(os.urandom(1 << 20))
            file.flush()
            time.sleep(0.2)


def at_step(step):
    until_s = time.monotonic() + silent_s
    if step == 1 and kind == "silent-start":
        time.sleep(silent_s)
    if step == 6 and kind == "validation" and rank == 0:
        compute(until_s)
    if step == 6 and kind == "save" and rank == 0:
        save(until_s)
    if step == 6 and kind == "loader-stall" and rank == 1:
        time.sleep(shorter_s)
    if kind == "progress-bar":
        time.sleep(shorter_s / 3)
        if rank == 0:
            sys.stderr.write(f"\r {100 * step // 20}%|{'#' * step}| {step}/20 [00:{step:02}<00:20, 1.00s/it]")
            sys.stderr.flush()
    if kind == "files":
        time.sleep(shorter_s / 3)


if rank == 0 and kind == "silent-start":
    print("Loading weights", flush=True)  # noqa: T201
if kind == "progress-bar":
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
train(at_step, steps=20 if kind in ("progress-bar", "files") else 12, timeout_s=3600)
assert not dist.is_initialized()
