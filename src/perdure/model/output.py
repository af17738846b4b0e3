"""What an attempt wrote: its files as far as they were read, those that could not be read, and where reading ended."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

DIGEST_BYTES = 4096
"""This much before a mark is compared, to tell a file that was appended to from one that was rewritten."""


class OutputKind(StrEnum):
    """Which of an attempt's files it is."""

    STDOUT = "stdout"  # with stderr, where the two are one file
    STDERR = "stderr"
    RANK = "rank"  # written by one task


class Why(StrEnum):
    """Why a file could not be read."""

    MISSING = "missing"
    NO_DIRECTORY = "no directory"  # on a file system that its owner uses from here, too
    NOT_WRITABLE = "not writable"  # by its owner
    REFUSED = "refused"  # a link, a device, somebody else's file, or unreadable for its owner
    UNKNOWN = "unknown"  # not known where it is


@dataclass(frozen=True, slots=True)
class LogMark:
    """How far a file was read: a later attempt that appends to it begins there."""

    path: str
    start: int  # first byte that was read as this attempt's own
    end: int  # size of the file at that time
    digest: str  # of the last `DIGEST_BYTES` before `end`
    written_s: float  # when it was last written, seconds since 1970
    note: str = ""  # why whose lines these are is not known; "" where they are this attempt's


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file: its end, and its beginning where it was longer than asked for.

    `head` is empty where `tail` holds all from `start` on. `skipped` counts the bytes between the two.
    """

    path: str
    tail: bytes
    head: bytes = b""
    skipped: int = 0
    kind: OutputKind = OutputKind.STDOUT
    rank: str = ""
    start: int = 0
    end: int = 0
    digest: str = ""
    written_s: float = 0.0
    cut: bool = False  # what an earlier attempt of the job had left in it is gone
    birth_s: float | None = None  # when the file came into being; None where the file system does not say
    free_bytes: int | None = None  # what its owner may still write on the file system that it is on
    doubt: str = ""  # why whose lines these are is not known, in words; "" where they are this attempt's

    @property
    def text(self) -> bytes:
        """All that was read, in order."""
        return self.head + b"\n" + self.tail if self.head else self.tail

    @property
    def mark(self) -> LogMark:
        return LogMark(self.path, self.start, self.end, self.digest, self.written_s, self.doubt)


FULL_BYTES = 1 << 20
"""A file system on which less is free is full."""
IS_NOT_THERE = "it is not there"
"""What `Absent.says` of a file whose directory exists."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A file that was to be read and could not be."""

    path: str
    why: Why
    says: str  # half a sentence for a person
    kind: OutputKind = OutputKind.STDOUT


@dataclass(frozen=True, slots=True)
class Output:
    """All that could be read of an attempt's output."""

    files: tuple[OutputFile, ...] = ()
    absent: tuple[Absent, ...] = ()
    left_out: int = 0  # files beyond the limits on what is read
    resubmits: bool = False  # the batch script submits jobs, or puts itself back
    survives_steps: bool = False  # the batch script goes on whatever becomes of its steps
    ends_with_test: bool = False  # a test that is false, as the batch script's last line, is its exit code
    components: int = 1  # of a heterogeneous job
    full_store: str = ""  # where a file system is mounted that the attempt writes to, and that is full

    @classmethod
    def of(cls, data: bytes, path: str = "log") -> Output:
        """A log of one file that is in memory already."""
        return cls((OutputFile(path, data, end=len(data), digest=digest_of(data)),))

    @property
    def main(self) -> OutputFile | None:
        """The job's own standard output; None where it could not be read."""
        return next((file for file in self.files if file.kind is OutputKind.STDOUT), None)

    @property
    def free_bytes(self) -> int | None:
        """The least room on any disk that the attempt wrote to; None where it is not known."""
        return min((file.free_bytes for file in self.files if file.free_bytes is not None), default=None)


def digest_of(data: bytes) -> str:
    """The digest of a file that ends in `data`."""
    return hashlib.sha256(data[-DIGEST_BYTES:]).hexdigest()[:32]


def own_start(mark: LogMark | None, size: int, written_s: float, digest_at_mark: str) -> int:
    """The byte from which a file of `size` is a later attempt's own; `mark` is where the attempt before it ended.

    A file that was cut, or that no longer holds what was before the mark, was rewritten. So was one of the same
    size and text that was written since: a program that fails in the same way each time writes the same text.
    """
    if mark is None or size < mark.end or digest_at_mark != mark.digest:
        return 0
    if size == mark.end:
        return size if written_s == mark.written_s else 0
    return mark.end


_SHOWN_LAST = (OutputKind.RANK, OutputKind.STDERR, OutputKind.STDOUT)


def as_one_text(output: Output, max_bytes: int) -> bytes:
    """All files one after another, each under a line with its name as ``tail -n`` writes it, the job's own last.

    Each has an equal part of `max_bytes`, of which its end counts; a file alone has no such line.
    """
    files = sorted((file for file in output.files if file.text), key=lambda file: _SHOWN_LAST.index(file.kind))
    share = max_bytes // max(1, len(files))
    texts = [file.text[-share:] if share else b"" for file in files]
    if len(files) < 2:
        return b"".join(texts)
    names = [file.path.encode("utf-8", "replace").replace(b"\n", b"?") for file in files]
    return b"\n".join(b"==> %s <==\n%s" % pair for pair in zip(names, texts, strict=True))
