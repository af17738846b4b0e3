"""Where a job's output goes: its own two files under all names that they may have, and those of its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.backends.rank_files import RankFiles, files_of
from perdure.backends.reader import ReadRequest, Search, WantedText
from perdure.backends.script import ANY, NUMBER, RANK, ends_with_test, read_script, survives_steps
from perdure.backends.slurm.paths import Names
from perdure.backends.slurm.records import JobRecord, tells_failure
from perdure.backends.slurm.sbatch import WalltimeWarning, asked_by
from perdure.model.jobs import Attempt
from perdure.model.output import LogMark, OutputKind
from perdure.model.signals import SENT_BY_PERSONS, SHELL_ADDS
from perdure.slurm_words.states import attempt_state, is_waiting

_PLAIN_ID = 1000
"""A smaller number in a file's name is a job's only behind the word job or slurm."""


class JobOutputs(Struct, frozen=True):
    """Where a job writes to."""

    raw_id: int
    stdout: tuple[str, ...]
    stderr: tuple[str, ...]
    files: RankFiles = field(default_factory=RankFiles)
    appends: bool = False
    resubmits: bool = False
    survives_steps: bool = False  # its script goes on whatever becomes of its steps
    ends_with_test: bool = False  # a test that is false, as its script's last line, is its exit code
    components: int = 1  # of a heterogeneous job
    warning: WalltimeWarning | None = None
    named: str = ""  # what names match that bear the job's id
    by_script: bool = False  # the script itself names files
    partitions: str = ""  # that the script asks for
    told: tuple[str, ...] = ()  # user and paths that this was made from

    @property
    def work_dir(self) -> str:
        return self.told[1] if self.told else ""

    def are_of(self, record: JobRecord) -> bool:
        """Whether they are that job's: a slurmctld that lost its state gives an id to another job again."""
        return self.told == _telling(record)

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
    said, asked = files_of(read_script(script, known, _step_patterns(record)), record.work_dir), asked_by(script)
    by_id = [Search(root, (_named_by(record),)) for root in _directories(record, names)]
    stdout, stderr = record.printed_paths if any(record.printed_paths) else (record.stdout, record.stderr)
    return JobOutputs(
        record.raw_id,
        names.names(stdout) if stdout else (),
        () if stderr in ("", stdout) else names.names(stderr),
        replace(said, searches=(*said.searches, *by_id)),
        appends or asked.appends,
        asked.resubmits,
        survives_steps(script),
        ends_with_test(script),
        record.components,
        asked.warning,
        _named_by(record),
        bool(said.plain or said.searches),
        asked.partitions,
        _telling(record),
    )


def _telling(record: JobRecord) -> tuple[str, ...]:
    return str(record.uid), record.work_dir, record.stdout, record.stderr


def request_of(
    attempt: Attempt, outputs: JobOutputs | None, owner_uid: int, max_bytes: int, known: Sequence[LogMark]
) -> ReadRequest:
    """What is to be read of an attempt; by its own two paths alone where nothing else is known of its job."""
    own = ((attempt.stdout,), (attempt.stderr,) if attempt.stderr not in ("", attempt.stdout) else ())
    stdout, stderr = (outputs.stdout or own[0], outputs.stderr) if outputs else own
    files = [WantedText(stdout, OutputKind.STDOUT)]
    files += [WantedText(stderr, OutputKind.STDERR)] if stderr else []
    ranks = outputs.files if outputs else RankFiles()
    births = outputs is not None and (outputs.appends or bool(ranks.appended))
    searches = ranks.written_since(attempt.start_s)
    work_dir = outputs.work_dir if outputs else ""
    wanted = (*files, *ranks.wanted)
    return ReadRequest(owner_uid, wanted, searches, tuple(known), max_bytes, births=births, work_dir=work_dir)


def has_failed(record: JobRecord) -> bool:
    """Whether a record, as it stands, is that of an attempt that failed, or that is about to be reported as failed."""
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
