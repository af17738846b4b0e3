"""Reading an attempt's output: all its files at once, each opened as `logfile` allows.

Needs the standard library alone: it also runs in a process that has become the files' owner (`owner_reader`).
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

from perdure.backends.logfile import NOT_READ, listed, listed_below, open_log
from perdure.errors import LogRefused
from perdure.model.output import (
    DIGEST_BYTES,
    FULL_BYTES,
    IS_NOT_THERE,
    Absent,
    LogMark,
    Output,
    OutputFile,
    OutputKind,
    Why,
    digest_of,
    own_start,
)

HEAD_BYTES = 64 * 1024
RANKS_BYTES = 8 * 1024 * 1024
"""What the files of all ranks may have together; each gets the same."""
MIN_RANK_BYTES = 8 * 1024
MAX_RANK_FILES = 1024
MAX_ENTRIES = 20_000
"""This many names in directories are looked at, all searches together."""
_LOOKED_AT_BYTES = 1024
"""A found file with a zero byte among its first is not a log."""


@dataclass(frozen=True, slots=True)
class WantedText:
    """A file by its path: of several that it may have, the first that is there."""

    paths: tuple[str, ...]
    kind: OutputKind
    rank: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """Files below a directory, by a pattern for each component of their path.

    A group `rank` in a pattern names the task. Patterns are Perdure's own; text of others in them is escaped, and
    they do not backtrack.
    """

    root: str
    parts: tuple[str, ...]
    depth: int = 0  # directories of any name that may come before `parts`
    since_s: float = 0.0  # only files last written at or after this instant


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is to be read of one attempt."""

    owner_uid: int
    files: tuple[WantedText, ...]
    searches: tuple[Search, ...] = ()
    marks: tuple[LogMark, ...] = ()  # where earlier attempts of the same job ended
    max_bytes: int = 4 * 1024 * 1024  # of each of `files` that is not a rank's
    head_bytes: int = HEAD_BYTES
    births: bool = False  # ask when each file came into being
    work_dir: str = ""  # where the job writes what is not its log


