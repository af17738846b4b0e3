"""What commands keep for their next call."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from perdure.cli.kept import KeptFolder


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptFolder:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return KeptFolder.below("when", "site")


def test_what_is_fresh_is_made_once_and_again_when_it_is_old(kept: KeptFolder) -> None:
    made = iter((b"first", b"second"))
    assert [kept.fresh("queue", 60.0, lambda: next(made))[0] for _ in range(2)] == [b"first", b"first"]
    _date(kept, -61.0)
    assert kept.fresh("queue", 60.0, lambda: next(made)) == (b"second", 0.0)


def test_what_comes_from_the_future_is_made_anew(kept: KeptFolder) -> None:
    """A clock that was put back by a day would else keep a queue for a day."""
    kept.write("queue", b"old")
    _date(kept, 86_400.0)
    assert kept.fresh("queue", 60.0, lambda: b"new")[0] == b"new"
    _date(kept, 2.0)  # a file server whose clock is ahead
    assert kept.fresh("queue", 60.0, lambda: b"newer")[0] == b"new"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_try_that_fails_leaves_nothing(
    kept: KeptFolder, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "replace", fail)
    try:
        kept.write("queue", b"much")
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    assert kept.folder is not None
    assert not list(kept.folder.iterdir())


def test_a_folder_that_others_may_write_to_is_not_used(kept: KeptFolder) -> None:
    assert kept.folder is not None
    kept.folder.chmod(0o770)
    assert KeptFolder.below("when", "site").folder is None


def _date(kept: KeptFolder, ahead_s: float) -> None:
    path = kept.path("queue")
    assert path is not None
    os.utime(path, (time.time() + ahead_s,) * 2)
