"""Batches that a GPU prepares, as DALI's pipelines do: it is busy with them, and so are threads of the host.

    from perdure.emulation.preprocessing import PreparedOnGpu

    for images, labels in PreparedOnGpu(files, gpu_s=0.011, cpu_s=0.02, cpu_threads=3):

`files` is any reader of one's own, and what it reads is real. The GPU's part takes its turn in the GPU's queue, between
the steps of training; the host's part burns processors for real, and goes on while the program trains. A reader that
knows better what it does calls `on_gpu` itself. Where nothing is emulated, batches are as the reader gives them.

The times are those of one batch, measured on a GPU. After M. Wang et al., "GPEmu".
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from perdure.emulation.framework import running_node
from perdure.emulation.passes import with_errors

SLICE_S = 0.01
"""A thread that is busy for a share of its time is so in each slice of this length."""

_WORK = bytes(1 << 18)
_clock, _used, _sleep = time.perf_counter, time.thread_time, time.sleep  # not the emulated program's

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class PreparedOnGpu(Iterable[Batch]):
    """Batches of `reader`, each prepared for `gpu_s` seconds by the GPU and for `cpu_s` by `cpu_threads` of the host.

    `cpu_share` of that time the threads are busy. Raises `ValueError` for times below 0 and shares beyond 1.
    """

    reader: Iterable[Batch]
    gpu_s: float
    cpu_s: float = 0.0
    cpu_threads: int = 1
    cpu_share: float = 1.0

    def __post_init__(self) -> None:
        if not (self.gpu_s >= 0 and self.cpu_s >= 0 and self.cpu_threads >= 0 and 0 <= self.cpu_share <= 1):
            raise ValueError("times and threads are at least 0, and cpu_share is at most 1")

    def __iter__(self) -> Iterator[Batch]:
        node = running_node()
        if node is None:
            yield from self.reader
            return
        ahead = self._burn()  # the first batch's; each next one's goes on while the program trains
        for batch in self.reader:
            with node.clock.waiting():
                for each in ahead:
                    each.join()
            ahead = self._burn()
            on_gpu(self.gpu_s)
            yield batch

    def _burn(self) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=burn, args=(self.cpu_s, self.cpu_share), daemon=True)
            for _ in range(self.cpu_threads if self.cpu_s * self.cpu_share else 0)
        ]
        for each in threads:
            each.start()
        return threads


def on_gpu(seconds: float) -> None:
    """Put work of so many seconds into the queue of the current GPU, where one is emulated; raises what breaks it."""
    if (node := running_node()) is not None:
        with node.clock.outside():
            with_errors(lambda: node.gpu.run(seconds))


def burn(seconds: float, share: float) -> None:
    """Use a processor for a share of so many seconds, without the interpreter's lock; longer where others use it."""
    end = _used() + seconds * share
    while (used := _used()) < end:
        begin, stop = _clock(), min(used + SLICE_S * share, end)
        while _used() < stop:
            hashlib.blake2b(_WORK)
        _sleep(max(0.0, begin + SLICE_S - _clock()) if share < 1 else 0.0)
