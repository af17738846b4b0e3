"""Publishing a checkpoint whole, and only by the incarnation that may."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perdure.durable import make_directory, sync_directory, sync_file
from perdure.errors import Fenced, InputError, StateError
from perdure.job.exchange import exchange
from perdure.job.fence import Claim, current_claim, remove_tree
from perdure.job.saved import note_saved


@contextmanager
def checkpointed(path: Path | str, claim: Claim | None = None) -> Iterator[Path]:
    """Write a checkpoint, a file or a directory, at the path given to the block; it appears at `path` or not at all.

    ::

        with checkpointed("checkpoints/step-1200.pt") as draft:
            torch.save(model.state_dict(), draft)

    The draft lies next to `path`. When the block ends well it is written through to the disk and moved into place in
    one step, replacing what was there. Under ``perdure exec`` (or with a `claim`) that step fails for an incarnation
    that a newer one has replaced, however long it was frozen and wherever: after the newer one has claimed, nothing
    older appears. Without either there is no fence, only the one step.

    One process writes one checkpoint: let rank 0 do it, or give each rank its own name.

    Raises `Fenced` where a newer incarnation has taken over, `InputError` where the block wrote nothing, and
    `StateError` where a directory would have to be replaced on a file system that cannot swap two in one step.
    """
    target = Path(path).absolute()
    make_directory(target.parent)
    claim = claim or current_claim(os.environ)
    try:
        with _stage(claim, target.parent) as stage:
            draft = stage / target.name
            yield draft
            _publish(draft, target)
        if claim is not None:
            note_saved(claim.directory, time.time())
    except OSError as err:
        if claim is not None:
            _check(claim, err)
        raise


def _check(claim: Claim, err: OSError) -> None:
    """Say `Fenced` where that is why a file operation failed."""
    try:
        claim.check()
    except Fenced as fenced:
        raise fenced from err


@contextmanager
def _stage(claim: Claim | None, parent: Path) -> Iterator[Path]:
    if claim is not None:
        with claim.stage(parent) as stage:
            yield stage
    else:
        import tempfile  # only here: a launcher does not need it

        with tempfile.TemporaryDirectory(prefix=".perdure-", dir=parent, ignore_cleanup_errors=True) as name:
            yield Path(name)


def _publish(draft: Path, target: Path) -> None:
    if not draft.parent.exists():
        raise FileNotFoundError(str(draft))
    if not draft.exists():
        raise InputError(str(target), "no checkpoint was written", "Write it to the path that the block was given")
    _sync_tree(draft)
    if not target.is_dir() and (not draft.is_dir() or not target.exists()):
        draft.rename(target)
    else:
        _swap(draft, target)
    sync_directory(target.parent)


def _swap(draft: Path, target: Path) -> None:
    """Put the draft in the place of something that a rename does not replace; the old one goes away with the stage."""
    with suppress(OSError):
        draft.rename(target)  # an empty directory can be replaced after all
        return
    try:
        exchange(draft, target)
    except FileNotFoundError:
        raise
    except OSError as err:
        what = f"this checkpoint exists, and its file system cannot swap two ({err.strerror})"
        raise StateError(str(target), what, "Give each checkpoint a name of its own") from err
    remove_tree(draft)


def _sync_tree(path: Path) -> None:
    """Write a file, or all that is in a directory, through to the disk."""
    if path.is_dir():
        for directory, _, names in os.walk(path):
            for name in names:
                _sync_file(Path(directory, name))
            sync_directory(Path(directory))
    else:
        _sync_file(path)


def _sync_file(path: Path) -> None:
    """A link, a pipe or a socket holds nothing."""
    if path.is_file() and not path.is_symlink():
        sync_file(path)
