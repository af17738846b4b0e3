"""Records of the text that ``sacct --parsable2`` prints, where users wrote into some of the columns.

sacct prints a job's name, comment, constraints or submit line as they were given, newlines and separators included,
so a record may stretch over lines or seem to have columns too many. It is put together again where there is only one
way to do so; where there are several, or none, it is broken. A user who forges a whole line cannot be told from
Slurm: an export of only the columns that are needed holds no such text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import re2

from perdure.traces.cells import MAX_LINE_BYTES, Line

_WRITTEN_BY_USERS = (
    "AdminComment", "Comment", "Constraints", "Container", "Extra", "JobName", "StdErr", "StdIn", "StdOut",
    "SubmitLine", "SystemComment", "WCKey", "WorkDir",
)  # fmt: skip
_JOB_ID = re2.compile(r"\d{1,12}(?:_\d{1,10}|_\[[^\]]*\]|\+\d{1,6})?(?:\.[A-Za-z0-9_+]{1,32})?")
_TIME = re2.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?|\d{1,12}|Unknown|None|")
_STATE = re2.compile(r"[A-Z_]{4,20}(?: by \d{1,10})?\+?")
_COUNT = re2.compile(r"\d{0,12}")
_TRES = re2.compile(r"(?:[A-Za-z0-9/:_.-]+=[^,=]*(?:,|$))*")
_SLURMS_OWN = {  # columns that Slurm alone writes, and the form of their text
    "JobID": _JOB_ID, "JobIDRaw": _JOB_ID, "Submit": _TIME, "Start": _TIME, "State": _STATE, "AllocTRES": _TRES,
    "ReqTRES": _TRES, "ElapsedRaw": _COUNT, "NNodes": _COUNT, "AllocNodes": _COUNT, "AllocCPUS": _COUNT,
    "ReqCPUS": _COUNT, "TimelimitRaw": re2.compile(r"\d{0,12}|[A-Za-z_]{0,20}"),
}  # fmt: skip
_COMPARED = frozenset(_SLURMS_OWN) | {"User", "Account", "Partition", "Elapsed", "Timelimit"}
_MAX_LINES = 1000  # of one record; more is not a record of sacct


@dataclass(frozen=True, slots=True)
class Layout:
    """What the header says: how columns are set apart, and which is where (the first of its name)."""

    separator: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, header: str) -> Layout:
        """Read the header; ``|#`` sets columns apart in some exports."""
        separator = "|#" if "|#" in header else "|"
        return cls(separator, tuple(header.rstrip("\r\n").split(separator)))

    def place(self, names: Sequence[str]) -> int | None:
        """The column of the first of `names` that the file has."""
        return next((self.columns.index(name) for name in names if name in self.columns), None)


Record = tuple[int, list[str] | None]  # the number of its first line, and its fields; none where it is broken


class RecordJoiner:
    """Makes records of the lines below a header that have more or fewer columns than it.

    Fed with these lines only, in their order: where one is missing between two of them, it is a whole record.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._torn: list[str] = []  # lines that do not yet make a record
        self._began = self._last = 0  # numbers of the first and the last of them
        self._cells = 0  # that the record has so far
        self._size = 0  # characters of these lines

    def records(self, lines: Iterable[Line]) -> Iterator[Record]:
        """The records that these lines end. Those that they only begin come with later lines, or as the `rest`."""
        width, separator = len(self._layout.columns), self._layout.separator
        for number, line in lines:
            cells = line.count(separator) + 1
            if cells >= width or number != self._last + 1:
                yield from self.rest()
            if cells >= width:
                yield number, self._joined([line])
            elif self._torn or line.strip():
                self._add(number, line, cells)
                if self._cells >= width or len(self._torn) > _MAX_LINES or self._size > MAX_LINE_BYTES:
                    yield self._began, self._joined(self._torn)
                    self._torn = []

    def rest(self) -> Iterator[Record]:
        """The record that was begun and not ended, which is broken."""
        if self._torn:
            yield self._began, None
            self._torn = []

    def _add(self, number: int, line: str, cells: int) -> None:
        if not self._torn:
            self._began, self._cells, self._size = number, 1, 0
        self._torn.append(line)
        self._last = number
        self._cells += cells - 1
        self._size += len(line)

    def _joined(self, lines: Sequence[str]) -> list[str] | None:
        return _joined("\n".join(lines).rstrip("\r\n").split(self._layout.separator), self._layout)


def _joined(fields: list[str], layout: Layout) -> list[str] | None:
    """The fields, one a column. Separators too many are a user's, in one of the columns that users write."""
    surplus = len(fields) - len(layout.columns)
    if surplus == 0:
        return fields
    columns = {name: layout.columns.index(name) for name in _COMPARED if name in layout.columns}
    readings = {}
    for place, name in enumerate(layout.columns):
        if surplus > 0 and name in _WRITTEN_BY_USERS:
            joined = layout.separator.join(fields[place : place + surplus + 1])
            reading = [*fields[:place], joined, *fields[place + surplus + 1 :]]
            if all(form.fullmatch(reading[columns[own]]) for own, form in _SLURMS_OWN.items() if own in columns):
                readings[tuple(reading[at] for at in columns.values())] = reading
    return next(iter(readings.values())) if len(readings) == 1 else None
