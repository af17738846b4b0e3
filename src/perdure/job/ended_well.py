"""Whether a job had done all that it had to do when it was put back: then its programs are not run again.

Slurm carries out a requeue that it has accepted, though the job ends well a second later, before the signal comes.
Each `perdure exec` therefore leaves a note, ``attempts/<token>/<host>-<pid>/program.json``: when its program began, and
how it ended. A note of a good end is there after a power cut. A start whose last programs all ended well is over for
good. That the next one is a restart of this job, and no other job of that number, is the resource manager's word.

Not a good end: one after a warning, or a signal that the program hears, as programs save and leave with 0 then.
"""

from __future__ import annotations

import binascii
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.durable import write_whole
from perdure.errors import InputError
from perdure.job.fields import Fields
from perdure.job.files import read_json, tasks, write_json
from perdure.job.identity import RESTART_COUNT, Start

SCHEMA = "perdure.program/1"


@dataclass(frozen=True, slots=True)
class ProgramNote:
    """One program of a start. Times are seconds since the epoch, `ended_s` 0 while none is known."""

    job_id: str
    cluster: str
    command: int  # a checksum: arguments may hold secrets
    began_s: float
    ended_s: float = 0.0
    is_good_end: bool = False

    @classmethod
    def of(cls, start: Start, argv: Sequence[str], now: float) -> ProgramNote:
        """Of a program that begins now."""
        return cls(start.job_id, start.cluster, binascii.crc32("\0".join(argv).encode("utf-8", "replace")), now)

    def write(self, path: Path) -> None:
        """Leave it, as far as that goes: without it the program may run once more, as without Perdure."""
        told = {"schema": SCHEMA, **{name: getattr(self, name) for name in self.__slots__}}
        with suppress(OSError):
            if self.is_good_end:
                write_whole(path, json.dumps(told).encode())
            else:
                write_json(path, told)


def ended_well_before(
    start: Start, token: int, argv: Sequence[str], environment: Mapping[str, str]
) -> ProgramNote | None:
    """The note of this very command, where the job's latest start before this one ended well with it.

    None in a first start, and under a launcher that has a claim of its own already.
    """
    restarts = environment.get(RESTART_COUNT, "0")
    if start.token is not None or not restarts.isdecimal() or not int(restarts):
        return None
    notes = list(_notes_before(start.directory, token))
    last_begun_s = max((note.began_s for note in notes), default=0.0)
    last = [note for note in notes if not 0 < note.ended_s <= last_begun_s]  # no other began after these
    is_over = all(note.is_good_end and (note.job_id, note.cluster) == (start.job_id, start.cluster) for note in last)
    own = ProgramNote.of(start, argv, 0.0).command
    return next((note for note in last if note.command == own), None) if is_over else None


def _notes_before(fence: Path, token: int) -> Iterator[ProgramNote]:
    """Those of the newest earlier start that left any, of this user."""
    newest = ""
    for files in tasks(fence):
        number = files.directory.parent.name
        if int(number) >= token or (newest and number != newest):
            continue
        with suppress(OSError, InputError):
            yield _read(files.program)
            newest = number


def _read(path: Path) -> ProgramNote:
    fields = Fields(str(path), read_json(path, SCHEMA, (os.geteuid(),)))
    return ProgramNote(
        fields.text("job_id"), fields.text("cluster"), fields.whole("command"), fields.number("began_s"),
        fields.number("ended_s"), fields.yes("is_good_end"),
    )  # fmt: skip
