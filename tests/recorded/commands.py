"""What commands print, on inputs that need no cluster and on a site where something of everything has happened.

A line is a command, its exit code, the beginning of what it printed, and a hash of all of that.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure import __version__
from perdure.cli.main import main as perdure
from tests.recorded import command_cases
from tests.recorded.line import Line, hash_of

NOW = 1_790_020_000.0
BIN = Path(sys.executable).parent
HEAD = 60  # characters
WIDTHS = (0, 100, 44)  # of the terminal; 0 where no person looks
_MEASURED = re.compile(r'("(?:\w*seconds|\w*wall_s|[\w.]+:s|python|numpy)": )[-\d."e+]+')
_PACE = re.compile(r"(?<= in )\d+\.\d\d\s+s(?=,)|\([\d,]+\s+a\s+second\)")  # of this machine
_UNIQUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=:)[0-9a-f]{12}\b")
_SETS = re.compile(r"[A-Z_]+=")  # a word before the command that sets a variable, as in a shell
_LONG = re.compile(r"\d+\.\d{7,}(?:e-?\d+)?")  # the last digits are the processor's
OF_THE_MACHINE = (
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "SLURM_CONF",
    "NO_COLOR",
    "CUDA_VISIBLE_DEVICES",
)
SETTLED = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "TERM": "xterm", "USER": "mira", "LOGNAME": "mira"}


class Case(NamedTuple):
    """A command, its standard input, and where it prints."""

    words: tuple[str, ...]
    stdin: bytes = b""
    width: int = 0

    @property
    def name(self) -> str:
        """One line; what a person looks at says how wide it is."""
        return shlex.join(self.words).replace("\n", "\\n") + (f" @{self.width}" if self.width else "")


class _Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


class Printed(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def whole(self) -> str:
        return f"exit code {self.code}\n{self.out}{f'-- stderr{chr(10)}{self.err}' if self.err else ''}"

    @property
    def short(self) -> str:
        """Its beginning, and a hash of the whole."""
        said = (self.out or self.err).replace("\n", "\\n").replace("\x1b", "\\e")
        return f"{self.code} {said[:HEAD]} {hash_of(self.whole, 10)}"


def cases(group: str) -> list[Case]:
    """The commands of a group, in the order in which they are run."""
    found = []
    for words, stdin, widths in command_cases.GROUPS[group].commands:
        found += [Case(tuple(words), stdin, width) for width in (WIDTHS if widths else WIDTHS[:1])]
    return found


def names() -> Iterable[str]:
    return command_cases.GROUPS


def lines_of(group: str) -> Iterator[Line]:
    """What each command of a group prints, in a home of its own."""
    with tempfile.TemporaryDirectory() as folder, _settled(Path(folder)) as patch, _at(Path(folder)):
        command_cases.GROUPS[group].prepare(Path(folder), patch)
        for case in cases(group):
            found = _run(case, Path(folder), patch)
            yield Line(f"{case.name}: {found.short}", f"## {case.name}\n{found.whole}")


@contextmanager
def _settled(home: Path) -> Iterator[pytest.MonkeyPatch]:
    """One clock, one zone, one home; nothing of this machine is seen."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PERDURE_", "SLURM_", "SBATCH_"))]:
            patch.delenv(name)
        for name in OF_THE_MACHINE:
            patch.delenv(name, raising=False)
        own = {**SETTLED, "HOME": str(home), "PATH": f"{BIN}:/usr/bin:/bin"}
        for name, value in own.items():
            patch.setenv(name, value)
        time.tzset()
        patch.setattr(time, "time", lambda: NOW)
        patch.setattr("perdure.simulation.warm.must_compile", lambda *_: False)
        patch.setattr("perdure.cli.progress.must_compile_queue", lambda: False)
        yield patch
    time.tzset()


@contextmanager
def _at(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _run(case: Case, home: Path, patch: pytest.MonkeyPatch) -> Printed:
    out, err = _Screen() if case.width else io.StringIO(), io.StringIO()
    patch.setenv("COLUMNS", str(case.width or 80))
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(case.stdin), encoding="utf-8"))
    given = list(takewhile(_SETS.match, case.words))
    words = case.words[len(given) :]
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as own:
        for name, _, value in (word.partition("=") for word in given):
            own.setenv(name, value)
        code = BETWEEN[words[0]](words[1]) if words[0] in BETWEEN else perdure(words)
    return Printed(code, *(_scrubbed(each.getvalue(), home) for each in (out, err)))


def _cat(file: str) -> int:
    """Print what a command before this one wrote."""
    sys.stdout.write(Path(file).read_text())
    return 0


def _put(file: str) -> int:
    """Write what the next command reads; the file stays the same one."""
    Path(file).write_bytes(sys.stdin.buffer.read())
    return 0


BETWEEN = {"cat": _cat, "put": _put}
"""What is done between commands."""


def _scrubbed(text: str, home: Path) -> str:
    """Without what another run, machine or release says otherwise."""
    text = text.replace(str(home), "~").replace(__version__, "VERSION").replace(str(BIN), "BIN")
    text = _UNIQUE.sub("UNIQUE", _PACE.sub("MEASURED", _MEASURED.sub(r"\1MEASURED", text)))
    return _LONG.sub(lambda found: f"{float(found[0]):.6g}", text)
