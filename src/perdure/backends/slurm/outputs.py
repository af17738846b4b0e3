"""Where a job's output goes: its own two files under all names that they may have, and those of its ranks."""

from __future__ import annotations

import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.backends.reader import Request, Search, Wanted
from perdure.backends.slurm.paths import Names
from perdure.backends.slurm.records import JobRecord, tells_failure
from perdure.backends.slurm.script import ANY, NUMBER, RANK, Said, WalltimeWarning, pattern_of, read_script
from perdure.backends.slurm.words import attempt_state, is_waiting
from perdure.model.jobs import Attempt
from perdure.model.output import LogMark, OutputFile, OutputKind
from perdure.model.signals import SENT_BY_PERSONS, SHELL_ADDS
from perdure.triage.filenames import ranks_of

MAX_SEARCHES = 16
CLOCKS_APART_S = 2.0  # at most, between file servers and slurmctld, for a file to count as written since a start
LAUNCHER_DEPTH = 4  # of directories that launchers make below the one that they are given: run, attempt, rank
LAUNCHER_FILES = r"(?:stdout|stderr|rank[^/]{0,64}|[^/]{1,64}\.(?:log|out|err))(?:\.log)?"
_SIGNS = re.compile("[\x01-\x03]")
_PLAIN_ID = 1000
"""A smaller number in a file's name is a job's only behind the word job or slurm."""


@dataclass(frozen=True, slots=True)
class JobOutputs:
    """Where a job writes to. `searches` leave the instant open since when files count."""

    raw_id: int
    stdout: tuple[str, ...]
    stderr: tuple[str, ...]
    ranks: tuple[str, ...] = ()
    searches: tuple[Search, ...] = ()
    appended: tuple[str, ...] = ()  # of `ranks`, those that are not cut
    unknown: tuple[str, ...] = ()  # what a script says in words that cannot be resolved
    appends: bool = False
    resubmits: bool = False
    warning: WalltimeWarning | None = None
    named: str = ""  # what names match that bear the job's id
    by_script: bool = False  # the script itself names files

    def bears_id(self, path: str) -> bool:
        """Whether a path holds the job's id: nobody else writes there."""
        return any(map(re.compile(self.named).fullmatch, path.split("/")))


def outputs_of(
    record: JobRecord, script: bytes, hosts: Mapping[str, str], appends: bool = False, home: str = ""
) -> JobOutputs:
    """Where the job of `record` writes to by its batch script.

    `appends`: its own files are not cut when it starts, whatever the script says. `home`: its user's; "" if unknown.
    """
    names = Names.for_job(record, hosts)
    known = _variables(record) | ({"HOME": home} if home else {})
    said = read_script(script, known, _step_patterns(record))
    ranks, searches, unknown = _of_ranks(said, record.work_dir)
    by_id = [Search(root, (_named_by(record),)) for root in _directories(record, names)]
    stdout, stderr = record.printed_paths if any(record.printed_paths) else (record.stdout, record.stderr)
    return JobOutputs(
        record.raw_id,
        names.names(stdout) if stdout else (),
        () if stderr in ("", stdout) else names.names(stderr),
        ranks,
        (*searches, *by_id)[:MAX_SEARCHES],
        tuple(_absolute(path, record.work_dir) for path in said.appended),
        unknown,
        appends or said.appends,
        said.resubmits,
        said.warning,
        _named_by(record),
        bool(ranks or searches),
    )


def home_of(uid: int) -> str:
    """A user's home directory; "" for a user who is unknown here."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except (KeyError, OverflowError):
        return ""


def request_of(
    attempt: Attempt, outputs: JobOutputs | None, owner_uid: int, max_bytes: int, known: Sequence[LogMark]
) -> Request:
    """What is to be read of an attempt; by its own two paths alone where nothing else is known of its job."""
    own = ((attempt.stdout,), (attempt.stderr,) if attempt.stderr not in ("", attempt.stdout) else ())
    stdout, stderr = (outputs.stdout or own[0], outputs.stderr) if outputs else own
    files = [Wanted(stdout, OutputKind.STDOUT)]
    files += [Wanted(stderr, OutputKind.STDERR)] if stderr else []
    files += [Wanted((path,), OutputKind.RANK) for path in (outputs.ranks if outputs else ())]
    since_s = attempt.start_s - CLOCKS_APART_S
    searches = [Search(s.root, s.parts, s.depth, since_s) for s in (outputs.searches if outputs else ())]
    births = outputs is not None and (outputs.appends or bool(outputs.appended))
    return Request(owner_uid, tuple(files), tuple(searches), tuple(known), max_bytes, births=births)


def has_failed(record: JobRecord) -> bool:
    """Whether a record, as it stands, is that of an attempt that failed, or that is about to be told as failed."""
    if record.state == "COMPLETING":
        return tells_failure(record) or (record.reason == "JobLaunchFailure" and record.signal > 0)
    state = attempt_state(record.state, record.exit_code, record.signal, record.reason)
    return not is_waiting(record.state) and state.is_failure


def may_have_been_warned(record: JobRecord) -> bool:
    """Whether a signal that Slurm sends before the walltime, if it was asked to, may have ended it."""
    number = record.signal or max(0, record.exit_code - SHELL_ADDS)
    return record.walltime_s is not None and has_failed(record) and number in SENT_BY_PERSONS


def may_hold_others_lines(record: JobRecord) -> bool:
    """Whether a job's own two files may have been there before it started: they bear no id of it, or it ran before."""
    its_own = re.compile(_bearing(record, {record.job_id if "_" in record.job_id else str(record.raw_id)}))
    paths = [path for path in (record.stdout, record.stderr) if path]
    return record.restarts > 0 or not all(any(map(its_own.fullmatch, path.split("/"))) for path in paths)


