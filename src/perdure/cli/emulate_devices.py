"""``perdure emulate device``: GPUs that programs share, one manager for each."""

from __future__ import annotations

import signal
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from perdure.cli.emulate_values import known
from perdure.cli.output import print_line
from perdure.emulation.device_manager import SharedDevice, serve
from perdure.emulation.faults import read_faults
from perdure.emulation.node import socket_of
from perdure.emulation.profiles import MEMORY_MIB
from perdure.emulation.sharing import ORDERS
from perdure.errors import InputError
from perdure.trust import is_ours


def serve_devices(
    gpu: str,
    path: Path,
    order: str,
    for_s: float,
    gpus: int | None,
    fault: Sequence[str],
    kernel_log: Path | None,
    jobs: Path | None,
) -> int:
    """Serve shared GPUs until Ctrl-C, TERM or their time; then say what each program has had. Raises `InputError`."""
    device = partial(
        SharedDevice,
        capacity_mib=MEMORY_MIB[known("--gpu", gpu, MEMORY_MIB)],
        order=ORDERS[known("--order", order, ORDERS)],
        faults=read_faults(fault, gpus or 1),
        kernel_log=kernel_log,
        jobs=jobs,
    )
    for spec, each in zip(fault, device.keywords["faults"], strict=True):
        if each.step is not None:
            raise InputError("--fault", f"{spec}: programs count no steps alike", "Give its seconds, as xid79@30s")
    if gpus is not None and not path.is_dir():
        raise InputError("--socket", f"there is no folder {path}", "Make it: sockets of several GPUs lie in a folder")
    if kernel_log is not None and not kernel_log.parent.is_dir():
        raise InputError("--kernel-log", f"there is no folder {kernel_log.parent}", "Make it, or name another file")
    if jobs is not None:
        _check_jobs(jobs)
    end = time.monotonic() + for_s
    ended: list[int] = []
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda number, _: ended.append(number))

    def stopped() -> bool:
        return bool(ended) or (for_s > 0 and time.monotonic() > end)

    devices = [device(path)] if gpus is None else [device(path / socket_of(n), number=n) for n in range(gpus)]
    with ThreadPoolExecutor(len(devices)) as managers:
        begun = [managers.submit(_serve, each, stopped, ended) for each in devices]
        for each, manager in zip(devices, begun, strict=True):
            where = f"GPU {each.number}, " if gpus is not None else ""
            for name, seconds in manager.result().items():
                print_line(f"{where}{name}: {seconds:.3f} s of the GPU")
    return 0


def _serve(device: SharedDevice, stopped: Callable[[], bool], ended: list[int]) -> dict[str, float]:
    """One that cannot serve ends all."""
    try:
        return serve(device, stopped)
    except BaseException:
        ended.append(0)
        raise


def _check_jobs(folder: Path) -> None:
    """Raises `InputError` for a folder in which users could say that a GPU is theirs."""
    try:
        found = folder.stat()
    except OSError as err:
        raise InputError("--jobs", f"{folder}: {err.strerror}", "Make it, and let Slurm's prolog write there") from err
    if not stat.S_ISDIR(found.st_mode) or not is_ours(found) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError("--jobs", f"others may write to {folder}", "Name a folder that root alone may write to")