def read_files(request: ReadRequest) -> Output:
    """Find and read, with this process's rights. Memory is bounded by what is asked for, whatever the files' sizes."""
    files: list[OutputFile] = []
    absent: list[Absent] = []
    marks = {mark.path: mark for mark in request.marks}
    seen: set[tuple[int, int]] = set()
    for wanted in request.files:
        if wanted.kind is OutputKind.RANK:
            continue
        found = _first_of(wanted, request, marks, seen)
        if isinstance(found, Absent):
            absent.append(found)
        elif found is not None:
            files.append(found)
    ranks = _found_ranks(request)
    share = max(MIN_RANK_BYTES, RANKS_BYTES // max(1, len(ranks)))
    limits = replace(request, max_bytes=share - share // 8, head_bytes=share // 8)
    for path, rank in ranks[:MAX_RANK_FILES]:
        found = _first_of(WantedText((path,), OutputKind.RANK, rank), limits, marks, seen)
        if isinstance(found, OutputFile) and b"\0" not in found.text[:_LOOKED_AT_BYTES]:
            files.append(found)
    full_store = _full_store((request.work_dir, *dict.fromkeys(os.path.dirname(file.path) for file in files)))
    return Output(tuple(files), tuple(absent), max(0, len(ranks) - MAX_RANK_FILES), full_store=full_store)


def _found_ranks(request: ReadRequest) -> list[tuple[str, str]]:
    """Paths of ranks' files with what their names say of the rank, each once."""
    found = {path: w.rank for w in request.files if w.kind is OutputKind.RANK for path in w.paths}
    left = [MAX_ENTRIES]
    for search in request.searches:
        for path, rank in _searched(search, left):
            found[path] = found.get(path) or rank
    return sorted(found.items())


# Finding


def _searched(search: Search, left: list[int]) -> Iterator[tuple[str, str]]:
    """Files that a search finds, with their ranks; `left` counts the names that may still be looked at."""
    parts = [re.compile(part) for part in search.parts]
    try:
        with listed(search.root) as directory:
            yield from _below(directory, search.root.rstrip("/"), parts, search, search.depth, "", left)
    except (OSError, LogRefused):
        return


def _below(
    directory: int, path: str, parts: list[re.Pattern[str]], search: Search, depth: int, rank: str, left: list[int]
) -> Iterator[tuple[str, str]]:
    with os.scandir(directory) as entries:
        names = [(entry.name, _is_directory(entry)) for entry in islice(entries, max(0, left[0]))]
    left[0] -= len(names)
    for name, is_directory in sorted(names):
        match = parts[0].fullmatch(name) if len(name) < 256 else None
        told = (match.groupdict().get("rank") or rank) if match else rank
        if match and len(parts) == 1 and not is_directory:
            if os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime >= search.since_s:
                yield f"{path}/{name}", told
        elif is_directory and ((match and len(parts) > 1) or depth > 0):
            rest, deeper = (parts[1:], depth) if match and len(parts) > 1 else (parts, depth - 1)
            try:
                with listed_below(directory, name) as below:
                    yield from _below(below, f"{path}/{name}", rest, search, deeper, told, left)
            except OSError:
                continue


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


# Reading


def _first_of(
    wanted: WantedText, request: ReadRequest, marks: dict[str, LogMark], seen: set[tuple[int, int]]
) -> OutputFile | Absent | None:
    """The first of its paths that is there; None where it was read under another name before."""
    absent: Absent | None = None
    for path in wanted.paths:
        if not path or "\0" in path:
            return Absent(path, Why.MISSING, "it is not a path of a log", wanted.kind)
        try:
            descriptor = open_log(path, request.owner_uid)
        except LogRefused as err:
            why = Why.REFUSED if _may_be_written(path, err, request) else Why.NOT_WRITABLE
            return Absent(path, why, err.what.removeprefix(NOT_READ), wanted.kind)
        except OSError as err:
            absent = absent or _absent(path, err, wanted.kind, request)
            continue
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) in seen:
                return None
            seen.add((status.st_dev, status.st_ino))
            return _read(descriptor, status, path, wanted, request, marks.get(path))
        except OSError as err:
            return Absent(path, Why.REFUSED, f"reading it fails ({err.strerror})", wanted.kind)
        finally:
            os.close(descriptor)
    return absent


def _read(
    descriptor: int, status: os.stat_result, path: str, wanted: WantedText, request: ReadRequest, mark: LogMark | None
) -> OutputFile:
    size, most = status.st_size, request.max_bytes
    at_mark = _range(descriptor, max(0, mark.end - DIGEST_BYTES), min(mark.end, DIGEST_BYTES)) if mark else b""
    start = own_start(mark, size, status.st_mtime, digest_of(at_mark))
    cut = mark is not None and mark.end > mark.start and start == 0
    tail_at = max(start, size - most)
    tail = _range(descriptor, tail_at, size - tail_at)
    head = _range(descriptor, start, min(request.head_bytes, tail_at - start))
    last = _range(descriptor, max(0, size - DIGEST_BYTES), min(size, DIGEST_BYTES))
    disk = os.fstatvfs(descriptor)
    return OutputFile(
        path, tail, head, tail_at - start - len(head), wanted.kind, wanted.rank, start, size, digest_of(last),
        status.st_mtime, cut, _birth_s(descriptor) if request.births else None, disk.f_bavail * disk.f_frsize,
    )  # fmt: skip


def _full_store(directories: Iterable[str]) -> str:
    """Where the first full file system of these directories is mounted; "" where all have room."""
    for directory in filter(None, directories):
        try:
            disk, mount = os.statvfs(directory), os.path.realpath(directory)
        except OSError:
            continue
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < FULL_BYTES:
            while not os.path.ismount(mount):
                mount = os.path.dirname(mount)
            return mount
    return ""


def _range(descriptor: int, start: int, count: int) -> bytes:
    """Bytes from `start` on, at most `count`: fewer where the file has been cut meanwhile."""
    chunks, wanted = [], count
    while wanted > 0 and (chunk := os.pread(descriptor, wanted, start)):
        chunks.append(chunk)
        start, wanted = start + len(chunk), wanted - len(chunk)
    return b"".join(chunks)


_AT_EMPTY_PATH, _STATX_BTIME, _STATX_BYTES = 0x1000, 0x800, 256


def _birth_s(descriptor: int) -> float | None:
    """When a file came into being, which Python does not say on Linux; None where nobody does."""
    statx = _statx()
    told = bytearray(_STATX_BYTES)
    if statx is None or statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, told):
        return None
    (mask,), (seconds, nanoseconds) = struct.unpack_from("=I", told, 0), struct.unpack_from("=qI", told, 80)
    return seconds + nanoseconds / 1e9 if mask & _STATX_BTIME else None


@cache
def _statx() -> Callable[[int, bytes, int, int, bytearray], int] | None:
    """The C library's function, which fills a buffer; None where there is none."""
    try:
        import ctypes  # takes as long as the rest of the reader; few logs need it

        function = ctypes.CDLL(None).statx
    except (AttributeError, ImportError, OSError):
        return None
    kind = ctypes.c_char * _STATX_BYTES
    return lambda fd, path, flags, mask, told: int(function(fd, path, flags, mask, kind.from_buffer(told)))