def with_ranks(files: tuple[OutputFile, ...], start_s: float) -> tuple[OutputFile, ...]:
    """Ranks' files with the numbers that their names tell, where a pattern told none; without those of before."""
    files = tuple(f for f in files if f.kind is not OutputKind.RANK or f.written_s >= start_s - CLOCKS_APART_S)
    untold = [file for file in files if file.kind is OutputKind.RANK and not file.rank and not file.doubt]
    told = dict(zip((file.path for file in untold), ranks_of([file.path for file in untold]), strict=True))
    ranks = {path: rank for path, rank in told.items() if rank.isdecimal() and len(untold) > 1}
    return tuple(replace(file, rank=_plain(file.rank or ranks.get(file.path, ""))) for file in files)


def _plain(rank: str) -> str:
    return str(int(rank)) if rank.isdecimal() else rank


def _variables(record: JobRecord) -> dict[str, str]:
    array, _, task = record.job_id.partition("_")
    number = str(record.raw_id)
    arguments = {str(at): word for at, word in enumerate(record.command.split()[1:10], start=1)}
    return arguments | {
        "SLURM_JOB_ID": number, "SLURM_JOBID": number, "SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": task,
        "SLURM_JOB_NAME": record.name[:255], "SLURM_JOB_USER": record.user, "USER": record.user,
        "LOGNAME": record.user, "SLURM_SUBMIT_DIR": record.work_dir, "PWD": record.work_dir,
        "SLURM_NTASKS": str(record.tasks), "SLURM_NNODES": str(record.node_count),
    }  # fmt: skip


def _step_patterns(record: JobRecord) -> dict[str, str]:
    array, _, task = record.job_id.partition("_")
    number = str(record.raw_id)
    return {
        "%": "%", "A": array if task else number, "a": task or NUMBER, "J": f"{number}.{NUMBER}", "j": number, "N": ANY,
        "n": NUMBER, "s": NUMBER, "t": RANK, "u": record.user, "x": record.name[:255].replace("/", "_"), "b": NUMBER,
    }  # fmt: skip


def _absolute(path: str, work_dir: str) -> str:
    return path if path.startswith(("/", ANY)) else f"{work_dir}/{path.removeprefix('./')}"


def _of_ranks(said: Said, work_dir: str) -> tuple[tuple[str, ...], tuple[Search, ...], tuple[str, ...]]:
    """Plain paths, searches, and what cannot be resolved."""
    plain: list[str] = []
    searches: list[Search] = []
    unknown: list[str] = []
    for text, is_directory in [(f, False) for f in said.files] + [(d, True) for d in said.directories]:
        path = _absolute(text, work_dir)
        components = [part for part in path.split("/") if part not in ("", ".")]
        fixed = next((at for at, part in enumerate(components) if _SIGNS.search(part)), len(components))
        if path.startswith(ANY) or ".." in components or fixed == 0:
            unknown.append(_SIGNS.sub("?", text))
        elif is_directory:
            inner = tuple(map(pattern_of, components[fixed:]))
            searches.append(Search("/" + "/".join(components[:fixed]), (*inner, LAUNCHER_FILES), LAUNCHER_DEPTH))
            prefix = "(?:" + pattern_of(components[-1]) + r")\.[^/]{1,64}"
            if not inner and len(components) > 1:  # of mpirun before version 4: a prefix, no directory
                searches.append(Search("/" + "/".join(components[:-1]), (prefix,)))
        elif fixed == len(components):
            plain.append("/" + "/".join(components))
        else:
            parts = tuple(map(pattern_of, components[fixed:]))
            searches.append(Search("/" + "/".join(components[:fixed]), parts))
    return tuple(plain), tuple(searches[: MAX_SEARCHES - 3]), tuple(unknown)


def _directories(record: JobRecord, names: Names) -> tuple[str, ...]:
    """Where files that are named by the job may stand: its working directory, and those of its own two files."""
    paths = [names.names(path)[0] for path in (record.stdout, record.stderr) if path]
    found = [record.work_dir, *(path.rpartition("/")[0] for path in paths)]
    return tuple(dict.fromkeys(path for path in found if path.startswith("/") and path.strip("/")))


def _named_by(record: JobRecord) -> str:
    """What names of files match that hold the job's id as a whole number."""
    return _bearing(record, {str(record.raw_id)} | ({record.job_id} if "_" in record.job_id else set()))


def _bearing(record: JobRecord, ids: set[str]) -> str:
    """An array has the number of its last task: behind that no other task's may follow."""
    before = r"(?:.*\D)?" if record.raw_id >= _PLAIN_ID else r"(?i:.*(?:job|slurm)(?:[-_.]?id)?[-_.=]?)"
    of_task = "_" in record.job_id
    after = {name: r"(?:[^\d_].*|_(?:\D.*)?)?" if of_task and "_" not in name else r"(?:\D.*)?" for name in ids}
    return before + "(?:" + "|".join(re.escape(name) + after[name] for name in sorted(ids)) + ")"
