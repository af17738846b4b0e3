"""Troubles of file systems, on real mounts of their own: full, read-only, with a quota, broken below, gone.

The mount is named in SCRATCH. All need root.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foundry.troubles.setting import Setting, Trouble, calm

MIB = 1 << 20


def _do(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _mounted(kind: str, what: str, where: Path, options: str) -> Iterator[Path]:
    where.mkdir(exist_ok=True)
    _do("mount", "-t", kind, "-o", options, what, where)
    try:
        yield where
    finally:
        unmounted = subprocess.run(["umount", where], check=False, capture_output=True)
        if unmounted.returncode:  # a process that was killed a moment ago may still hold it
            _do("umount", "-l", where)


def _small(options: str, neighbour_mib: int = 0) -> Trouble:
    """A memory file system of few bytes or inodes; a neighbour's data on it are gone when the world is well."""

    @contextmanager
    def trouble(directory: Path, present: bool) -> Iterator[Setting]:
        with _mounted("tmpfs", "scratch", directory / "scratch", options) as scratch:
            if present and neighbour_mib:
                (scratch / "other_user").mkdir()
                (scratch / "other_user" / "dump.bin").write_bytes(bytes(neighbour_mib * MIB))
            yield {"SCRATCH": str(scratch)}, calm

    return trouble


@contextmanager
def read_only(directory: Path, present: bool) -> Iterator[Setting]:
    with _mounted("tmpfs", "scratch", directory / "scratch", "ro" if present else "rw") as scratch:
        yield {"SCRATCH": str(scratch)}, calm


def _format(image: Path, size: int, *options: str) -> None:
    with image.open("wb") as file:
        file.truncate(size)
    _do("mkfs.ext4", "-q", "-F", *options, image)


@contextmanager
def broken_below(directory: Path, present: bool) -> Iterator[Setting]:
    """A disk whose data blocks cannot be read, as while its cable or its server is away, or once they are lost."""
    image, scratch = directory / "tmp" / "disk.img", directory / "scratch"
    _format(image, 16 * MIB, "-O", "^has_journal")
    with _mounted("ext4", str(image), scratch, "loop"):
        (scratch / "shard.bin").write_bytes(os.urandom(8 * MIB))
    with _mounted("ext4", str(image), scratch, "loop,ro"):  # mounted anew: nothing of it is in memory
        if present:
            os.truncate(image, 2 * MIB)
        yield {"SCRATCH": str(scratch)}, calm


@contextmanager
def thin(directory: Path, _present: bool) -> Iterator[Setting]:
    """A disk of 64 MiB by its own account, on a store that holds 6: never cleared, whoever asks."""
    store, scratch = directory / "store", directory / "scratch"
    with _mounted("tmpfs", "store", store, "size=6m"):
        _format(store / "disk.img", 64 * MIB, "-O", "^has_journal", "-E", "lazy_itable_init=1")
        with _mounted("ext4", str(store / "disk.img"), scratch, "loop"):
            yield {"SCRATCH": str(scratch)}, calm


@contextmanager
def quota(directory: Path, _present: bool) -> Iterator[Setting]:
    """A disk on which the job may hold two mebibytes."""
    image, scratch = directory / "tmp" / "disk.img", directory / "scratch"
    with image.open("wb") as file:
        file.truncate(128 * MIB)
    _do("mkfs.btrfs", "-q", image)
    with _mounted("btrfs", str(image), scratch, "loop"):
        _do("btrfs", "quota", "enable", scratch)
        _do("btrfs", "qgroup", "limit", "2M", scratch)
        yield {"SCRATCH": str(scratch)}, calm


@contextmanager
def server_gone(directory: Path, present: bool) -> Iterator[Setting]:
    """A mount served by a process; with the trouble that process has been killed."""
    store, scratch = directory / "store", directory / "scratch"
    store.mkdir()
    scratch.mkdir()
    (store / "shard.bin").write_bytes(bytes(MIB))
    server = subprocess.Popen(["bindfs", "-f", store, scratch], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while not (scratch / "shard.bin").exists() and time.monotonic() < until:
            time.sleep(0.02)
        if present:
            server.kill()
            server.wait()
        yield {"SCRATCH": str(scratch)}, calm
    finally:
        server.kill()
        server.wait()
        subprocess.run(["umount", "-l", scratch], check=False, capture_output=True)


TROUBLES: dict[str, Trouble] = {
    "disk-small": _small("size=4m"),
    "disk-shared": _small("size=8m", neighbour_mib=7),
    "disk-inodes": _small("size=8m,nr_inodes=40"),
    "disk-read-only": read_only,
    "disk-broken": broken_below,
    "disk-thin": thin,
    "disk-quota": quota,
    "disk-server-gone": server_gone,
}
