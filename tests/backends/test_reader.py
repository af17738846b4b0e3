"""All files of an attempt are found and read at once, within bounds, whatever lies in their directories."""

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.backends import owner_reader, reader
from perdure.backends.owner_reader import OwnerReader
from perdure.backends.reader import ReadRequest, Search, WantedText
from perdure.errors import ClusterBusy
from perdure.model.output import LogMark, Output, OutputKind, Why, digest_of, own_start

ME = os.getuid()
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def read_output(request: ReadRequest) -> Output:
    with closing(OwnerReader()) as reader:
        return reader.read(request)


LOGS = (r"rank(?P<rank>\d{1,10}+)\.log",)


def read(directory: Path, *parts: str, **more: Any) -> set[Any]:
    request = ReadRequest(ME, (), (Search(str(directory), parts or LOGS, **more),))
    return {(file.rank, file.text) for file in read_output(request).files}


def test_files_are_found_by_pattern_with_their_ranks(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(f"of {rank}")
    (tmp_path / "other.txt").write_text("no")
    assert read(tmp_path) == {("0", b"of 0"), ("1", b"of 1"), ("2", b"of 2")}


def test_directories_of_any_name_may_lie_between(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / "run_x" / "attempt_0" / str(rank)).mkdir(parents=True)
        (tmp_path / "run_x" / "attempt_0" / str(rank) / "stderr.log").write_text(f"of {rank}")
    assert read(tmp_path, r"stderr\.log", depth=3) == {("", b"of 0"), ("", b"of 1")}
    assert read(tmp_path, r"stderr\.log", depth=2) == set()


def test_what_was_written_before_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("old")
    (tmp_path / "rank1.log").write_text("new")
    os.utime(tmp_path / "rank0.log", (1000, 1000))
    assert read(tmp_path, since_s=time.time() - 60) == {("1", b"new")}


def test_a_listing_may_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "rank1.log").symlink_to("/etc/passwd")
    (tmp_path / "rank2.log").mkdir()
    os.mkfifo(tmp_path / "rank3.log")
    (tmp_path / "rank4.log").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "rank5.log").symlink_to(tmp_path)
    (tmp_path / "a\nb\udcff").mkdir()
    (tmp_path / "rank6.log").write_text("text")
    os.link(tmp_path / "rank6.log", tmp_path / "rank7.log")  # the same file is read once
    request = ReadRequest(ME, (), (Search(str(tmp_path), LOGS, depth=3),))
    assert [file.text for file in read_output(request).files] == [b"text"]


def test_a_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "rank0.log").write_text("x")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "link").symlink_to(tmp_path / "real")
    os.chmod(tmp_path, 0o777)
    assert read(tmp_path / "logs", depth=2) == set()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    assert read(tmp_path / "root") == set()


def test_entries_and_files_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(40):
        (tmp_path / f"rank{rank}.log").write_text("x" * 5000)
    monkeypatch.setattr(reader, "MAX_RANK_FILES", 10)
    monkeypatch.setattr(reader, "RANKS_BYTES", 40 * 1000)
    monkeypatch.setattr(reader, "MIN_RANK_BYTES", 100)
    output = read_output(ReadRequest(ME, (), (Search(str(tmp_path), LOGS),)))
    assert (len(output.files), output.left_out) == (10, 30)
    assert sum(len(file.head) + len(file.tail) for file in output.files) <= 10 * 1000
    assert all(file.skipped == 4000 for file in output.files)
    monkeypatch.setattr(reader, "MAX_ENTRIES", 5)
    assert len(read(tmp_path)) <= 5
    for name in ("a", "b"):
        (tmp_path / "two" / name).mkdir(parents=True)
        for rank in range(4):
            (tmp_path / "two" / name / f"rank{rank}.log").write_text(f"of {rank} in {name}")
    assert len(read(tmp_path / "two", depth=1)) <= 3  # two of the five names are directories


