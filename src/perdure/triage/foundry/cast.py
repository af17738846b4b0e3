"""Run the foundry's programs, prove their truth, and record what they print.

    python -m perdure.triage.foundry.cast --out foundry.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from perdure.errors import InputError
from perdure.triage.foundry.troubles import TROUBLES
from perdure.triage.verdict import Label

TIMEOUT_S = 60.0
DETERMINISTIC_RUNS = 3


@dataclass(frozen=True, slots=True)
class Program:
    """A program that fails, and the truth about it."""

    name: str
    family: str
    truth: Label
    category: str
    source: str
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a program printed when it failed."""

    id: str
    source: str  # "foundry/FAMILY": evaluation splits by it
    label: str
    category: str
    exit_code: int
    text: str


class Unproven(InputError):
    """A program did not do what its entry says."""


def programs() -> tuple[Program, ...]:
    """The foundry's programs, in the order of their file."""
    text = (resources.files("perdure.triage.foundry") / "programs.toml").read_text("utf-8")
    return tuple(Program(**{**entry, "truth": Label(entry["truth"])}) for entry in tomllib.loads(text)["program"])


def cast(program: Program, style: int = 0) -> Recording:
    """Run `program` until its truth is proven: a transient one passes its second run, others fail three times.

    Raises `Unproven` where it does not. The recording is of the first run.
    """
    transient = program.truth is Label.TRANSIENT
    status, text = run(program, style, present=True)
    later = [run(program, style, present=not transient)[0] for _ in range(1 if transient else DETERMINISTIC_RUNS - 1)]
    if status == 0 or any((code == 0) != transient for code in later):
        what = f"is {program.truth} by its entry, but ended {[status, *later]}"
        raise Unproven(f"program {program.name}", what, "Mend the program or its entry")
    return Recording(program.name, f"foundry/{program.family}", program.truth.value, program.category, status, text)


def run(program: Program, style: int, *, present: bool) -> tuple[int, str]:
    """Run once in a fresh directory, with its trouble or without: exit code, and what was printed, in order."""
    with tempfile.TemporaryDirectory(prefix="foundry") as name:
        directory = Path(name).resolve()
        (directory / "train.py").write_text(program.source.lstrip("\n"))
        (directory / "chatter.py").write_text((resources.files("perdure.triage.foundry") / "chatter.py").read_text())
        with TROUBLES[program.trouble](directory, present) as (extra, disturb):
            process = subprocess.Popen(
                [sys.executable, "train.py"],
                cwd=directory,
                env=_environment(extra, style),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            disturb(process)
            output, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, _plain(output.decode("utf-8", "replace"), directory)


def _environment(extra: Mapping[str, str], style: int) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "CHATTER": str(style), **extra}


def _plain(text: str, directory: Path) -> str:
    """The text with this machine's directories replaced by such as a user would have."""
    places = {str(directory): "/home/user/job", sys.prefix: "/home/user/env", sys.base_prefix: "/usr"}
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, places[place])
    return text


def cast_all(chosen: Iterable[Program]) -> Iterator[Recording]:
    """Cast programs one after the other, each in another manner of talking."""
    for number, program in enumerate(chosen):
        yield cast(program, style=number)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perdure.triage.foundry.cast", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the recordings go, JSON lines, gzipped")
    options = parser.parse_args(arguments)
    lines = [json.dumps(asdict(recording)) + "\n" for recording in cast_all(programs())]
    options.out.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    sys.stdout.write(f"{len(lines)} recordings in {options.out}, {options.out.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
