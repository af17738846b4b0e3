"""One armed service for one Slurm on this machine: a lock that ends with the process that has it.

The lock is a file that only its owner may open, in a directory that only its owner may write to: nobody else can hold
it or put another in its place. A file next to it says who has it, for all to read. A service of another user on this
machine finds that; one on another machine does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from perdure.errors import InUse, StateError
from perdure.installation import user_name

SYSTEM_DIR = Path("/run/perdure")
MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
class InstanceHolder:
    """The service that acts."""

    pid: int
    began: str  # when that process started, in the kernel's ticks: another process may get its number
    user: str
    state: str  # its state directory

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} with state directory {self.state}"


def lock_dir(env: Mapping[str, str], euid: int) -> Path:
    """Where services of this user leave their locks: root's in /run, others' where the system keeps what is theirs."""
    if euid == 0:
        return SYSTEM_DIR
    runtime = env.get("XDG_RUNTIME_DIR", "")
    return Path(runtime) / "perdure" if runtime.startswith("/") else Path(f"/tmp/perdure-{euid}")  # noqa: S108


@contextlib.contextmanager
def only_one(identity: str, state: Path, directory: Path, others: tuple[Path, ...] = (SYSTEM_DIR,)) -> Iterator[None]:
    """Be the one armed service for the Slurm of that identity while inside the block.

    `others`: directories in which another user's service may have left word. Raises `InUse` where there is another,
    `StateError` where the directory cannot be trusted.
    """
    for other in others:
        if other != directory and (holder := holder_of(identity, other)) is not None:
            raise _in_use(identity, holder)
    _make(directory)
    word = _word(identity, directory)
    lock = word.with_suffix(".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise StateError(str(lock), f"cannot be opened: {err.strerror}", "Remove it") from err
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            raise _in_use(identity, read_holder(word)) from err
        _write(word, InstanceHolder(os.getpid(), _began(os.getpid()), user_name(), str(state.absolute())))
        try:
            yield
        finally:
            word.unlink(missing_ok=True)
    finally:
        os.close(handle)


def holder_of(identity: str, directory: Path) -> InstanceHolder | None:
    """Who acts on the Slurm of that identity, by the word left in a directory."""
    return read_holder(_word(identity, directory))


def _word(identity: str, directory: Path) -> Path:
    return directory / f"{hashlib.sha256(identity.encode('utf-8', 'replace')).hexdigest()[:16]}.json"


def read_holder(word: Path) -> InstanceHolder | None:
    """Who left word there, where that process still lives; the word of anybody but the directory's owner counts not."""
    try:
        folder = word.parent.lstat()
        handle = os.open(word, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != folder.st_uid or folder.st_uid not in (0, os.geteuid()):
            return None
        said = json.loads(os.read(handle, MAX_BYTES))
        holder = InstanceHolder(int(said["pid"]), str(said["began"]), str(said["user"]), str(said["state"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        os.close(handle)
    return holder if holder.began and _began(holder.pid) == holder.began else None


def _in_use(identity: str, holder: InstanceHolder | None) -> InUse:
    by = str(holder) if holder else "another process"
    return InUse(identity, f"another service acts on it: {by}", "Stop that one, or start this one with --shadow")


def _make(directory: Path) -> None:
    """Raises `StateError` for a directory that somebody else owns or may write to."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as err:
        raise StateError(str(directory), f"cannot be made: {err.strerror}", "Make it, with mode 755") from err
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise StateError(str(directory), "somebody else may write to it", "Remove it, or chown it and chmod 755 it")


def _write(path: Path, holder: InstanceHolder) -> None:
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "w") as file:
        os.fchmod(handle, 0o644)
        json.dump(asdict(holder), file)
    draft.replace(path)


def _began(pid: int) -> str:
    """When a process started, in the kernel's ticks; "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