# What is not there


def _absent(path: str, err: OSError, kind: OutputKind, request: ReadRequest) -> Absent:
    if isinstance(err, PermissionError) and not _may_write(path, request):
        return Absent(path, Why.NOT_WRITABLE, f"the job's user cannot reach it ({err.strerror})", kind)
    if not isinstance(err, FileNotFoundError | NotADirectoryError):
        return Absent(path, Why.REFUSED, f"its owner cannot read it ({err.strerror})", kind)
    parent, ancestor = os.path.dirname(path), path
    while ancestor != "/" and not os.path.lexists(ancestor):
        ancestor = os.path.dirname(ancestor)
    if ancestor != parent or not os.path.isdir(parent):
        why = Why.NO_DIRECTORY if _is_shared(ancestor, request.owner_uid) else Why.MISSING
        return Absent(path, why, f"its directory {parent} does not exist", kind)
    if os.geteuid() == request.owner_uid and not os.access(parent, os.W_OK | os.X_OK):
        return Absent(path, Why.NOT_WRITABLE, f"the job's user may not write to {parent}", kind)
    return Absent(path, Why.MISSING, IS_NOT_THERE, kind)


def _may_be_written(path: str, err: LogRefused, request: ReadRequest) -> bool:
    """Whether the job may write there nevertheless: what is a link or a device it may."""
    return not os.path.isdir(path) and ("belongs to" not in err.what or _may_write(path, request))


def _may_write(path: str, request: ReadRequest) -> bool:
    return os.geteuid() != request.owner_uid or os.access(path, os.W_OK, follow_symlinks=False)


_SHARED = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "wekafs", "panfs", "fuse", "glusterfs", "orangefs", "cifs", "afs")


def _is_shared(directory: str, owner_uid: int) -> bool:
    """Whether jobs most likely see this directory as it is seen here: it is the owner's, or comes over the network.

    What is missing below ``/`` or ``/tmp`` may well be there on a node.
    """
    if directory.count("/") < 2:
        return directory != "/" and _file_system(directory).startswith(_SHARED)
    return os.stat(directory).st_uid == owner_uid or _file_system(directory).startswith(_SHARED)


def _file_system(directory: str) -> str:
    """The type of the file system that a directory is on; "" where that is not known."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    found = (line.partition(" - ")[2].split(" ")[0] for line in lines if line.split(" ")[2:3] == [wanted])
    return next(found, "")


# What goes between a process that reads and one that asks


def request_to_json(request: ReadRequest) -> bytes:
    return json.dumps(asdict(request)).encode()


def request_of_json(data: bytes) -> ReadRequest:
    given = json.loads(data)
    return ReadRequest(
        given["owner_uid"],
        tuple(WantedText(tuple(w["paths"]), OutputKind(w["kind"]), w["rank"]) for w in given["files"]),
        tuple(Search(s["root"], tuple(s["parts"]), s["depth"], s["since_s"]) for s in given["searches"]),
        tuple(LogMark(**mark) for mark in given["marks"]),
        given["max_bytes"],
        given["head_bytes"],
        given["births"],
        given["work_dir"],
    )


def packed(output: Output) -> bytes:
    """An answer as a line of JSON and what was read; a path that is not text is escaped in it."""
    files = [
        {**asdict(replace(file, head=b"", tail=b"")), "head": len(file.head), "tail": len(file.tail)}
        for file in output.files
    ]
    answer = {"files": files, "absent": [asdict(each) for each in output.absent], "left_out": output.left_out}
    answer["full_store"] = output.full_store
    return json.dumps(answer).encode() + b"\n" + b"".join(file.head + file.tail for file in output.files)


def unpacked(packed_output: bytes) -> Output:
    first, _, data = packed_output.partition(b"\n")
    answer = json.loads(first)
    files, at = [], 0
    for told in answer["files"]:
        tail_at = at + told["head"]
        end = tail_at + told["tail"]
        texts = {"kind": OutputKind(told["kind"]), "head": data[at:tail_at], "tail": data[tail_at:end]}
        files.append(OutputFile(**{**told, **texts}))
        at = end
    absent = [Absent(a["path"], Why(a["why"]), a["says"], OutputKind(a["kind"])) for a in answer["absent"]]
    return Output(tuple(files), tuple(absent), answer["left_out"], full_store=answer["full_store"])


def warm_up() -> None:
    """Load all that reading may need while Python's own files can be read."""
    _statx()
