"""What Slurm's hooks dropped for us: a reason to look at once, how attempts ended, and news of nodes.

Polling is enough; hooks make it quicker, and tell what polling may miss where there is no accounting: the start and
end of an attempt that was put back between two looks. A site that wants them makes a directory that slurmctld's user
and Perdure's share, and nobody else may write to::

    install -d -o slurm -g perdure -m 2770 /var/spool/perdure

installs the scripts from ``hooks/`` next to this module (``install -m 755``) in a place of its own, and puts into
slurm.conf::

    JobCompType=jobcomp/script
    JobCompLoc=/usr/local/libexec/perdure/jobcomp
    PrologSlurmctld=/usr/local/libexec/perdure/prolog
    EpilogSlurmctld=/usr/local/libexec/perdure/epilogctld

``epilogctld`` waits for the decision on a failed attempt, so that no dependant of the job sees a failure that is
retried: it makes a pipe and names it in its file, and the service opens and closes that pipe (`Spool.answer`). It waits
only while the service acts (`Spool.write_alive`). ``PERDURE_EPILOG_WAIT_S=0`` turns that off.

``epilog`` says less than ``epilogctld`` and may run on the nodes where they share the directory, and so may ``prolog``;
``healthcheck`` (HealthCheckProgram) runs on the nodes only. ``strigger`` is set by SlurmUser, for down, fail and up::

    strigger --set --node --down --flags=PERM --program="/usr/local/libexec/perdure/strigger down"

A start, or an end that ``epilogctld`` reports, is a reason to look and no more. What reports nodes is a notice:
`perdure.coordination.bridges` makes exceptions of its text.

Another directory is named by PERDURE_SPOOL in the scripts' environment, or by editing their first lines. A site that
has a JobCompType already leaves out the first two lines: nothing is lost but speed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import re2

from perdure.backends.slurm.accounting import AccountingRow
from perdure.errors import ConfigError, InputError
from perdure.slurm_words.hostlist import expand
from perdure.slurm_words.states import exit_status

MAX_FILES = 1000  # taken at a time
MAX_BYTES = 16 * 1024  # of one file: a list of nodes is the long part
SUFFIX = ".event"
ANSWERS = ".answer"
ALIVE = "alive"
STALE_S = 60.0  # a pipe that no hook waits at any more
_NO_TASK = 4_000_000_000
_PUT_BACK = {"PENDING": "REQUEUED"}  # a job that ended and waits: reported so of one whose prolog failed

_PIPE = re2.compile(r"\d{1,10}\.epilogctld\.\d{1,10}\.answer")
_END = "perdure-event 1 end"
_ENDED = "perdure-event 1 ended"
_LOOKS = tuple(f"perdure-event 1 {kind}\n" for kind in ("look", "prolog", "ended"))
_NOTICES = tuple(f"perdure-event 1 {kind}\n" for kind in ("node", "health"))


@dataclass(frozen=True, slots=True)
class Taken:
    """What was in the spool: ends of attempts, mere wishes to look, notices, and what was not valid."""

    ends: tuple[AccountingRow, ...] = ()
    looks: int = 0
    ignored: int = 0
    notices: tuple[str, ...] = ()  # the text of each
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A failed attempt whose epilog waits for the decision."""

    job_id: str
    nodes: tuple[str, ...]
    answer: str  # name of the pipe in the spool


