"""A full disk: it is said, nothing is lost, the kill switch works, and all goes on once there is room."""

import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.local import LocalBackend
from perdure.backends.local.store import Leftover, LocalStore
from perdure.errors import StateError
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.workers.kill_switch import RESERVE_BYTES, KillSwitch
from tests.attacks.service import Attacked, attacked, await_

needs_mount = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a small file system")


@contextmanager
def small_disk(where: Path, size: str = "24m", inodes: int = 400) -> Iterator[Path]:
    options = f"size={size},nr_inodes={inodes},mode=0700"
    where.mkdir()
    done = subprocess.run(("mount", "-t", "tmpfs", "-o", options, "tmpfs", where), capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield where
    finally:
        subprocess.run(("umount", "-l", where), check=True)


def fill(disk: Path) -> None:
    """Take every byte."""
    with (disk / "full").open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))


def take_all_names(disk: Path) -> None:
    """Take every inode."""
    for number in range(10_000):
        try:
            (disk / f"name{number}").touch()
        except OSError:
            return
    raise AssertionError("it has no end")


def give_back(disk: Path) -> None:
    for path in (disk / "full", *disk.glob("name*")):
        path.unlink(missing_ok=True)


def readiness(service: Attacked) -> tuple[int | None, Any]:
    with suppress(OSError):
        return service.ask("GET", "/readyz")
    return None, None


@needs_mount
@pytest.mark.slow
def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, attacked(disk, "--nodes", "1", "--gpus", "1") as service:
        await_(lambda: (service.state / "reserve").exists())
        cluster = LocalBackend(service.state / "cluster")
        daemon = cluster.ping()
        job = service.submit("sleep 2; exit 3", user="mira")
        fill(disk)
        await_(lambda: readiness(service)[0] == 503, 40, lambda: service.log[-2000:])
        said = readiness(service)[1]
        assert said["status"] == "not ready"
        assert "the journal cannot be written" in said["why"]
        take_all_names(disk)
        status, standing = service.ask("POST", "/kill-switch", {"on": True})
        assert (status, standing.get("stopped")) == (200, True), standing
        assert "the reserve" in standing["note"]  # what it cost
        assert (service.state / "STOP").exists()
        assert service.process.poll() is None
        give_back(disk)
        await_(lambda: readiness(service)[0] == 200, 40, lambda: service.log[-2000:])
        assert cluster.ping() == daemon  # it is the same: no job was ended for want of room
        assert service.await_decision(job, 30)
        assert service.ask("POST", "/kill-switch", {"on": False})[1]["note"] == ""
        assert "Traceback" not in service.log


@needs_mount
@pytest.mark.parametrize("taken", [fill, take_all_names])
def test_the_switch_has_room_on_a_full_disk(tmp_path: Path, taken: Callable[[Path], None]) -> None:
    with small_disk(tmp_path / "disk", "1m", 40) as disk:
        switch = KillSwitch(disk)
        switch.keep_reserve()
        assert (disk / "reserve").stat().st_size == RESERVE_BYTES
        taken(disk)
        assert "the reserve" in switch.turn("root", on=True) or taken is fill
        assert switch.file.exists()
        taken(disk)
        switch.keep_reserve()
        assert not (disk / "reserve").exists()  # there is no room for a whole one, and half a one is none
        assert list(disk.glob(".reserve*")) == []
        give_back(disk)
        switch.keep_reserve()
        assert (disk / "reserve").exists()
        assert switch.turn("root", on=False) == ""
        assert not switch.file.exists()


@needs_mount
def test_a_policy_that_is_off_on_a_full_disk_is_said_to_be(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m", 40) as disk:
        switch = PolicySwitch(disk)
        fill(disk)
        switch.turn(on=False, by="root")
        assert switch.is_off
        switch.turn(on=True, by="root")
        take_all_names(disk)
        with pytest.raises(StateError, match="Make room there"):
            switch.turn(on=False, by="root")
        assert not switch.is_off


class Full:
    """A database on a disk that is full for a while."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db, self.is_full = db, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, text: str, *given: Any) -> sqlite3.Cursor:
        if text == "COMMIT" and self.is_full:
            err = sqlite3.OperationalError("database or disk is full")
            err.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise err
        return self._db.execute(text, *given)


def test_the_embedded_cluster_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    store = LocalStore(tmp_path / "db", ends.is_set)
    store._db.close()
    full = Full(sqlite3.connect(tmp_path / "db", isolation_level=None, check_same_thread=False))
    monkeypatch.setattr(store, "_db", full)
    writing = threading.Thread(target=store.add_processes, args=([Leftover(1, "b", "x")],))
    writing.start()
    time.sleep(0.5)
    assert writing.is_alive()
    full.is_full = False
    writing.join(60)
    assert store.leftovers() == [Leftover(1, "b", "x")]
    full.is_full = True
    ends.set()
    with pytest.raises(sqlite3.OperationalError):  # but not for ever, where it is to end
        store.add_processes([Leftover(2, "b", "x")])
    assert store.leftovers() == [Leftover(1, "b", "x")]
