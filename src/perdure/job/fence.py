"""Which incarnation of a job may write: claims in a directory that all incarnations share.

A claim is one file, ``claims/<token>``, made complete next to it and then linked under the next free number. Linking is
atomic and fails where the number is taken, so claims have one order, none is ever half made, and nothing has to be
unlocked by a process that is frozen or dead. The highest token holds; every lower one is fenced.

A token says "later", and the directory must be on a file system where `link` and `rename` are atomic for all nodes
of the job: any local one, NFS, Lustre, GPFS. A client that caches directory listings (NFS: a few seconds) may see a
newer claim that much later; publishing with `checkpointed` does not depend on that.
"""

from __future__ import annotations

import glob
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from perdure.durable import make_directory, sync_directory, write_new, write_whole
from perdure.errors import ConfigError, Fenced, StateError

FENCE_DIR = "PERDURE_FENCE_DIR"
FENCE_TOKEN = "PERDURE_FENCE_TOKEN"  # noqa: S105 - a number, no secret
KEPT_CLAIMS = 16  # the latest stay, for people who want to know what happened
DRAFT_LIFE_S = 3600.0
MAX_DIGITS = 18  # of a token
MAX_NOTE_BYTES = 64 * 1024

_FIX = "A newer incarnation of this job runs: let this one end"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who made a claim.

    Where incarnations repeat, `start_s`, the instant of the start, tells two starts of one apart; where that is not
    known of both, `start` does, which tasks of one start share.
    """

    job_id: str
    incarnation: int
    start: str = ""
    host: str = ""
    cluster: str = ""
    start_s: int = 0

    def is_same_start(self, other: Holder) -> bool:
        if not self._is_same_job(other) or self.incarnation != other.incarnation:
            return False
        if self.start_s and other.start_s:
            return self.start_s == other.start_s
        return self.start == other.start

    def is_older_than(self, other: Holder) -> bool:
        """Whether the resource manager itself says so; between two jobs there is no such order."""
        if not self._is_same_job(other) or self.incarnation != other.incarnation:
            return self._is_same_job(other) and self.incarnation < other.incarnation
        return 0 < self.start_s < other.start_s

    def _is_same_job(self, other: Holder) -> bool:
        """Numbers of jobs repeat among clusters, where these are named."""
        return self.job_id == other.job_id and (self.cluster == other.cluster or not (self.cluster and other.cluster))


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write, until somebody claims a higher token."""

    directory: Path
    token: int

    def check(self) -> None:
        """Raise `Fenced` where a newer claim exists or the claims are gone, `OSError` where nobody can tell."""
        newest = _newest(self.directory)
        if newest != self.token:
            what = f"token {self.token} is fenced by token {newest}" if newest else "its claim is gone"
            raise Fenced(str(self.directory), what, _FIX)

    @contextmanager
    def stage(self, parent: Path) -> Iterator[Path]:
        """A fresh directory in `parent` for what is to be published there; newer claims take it away.

        What lies in it can be renamed into place only while no newer claim exists: afterwards the rename finds
        nothing. Raises `Fenced`. The order makes that safe: a newer claimant first claims, then takes away every
        stage that is noted; we first note it, then make it, then look whether there is a newer claim.
        """
        name = f"{self.token}-{os.urandom(16).hex()}"
        stage, note = parent.resolve() / _stage_name(name), _stages(self.directory) / name
        try:
            write_whole(note, os.fsencode(stage))
            stage.mkdir()
            self.check()
            yield stage
        finally:
            remove_tree(stage)
            note.unlink(missing_ok=True)


def claim(
    directory: Path | str, job_id: str, incarnation: int, start: str = "", *, cluster: str = "", start_s: int = 0
) -> Claim:
    """Claim the right to write for one incarnation; from then on nothing older can publish.

    All tasks of one start (same job, incarnation, and `start_s` or `start`) share one claim. Safe for any number of
    claimants at once and for ``kill -9`` at any point; between the tasks of one user, as others' drafts are not
    touched. Raises `Fenced` where a newer incarnation of the job has claimed already, `StateError` where the directory
    cannot be used.
    """
    directory = Path(directory)
    wanted = Holder(job_id, incarnation, start, os.uname().nodename, cluster, start_s)
    try:
        for part in (_claims(directory), _stages(directory)):
            make_directory(part)
        claimed = Claim(directory, _take_token(directory, wanted))
        _revoke_older(directory, claimed.token)
        _prune(directory, claimed.token)
    except OSError as err:
        fix = f"Name a directory that all nodes of the job share in {FENCE_DIR}"
        raise StateError(str(directory), f"the fence cannot be used: {err.strerror or err}", fix) from err
    return claimed


