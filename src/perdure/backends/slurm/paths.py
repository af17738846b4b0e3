"""What is left of the patterns in a log file's path after Slurm has written out what it knows.

``scontrol`` 22.05 writes out %A %a %j %u %x and leaves %N, %n, %t, %s and %% as they are; later versions know more.
"""

from __future__ import annotations

from dataclasses import replace

import re2

from perdure.backends.slurm.records import JobRecord

_PATTERN = re2.compile(r"%(\d{0,2})([%AaJjNnstuxb])")


def expand_patterns(record: JobRecord) -> JobRecord:
    """Return the record with its paths written out, as the batch script's own output."""
    if "%" not in record.stdout and "%" not in record.stderr:
        return record
    return replace(record, stdout=_expand(record.stdout, record), stderr=_expand(record.stderr, record))


def _expand(path: str, record: JobRecord) -> str:
    array, _, task = record.job_id.partition("_")
    number = str(record.raw_id)
    values = {
        "%": "%",
        "A": array if task else number,
        "a": task or "4294967294",
        "J": number,
        "j": number,
        "N": record.nodes[0].partition(".")[0] if record.nodes else "",
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": record.user,
        "x": record.name,
        "b": str(int(task) % 10) if task else "0",
    }

    def value(match: object) -> str:
        width, letter = match[1], match[2]  # type: ignore[index]
        text = values[letter]
        return text.zfill(min(int(width), 10)) if width and text.isdecimal() else text

    return str(_PATTERN.sub(value, path))
