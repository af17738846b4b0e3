"""Pickled dumps read without trust: in a process of its own with little memory, by an unpickler that loads no class.

``python -m perdure.hangs.pickled`` reads ``[[path, rank], ...]`` from standard input and writes for each path a line:
the dump as JSON, or ``{"error": "..."}``. A pickle can ask for any amount of memory: the process may have `MAX_BYTES`
of it, and `MAX_CPU_S` of a core.
"""

from __future__ import annotations

import io
import json
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from perdure.hangs.flight_recorder import Dump, read_dump
from perdure.triage.text.regular_file import open_regular

MAX_BYTES = 4 << 30
MAX_CPU_S = 120
MAX_WAIT_S = 600.0
MAX_FILE_BYTES = 256 << 20


class _Refusing(pickle.Unpickler):
    """Loads numbers, texts, lists and dicts; whatever names a class is refused before anything of it runs."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names a class, {module}.{name}"[:200])

    def persistent_load(self, pid: object) -> NoReturn:  # noqa: ARG002  (the name is pickle's)
        raise pickle.UnpicklingError("it refers to another file")


def read_dumps(named: Sequence[tuple[Path, int]], within_s: float = MAX_WAIT_S) -> list[Dump | str]:
    """The dump in each file, for the rank given next to its path; or why the file holds none."""
    deadline_s = time.monotonic() + within_s
    found: list[Dump | str] = []
    while len(found) < len(named):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return [*found, *["was not read in time"] * (len(named) - len(found))]
        found += [_dump_of(line) for line in _asked(named[len(found) :], left_s)]
        if len(found) < len(named):  # that one ended the process: another one reads those behind it
            found.append("cannot be read: its pickle asks for too much memory or time")
    return found


def _asked(named: Sequence[tuple[Path, int]], within_s: float) -> list[bytes]:
    asked = json.dumps([[str(path), rank] for path, rank in named])
    command = [sys.executable, "-m", "perdure.hangs.pickled"]
    try:
        done = subprocess.run(command, input=asked.encode(), capture_output=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired as err:
        return (err.stdout or b"").splitlines()
    return done.stdout.splitlines()


def _dump_of(line: bytes) -> Dump | str:
    try:
        return msgspec.json.decode(line, type=Dump)
    except msgspec.MsgspecError:
        try:
            return str(json.loads(line)["error"])
        except (ValueError, KeyError, TypeError):
            return "cannot be read"


def _answers(asked: Sequence[Sequence[object]]) -> Iterator[bytes]:
    for path, rank in asked:
        try:
            with open_regular(str(path)) as file:
                data = file.read(MAX_FILE_BYTES + 1)
            if len(data) > MAX_FILE_BYTES:
                raise ValueError(f"more than {MAX_FILE_BYTES >> 20} MiB")
            dump = read_dump(_loads(data), int(str(rank)), str(path))
            yield msgspec.json.encode(dump if dump is not None else {"error": "holds no flight recorder's dump"})
        except Exception as err:  # whatever bytes can make an unpickler raise
            yield msgspec.json.encode({"error": f"cannot be read ({type(err).__name__}: {str(err)[:200]})"})


def _loads(data: bytes) -> object:
    return _Refusing(io.BytesIO(data)).load()


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
    for answer in _answers(json.load(sys.stdin)):
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