def test_the_rank_that_a_path_is_told_with_stays(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    wanted, search = WantedText((str(tmp_path / "out"),), OutputKind.RANK, "3"), Search(str(tmp_path), ("out",))
    assert [file.rank for file in read_output(ReadRequest(ME, (wanted,), (search,))).files] == ["3"]


def test_free_is_what_the_owner_may_write_and_not_what_is_kept_for_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").write_text("x")
    disk = SimpleNamespace(f_bavail=2, f_bfree=50, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: disk)
    assert read_output(ReadRequest(ME, (WantedText((str(tmp_path / "out"),), OutputKind.STDOUT),))).free_bytes == 8192


def test_of_several_names_the_first_that_is_there_is_read(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("x")
    wanted = WantedText((str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c")), OutputKind.STDOUT)
    assert read_output(ReadRequest(ME, (wanted,))).main.path == str(tmp_path / "b")
    gone = read_output(ReadRequest(ME, (WantedText((str(tmp_path / "a"), str(tmp_path / "c")), OutputKind.STDERR),)))
    assert [(each.path, each.kind, each.why) for each in gone.absent] == [
        (str(tmp_path / "a"), OutputKind.STDERR, Why.MISSING)
    ]


def test_a_missing_directory_is_told_apart_where_it_can_be(tmp_path: Path) -> None:
    (own,) = read_output(ReadRequest(ME, (WantedText((f"{tmp_path}/typo/x",), OutputKind.STDOUT),))).absent
    (root,) = read_output(ReadRequest(ME, (WantedText(("/nowhere/x",), OutputKind.STDOUT),))).absent
    assert (own.why, root.why) == (Why.NO_DIRECTORY, Why.MISSING)
    assert f"{tmp_path}/typo does not exist" in own.says


@as_root
def test_where_an_owner_cannot_write_the_log_cannot_come_to_be() -> None:
    """A colleague's private directory, a directory itself, a file of somebody else's: a retry changes none of them."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        Path(name, "private").mkdir(mode=0o700)
        Path(name, "folder").mkdir()
        os.chown(Path(name, "folder"), 65534, 65534)
        Path(name, "roots.log").write_text("x")
        Path(name, "unreadable.log").write_text("x")
        os.chown(Path(name, "unreadable.log"), 65534, 65534)
        os.chmod(Path(name, "unreadable.log"), 0o200)
        names = ("private/x.log", "folder", "roots.log", "unreadable.log")
        wanted = tuple(WantedText((f"{name}/{each}",), OutputKind.STDOUT) for each in names)
        absent = {os.path.relpath(each.path, name): each.why for each in read_output(ReadRequest(65534, wanted)).absent}
    assert absent == dict.fromkeys(names[:3], Why.NOT_WRITABLE) | {"unreadable.log": Why.REFUSED}


@as_root
def test_root_becomes_the_owner_for_all_of_it() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        for rank, mode in ((0, 0o600), (1, 0o200)):
            path = Path(name, f"rank{rank}.log")
            path.write_text("text")
            os.chown(path, 65534, 65534)
            os.chmod(path, mode)
        Path(name, "rank2.log").write_text("of root")
        output = read_output(ReadRequest(65534, (), (Search(name, LOGS),), births=True))
    assert [(file.rank, file.text) for file in output.files] == [("0", b"text")]
    assert output.files[0].birth_s is None or abs(output.files[0].birth_s - time.time()) < 300


_BECOME = """
from perdure.backends.owner_reader import _become
_become(65534)
status = open("/proc/self/status").read().splitlines()
print([line.split()[1:] for line in status if line.startswith(("Uid:", "Gid:"))])
"""


@as_root
def test_who_has_become_the_owner_cannot_become_root_again() -> None:
    """Neither by the saved ids, nor by those for files."""
    done = subprocess.run([sys.executable, "-c", _BECOME], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[['65534'] * 4] * 2}\n"


_AS_A_SERVICE = """
import sys
from perdure.backends.owner_reader import OwnerReader
from perdure.backends.reader import ReadRequest, Search
output = OwnerReader().read(ReadRequest(int(sys.argv[1]), (), (Search(sys.argv[2], (r"log",)),)))
print([file.text for file in output.files])
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_a_service_with_the_capabilities_reads_as_the_owner_too() -> None:
    """A user of its own with CAP_SETUID and CAP_SETGID, as a systemd unit gives them."""
    caps = "+setuid,+setgid"
    drop = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "--inh-caps", caps, "--ambient-caps"]
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        path = Path(name, "log")
        path.write_text("of nobody")
        os.chown(path, 65534, 65534)
        os.chmod(path, 0o600)
        program = ["/usr/bin/python3", "-c", _AS_A_SERVICE, "65534", name]
        environment = {"PYTHONPATH": copied_source(name)}

        def answer(ambient: str) -> str:
            argv = [*drop, ambient, *program]
            return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.strip()

        assert answer(caps) == "[b'of nobody']"
        assert answer("-all") == "[]"
        assert answer("+setuid") == "[]"  # its groups would stay the service's


@as_root
@pytest.mark.parametrize("uid", [65534, 54321], ids=["nobody", "without a name"])
@pytest.mark.parametrize("group", [0, 12345])
def test_no_group_of_the_services_opens_a_directory_for_the_owner(uid: int, group: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        path = Path(name, "closed", "log")
        path.parent.mkdir()
        path.write_text("text")
        os.chown(path, uid, uid)
        os.chown(path.parent, 0, group)
        environment = {**os.environ, "PYTHONPATH": str(Path(reader.__file__).parents[2])}
        argv = [sys.executable, "-c", _AS_A_SERVICE, str(uid), str(path.parent)]

        def answer(mode: int) -> str:
            os.chmod(path.parent, mode)
            ran = subprocess.run(
                argv, capture_output=True, text=True, check=True, extra_groups=[12345], env=environment
            )
            return ran.stdout.strip()

        assert answer(0o755) == "[b'text']"
        assert answer(0o750) == "[]"


def copied_source(directory: str) -> str:
    """What the reader needs of Perdure, where everybody can read it."""
    source = Path(reader.__file__).parents[1]
    to = Path(directory, "source", "perdure")
    for part in ("__init__.py", "errors.py", "model", "backends"):
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy
        to.mkdir(parents=True, exist_ok=True)
        copy(source / part, to / part)
    return str(to.parent)


@pytest.fixture
def of_nobody() -> Iterator[ReadRequest]:
    """A log that nobody alone may read, in a directory that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        path = Path(name, "log")
        path.write_text("of nobody")
        os.chown(path, 65534, 65534)
        os.chmod(path, 0o600)
        yield ReadRequest(65534, (WantedText((str(path),), OutputKind.STDOUT),))


@as_root
def test_many_are_read_at_once_by_one_process(of_nobody: ReadRequest) -> None:
    texts = []
    with closing(OwnerReader()) as one:
        readers = [threading.Thread(target=lambda: texts.append(one.read(of_nobody).main.text)) for _ in range(20)]
        for thread in readers:
            thread.start()
        for thread in readers:
            thread.join()
    assert texts == [b"of nobody"] * 20


@as_root
def test_a_reader_that_was_killed_is_started_again(of_nobody: ReadRequest) -> None:
    with closing(OwnerReader()) as one:
        one.read(of_nobody)
        one._server.kill()
        one._server.wait()
        assert one.read(of_nobody).main.text == b"of nobody"


@as_root
def test_what_takes_too_long_holds_up_nobody_else(of_nobody: ReadRequest) -> None:
    """A fork that is stuck, as on a file system that does not answer, is left behind."""
    with closing(OwnerReader(timeout_s=2.0)) as one:
        one.read(of_nobody)
        (ours, theirs) = socket.socketpair()
        with ours, theirs:  # a request that never ends
            assert one._control is not None
            socket.send_fds(one._control, [b"r"], [theirs.fileno()])
            assert one.read(of_nobody).main.text == b"of nobody"
        with pytest.raises(ClusterBusy):
            one.read(ReadRequest(65534, (), (Search("/", ("(",)),)))  # it ends without an answer
        assert one.read(of_nobody).main.text == b"of nobody"


@as_root
def test_an_answer_is_bounded(of_nobody: ReadRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_reader, "MAX_ANSWER_BYTES", 100)
    with closing(OwnerReader()) as one, pytest.raises(ClusterBusy, match="says too much"):
        one.read(of_nobody)


def test_the_process_ends_with_its_service(of_nobody: ReadRequest) -> None:
    one = OwnerReader()
    one.read(of_nobody)
    server = one._server
    one.close()
    assert server.returncode == 0
    one.close()


# Marks: what of a file is a later attempt's own


def marked(path: Path) -> LogMark | None:
    return read_output(ReadRequest(ME, (WantedText((str(path),), OutputKind.STDOUT),))).main.mark


def again(path: Path, mark: LogMark | None) -> bytes:
    assert mark is not None
    return read_output(ReadRequest(ME, (WantedText((str(path),), OutputKind.STDOUT),), marks=(mark,))).main.text


text = st.binary(max_size=9000)


@given(first=text, more=st.binary(min_size=1, max_size=100))
def test_what_is_appended_is_the_new_attempts(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, more: bytes
) -> None:
    path = tmp_path_factory.mktemp("marks") / "log"
    path.write_bytes(first)
    mark = marked(path)
    with path.open("ab") as file:
        file.write(more)
    assert again(path, mark) == more


@given(first=st.binary(min_size=1, max_size=9000), new=text)
def test_what_is_written_anew_is_all_the_new_attempts(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, new: bytes
) -> None:
    """Unless it begins as the old one ended: then what stands before it cannot be told from the old."""
    path = tmp_path_factory.mktemp("marks") / "log"
    path.write_bytes(first)
    os.utime(path, (1000, 1000))
    mark = marked(path)
    path.write_bytes(new)
    expected = new[len(first) :] if len(new) > len(first) and new.startswith(first) else new
    if not new.startswith(first[: len(new)]) or len(new) <= len(first):
        assert again(path, mark) == new
    else:
        assert again(path, mark) == expected


def test_a_file_that_nobody_touched_since_holds_nothing_new(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("the first attempt's\n")
    assert again(path, marked(path)) == b""


@given(size=st.integers(0, 100), end=st.integers(0, 100), same=st.booleans(), touched=st.booleans())
def test_no_more_is_passed_over_than_was_read_before(size: int, end: int, same: bool, touched: bool) -> None:
    mark = LogMark("p", 0, end, digest_of(b"x"), 5.0)
    start = own_start(mark, size, 6.0 if touched else 5.0, digest_of(b"x" if same else b"y"))
    assert start in (0, end)
    assert start <= size
    assert own_start(None, size, 5.0, "") == 0


@pytest.mark.parametrize("seed", range(60))
def test_what_is_read_is_the_beginning_and_the_end_of_what_is_the_attempts_own(tmp_path: Path, seed: int) -> None:
    rng, path = random.Random(seed), tmp_path / "log"
    before, own = b"before " * rng.randrange(9), "".join(map(str, range(rng.choice((0, 3, 40))))).encode()
    max_bytes, head_bytes = rng.choice((1, 10, 30, 200)), rng.choice((0, 4, 50))
    path.write_bytes(before)
    mark = LogMark(str(path), 0, len(before), digest_of(before), os.stat(path).st_mtime)
    path.write_bytes(own if rng.random() < 0.3 else before + own)
    wanted = (WantedText((str(path),), OutputKind.STDOUT),)
    request = ReadRequest(ME, wanted, marks=(mark,), max_bytes=max_bytes, head_bytes=head_bytes)
    (file,) = reader.read_files(request).files
    data = path.read_bytes()
    mine = data[file.start :]
    assert file.start in (0, len(before))
    assert mine.endswith(file.tail)
    assert mine.startswith(file.head)
    assert len(file.head) + file.skipped + len(file.tail) == len(mine)
    assert len(file.tail) == min(max_bytes, len(mine))
    assert len(file.head) == min(head_bytes, len(mine) - len(file.tail))
    assert (file.end, file.digest) == (len(data), digest_of(data))
