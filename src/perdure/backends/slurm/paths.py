"""The patterns in a log file's path, as Slurm writes them out when it opens the file.

``scontrol`` 22.05 writes out %A %a %j %u %x and leaves %N, %n, %t, %s, %b and %% as they are; later versions know more.
What it printed may hold a % that is not a pattern (of a job's name), or one that this version does not know: then the
file is named so. All names that a file may have are given, the likeliest first.

A backslash anywhere in a path switches its patterns off: Slurm takes backslashes out and writes to what is left, while
``scontrol`` writes patterns out all the same (22.05).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import re2
from msgspec import Struct
from msgspec.structs import replace

from perdure.backends.slurm.records import JobRecord

MAX_NAMES = 24
MAX_DOUBTFUL = 5  # patterns of one path that may be something else
_PATTERN = re2.compile(r"%(\d{0,2})([%AaJjNnstuxb])")
_ESCAPED = re2.compile(r"(?s)\\(.?)")
_PRINTED = {"a": "a", "u": "u", "x": "x", "A": "A", "j": "jA"}
"""Whose values scontrol writes out, and the patterns that each may stand for; of a plain job %j and %A are the same."""
_NO_TASK = "4294967294"


class Names(Struct, frozen=True):
    """The values of patterns for one job: for each letter those that it may have, the likeliest first."""

    of: Mapping[str, Sequence[str]]

    @classmethod
    def for_job(cls, record: JobRecord, hosts: Mapping[str, str]) -> Names:
        """`hosts` are the names of nodes' machines, which %N tells, where they differ from those of the nodes."""
        array, _, task = record.job_id.partition("_")
        number = str(record.raw_id)
        first = record.nodes[0] if record.nodes else ""
        return cls({
            "%": ("%",),
            "A": (array if task else number,),
            "a": (task or _NO_TASK,),
            "J": (number,),
            "j": (number,),
            "N": tuple(dict.fromkeys(name.partition(".")[0] for name in (hosts.get(first, first), first))),
            "n": ("0",),
            "s": ("batch",),
            "t": ("0",),
            "u": (record.user,),
            "x": (record.name,),
            "b": (str(int(task) % 10) if task else "0",),
        })  # fmt: skip

    def names(self, path: str) -> tuple[str, ...]:
        """All names that a file with this path may have, at most `MAX_NAMES`."""
        if "\\" in path:
            return self._literal_names(path)
        if "%" not in path:
            return (path,)
        pieces: list[Sequence[str]] = []
        at = 0
        for count, match in enumerate(_PATTERN.finditer(path)):
            values = [padded(value, match[1]) for value in self.of[match[2]]]
            choices = tuple(dict.fromkeys([*values, match[0]]))
            pieces += [(path[at : match.start()],), choices if count < MAX_DOUBTFUL else choices[:1]]
            at = match.end()
        pieces.append((path[at:],))
        return _combined(pieces)

    def _literal_names(self, path: str) -> tuple[str, ...]:
        """Names where patterns are off: what was printed for one may as well be text, and is in a directory's name."""
        written = {self.of[letter][0]: letters for letter, letters in _PRINTED.items() if self.of[letter][0]}
        values = "|".join(re2.escape(value) for value in sorted(written, key=len, reverse=True))
        name_at = path.rfind("/") + 1
        pieces: list[Sequence[str]] = []
        at = 0
        for count, match in enumerate(re2.finditer(values, path)):
            before, after = path[: match.start()][-1:], path[match.end() :][:1]
            is_part = match[0].isdecimal() and (before.isdecimal() or after.isdecimal())
            choices = tuple(f"%{letter}" for letter in written[match[0]])
            likely = (*choices, match[0]) if match[0].isdecimal() and match.start() >= name_at else (match[0], *choices)
            pieces += [(_unescaped(path[at : match.start()]),), (match[0],)]
            if not is_part and count < MAX_DOUBTFUL:
                pieces[-1] = likely
            at = match.end()
        pieces.append((_unescaped(path[at:]),))
        return _combined(pieces)


def _combined(pieces: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The texts that are made by one choice for each piece, the likeliest first."""
    ways = sorted(product(*(range(len(piece)) for piece in pieces)), key=sum)[:MAX_NAMES]
    return tuple("".join(piece[choice] for piece, choice in zip(pieces, way, strict=True)) for way in ways)


def _unescaped(text: str) -> str:
    return str(_ESCAPED.sub(r"\1", text))


def padded(text: str, width: str) -> str:
    """A number with zeros before it, at most 10 digits, as %5t asks for."""
    return text.zfill(min(int(width), 10)) if width and text.isdecimal() else text


def expand_patterns(record: JobRecord, hosts: Mapping[str, str]) -> JobRecord:
    """Return the record with its paths written out, as the batch script's own output."""
    if not any(sign in path for path in (record.stdout, record.stderr) for sign in "%\\"):
        return record
    names = Names.for_job(record, hosts)
    stdout, stderr = names.names(record.stdout)[0], names.names(record.stderr)[0]
    return replace(record, stdout=stdout, stderr=stderr, printed_paths=(record.stdout, record.stderr))
