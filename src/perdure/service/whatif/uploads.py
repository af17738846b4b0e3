"""Traces on their way to a simulation: streamed into files of the service, and gone once used or too old."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from perdure.errors import InputError, NotFound, StateError, TooMany
from perdure.model.clean_text import clean

LIFE_S = 3600.0
MAX_OF_ONE = 2  # of one user: a trace, and perhaps its rates
MAX_UPLOADS = 16
MAX_NAME = 120


@dataclass(frozen=True, slots=True)
class Upload:
    """A trace that is at hand, or on its way while `size` is None."""

    id: str
    owner: str
    name: str  # as its owner calls it; never a path
    came_s: float
    size: int | None = None


class Uploads:
    """The traces that no comparison has used yet. They do not outlive the service."""

    def __init__(self, home: Path, most_bytes: int, clock: Callable[[], float]) -> None:
        self._home = home
        self._most_bytes = most_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, Upload] = {}
        shutil.rmtree(home, ignore_errors=True)

    async def take(self, chunks: AsyncIterator[bytes], owner: str, name: str) -> Upload:
        """Write a trace to disk as it comes. Raises `InputError`, `TooMany`, `StateError`; nothing is then left."""
        begun = self._begin(owner, name)
        try:
            size = await self._write(chunks, self._path(begun.id))
        except BaseException:
            self._drop(begun.id)
            raise
        upload = Upload(begun.id, owner, begun.name, begun.came_s, size)
        with self._lock:
            self._known[upload.id] = upload
        return upload

    def claim(self, upload_id: str, owner: str, to: Path) -> str:
        """Move a trace to where it is used, and say its name; it is not an upload any more.

        Raises `NotFound` for one that is not there, not whole yet, or another's, and `StateError`.
        """
        with self._lock:
            self._forget_old()
            upload = self._known.get(upload_id)
            if upload is None or upload.owner != owner or upload.size is None:
                fix = "Upload it again: each is used once, and dropped after an hour"
                raise NotFound("upload", "no such trace is at hand", fix)
            try:
                self._path(upload_id).replace(to)
            except OSError as err:
                raise _unwritable(to, err) from err
            del self._known[upload_id]
        return upload.name

    def forget_old(self) -> None:
        """Remove those that nobody has used for too long."""
        with self._lock:
            self._forget_old()

    def _begin(self, owner: str, name: str) -> Upload:
        """Take a place; of one user's the oldest that is whole gives way. Raises `TooMany`."""
        with self._lock:
            self._forget_old()
            mine = [upload for upload in self._known.values() if upload.owner == owner]
            if len(mine) >= MAX_OF_ONE:
                whole = next((upload for upload in mine if upload.size is not None), None)
                if whole is None:
                    raise TooMany("upload", f"{len(mine)} of yours are under way", "Wait until they are done")
                self._remove(whole.id)
            if len(self._known) >= MAX_UPLOADS:
                raise TooMany("upload", f"{len(self._known)} traces are at hand already", "Try again later")
            begun = Upload(secrets.token_hex(8), owner, clean(name)[:MAX_NAME], self._clock())
            self._known[begun.id] = begun
            return begun

    async def _write(self, chunks: AsyncIterator[bytes], path: Path) -> int:
        size = 0
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("xb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self._most_bytes:
                        what = f"it is larger than {self._most_bytes >> 20} MiB"
                        raise InputError("upload", what, "Pack it with gzip, or send a part of it")
                    await run_in_threadpool(file.write, chunk)
        except OSError as err:
            raise _unwritable(path, err) from err
        if not size:
            raise InputError("upload", "the file is empty", "Export the trace again")
        return size

    def _forget_old(self) -> None:
        for upload in list(self._known.values()):
            if upload.size is not None and self._clock() - upload.came_s > LIFE_S:
                self._remove(upload.id)

    def _drop(self, upload_id: str) -> None:
        with self._lock:
            self._remove(upload_id)

    def _remove(self, upload_id: str) -> None:
        self._known.pop(upload_id, None)
        self._path(upload_id).unlink(missing_ok=True)

    def _path(self, upload_id: str) -> Path:
        return self._home / upload_id


def _unwritable(path: Path, err: OSError) -> StateError:
    return StateError(str(path.parent), f"cannot be written: {err.strerror}", "See that its disk has room")
