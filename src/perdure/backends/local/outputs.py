"""Where a job of the embedded cluster writes to: its own log, and what its command line says of its ranks' files."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import re2
from msgspec import Struct

from perdure.backends.logfile import open_log
from perdure.backends.ownership import Span, with_owner
from perdure.backends.rank_files import RankFiles, files_of, rivals, with_ranks
from perdure.backends.reader import ReadRequest, WantedText, read_files
from perdure.backends.script import ANY, MAX_BYTES, NUMBER, RANK, read_script
from perdure.errors import LogRefused
from perdure.model.jobs import Attempt
from perdure.model.output import LogMark, Output, OutputFile, OutputKind

MAX_BESIDE = 200  # attempts that ran at the same time, the latest
TICK_S = 0.1  # by which the time of a file may lie before the instant at which it was written
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_SHELL_SCRIPT = re2.compile(rb"#![^\n]*\b(?:" + "|".join(sorted(_SHELLS)).encode() + rb")\b")
_OF_ONE_TASK = frozenset({"PERDURE_NODE", "SLURMD_NODENAME", "SLURM_NODEID", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS"})


class LocalRun(Struct, frozen=True):
    """When an attempt of a job ran, and how it was started: that tells where it writes to."""

    job_id: str
    start_s: float
    end_s: float | None
    argv: tuple[str, ...]
    workdir: str
    env: Mapping[str, str]  # of its first task

    @property
    def span(self) -> Span:
        return Span(self.job_id, self.start_s, math.inf if self.end_s is None else self.end_s)

    def files(self) -> RankFiles:
        """Where its ranks write to."""
        script, arguments = script_of(self.argv, self.workdir)
        known = {name: value for name, value in self.env.items() if name not in _OF_ONE_TASK}
        known |= {"PWD": self.workdir, **{str(at): word for at, word in enumerate(arguments[:10])}}
        patterns = {"%": "%", "A": self.job_id, "j": self.job_id, "t": RANK, "N": ANY, "n": NUMBER, "s": NUMBER}
        return files_of(read_script(script, known, patterns), self.workdir)


class LocalRuns(Struct, frozen=True):
    """An attempt, and those of other jobs that ran at the same time."""

    own: LocalRun
    beside: tuple[LocalRun, ...] = ()


def read_output(attempt: Attempt, runs: LocalRuns | None, max_bytes: int, known: Sequence[LogMark]) -> Output:
    """Read an attempt's log and its ranks' files: the log alone where it is not known how the attempt was started.

    All logs belong to the user that runs the cluster; both streams are one file.
    """
    files = runs.own.files() if runs else RankFiles()
    wanted = (WantedText((attempt.stdout,), OutputKind.STDOUT), *files.wanted)
    searches = files.written_since(attempt.start_s)
    work_dir = runs.own.workdir if runs else ""
    births = bool(files.appended)
    read = read_files(
        ReadRequest(os.getuid(), wanted, searches, tuple(known), max_bytes, births=births, work_dir=work_dir)
    )
    by_ranks = [f for f in read.files if f.kind is OutputKind.RANK and f.written_s >= attempt.start_s - TICK_S]
    owned = _owned(by_ranks, attempt, files, runs.beside if runs and by_ranks else ())
    own = (file for file in read.files if file.kind is not OutputKind.RANK)
    return replace(read, files=with_ranks((*own, *owned), attempt.start_s), absent=(*read.absent, *files.untold))


def _owned(
    by_ranks: Iterable[OutputFile], attempt: Attempt, files: RankFiles, beside: Iterable[LocalRun]
) -> Iterable[OutputFile]:
    others = [(run.span, run.files()) for run in beside]
    for file in by_ranks:
        writers = rivals(file.path, attempt, others)
        yield with_owner(file, attempt, writers, (attempt.id.job_id,), file.path in files.appended)


def script_of(argv: Sequence[str], workdir: str) -> tuple[bytes, Sequence[str]]:
    """What a command line runs as a shell script, and what that has for arguments, from ``$0`` on.

    A script in a file is read as it is now.

    >>> script_of(("bash", "-ec", "python t.py > $1", "name", "t.log"), "/w")
    (b'python t.py > $1', ('name', 't.log'))
    >>> script_of(("torchrun", "--log-dir", "my logs", "t.py"), "/w")[0]
    b"torchrun --log-dir 'my logs' t.py"
    """
    shell = next((at for at, word in enumerate(argv) if word.rpartition("/")[2] in _SHELLS), None)
    if shell is None:
        script = _script_in(argv[0], workdir) if "/" in argv[0] else b""
        is_of_shell = _SHELL_SCRIPT.match(script) is not None
        return shlex.join(argv).encode("utf-8", "replace") + (b"\n" + script if is_of_shell else b""), argv
    at, is_text = shell + 1, False
    while at < len(argv) and argv[at].startswith(("-", "+")):
        is_short = not argv[at].startswith("--")
        is_text = is_text or (is_short and "c" in argv[at])
        at += 2 if is_short and argv[at].endswith("o") else 1
    rest = argv[at:]
    if is_text:
        return rest[0].encode("utf-8", "replace") if rest else b"", rest[1:]
    return _script_in(rest[0], workdir) if rest else b"", rest


def _script_in(path: str, workdir: str) -> bytes:
    """The text of a script of this user; empty where it cannot be read."""
    try:
        descriptor = open_log(os.path.normpath(os.path.join(workdir, path)), os.getuid())
    except (OSError, LogRefused):
        return b""
    try:
        return os.pread(descriptor, MAX_BYTES, 0)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
