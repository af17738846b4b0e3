"""The exit report of a task: how and why it ended, in one file that is whole or not there.

`perdure exec` writes it, whatever happened, unless it is itself killed by signal 9; for a resource manager that does
that some time after TERM, a first version is written when TERM comes. It is the job's own word and
proves nothing against a node; ``read`` therefore takes nothing for granted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from perdure.errors import InputError
from perdure.job.fields import Fields
from perdure.job.files import MAX_BYTES, read_json, small_file, write_json
from perdure.model.exits import ExitRequest

SCHEMA = "perdure.last-breath/1"
MAX_ERROR_BYTES = 32 * 1024
MAX_SKEW_S = 5.0  # between a file system's clock and a host's
_Word = TypeVar("_Word", bound=StrEnum)


class ExitReason(StrEnum):
    """Why a task ended."""

    EXIT = "exit"  # by itself, with whatever code
    SIGNAL = "signal"
    HANG = "hang"  # it was silent too long and was ended for it
    WALLTIME = "walltime"  # it was told that the end is near, and ended
    FENCED = "fenced"  # a newer incarnation has taken over
    OOM_HINT = "oom-hint"  # it failed while the kernel killed in its control group for lack of memory


@dataclass(frozen=True, slots=True)
class ExitReport:
    """How one task of one incarnation ended. Times are seconds since the epoch by the task's own clock."""

    job_id: str
    incarnation: int
    token: int
    node: str
    host: str
    pid: int  # of perdure exec
    reason: ExitReason
    exit_code: int  # that perdure exec ends with
    started_s: float
    ended_s: float
    program: str = ""  # its first word: arguments may hold secrets
    signal: int = 0  # that ended the program
    told: tuple[str, ...] = ()  # signals that were passed on to it, in the order of their first coming
    wish: ExitRequest = ExitRequest.NONE
    rank: int | None = None
    local_rank: int | None = None
    step_id: str = ""  # Slurm's number of the step that it is a task of
    step: int | None = None  # the last that it told
    silent_s: float | None = None  # since its last sign of life
    warned_s: float | None = None  # when it was told that walltime is near
    walltime_end_s: float | None = None
    note: str = ""
    is_final: bool = True  # False: written when it was told to end, in case that nobody lives to write the end
    error: Any = None  # torchelastic's error file, where it is small: the first failure of a gang


def write(path: Path, report: ExitReport) -> None:
    """Leave it at `path`, in one step; an error that is too long is left out. Raises `OSError`."""
    data = {"schema": SCHEMA, **asdict(report)}
    if len(json.dumps(data)) > MAX_BYTES:
        data["error"] = None
    write_json(path, data)


def read(path: Path) -> ExitReport:
    """Raises `FileNotFoundError`, other `OSError`, or `InputError` where it is not an exit report."""
    data = read_json(path, SCHEMA)
    fields = Fields(str(path), data)
    return ExitReport(
        job_id=fields.text("job_id"),
        incarnation=fields.whole("incarnation"),
        token=fields.whole("token"),
        node=fields.text("node"),
        host=fields.text("host"),
        pid=fields.whole("pid"),
        reason=_word(fields, "reason", ExitReason),
        exit_code=fields.whole("exit_code"),
        started_s=fields.number("started_s"),
        ended_s=fields.number("ended_s"),
        program=fields.text("program"),
        signal=fields.whole("signal", 0),
        told=fields.texts("told"),
        wish=_word(fields, "wish", ExitRequest),
        rank=fields.maybe_whole("rank"),
        local_rank=fields.maybe_whole("local_rank"),
        step_id=fields.text("step_id"),
        step=fields.maybe_whole("step"),
        silent_s=fields.maybe_number("silent_s"),
        warned_s=fields.maybe_number("warned_s"),
        walltime_end_s=fields.maybe_number("walltime_end_s"),
        note=fields.text("note"),
        is_final=fields.yes("is_final", default=True),
        error=data.get("error"),
    )


def torchelastic_error(path: Path, since_s: float) -> Any:
    """What torchelastic has written of the first failure; None where there is nothing, too much of it, or it is older.

    A path that the user has chosen may hold what an earlier attempt has left; `since_s` is by this host's clock.
    """
    try:
        if path.stat().st_mtime < since_s - MAX_SKEW_S:
            return None
        return json.loads(small_file(path, MAX_ERROR_BYTES))
    except (OSError, InputError, ValueError, RecursionError):
        return None


def code_of_worker(error: Any) -> int:
    """The exit code of the worker that failed first; 0 where it is not known.

    torchelastic passes it on where the worker has left an error file (``@record``, `perdure.job.leave`).
    """
    message = error.get("message") if isinstance(error, dict) else None
    code = message.get("errorCode") if isinstance(message, dict) else None
    return code if isinstance(code, int) else 0


def _word(fields: Fields, name: str, words: type[_Word]) -> _Word:
    text = fields.text(name)
    try:
        return words(text)
    except ValueError as err:
        what = f"{name} is {text[:80]!r}, not one of {', '.join(words)}"
        raise InputError(fields.source, what, "It may be of a newer Perdure; read it with that") from err
