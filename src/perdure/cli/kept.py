"""What commands keep for their next call, in a folder of the user's own; one that others may write to is not used."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.installation import cache_folder

MAX_BYTES = 1 << 30
MOST_AHEAD_S = 5.0  # of the clock of a file server


@dataclass(frozen=True, slots=True)
class KeptFolder:
    """A folder of files; None where no folder can be had that is the user's alone: then nothing is kept."""

    folder: Path | None

    @classmethod
    def below(cls, *names: str) -> KeptFolder:
        """A folder of the user's cache, made if need be."""
        try:
            folder = cache_folder().joinpath(*names)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            found = folder.stat()
        except (OSError, RuntimeError):
            return cls(None)
        return cls(folder if found.st_uid == os.getuid() and not found.st_mode & 0o022 else None)

    def fresh(self, name: str, most_s: float, make: Callable[[], bytes]) -> tuple[bytes, float]:
        """What is kept under a name and how old it is, in seconds; made again where it is older than `most_s`."""
        kept = self.read(name)
        if kept is not None and kept[1] <= most_s:
            return kept
        made = make()
        self.write(name, made)
        return made, 0.0

    def read(self, name: str) -> tuple[bytes, float] | None:
        """What is kept, and its age in seconds; None where there is nothing."""
        if self.folder is None:
            return None
        try:
            with (self.folder / name).open("rb") as file:
                age_s = time.time() - os.fstat(file.fileno()).st_mtime
                if age_s < -MOST_AHEAD_S:  # a clock that was put back: it would stay fresh until then
                    return None
                return file.read(MAX_BYTES), max(0.0, age_s)
        except OSError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Keep it; a disk that is full is no error, nothing is kept then."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            descriptor, path = tempfile.mkstemp(dir=self.folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(path, self.folder / name)
            except BaseException:  # Ctrl-C too: each try would leave one more
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Inside the block no other process makes what is kept under a name; False where one does just now.

        Where nothing can be kept, as on a full disk, everybody makes it.
        """
        with contextlib.ExitStack() as stack:
            is_alone = True
            if self.folder is not None:
                with contextlib.suppress(OSError):
                    file = stack.enter_context((self.folder / f"{name}.lock").open("ab"))
                    is_alone = False
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_alone = True
            yield is_alone

    def path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name