def current_claim(environment: Mapping[str, str]) -> Claim | None:
    """The claim that ``perdure exec`` made for this process; None where it was not started that way.

    Raises `ConfigError` where the variables are damaged.
    """
    directory, token = environment.get(FENCE_DIR), environment.get(FENCE_TOKEN)
    if not directory or not token:
        return None
    if not token.isdecimal() or len(token) > MAX_DIGITS:
        raise ConfigError(FENCE_TOKEN, f"{token[:80]!r} is not a token", "Leave it as perdure exec has set it")
    return Claim(Path(directory), int(token))


def _take_token(directory: Path, wanted: Holder) -> int:
    """Find or make this start's claim."""
    draft = directory / f"draft-{os.urandom(16).hex()}"
    write_new(draft, json.dumps(asdict(wanted)).encode())
    try:
        while True:
            newest = _newest(directory)
            try:
                if newest and _joins(directory, newest, wanted):
                    return newest
            except FileNotFoundError:
                continue  # so many came since that it has been let go
            try:
                os.link(draft, _claims(directory) / str(newest + 1))
            except FileExistsError:
                continue  # somebody was faster: look again
            if _newest(directory) > newest + KEPT_CLAIMS:
                continue  # this one was slow: its number may have been another's, and let go since
            sync_directory(_claims(directory))
            return newest + 1
    finally:
        draft.unlink(missing_ok=True)


def _joins(directory: Path, token: int, wanted: Holder) -> bool:
    """Whether this claim is this very start's. Raises `Fenced` where it is of a newer incarnation of the job."""
    holder = _read_holder(directory, token)
    if wanted.is_older_than(holder):
        what = f"incarnation {holder.incarnation} has claimed it, this is {wanted.incarnation}"
        raise Fenced(str(directory), what, _FIX)
    return holder.is_same_start(wanted)


def _newest(directory: Path) -> int:
    """The highest token; 0 where there is none."""
    try:
        names = os.listdir(_claims(directory))
    except FileNotFoundError:
        return 0
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _read_holder(directory: Path, token: int) -> Holder:
    path = _claims(directory) / str(token)
    try:
        return Holder(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as err:
        raise StateError(str(path), "this claim is damaged", "Remove the directory when no such job runs") from err


def _revoke_older(directory: Path, token: int) -> None:
    """Take away what older claims have prepared but not published: moved, it cannot be published any more.

    Where others may write into the fence, a note could name anything. So only this user's notes count, and only for
    this user's directories of the name that `Claim.stage` gives.
    """
    for name in os.listdir(_stages(directory)):
        if not _is_older(name, token):
            continue
        note = _stages(directory) / name
        with suppress(FileNotFoundError):  # its owner has just finished, or another claimant is at it
            stage = _noted_stage(note)
            if stage is None:
                continue
            with suppress(FileNotFoundError):
                if _is_own_directory(stage):
                    stage.rename(f"{stage}.revoked-{os.urandom(16).hex()}")
                    sync_directory(stage.parent)  # it must not be there again once a server was down
            for revoked in stage.parent.glob(f"{glob.escape(stage.name)}.revoked-*"):
                if _is_own_directory(revoked):
                    remove_tree(revoked)
            note.unlink()


def _noted_stage(note: Path) -> Path | None:
    """The stage that a note of this user names; None where it is another's, a link, or names anything else."""
    try:
        descriptor = os.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError:
        return None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)  # fdopen raises for a directory
        return None
    with os.fdopen(descriptor, "rb") as file:
        stage = Path(os.fsdecode(file.read(MAX_NOTE_BYTES)))
    return stage if stage.is_absolute() and stage.name == _stage_name(note.name) else None


def _is_own_directory(path: Path) -> bool:
    """Raises `FileNotFoundError` where it is gone."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _is_older(name: str, token: int) -> bool:
    number = name.partition("-")[0]
    return number.isdecimal() and int(number) < token


def _prune(directory: Path, token: int) -> None:
    """Remove claims and drafts (of claimants that were killed) that can mean nothing to anybody."""
    for name in os.listdir(_claims(directory)):
        if name.isdecimal() and int(name) <= token - KEPT_CLAIMS:
            (_claims(directory) / name).unlink(missing_ok=True)
    for draft in directory.glob("draft-*"):
        with suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime > DRAFT_LIFE_S:
                draft.unlink()


def _claims(directory: Path) -> Path:
    return directory / "claims"


def _stages(directory: Path) -> Path:
    return directory / "stages"


def _stage_name(note: str) -> str:
    return f".perdure-{note}"


def remove_tree(directory: Path) -> None:
    """Remove a directory and all that is in it, as far as that goes."""
    import shutil  # only here: it takes long to load, and most launchers start without it

    shutil.rmtree(directory, ignore_errors=True)
