"""What messages and tables tell in numbers of disks and quotas: what is needed, what is free, used and allowed.

The wordings are those of huggingface_hub (file_download.py), of programs that check the room before they write, of
HDFS (its quota exceptions) and of df, whose tables job scripts print.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.triage.text.patterns import capturing
from perdure.triage.text.quantities import KIB, SIZE_WITH_UNIT, size_in, to_bytes

ROOM_SHARE, ROOM_BYTES = 0.05, 1 << 30
"""A disk has room where this share of it and this many bytes are free."""

FULL_PERCENT = 99
"""df rounds up, and root's reserve is out of a user's reach."""

_NEEDED = (
    rf"(?i)\b(?:expected (?:file )?size is|needed|needs?|requires?|required|requested|wants?|asked for)\W{{1,4}}"
    rf"(?:about |at least |another )?{SIZE_WITH_UNIT}|{SIZE_WITH_UNIT} (?:is |are )?(?:needed|required)\b"
    rf"|(?:diskspace consumed|space consumed) ?= ?{SIZE_WITH_UNIT}"
)
_FREE = (  # the likelier form first
    rf"(?i){SIZE_WITH_UNIT} (?:of )?(?:disk )?(?:space )?(?:is |are )?(?:free|available|left|remaining)\b",
    rf"(?i)\b(?:free|available|avail|remaining|left)(?: disk)?(?: space)?(?: is)?\W{{1,3}}{SIZE_WITH_UNIT}",
    rf"(?i)\b(?:only )?(?:has|have|only)(?: only)? {SIZE_WITH_UNIT}",
)
_UP_TO = r"\W{1,4}(?:out )?(?:of|/|limit|quota|max\w*)(?: is)?\W{0,4}"
_USED_OF = (
    rf"(?i)\b(?:used|usage|using|consumed)(?: is)?\W{{1,4}}{SIZE_WITH_UNIT}{_UP_TO}{SIZE_WITH_UNIT}"
    rf"|{SIZE_WITH_UNIT} (?:of|/|out of) {SIZE_WITH_UNIT} (?:is |are )?used"
    rf"|{SIZE_WITH_UNIT} used\W{{1,4}}(?:with )?(?:a |the )?(?:limit|quota)(?: of| is)?\W{{1,3}}{SIZE_WITH_UNIT}"
)
_LIMIT = rf"(?i)\b(?:quota|limit|allowed|maximum)(?: of| is)? ?[=:]? ?{SIZE_WITH_UNIT}"

_COUNT = r"(\d[\d.]{0,15}[KMGTP]?i?B?)"
_DF = rf"(?m)^\S{{1,200}}\s+{_COUNT}\s+{_COUNT}\s+{_COUNT}\s+(\d{{1,3}})%\s+(/\S{{0,200}})\s*$"
_DF_HEADER = r"(?m)^Filesystem\s+(\S+)\s+I?Used\s+\S+\s+I?Use%\s+Mounted on"


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The figures of a message in bytes; None: it does not say."""

    needed: int | None = None
    free: int | None = None
    limit: int | None = None  # what one may have in all
    used: int | None = None

    @property
    def room(self) -> int | None:
        """What is left."""
        if self.used is not None and self.limit is not None:
            return max(0, self.limit - self.used)
        return self.free

    @property
    def has_room(self) -> bool:
        """Whether it tells that what was needed was there."""
        if self.room is None or self.never_fits:
            return False
        if self.needed is not None:
            return self.needed <= self.room
        return self.limit is not None and self.room >= max(ROOM_BYTES, ROOM_SHARE * self.limit)

    @property
    def never_fits(self) -> bool:
        """Whether more is needed than one may have in all."""
        return None not in (self.needed, self.limit) and (self.needed or 0) > (self.limit or 0)

    @property
    def told(self) -> str:
        """The figures in half a sentence."""
        parts = [(self.needed, "needed"), (self.free, "free"), (self.used, "used"), (self.limit, "allowed")]
        return ", ".join(f"{_gib(size)} {word}" for size, word in parts if size is not None)


@dataclass(frozen=True, slots=True)
class MountedDisk:
    """A row of df: what is mounted at a path, in bytes, or in files where df was asked for inodes."""

    path: str
    total: float
    free: float
    percent: int
    of_files: bool

    @property
    def is_full(self) -> bool:
        return self.percent >= FULL_PERCENT

    @property
    def has_room(self) -> bool:
        return self.free >= ROOM_SHARE * self.total and (self.of_files or self.free >= ROOM_BYTES)


def disk_space(line: bytes) -> DiskSpace | None:
    """Read the figures of a message; None where it has fewer than two, which tell nothing.

    >>> space = disk_space(b"Not enough free disk space to download the file. The expected file size is: 9876.54 MB. "
    ...                    b"The target location /home/a/.cache only has 123.45 MB free disk space.")
    >>> space.told, space.has_room
    ('9.2 GiB needed, 0.1 GiB free', False)
    """
    used = limit = None
    if found := capturing(_USED_OF).search(line):
        sizes = [group for group in found.groups() if group is not None]
        used, limit = to_bytes(*sizes[:2]), to_bytes(*sizes[2:4])
    free = None if used is not None else next((size for f in _FREE if (size := size_in(f, line)) is not None), None)
    space = DiskSpace(size_in(_NEEDED, line), free, limit or size_in(_LIMIT, line), used)
    told = [size for size in (space.needed, space.free, space.limit, space.used) if size is not None]
    return space if len(told) > 1 else None


def mounted_disks(data: bytes) -> Iterator[MountedDisk]:
    """The rows of df that a stretch of a log holds; sizes without a unit are KiB, as df prints them."""
    header = capturing(_DF_HEADER).search(data)
    of_files = header is not None and header[1].lower().startswith(b"inode")
    for found in capturing(_DF).finditer(data):
        total, _, free = (_amount(found[n], of_files) for n in (1, 2, 3))
        yield MountedDisk(found[5].decode("utf-8", "replace"), total, free, int(found[4]), of_files)


def disk_of(path: str, disks: list[MountedDisk]) -> MountedDisk | None:
    """The one that a path is on, of those that are known."""
    holding = [disk for disk in disks if disk.path == "/" or posixpath.commonpath([disk.path, path]) == disk.path]
    return max(holding, key=lambda disk: len(disk.path), default=None)


def _amount(told: bytes, of_files: bool) -> float:
    number = told.rstrip(b"KMGTPiB")
    unit = told[len(number) :]
    if not unit:
        return float(number) * (1 if of_files else KIB)
    return float(number) * KIB ** (b"KMGTP".index(unit[:1]) + 1) if unit[:1] in b"KMGTP" else float(number)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
