"""A log is read as its owner could, or not at all."""

import os
import resource
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.backends import logfile
from perdure.backends.owner_reader import OwnerReader
from perdure.backends.reader import HEAD_BYTES, ReadRequest, WantedText
from perdure.errors import LogRefused, NotFound
from perdure.model.output import Output, OutputFile, OutputKind, Why

ME = os.getuid()
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can give a file to somebody else")


def read_output(request: ReadRequest) -> Output:
    with closing(OwnerReader()) as reader:
        return reader.read(request)


def read_tail(path: Path | str, owner_uid: int, max_bytes: int = 4 << 20, head_bytes: int = HEAD_BYTES) -> OutputFile:
    """One file by itself; an error where it is absent."""
    wanted = WantedText((os.fspath(path),), OutputKind.STDOUT)
    output = read_output(ReadRequest(owner_uid, (wanted,), max_bytes=max_bytes, head_bytes=head_bytes))
    for absent in output.absent:
        refused = absent.why in (Why.REFUSED, Why.NOT_WRITABLE)
        raise (LogRefused if refused else NotFound)(absent.path, absent.says, "")
    return output.files[0]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_bytes(b"line one\nline two\n")
    return path


def test_a_short_log_is_all_tail(log: Path) -> None:
    read = read_tail(log, ME)
    assert (read.tail, read.head, read.skipped, read.path) == (b"line one\nline two\n", b"", 0, str(log))


