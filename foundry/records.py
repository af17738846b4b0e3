"""The foundry's records: a log that failed, the truth about it, and how that truth is known.

A file holds one record a line, JSON, gzipped. The fields id, source, label, text, category, framework and rationale
mean what they mean in other collections of failure logs, so one reader reads all of them; the rest is the foundry's.
`docs/foundry.md` describes each field.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from perdure.errors import InputError
from perdure.triage.verdict import Label

MEASURED, CATALOGUE = "measured", "catalogue"


@dataclass(frozen=True, slots=True)
class Record:
    """A log of a job that failed, and the truth about it."""

    id: str  # PROGRAM of an original, PROGRAM~SEED of a variation
    program: str
    family: str  # programs that fail by one mechanism; both members of a pair; never split by an evaluation
    framework: str  # the software whose words these are
    source: str  # "foundry/FAMILY": what evaluations group by
    origin: str  # MEASURED: a program ran and its truth was proven; CATALOGUE: composed after documentation
    label: str  # "deterministic" | "transient"
    category: str
    rationale: str  # one sentence: why an unchanged retry would, or would not, get past this point
    shows: str  # words that tell of the cause; they stand in the text
    pair: str  # programs with the same pair print alike for opposite reasons; "" for most
    seed: int  # 0 for an original
    exit_code: int  # as a shell gives it: 128 + n where signal n ended the program
    first_line: int  # first and last line (from 1) of the part of the text that tells of the failure;
    last_line: int  # the lines around it are ordinary
    proof: Mapping[str, Any]  # {"exit_codes", "program", "with"} of reruns, or {"page"} of documentation
    text: str

    @property
    def transient(self) -> bool:
        return self.label == Label.TRANSIENT.value

    @property
    def excerpt(self) -> str:
        """The lines that tell of the failure."""
        return "\n".join(self.text.split("\n")[self.first_line - 1 : self.last_line])


FIELDS = tuple(field.name for field in fields(Record))


def dump(records: Iterable[Record]) -> bytes:
    """The file of these records; equal records give equal bytes."""
    lines = (json.dumps(asdict(record), ensure_ascii=False, sort_keys=True) + "\n" for record in records)
    return gzip.compress("".join(lines).encode("utf-8", "surrogatepass"), compresslevel=9, mtime=0)


def load(data: bytes, where: str) -> tuple[Record, ...]:
    """Read a file that `dump` wrote. Raises `InputError` that names the line."""
    fix = f"Write the fields {', '.join(FIELDS)}"
    try:
        lines = gzip.decompress(data).splitlines()
    except (OSError, EOFError, zlib.error) as err:
        raise InputError(where, f"not gzipped JSON lines ({err})", fix) from err
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(Record(**json.loads(line)))
        except (ValueError, TypeError) as err:
            raise InputError(f"{where}:{number}", f"not a record of the foundry ({err})", fix) from err
    return tuple(records)


def read(path: Path) -> tuple[Record, ...]:
    """The records of a file. Raises `InputError` where it cannot be read."""
    try:
        return load(path.read_bytes(), str(path))
    except OSError as err:
        raise InputError(
            str(path), f"cannot be read ({err})", "Name a file of records, as `make foundry` writes it"
        ) from err


def published() -> tuple[Record, ...]:
    """The records that come with Perdure: every program as it was recorded, every message composed once."""
    path = resources.files("perdure.triage") / "data" / "foundry.jsonl.gz"
    return load(path.read_bytes(), path.name)
