"""Logs as ``perdure why`` is given them: a file, compressed or not, a directory of one a rank, or standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import InputError, LogRefused
from perdure.triage.text.filenames import numbers_after, parts_of, ranks_of

if TYPE_CHECKING:
    from perdure.triage.evidence.gather import Signs
    from perdure.triage.text.logtext import Limits, LogText, Source, TextWindow

MIB = 1 << 20
MAX_FILES, MAX_DEPTH = 4096, 5
MOST_WITHOUT_RANKS = 64
"""A directory of more files, whose names hold no ranks, is not taken for the logs of one job."""
EXPECTED = "Name a log, or the directory of one job with a file for each rank"

MIN_FILE_BYTES = 64 * 1024
"""Of each file of a directory at least so much is kept; else the files share what one log may have."""

LOOKED_AT_BYTES = 1024
"""A file of a directory with a zero byte among its first is not a log."""
MOST_ODD = 0.3
"""Share of its first bytes, zeros left out, that are not characters of a text."""
NO_LOGS = (b"\x7fELF", b"\x89PNG", b"\x89HDF", b"\x93NUMPY", b"PK\x03\x04", b"SQLite format 3\0")
"""Programs, pictures, arrays, checkpoints and databases begin so; their texts match rules by accident."""
NAME_THE_LOG = "Name the file that holds the job's output"
TAR_MARK, TAR_MARK_AT = b"ustar", 257
"""Where the first member of a tar archive has it."""
PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
DUMPS = "Dumps of a flight recorder are read from their folder: perdure why ranks DIR"
TEXT_CONTROLS = frozenset("\t\n\r\f\b\a\x1b\0")  # a log that was cut short while it was written starts with zeros


@dataclass(frozen=True, slots=True)
class GivenLog:
    """A log, and what is to be said of its reading; "" where nothing is."""

    text: LogText
    note: str = ""
    odd: str = ""
    """Why it looks like no log: it is empty, or its start is not text."""


Tell = Callable[[int, int], None]
"""What is told while a log is read: how many MiB were read, and of how many; 0 where that is not known."""


@dataclass(slots=True)
class _Meter:
    """Counts what is read from the disk, packed or not, and tells."""

    tell: Tell | None
    of_bytes: int
    done_bytes: int = 0

    def counting(self, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """`read`, with all that it gives counted."""

        def counted(size: int) -> bytes:
            piece = read(size)
            self.done_bytes += len(piece)
            if self.tell is not None:
                self.tell(self.done_bytes // MIB, self.of_bytes // MIB)
            return piece

        return counted


def read_log(target: str, signs: Signs, limits: Limits | None = None, tell: Tell | None = None) -> GivenLog:
    """Read what `target` names; - is standard input. Raises `InputError` or `LogRefused` where it is not a log."""
    from perdure.triage.text.regular_file import open_regular

    if target == "-":
        return _gathered(sys.stdin.buffer.read, "standard input", signs, limits)
    if os.path.isdir(target):
        return read_directory(Path(target), signs, limits, tell)
    with open_regular(target) as file:
        meter = _Meter(tell, os.fstat(file.fileno()).st_size)
        return _gathered(meter.counting(file.read), target, signs, limits)


def _gathered(
    read: Callable[[int], bytes], name: str, signs: Signs, limits: Limits | None, source: Source | None = None
) -> GivenLog:
    from perdure.triage.evidence.gather import Gatherer
    from perdure.triage.text.logtext import Limits
    from perdure.triage.text.packed import CutShort, unpacked

    limits = limits or Limits()
    gatherer, note, start = Gatherer(signs, limits, source), "", b""
    try:
        for piece in unpacked(read, name, min(MIB, max(4096, limits.tail_bytes))):
            start += piece[: LOOKED_AT_BYTES - len(start)]
            gatherer.feed(piece)
    except CutShort:
        note = f"{name}: its compressed data end early or are damaged: judged by what could be read"
    except OSError as err:
        raise InputError(name, f"cannot be read ({err.strerror})", "Name a log file that you may read") from err
    if start.startswith(PICKLES):
        raise InputError(name, "is not text, but a pickle", DUMPS)
    if start.startswith(NO_LOGS):
        raise InputError(name, "is not text", NAME_THE_LOG)
    if start[TAR_MARK_AT:].startswith(TAR_MARK):
        raise InputError(name, "is an archive", "Unpack it, and name the file that holds the job's output")
    return GivenLog(gatherer.text(), note, _oddness(start))


def _oddness(start: bytes) -> str:
    if not start.strip():
        return "begins with nothing but blank lines" if start else "is empty"
    text = start.decode("utf-8", "replace")
    odd = sum(char == "\ufffd" or (char < " " and char not in TEXT_CONTROLS) for char in text)
    written = len(start) - start.count(0)  # programs and databases are mostly zeros: these say nothing either way
    return "is not text" if odd > MOST_ODD * written else ""


# ---------------------------------------------------------------- a directory


def read_directory(directory: Path, signs: Signs, limits: Limits | None = None, tell: Tell | None = None) -> GivenLog:
    """Read the logs of a directory and of those below it, each as one task's; of several attempts the last.

    What cannot be read, or holds zero bytes at its start, is passed over and counted.
    """
    from perdure.triage.text.logtext import Limits, LogText, Source

    limits = limits or Limits()
    paths, more = _files(directory)
    ranks = ranks_of([str(path.relative_to(directory)) for path in paths])
    tells_no_rank = any(rank and not rank.isdecimal() for rank in ranks)
    if tells_no_rank and len(paths) > MOST_WITHOUT_RANKS:
        raise InputError(str(directory), f"holds {len(paths)} files whose names hold no ranks", EXPECTED)
    share = Limits(
        max(MIN_FILE_BYTES // 4, limits.head_bytes // max(1, len(paths))),
        max(MIN_FILE_BYTES, limits.tail_bytes // max(1, len(paths))),
    )
    windows: list[TextWindow] = []
    notes = [f"only the first {MAX_FILES} files were read"] if more else []
    skipped = passed_over = 0
    meter = _Meter(tell, sum(map(_size, paths)))
    for path, rank in zip(paths, ranks, strict=True):
        name = str(path.relative_to(directory))
        try:
            source = Source(name, rank, path.stat().st_mtime)
            given = _file(path, name, signs, share, source, meter)
        except (InputError, LogRefused, OSError):
            given = None
        if given is None:
            passed_over += 1
            continue
        windows += given.text.windows
        skipped += given.text.skipped_bytes
        notes += [given.note] if given.note else []
    if passed_over == len(paths):
        raise InputError(str(directory), "holds no logs that can be read", "Name a log file, or a directory of them")
    if tells_no_rank and len(paths) - passed_over > 1:
        notes.append(f"{len(paths) - passed_over} files without ranks are judged as one job's. {EXPECTED}")
    if passed_over:
        what = (
            "1 file that is not a log, or cannot be read, was"
            if passed_over == 1
            else f"{passed_over} files that are not logs, or cannot be read, were"
        )
        notes.append(f"{what} passed over")
    return GivenLog(LogText(tuple(windows), skipped), "; ".join(notes) and f"{directory}: {'; '.join(notes)}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it is gone, and will be passed over
        return 0


def _file(path: Path, name: str, signs: Signs, limits: Limits, source: Source, meter: _Meter) -> GivenLog | None:
    """One file of a directory; None where it is not text."""
    from perdure.triage.text.packed import is_packed
    from perdure.triage.text.regular_file import open_regular

    with open_regular(path) as file:
        start = file.read(LOOKED_AT_BYTES)
        if b"\0" in start and not is_packed(start):
            return None
        file.seek(0)
        return _gathered(meter.counting(file.read), name, signs, limits, source)


def _files(directory: Path) -> tuple[list[Path], bool]:
    """The files of a directory in a natural order, links to directories not followed; and whether there are more."""
    found = sorted(_walk(directory, MAX_DEPTH), key=lambda path: _natural(str(path.relative_to(directory))))
    last = max((number for path in found if (number := _attempt(path, directory)) is not None), default=None)
    chosen = [path for path in found if _attempt(path, directory) in (None, last)]
    return chosen[:MAX_FILES], len(chosen) > MAX_FILES


def _walk(directory: Path, depth: int) -> Iterator[Path]:
    try:
        entries = list(os.scandir(directory))
    except OSError as err:
        raise InputError(str(directory), f"cannot be read ({err.strerror})", "Name a directory of logs") from err
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth > 0 and not entry.name.startswith("."):
                yield from _walk(Path(entry.path), depth - 1)
        elif _is_file(entry):
            yield Path(entry.path)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """False also where that cannot be found out: links that lead in a circle, a file server that is away."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts rank2 before rank10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts_of(name)]


def _attempt(path: Path, directory: Path) -> int | None:
    """The number of torchrun's attempt that a file belongs to."""
    return max(numbers_after("attempt", str(path.relative_to(directory).parent) + "/"), default=None)
