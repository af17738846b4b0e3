"""``perdure why follow``: trouble of a running job, found in its log as it is written."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from perdure.cli.output import print_line
from perdure.errors import InputError

if TYPE_CHECKING:
    from perdure.triage.evidence.gather import Signs
    from perdure.triage.follow import FollowAlarm, Follower

POLL_S = 1.0
PIECE_BYTES = 1 << 20
FIX = "Name a log file that you may read"


@dataclass(frozen=True, slots=True)
class File:
    """An open file, and what tells it from one that has taken its name."""

    handle: BinaryIO
    inode: tuple[int, int]

    @classmethod
    def open(cls, path: Path) -> File:
        from perdure.triage.text.regular_file import open_regular

        handle = open_regular(path)
        status = os.fstat(handle.fileno())
        return cls(handle, (status.st_dev, status.st_ino))


class Tail:
    """A file by name: what is appended to it, through truncation and rotation."""

    def __init__(self, path: Path, follower: Follower, inode: tuple[int, int] | None = None) -> None:
        """Begin where `follower` stands, if this is the file `inode` and still that long; else at the start."""
        self._path, self._follower = path, follower
        self._file = File.open(path)
        status = os.fstat(self._file.handle.fileno())
        if inode is not None and inode == self._file.inode and status.st_size >= follower.offset:
            self._file.handle.seek(follower.offset)
            return
        follower.restart()
        while piece := self._file.handle.read(PIECE_BYTES):
            follower.catch_up(piece, status.st_mtime)
        follower.catch_up(b"", status.st_mtime)

    @property
    def inode(self) -> tuple[int, int]:
        return self._file.inode

    def alarms(self, now: float) -> Iterator[FollowAlarm]:
        """What there is to report of all that was written since the last call."""
        handle = self._file.handle
        if os.fstat(handle.fileno()).st_size < handle.tell():
            handle.seek(0)
            self._follower.restart()
        while piece := handle.read(PIECE_BYTES):
            yield from self._follower.feed(piece, now)
        if self._is_replaced():
            self._file.handle.close()
            self._file = File.open(self._path)
            self._follower.restart()
        yield from self._follower.tick(now)

    def _is_replaced(self) -> bool:
        """True where another file has the name now; one that is gone may come back."""
        with suppress(FileNotFoundError):
            status = os.stat(self._path)
            return (status.st_dev, status.st_ino) != self._file.inode
        return False

    def close(self) -> None:
        self._file.handle.close()


def follow(path: Path, signs: Signs, *, resume: Path | None, for_s: float | None, as_json: bool) -> int:
    """Print alarms as they come, until interrupted or for `for_s` seconds; 1 where there was one, else 0.

    `resume` is a file that says where the last call stopped, and is written at the end of this one.
    """
    tail, follower = _begun(path, signs, resume)
    told, end_s = 0, None if for_s is None else time.monotonic() + for_s
    try:
        while True:
            for alarm in tail.alarms(time.time()):
                told += 1
                _tell(path, alarm, as_json)
            left_s = POLL_S if end_s is None else min(POLL_S, end_s - time.monotonic())
            if left_s <= 0:
                break
            time.sleep(left_s)
    except KeyboardInterrupt:
        pass
    except OSError as err:
        raise InputError(str(path), f"cannot be read any more ({err.strerror})", FIX) from err
    finally:
        tail.close()
        if resume is not None:
            _save(resume, {"inode": tail.inode, "follower": follower.state()})
    return int(told > 0)


def _begun(path: Path, signs: Signs, resume: Path | None) -> tuple[Tail, Follower]:
    from perdure.triage.follow import Follower

    if resume is None or not resume.exists():
        follower = Follower(signs)
        return Tail(path, follower), follower
    try:
        saved = json.loads(resume.read_bytes())
        inode = (int(saved["inode"][0]), int(saved["inode"][1]))
        state = saved["follower"]
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as err:
        raise InputError(
            str(resume), f"not where a --follow stopped ({err})", "Name another file, or remove it"
        ) from err
    follower = Follower.of_state(state, signs, source=str(resume))
    return Tail(path, follower, inode), follower


def _save(path: Path, saved: object) -> None:
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(json.dumps(saved))
        new.replace(path)
    except OSError as err:
        raise InputError(str(path), f"cannot be written ({err.strerror})", "Name a file that you may write") from err


def _tell(path: Path, alarm: FollowAlarm, as_json: bool) -> None:
    if as_json:
        told = {"at_s": alarm.at_s, "line": alarm.line, "says": alarm.says, "text": alarm.text}
        head = {"schema": "perdure.alarm/1", "id": str(path), "trouble": str(alarm.trouble)}
        sys.stdout.write(json.dumps({**head, **told}) + "\n")
    else:
        at = datetime.fromtimestamp(alarm.at_s, UTC).astimezone().isoformat(timespec="seconds")
        shown = f": {alarm.text}" if alarm.text else ""
        print_line(f"{at} {path}:{alarm.line}: {alarm.trouble}: {alarm.says}{shown}")
    sys.stdout.flush()