@pytest.mark.parametrize(
    ("max_bytes", "head_bytes", "tail", "head", "skipped"),
    [
        (4, 3, b"6789", b"012", 3),
        (4, 100, b"6789", b"012345", 0),
        (4, 0, b"6789", b"", 6),
        (10, 3, b"0123456789", b"", 0),
    ],
)
def test_of_a_long_log_both_ends_are_read_and_nothing_twice(
    tmp_path: Path, max_bytes: int, head_bytes: int, tail: bytes, head: bytes, skipped: int
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    read = read_tail(path, ME, max_bytes, head_bytes)
    assert (read.tail, read.head, read.skipped) == (tail, head, skipped)


def test_an_empty_log_is_empty(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert read_tail(tmp_path / "log", ME).tail == b""


@pytest.mark.parametrize("name", ["missing", "missing/log", "job.log/below"])
def test_what_is_not_there_is_not_found(log: Path, name: str) -> None:
    with pytest.raises(NotFound):
        read_tail(log.parent / name, ME)


@as_root
def test_links_are_refused_wherever_a_user_can_make_them(log: Path, tmp_path: Path) -> None:
    (tmp_path / "link.log").symlink_to(log)
    (tmp_path / "dir").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.chmod(tmp_path, 0o777)  # as in a scratch directory: root may own a link here, others can too
    for name in ("link.log", "dir/job.log", "dangling"):
        with pytest.raises(LogRefused, match="is a link"):
            read_tail(tmp_path / name, ME)


@as_root
def test_a_directory_of_roots_below_one_that_others_can_write_is_not_trusted(log: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir(mode=0o755)
    (inner / "link.log").symlink_to(log)
    os.chmod(tmp_path, 0o777)  # whoever can write there can put another directory of root's in its place
    with pytest.raises(LogRefused, match="is a link"):
        read_tail(inner / "link.log", ME)


def test_a_hard_link_is_a_file_of_its_owner(log: Path, tmp_path: Path) -> None:
    os.link(log, tmp_path / "other.log")
    assert read_tail(tmp_path / "other.log", ME).tail


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(LogRefused, match="FIFO"):
        read_tail(tmp_path / "log", ME)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("log")
        with pytest.raises(LogRefused, match="socket"):
            read_tail(tmp_path / "log", ME)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_refused(path: str) -> None:
    with pytest.raises(LogRefused, match="device"):
        read_tail(path, 0)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, "/"):
        with pytest.raises(LogRefused, match="directory"):
            read_tail(path, ME)


@pytest.mark.parametrize("path", ["relative/log", "../log"])
def test_only_plain_absolute_paths_are_walked(path: str) -> None:
    with pytest.raises(LogRefused, match="absolute"):
        read_tail(path, ME)


def test_a_path_may_lead_upward(log: Path, tmp_path: Path) -> None:
    """``#SBATCH -o ../logs/%j.out`` is told as the working directory with that behind it."""
    (tmp_path / "runs" / "a").mkdir(parents=True)
    read = read_tail(f"{tmp_path}/runs/a/../../job.log", ME)
    assert read.tail == b"line one\nline two\n"
    assert read_tail(f"/..{tmp_path}/runs/..//./job.log", ME).tail == read.tail
    for above in ("job.log/../job.log", "none/../job.log"):  # as the kernel has it
        with pytest.raises(NotFound):
            read_tail(tmp_path / above, ME)
    with pytest.raises(LogRefused, match="directory"):
        read_tail(f"{tmp_path}/runs/a/..", ME)


def test_a_path_leads_through_a_bounded_number_of_directories(log: Path, tmp_path: Path) -> None:
    """Each keeps a descriptor open until the file is: a user who wrote the path shall not spend them all."""
    (tmp_path / "runs").mkdir()
    longest = logfile.MAX_STEPS - len(tmp_path.parts[1:]) - len(("job.log",))
    there_and_back = "/runs/.." * (longest // 2)
    assert read_tail(f"{tmp_path}{there_and_back}/job.log", ME).tail == b"line one\nline two\n"
    with pytest.raises(LogRefused, match="more than 256 directories"):
        read_tail(f"{tmp_path}{there_and_back}/runs/../job.log", ME)


@as_root
def test_a_link_of_the_owners_is_followed_with_the_owners_rights() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        scratch, home = Path(name, "scratch"), Path(name, "home")
        for directory in (scratch, home, scratch / "logs"):
            directory.mkdir(mode=0o755)
        for file, owner in (("mine", NOBODY), ("anothers", 0)):
            (scratch / "logs" / file).write_bytes(b"found")
            os.chown(scratch / "logs" / file, owner, -1)
        for link, target, owner in (
            ("logs", scratch / "logs", NOBODY),
            ("upward", "../scratch/logs", NOBODY),
            ("latest", "logs/mine", NOBODY),
            ("of-another", scratch / "logs", NOBODY - 1),
        ):
            (home / link).symlink_to(target)
            os.lchown(home / link, owner, -1)
        for path in ("logs/mine", "upward/mine", "latest", "logs/../logs/mine"):
            assert read_tail(home / path, NOBODY).tail == b"found"
        with pytest.raises(LogRefused, match="belongs to user 0"):
            read_tail(home / "logs" / "anothers", NOBODY)
        with pytest.raises(LogRefused, match="is a link"):
            read_tail(home / "of-another" / "mine", NOBODY)
        os.chmod(scratch, 0o700)
        with pytest.raises(LogRefused, match="Permission denied"):
            read_tail(home / "logs" / "mine", NOBODY)


@as_root
def test_a_link_of_the_owners_is_not_followed_with_roots_rights(log: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(log)
    for path in (log, tmp_path / "link"):
        os.lchown(path, NOBODY, -1)
    with pytest.raises(LogRefused, match="is a link"):
        logfile.open_log(str(tmp_path / "link"), NOBODY)
    os.close(logfile.open_log(str(log), NOBODY))


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_path_is_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        read_tail(path, ME)


def test_anothers_file_is_refused(log: Path) -> None:
    with pytest.raises(LogRefused):
        read_tail(log, ME + 1)


@as_root
def test_root_reads_with_the_owners_rights() -> None:
    """A file of the owner in a directory that the owner cannot enter stays closed, though root could open it."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own directories are closed to others
        path = Path(name, "log")
        path.write_bytes(b"0123456789")
        os.chown(path, NOBODY, -1)
        os.chmod(path, 0o600)
        os.chmod(name, 0o755)
        read = read_tail(path, NOBODY, 4, 3)
        assert (read.tail, read.head, read.skipped) == (b"6789", b"012", 3)
        for mode, parent_mode in ((0o200, 0o755), (0o600, 0o700)):
            os.chmod(path, mode)
            os.chmod(name, parent_mode)
            with pytest.raises(LogRefused, match="Permission denied"):
                read_tail(path, NOBODY)


@as_root
def test_root_tells_what_is_not_there_for_others_too() -> None:
    with pytest.raises(NotFound):
        read_tail("/nowhere/log", NOBODY)


@as_root
def test_a_link_that_only_root_can_have_made_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "_only_root_writes", lambda directory: True)
    real = tmp_path / "real"
    real.mkdir()
    (real / "log").write_bytes(b"found")
    (tmp_path / "scratch").symlink_to(real)
    (tmp_path / "relative").symlink_to("real")
    for name in ("scratch", "relative"):
        assert read_tail(tmp_path / name / "log", ME).tail == b"found"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(LogRefused):
        read_tail(tmp_path / "loop" / "log", ME)
    for number in range(1, logfile.MAX_LINKS):  # one after the other, up to a bound
        (tmp_path / f"link{number}").symlink_to(f"link{number + 1}")
    (tmp_path / f"link{logfile.MAX_LINKS}").symlink_to("real")
    assert read_tail(tmp_path / "link1" / "log", ME).tail == b"found"
    (tmp_path / "one-more").symlink_to("link1")
    with pytest.raises(LogRefused):
        read_tail(tmp_path / "one-more" / "log", ME)
    os.lchown(tmp_path / "scratch", NOBODY, -1)
    with pytest.raises(LogRefused, match="is a link"):
        read_tail(tmp_path / "scratch" / "log", ME)


@as_root
def test_a_directory_counts_as_roots_where_nobody_else_may_write(tmp_path: Path) -> None:
    def only_root_writes(mode: int, owner: int = 0) -> bool:
        tmp_path.chmod(mode)
        os.chown(tmp_path, owner, 0)
        descriptor = os.open(tmp_path, os.O_RDONLY)
        try:
            return logfile._only_root_writes(descriptor)
        finally:
            os.close(descriptor)

    assert only_root_writes(0o755)
    assert not any(only_root_writes(mode) for mode in (0o775, 0o757, 0o1777))
    assert not only_root_writes(0o755, NOBODY)


def test_what_became_a_link_since_it_was_listed_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with logfile.listed(str(tmp_path)) as parent:
        with logfile.listed_below(parent, "real") as below:
            assert os.listdir(below) == []
        with pytest.raises(OSError, match="link"), logfile.listed_below(parent, "link"):
            pass


def test_a_log_that_is_cut_while_it_is_read_is_read_as_far_as_it_goes(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread

    def cut_first(descriptor: int, count: int, start: int) -> bytes:
        os.truncate(log, 4)
        return real(descriptor, count, start)

    monkeypatch.setattr(os, "pread", cut_first)
    assert read_tail(log, ME).tail == b"line"


def test_a_log_that_grows_while_it_is_read_stays_bounded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread

    def grow_first(descriptor: int, count: int, start: int) -> bytes:
        with open(log, "ab") as file:
            file.write(b"x" * 1000)
        return real(descriptor, count, start)

    monkeypatch.setattr(os, "pread", grow_first)
    assert len(read_tail(log, ME, 10).tail) == 10


@pytest.mark.parametrize("swap", ["link", "fifo"])
def test_a_file_swapped_between_look_and_open_is_refused(log: Path, monkeypatch: pytest.MonkeyPatch, swap: str) -> None:
    """The worst moment: after the look at the name, before the opening."""
    real = logfile._check
    looks = []

    def swap_after_first(path: str, seen: os.stat_result, owner: int) -> None:
        real(path, seen, owner)
        if not looks:
            looks.append(seen)
            log.unlink()
            if swap == "link":
                log.symlink_to("/etc/passwd")
            else:
                os.mkfifo(log)

    monkeypatch.setattr(logfile, "_check", swap_after_first)
    with pytest.raises(LogRefused):
        read_tail(log, ME)


_MEASURE = """
import resource, sys
from perdure.backends.reader import ReadRequest, WantedText, read_files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
log = read_files(ReadRequest(int(sys.argv[2]), (WantedText((sys.argv[1],), "stdout"),))).files[0]
assert log.tail.endswith(b"the end") and log.skipped > 2**30, (len(log.tail), log.skipped)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_two_gigabytes_cost_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.seek(2 * 1024**3)
        file.write(b"the end")
    done = subprocess.run([sys.executable, "-c", _MEASURE, path, str(ME)], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * unit < 64 * 1024**2


def test_no_descriptor_stays_open(log: Path, tmp_path: Path) -> None:
    def descriptors() -> list[Any]:
        return [fd for fd in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0] % 4096) if _is_open(fd)]

    before = descriptors()
    os.mkfifo(tmp_path / "fifo")
    read_tail(log, ME)
    for path in (tmp_path, tmp_path / "none", tmp_path / "fifo"):
        with pytest.raises((LogRefused, NotFound)):
            read_tail(path, ME)
    assert descriptors() == before


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
