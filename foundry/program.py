"""A program that fails on purpose, and its entry in one of the files under ``programs/``.

    name       unique; also the id of its record
    family     programs of one mechanism; both members of a pair; evaluations never split a family
    truth      deterministic: fails whenever it is run | transient: passes once the trouble is gone
    category   of the root cause
    shows      words of the output that tell of the cause; a run that fails without them proves nothing
    why        one sentence: why a retry would, or would not, help
    source     the text of train.py, run as ``python train.py`` in a directory of its own, beside chatter.py
    trouble    what stands in its way (see troubles/); for a transient one it is gone on the second run
    pair       name shared by programs that print alike for opposite reasons
    needs      what the machine must have (see needs.py)
    command    what is run instead of ``python train.py``
    files      more files of its directory, by name

`framework` stands once at the top of a file and may be overruled by an entry.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

from perdure.errors import InputError
from perdure.triage.verdict import Label


@dataclass(frozen=True, slots=True)
class Program:
    """A program that fails, and the truth about it."""

    name: str
    family: str
    framework: str
    truth: Label
    category: str
    shows: str
    why: str
    source: str = ""
    trouble: str = ""
    pair: str = ""
    needs: tuple[str, ...] = ()
    command: tuple[str, ...] = ("python", "train.py")
    files: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 90.0

    @property
    def transient(self) -> bool:
        return self.truth is Label.TRANSIENT

    @property
    def digest(self) -> str:
        """12 hex digits; the same while the program, its trouble and its truth are the same."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


def programs() -> tuple[Program, ...]:
    """All programs, by the name of their file and in its order. Raises `InputError` for an entry that is wrong."""
    folder = resources.files("foundry") / "programs"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return tuple(program for file in files for program in parse(file.read_text("utf-8"), file.name))


def parse(text: str, where: str) -> tuple[Program, ...]:
    """The programs of one file. Raises `InputError` that names the entry."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise InputError(where, str(err), "Fix the file") from err
    return tuple(_program({"framework": table.get("framework"), **entry}, where) for entry in table.get("program", ()))


def _program(entry: Mapping[str, Any], where: str) -> Program:
    try:
        lists = {key: tuple(entry[key]) for key in ("needs", "command") if key in entry}
        return Program(**{**entry, **lists, "truth": Label(entry["truth"])})
    except (KeyError, TypeError, ValueError) as err:
        raise InputError(f"{where}: {entry.get('name', '?')}", f"not a program ({err})", "Fix the entry") from err
