"""What ``lfs quota`` and ``quota`` print of a user's, a group's or a project's share of a file system.

Both tell the same columns: a file system, what is used of bytes, its quota (soft), its limit (hard) and its grace time,
then the same of files. Sizes without a unit are KiB. ``*`` marks what is beyond its quota, brackets what Lustre could
not count to the end; 0 is no limit. A long name stands in a line of its own. ``quota`` leaves the grace time out where
none runs. Source: lfs-quota(1), quota(1), Lustre Operations Manual, 25.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.triage.text.patterns import capturing
from perdure.triage.text.quantities import KIB

FULL_SHARE, ROOM_SHARE = 0.99, 0.05
"""A write is refused before the last bytes are used; that share of a limit left is room."""

MOST_ROWS = 64
_HEADER = rb"Filesystem"
_COLUMNS = r"^\s*Filesystem\s+(?:kbytes|used|space|blocks)\s+quota\s+limit\s+grace\s+files\s+quota\s+limit\s+grace\s*$"
_AMOUNT = r"^\[?(\d{1,20}(?:\.\d{1,9})?)([kKMGTPE]?)\]?(\*?)$"
_UNITS = "kMGTPE"
_OVER = frozenset({"none", "expired"})
"""A grace time that has run out: what is beyond the soft quota is refused from then on."""


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """What is used of one kind, bytes or files, and what may be; 0: no limit."""

    used: float
    quota: float
    limit: float
    starred: bool
    grace: str  # as it is printed, "" where it is not

    @property
    def most(self) -> float:
        """What may be used in the end."""
        return self.limit or self.quota

    @property
    def is_full(self) -> bool:
        spent = self.starred and self.grace in _OVER
        return spent or (self.most > 0 and self.used >= FULL_SHARE * self.most)

    @property
    def has_room(self) -> bool:
        return not (self.starred or self.is_full) and self.most - self.used >= ROOM_SHARE * self.most


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One file system's row."""

    path: str  # where it is mounted, or server:/export
    size: QuotaUse  # in bytes
    files: QuotaUse

    @property
    def has_room(self) -> bool:
        return self.size.has_room and self.files.has_room

    @property
    def told(self) -> str:
        """The figures of what is full, else of bytes, in half a sentence."""
        if self.files.is_full and not self.size.is_full:
            return f"{self.files.used:.0f} of {self.files.most:.0f} files on {self.path}"
        return f"{self.size.used / KIB**3:.1f} of {self.size.most / KIB**3:.1f} GiB on {self.path}"


def quota_rows(data: bytes) -> Iterator[QuotaRow]:
    """The rows of the tables that a stretch of a log holds.

    >>> [row] = quota_rows(
    ...     b"     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace\\n"
    ...     b"       /scratch 104857604* 104857600 115343360 6d23h 991234 1000000 1100000       -\\n")
    >>> row.path, row.size.starred, row.files.limit, row.told
    ('/scratch', True, 1100000.0, '100.0 of 110.0 GiB on /scratch')
    """
    if _HEADER not in data:
        return
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if capturing(_COLUMNS).search(line):
            yield from _rows(lines[number + 1 : number + 1 + MOST_ROWS])


def row_of(path: str, rows: Sequence[QuotaRow]) -> QuotaRow | None:
    """The row of the file system that a path is on, of those that are named by where they are mounted."""
    mounted = [row for row in rows if row.path.startswith("/")]
    holding = [row for row in mounted if posixpath.commonpath([row.path, path]) == row.path]
    return max(holding, key=lambda row: len(row.path), default=None)


def _rows(lines: Sequence[bytes]) -> Iterator[QuotaRow]:
    name = ""
    for line in lines:
        words = line.decode("latin-1").split()
        if len(words) == 1 and not name:
            name = words[0]
            continue
        row = _row(words, name)
        if row is None:
            return
        name = ""
        yield row


def _row(words: list[str], name: str) -> QuotaRow | None:
    """The row of these words, behind a name that stood alone; None where they are none."""
    if not name:
        if not words or "/" not in words[0]:
            return None
        name, words = words[0], words[1:]
    size, rest = _share(words, KIB)
    files, _ = _share(rest, 1)
    return QuotaRow(name, size, files) if size is not None and files is not None else None


def _share(words: list[str], unit: int) -> tuple[QuotaUse | None, list[str]]:
    """What three amounts and a grace time tell, and the words after them."""
    amounts = [capturing(_AMOUNT).search(word.encode("latin-1")) for word in words[:3]]
    if len(amounts) < 3 or not all(amounts):
        return None, []
    used, quota, limit = (_amount(found, unit) for found in amounts)
    grace = words[3] if len(words) > 3 and not capturing(_AMOUNT).search(words[3].encode("latin-1")) else ""
    return QuotaUse(used, quota, limit, amounts[0][3] == b"*", grace), words[3 + bool(grace) :]


def _amount(found: Sequence[bytes], unit: int) -> float:
    if not found[2]:
        return float(found[1]) * unit
    scale: float = (KIB if unit > 1 else 1000) ** (_UNITS.lower().index(found[2].decode().lower()) + 1)
    return float(found[1]) * scale
