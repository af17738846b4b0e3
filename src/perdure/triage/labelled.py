"""Logs whose truth is known, as JSON lines: ``{"id", "source", "label", "text"}`` on each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.errors import InputError
from perdure.triage.classifiers.protocol import Example, Reading
from perdure.triage.evidence.excerpt import excerpt, last_block
from perdure.triage.evidence.rule import Cause
from perdure.triage.evidence.rules import own_rules
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Label


@dataclass(frozen=True, slots=True)
class LabelledLog:
    """A log, the group that it may not be torn from (its repository or program family), and its truth."""

    id: str
    group: str
    transient: bool
    text: str

    @property
    def example(self) -> Example:
        """What a classifier learns of it: read just as for a verdict."""
        return Example(
            self.id, self.group, self.transient, reading_of(LogText.of(self.text.encode("utf-8", "replace")))
        )


def reading_of(text: LogText) -> Reading:
    """What a model is given of a log."""
    hits = last_block(own_rules().hits(text))
    return Reading(excerpt(text, hits).text, tuple(hit.cause for hit in hits))


def read_replayed(data: bytes, causes: Mapping[str, Cause]) -> list[Example]:
    """The examples that `foundry.replayed` wrote; of rules that are gone nothing is left in them."""
    records = map(json.loads, gzip.decompress(data).splitlines())
    return [
        Example(
            each["id"],
            each["group"],
            each["transient"],
            Reading(each["excerpt"], tuple(causes[name] for name in each["causes"] if name in causes)),
        )
        for each in records
    ]


def read_logs(path: Path) -> list[LabelledLog]:
    """Read JSON lines (also gzipped). Raises `InputError` that names the line."""
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    except (OSError, EOFError, gzip.BadGzipFile) as err:
        raise InputError(str(path), f"cannot be read ({err})", "Name a file of JSON lines") from err
    return [_log(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _log(line: bytes, where: str) -> LabelledLog:
    fix = 'Write {"id", "source", "label": "deterministic" or "transient", "text"}'
    try:
        record: dict[str, Any] = json.loads(line)
        label = Label(record["label"])
        group = str(record["source"]).split("@")[0]
        log = LabelledLog(str(record["id"]), group, label is Label.TRANSIENT, str(record["text"]))
    except (ValueError, TypeError, RecursionError) as err:
        raise InputError(where, f"not a labelled log ({err})", fix) from err
    except KeyError as err:
        raise InputError(where, f"{err} is missing", fix) from err
    if label is Label.UNSURE:
        raise InputError(where, "an unsure record teaches nothing", fix)
    return log
