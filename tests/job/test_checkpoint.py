"""A checkpoint appears whole or not at all, and only by the incarnation that may write it."""

import os
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Fenced, InputError
from perdure.job import checkpoint
from perdure.job.checkpoint import checkpointed
from perdure.job.fence import Claim, claim


def publish(path: Path, text: str, held: Claim | None = None, directory: bool = False) -> None:
    with checkpointed(path, held) as draft:
        if directory:
            draft.mkdir()
            draft = draft / "weights"
        draft.write_text(text)


def left_over(path: Path) -> list[Any]:
    return [name for name in os.listdir(path) if name.startswith(".perdure")]


@pytest.fixture
def fence_dir(tmp_path: Path) -> Path:
    return tmp_path / "fence"


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
@pytest.mark.parametrize("fenced", [False, True], ids=["bare", "fenced"])
def test_it_appears_and_replaces_what_was_there(tmp_path: Path, fence_dir: Path, directory: bool, fenced: bool) -> None:
    held = claim(fence_dir, "7", 1) if fenced else None
    target = tmp_path / "ckpt" / "latest"
    for text in ("one", "two"):
        publish(target, text, held, directory)
        assert (target / "weights" if directory else target).read_text() == text
    assert left_over(target.parent) == []


def test_a_directory_replaces_a_file_and_the_other_way_round(tmp_path: Path) -> None:
    target = tmp_path / "latest"
    publish(target, "file")
    publish(target, "directory", directory=True)
    assert (target / "weights").read_text() == "directory"
    publish(target, "file")
    assert target.read_text() == "file"


def test_what_fails_half_way_leaves_the_older_checkpoint(tmp_path: Path, fence_dir: Path) -> None:
    target = tmp_path / "latest"
    publish(target, "good")

    def fail() -> None:
        with checkpointed(target, claim(fence_dir, "7", 1)) as draft:
            draft.write_text("half")
            raise RuntimeError("CUDA error")

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_text() == "good"
    assert left_over(tmp_path) == []


def test_a_stale_incarnation_cannot_begin(tmp_path: Path, fence_dir: Path) -> None:
    old = claim(fence_dir, "7", 1)
    claim(fence_dir, "7", 2)
    with pytest.raises(Fenced):
        publish(tmp_path / "latest", "old", old)
    assert not (tmp_path / "latest").exists()
    assert left_over(tmp_path) == []


def test_one_overtaken_while_it_writes_is_told_so(tmp_path: Path, fence_dir: Path) -> None:
    old = claim(fence_dir, "7", 1)

    def write() -> None:
        with checkpointed(tmp_path / "latest", old) as draft:
            claim(fence_dir, "7", 2)
            draft.write_text("old")  # its directory is gone: a FileNotFoundError, whose cause is the fence

    with pytest.raises(Fenced):
        write()
    assert not (tmp_path / "latest").exists()


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_one_overtaken_in_the_very_act_publishes_nothing(
    tmp_path: Path, fence_dir: Path, monkeypatch: pytest.MonkeyPatch, directory: bool
) -> None:
    """Even between the last look and the rename: the newer claim has taken the draft away."""
    old, target = claim(fence_dir, "7", 1), tmp_path / "latest"
    publish(target, "before", old, directory)
    original = checkpoint._sync_tree

    def overtaken(path: Path) -> None:
        original(path)
        newer = claim(fence_dir, "7", 2)
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "_sync_tree", original)
            publish(target, "new", newer, directory)

    monkeypatch.setattr(checkpoint, "_sync_tree", overtaken)
    with pytest.raises(Fenced):
        publish(target, "old", old, directory)
    assert (target / "weights" if directory else target).read_text() == "new"
    assert left_over(tmp_path) == []


def test_nothing_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint was written"), checkpointed(tmp_path / "latest"):
        pass


def test_the_claim_is_found_in_the_environment(
    tmp_path: Path, fence_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = claim(fence_dir, "7", 1)
    monkeypatch.setenv("PERDURE_FENCE_DIR", str(fence_dir))
    monkeypatch.setenv("PERDURE_FENCE_TOKEN", str(old.token))
    publish(tmp_path / "latest", "mine")
    claim(fence_dir, "7", 2)
    with pytest.raises(Fenced):
        publish(tmp_path / "latest", "stale")
    assert (tmp_path / "latest").read_text() == "mine"
