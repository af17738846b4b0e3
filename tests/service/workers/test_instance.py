"""One armed service for one Slurm on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.errors import InUse, StateError
from perdure.service.workers.instance import holder_of, lock_dir, only_one

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

HOLD = """
import sys, time
from pathlib import Path
from perdure.service.workers.instance import only_one
with only_one("c@h:1", Path("/state"), Path(sys.argv[1]), ()):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock in the directory."""
    process = subprocess.Popen((sys.executable, "-c", HOLD, str(tmp_path / "locks")), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_one_is_told_who_the_first_is(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    words = rf"process {holder.pid} of .* with state directory /state"
    with pytest.raises(InUse, match=words), only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        pass
    with only_one("other@h:1", tmp_path, tmp_path / "locks", ()):
        pass


def test_a_service_of_another_user_is_found_by_its_word(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with (
        pytest.raises(InUse, match=str(holder.pid)),
        only_one("c@h:1", tmp_path, tmp_path / "own", (tmp_path / "locks",)),
    ):
        pass


def test_a_killed_one_leaves_nothing_in_the_way(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    assert holder_of("c@h:1", tmp_path / "locks") is None
    with only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        assert holder_of("c@h:1", tmp_path / "locks").pid == os.getpid()
    assert holder_of("c@h:1", tmp_path / "locks") is None


def test_a_number_that_another_process_got_is_nobodys(tmp_path: Path) -> None:
    with only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        (word,) = (tmp_path / "locks").glob("*.json")
        said = json.loads(word.read_text())
        word.write_text(json.dumps({**said, "began": "1"}))
        assert holder_of("c@h:1", tmp_path / "locks") is None


@as_root
@pytest.mark.parametrize("owned", [("*.json",), (".", "*.json")], ids=["the word", "the directory too"])
def test_a_strangers_word_is_none(tmp_path: Path, owned: tuple[str, ...]) -> None:
    """Whose lock directory is another user's may write there what it likes; root's word alone counts for others."""
    with only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        assert holder_of("c@h:1", tmp_path / "locks") is not None
        for pattern in owned:
            for path in [tmp_path / "locks"] if pattern == "." else (tmp_path / "locks").glob(pattern):
                os.chown(path, 12345, 12345)
        assert holder_of("c@h:1", tmp_path / "locks") is None


@as_root
def test_another_users_directory_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir(mode=0o755)
    os.chown(tmp_path / "locks", 12345, 12345)
    with pytest.raises(StateError, match="somebody else"), only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        pass


def test_a_lock_is_its_owners_alone_and_the_word_beside_it_everybodys(tmp_path: Path) -> None:
    """Who could open the lock could hold it."""
    with only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        modes = {path.suffix: path.stat().st_mode & 0o777 for path in (tmp_path / "locks").iterdir()}
    assert modes == {".lock": 0o600, ".json": 0o644}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_directory_that_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks").chmod(mode)
    with pytest.raises(StateError, match="somebody else"), only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        pass
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StateError), only_one("c@h:1", tmp_path, tmp_path / "link", ()):
        pass


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    with only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        pass
    (lock,) = (tmp_path / "locks").glob("*.lock")
    lock.unlink()
    (tmp_path / "victim").write_text("x")
    lock.symlink_to(tmp_path / "victim")
    with pytest.raises(StateError), only_one("c@h:1", tmp_path, tmp_path / "locks", ()):
        pass
    assert (tmp_path / "victim").read_text() == "x"


def test_root_leaves_its_lock_where_all_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(lock_dir({}, 0)) == "/run/perdure"
    assert str(lock_dir({"XDG_RUNTIME_DIR": "/run/user/7"}, 7)) == "/run/user/7/perdure"
    assert str(lock_dir({"XDG_RUNTIME_DIR": "relative"}, 7)) == "/tmp/perdure-7"