@dataclass(frozen=True, slots=True)
class Spool:
    """The directory that hooks drop files into."""

    directory: Path

    def check(self) -> None:
        """Raise `ConfigError` where the directory cannot be used or everybody may write to it."""
        try:
            found = self.directory.stat()
        except OSError as err:
            raise ConfigError(str(self.directory), f"no spool directory: {err.strerror}", "Make it") from err
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & stat.S_IWOTH:
            raise ConfigError(str(self.directory), "everybody may write to the spool", "chmod o-w it")

    def changed_ns(self) -> int:
        """When a file last came or went, by the directory's own time stamp; 0 where it is gone."""
        with contextlib.suppress(OSError):
            return self.directory.stat().st_mtime_ns
        return 0

    def write_alive(self, now: float) -> None:
        """Tell hooks that somebody decides. Overwrites in place: the directory's time stamp stays."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with contextlib.suppress(OSError):
            descriptor = os.open(self.directory / ALIVE, flags, 0o644)
            try:
                os.fchmod(descriptor, 0o644)  # whatever the umask: the hook may run as another user
                os.pwrite(descriptor, f"{now:.0f}\n".encode(), 0)
            finally:
                os.close(descriptor)

    def remove_alive(self) -> None:
        """From now on no hook waits."""
        with contextlib.suppress(OSError):
            os.unlink(self.directory / ALIVE)

    def answer(self, question: Question) -> bool:
        """Release the hook. False where it does not listen yet."""
        try:
            descriptor = os.open(self.directory / question.answer, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as err:
            return err.errno != errno.ENXIO  # any other: it is gone, or no pipe
        os.close(descriptor)
        return True

    def remove_stale_answers(self, now: float) -> None:
        """Remove pipes of hooks that were killed."""
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith(ANSWERS) and now - entry.stat(follow_symlinks=False).st_mtime > STALE_S:
                    os.unlink(entry.path)

    def has_news(self) -> bool:
        """True where something was dropped since the last `take`."""
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            return any(entry.name.endswith(SUFFIX) for entry in entries)
        return False

    def take(self) -> Taken:
        """Read and remove what is there, at most `MAX_FILES`. Never raises; a spool that is gone is empty."""
        ends: list[AccountingRow] = []
        notices: list[str] = []
        questions: list[Question] = []
        looks = ignored = 0
        try:
            folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return Taken()
        try:
            trusted = {os.fstat(folder).st_uid, 0, os.geteuid()}
            for name in self._names():
                text = _read(folder, name, trusted)
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                end = _end(text)
                if end is not None:
                    ends.append(end)
                elif (question := _question(text)) is not None:
                    questions.append(question)
                elif text.startswith(_LOOKS):
                    looks += 1
                elif text.startswith(_NOTICES) and text.endswith("\n"):
                    notices.append(text)
                else:
                    ignored += 1
        finally:
            os.close(folder)
        return Taken(tuple(ends), looks, ignored, tuple(notices), tuple(questions))

    def _names(self) -> Iterator[str]:
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            names = (entry.name for entry in entries if entry.name.endswith(SUFFIX))
            yield from [name for name, _ in zip(names, range(MAX_FILES), strict=False)]


def _read(folder: int, name: str, trusted: set[int]) -> str:
    """The text of a small regular file of somebody who may drop files; "" for anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return ""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in trusted or found.st_size > MAX_BYTES:
            return ""
        return os.read(descriptor, MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _end(text: str) -> AccountingRow | None:
    """Read what ``hooks/jobcomp`` writes. None for anything else."""
    said = _said(text, _END)
    try:
        job, name = int(said["JOBID"]), _job_id(said)
        exit_code, signal = exit_status(said["EXITCODE"])
        nodes = expand(said["NODES"])
        start_s = int(said["START"])
        return AccountingRow(
            job_id=name,
            raw_id=job,
            state=_PUT_BACK.get(said["JOBSTATE"], said["JOBSTATE"]),
            exit_code=exit_code,
            signal=signal,
            submit_s=int(said["SUBMIT"]),
            start_s=start_s if nodes and start_s > 0 else None,
            end_s=int(said["END"]),
            uid=int(said["UID"]),
            user=said.get("USERNAME", ""),
            nodes=nodes,
            gpus=0,
            reason="",
        )
    except (KeyError, ValueError, InputError):
        return None


def _question(text: str) -> Question | None:
    """Read what ``hooks/epilogctld`` writes where it waits. None for anything else."""
    said = _said(text, _ENDED)
    try:
        if not _PIPE.fullmatch(said["ANSWER"]):
            return None
        return Question(_job_id(said), expand(said["NODES"]), said["ANSWER"])
    except (KeyError, ValueError, InputError):
        return None


def _said(text: str, kind: str) -> dict[str, str]:
    """The ``KEY=VALUE`` lines below a first line of this kind; {} where it is another, or its end is missing."""
    first, _, rest = text.partition("\n")
    if first != kind or not rest.endswith("\n"):
        return {}
    return dict(line.partition("=")[::2] for line in rest.splitlines())


def _job_id(said: dict[str, str]) -> str:
    """Raises `KeyError`, `ValueError`."""
    job, task, array = int(said["JOBID"]), int(said.get("ARRAYTASKID") or _NO_TASK), int(said.get("ARRAYJOBID") or 0)
    return f"{array}_{task}" if array and task < _NO_TASK else str(job)
