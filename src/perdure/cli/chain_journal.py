"""Where a user's chains are written down: one directory each, in a state directory of the user's own.

``chain.json`` is the chain, replaced in one step and written through to the disk at each change, before anything that
follows from the change is done. ``environment.json`` is what links are submitted with, for the user alone. ``current``
is there while ``chain.json`` is the newest state: it is removed where the disk is full, which needs no room.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.durable import sync_directory, write_whole
from perdure.errors import InputError, NotFound, StateError
from perdure.job.chain_folder import ChainFolder
from perdure.succession.chain_state import ChainStanding, JobChain

_NAME = re.compile(r"[^A-Za-z0-9_-]+")
HOME = "PERDURE_KEEP_DIR"
_ANOTHER = f"Name a directory of your own in {HOME}"
_T = TypeVar("_T")


class LinkPlan(msgspec.Struct, frozen=True):
    """What every link of a chain is submitted with, besides its number."""

    options: tuple[tuple[str, str | None, tuple[str, ...]], ...]  # of the script, then of the command line
    script_options: int  # how many of them are the script's
    command: tuple[str, ...]  # what runs the user's script, with its arguments
    signal: str = ""
    to_steps: bool = False
    grace_s: float = 120.0
    framework: str = "plain"
    comment: str = ""  # the user's own


@dataclass(frozen=True, slots=True)
class KeptChain:
    """One chain on the disk."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def folder(self) -> ChainFolder:
        return ChainFolder(self.path)

    def read(self) -> JobChain:
        """Raises `StateError` where it cannot be read."""
        return _decoded(self.path / "chain.json", JobChain)

    def write(self, chain: JobChain, *, is_current: bool = True) -> None:
        """Raises `OSError`. It is not current as long as Slurm may have jobs of the chain that nobody wrote down."""
        write_whole(self.path / "chain.json", msgspec.json.encode(chain), 0o600)
        if chain.standing is not ChainStanding.RUNNING and not self.folder.over.exists():
            write_whole(self.folder.over, chain.why.encode(), 0o600)
        if is_current and self.is_behind():
            write_whole(self._current, b"", 0o600)

    def fall_behind(self) -> None:
        """Say that more was done than what is written here. Raises `OSError`."""
        self._current.unlink(missing_ok=True)
        sync_directory(self.path)

    def is_behind(self) -> bool:
        """Whether Slurm may have jobs of this chain that are not written here."""
        return not self._current.exists()

    @property
    def _current(self) -> Path:
        return self.path / "current"

    def plan(self) -> LinkPlan:
        return _decoded(self.path / "plan.json", LinkPlan)

    def environment(self) -> dict[str, str]:
        return _decoded(self.path / "environment.json", dict[str, str])

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Inside the block no other process drives this chain; False where one does."""
        with _locked(self.path / "lock") as lock:
            yield lock is not None

    @contextmanager
    def submitting(self) -> Iterator[int | None]:
        """A locked file for `sbatch` to keep; None while an earlier one still has it."""
        with _locked(self.path / "submit.lock") as lock:
            yield lock

    def ask_stop(self, at_once: bool) -> None:
        """Ask the driver of the chain to stop it. Raises `StateError`."""
        with unwritten(self.path):
            write_whole(self.path / "stop", b"now" if at_once else b"later", 0o600)

    def stop_asked(self) -> str:
        """ "" where nobody has asked, else now or later."""
        try:
            return (self.path / "stop").read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""


@dataclass(frozen=True, slots=True)
class ChainJournal:
    """All chains of this user on one cluster."""

    path: Path

    @classmethod
    def of(cls, environment: Mapping[str, str], cluster: str) -> ChainJournal:
        """Raises `StateError` for a user without a home."""
        home, state = environment.get(HOME, ""), environment.get("XDG_STATE_HOME", "")
        try:
            base = Path(home or Path(state or Path.home() / ".local" / "state") / "perdure" / "keep").absolute()
        except RuntimeError as err:
            raise StateError("keep", "this user has no home directory", f"Name a directory in {HOME}") from err
        return cls(base / (_NAME.sub("-", cluster) or "cluster"))

    def chains(self) -> list[KeptChain]:
        """The oldest first. Raises `StateError` where another user may write here."""
        if not self.path.is_dir():
            return []
        self._refuse_strangers()
        found = [KeptChain(each) for each in self.path.iterdir() if (each / "chain.json").exists()]
        return sorted(found, key=lambda kept: _made_s(kept.path))

    def _refuse_strangers(self) -> None:
        """What is here is submitted as jobs of this user."""
        try:
            found = self.path.stat()
        except OSError as err:
            raise StateError(str(self.path), f"cannot be used ({err.strerror})", _ANOTHER) from err
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise StateError(str(self.path), "another user may write there", _ANOTHER)

    def find(self, id_: str) -> KeptChain:
        """Raises `NotFound`."""
        if self.path.is_dir():
            self._refuse_strangers()
        kept = KeptChain(self.path / _NAME.sub("-", id_))
        if not (kept.path / "chain.json").exists():
            known = ", ".join(each.id for each in self.chains()) or "none"
            raise NotFound(f"chain {id_[:80]}", "no such chain is kept", f"Kept are: {known}")
        return kept

    @contextmanager
    def making(self) -> Iterator[None]:
        """Inside the block nobody else makes a chain here. Raises `StateError`."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._refuse_strangers()
            descriptor = os.open(self.path / "making.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as err:
            raise StateError(str(self.path), f"cannot be made ({err.strerror})", _ANOTHER) from err
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def make(self, name: str) -> KeptChain:
        """A new directory, named after a job. Raises `StateError`."""
        stem = _NAME.sub("-", name).strip("-")[:40] or "chain"
        for number in range(1, 10_000):
            path = self.path / f"{stem}-{number}"
            try:
                self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._refuse_strangers()
                path.mkdir(mode=0o700)
                (path / "links").mkdir()
            except FileExistsError:
                continue
            except OSError as err:
                raise StateError(str(path), f"cannot be made ({err.strerror})", _ANOTHER) from err
            return KeptChain(path)
        raise StateError(str(self.path), f"holds 10,000 chains named {stem}", "Remove old ones")


def every_journal(environment: Mapping[str, str]) -> list[ChainJournal]:
    """Those of all clusters on which this user has had chains. Raises `StateError` for a user without a home."""
    base = ChainJournal.of(environment, "").path.parent
    return [ChainJournal(each) for each in sorted(base.iterdir()) if each.is_dir()] if base.is_dir() else []


def refuse_second(journal: ChainJournal, name: str, directory: str) -> None:
    """Raise `InputError` where a running chain has jobs of this name already: two would write the same checkpoints."""
    for kept in journal.chains():
        try:
            chain = kept.read()
        except StateError:  # nobody drives it either
            continue
        if chain.standing is ChainStanding.RUNNING and (chain.spec.name, _works_in(kept, chain)) == (name, directory):
            fix = f"See perdure keep show {kept.id}, stop it, or give this one another --job-name"
            raise InputError(f"job name {name!r}", f"chain {kept.id} keeps jobs of this name already", fix)


def _works_in(kept: KeptChain, chain: JobChain) -> str:
    """The directory that its links run in."""
    try:
        options = kept.plan().options
    except StateError:
        return chain.spec.directory
    named = next((value for name, value, _ in reversed(options) if name == "chdir"), None)
    return os.path.abspath(os.path.join(chain.spec.directory, named or ""))


@contextmanager
def unwritten(path: Path) -> Iterator[None]:
    """Raises `StateError` where a file of a chain cannot be written: the disk is full, or read-only."""
    try:
        yield
    except OSError as err:
        raise StateError(str(path), f"cannot be written ({err.strerror})", f"Make room, or: {_ANOTHER}") from err


def _made_s(path: Path) -> float:
    for name in ("plan.json", "chain.json"):
        with suppress(OSError):
            return (path / name).stat().st_mtime
    return 0.0


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _decoded(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as err:
        raise StateError(str(path), f"cannot be read ({err})", "It may be of another version of Perdure") from err
