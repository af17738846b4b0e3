"""The jobs of chains on a real Slurm, with the rights of an ordinary user: one look at all, submit, cancel, release.

A link's job carries its key in its comment, ``perdure-keep=CHAIN/KEY``: so it is found again if whoever submitted it
died before writing its id down. Anybody may write such a comment: only jobs of the chain's own user count.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import re2

from perdure.backends.slurm.asking import job_record
from perdure.backends.slurm.queue import ask_partitions
from perdure.backends.slurm.tools import Tools
from perdure.errors import ClusterBusy, ClusterError, InputError
from perdure.model.job_comment import chain_link_of
from perdure.slurm_words.link_job import LinkJob
from perdure.waits.queue import QueuedPartition

FORMAT = "%A|%U|%T|%r|%V|%S|%e|%k"
_LINE = re2.compile(r"(\d{1,10})\|(\d{1,10})\|([A-Z_]+)\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)")
_ID = re2.compile(r"(?m)^(\d{1,10})(?:;.*)?$")
_BUSY = ("Unable to contact", "timed out", "Socket timed out", "Connection refused", "temporarily", "backup controller",
         "Zero Bytes were transmitted", "Slurm temporarily unable", "Communication connection failure")  # fmt: skip
_LIMIT = (
    "QOSMaxSubmit",
    "AssocMaxSubmit",
    "AssocGrpSubmit",
    "QOSGrpSubmit",
    "submit limit",
    "job limit",
    "Job violates accounting",
)
SUBMIT_S = 60.0
SAME_JOB_S = 120.0  # between what we noted of a submission and what Slurm says of it


class LimitReached(ClusterError):
    """The user may not have more jobs in the queue."""


def look_at_links(tools: Tools, uid: int) -> tuple[LinkJob, ...]:
    """All jobs of a user that the controller knows, also those that have just ended: one ``squeue``.

    Raises `ClusterBusy` where the controller does not answer.
    """
    answer = tools.run("squeue", "-h", "-t", "all", "-u", str(uid), "-o", FORMAT)
    if answer.code:
        raise ClusterBusy("squeue", answer.complaint or "no answer", "Run `scontrol ping`")
    return read_links(answer.out.decode("utf-8", "replace"), uid)


def read_links(text: str, uid: int) -> tuple[LinkJob, ...]:
    """Read what `look_at_links` asks for: this user's jobs. A line that a comment has broken in two is no job.

    >>> read_links("7|1000|RUNNING|None|10|20|140|mine perdure-keep=train-1/2.1\\n", 1000)[0].key
    '2.1'
    """
    found = []
    for line in text.splitlines():
        if (match := _LINE.fullmatch(line)) is None or int(match[2]) != uid:
            continue
        link = chain_link_of(match[8])
        found.append(
            LinkJob(
                job_id=match[1],
                state=match[3],
                reason="" if match[4] == "None" else match[4],
                submit_s=_instant(match[5]),
                start_s=_instant(match[6]),
                end_s=_instant(match[7]),
                chain=link.chain if link else "",
                key=link.key if link else "",
            )
        )
    return tuple(found)


def ended_job(tools: Tools, job_id: str, uid: int, since_s: float) -> LinkJob | None:
    """The state of this user's job by the controller's word, else by accounting's; None where neither knows it.

    Raises `ClusterBusy` where they do not answer.
    """
    with tools.dialog() as scontrol:
        record = job_record(scontrol, job_id)
    is_old = record is not None and record.submit_s < since_s - SAME_JOB_S
    if record is None or is_old or record.uid != uid:  # ids come again where a controller lost its state
        return accounted_job(tools, job_id, uid, since_s)
    return LinkJob(
        job_id=job_id,
        state=record.state,
        reason=record.reason,
        submit_s=float(record.submit_s),
        start_s=float(record.start_s or 0),
        end_s=float(record.end_s or 0),
        exit_code=record.exit_code,
    )


def accounted_job(tools: Tools, job_id: str, uid: int, since_s: float) -> LinkJob | None:
    """How a job ended by accounting's word; None where it does not know it. Raises `ClusterBusy`."""
    start = str(int(max(0.0, since_s - 86_400)))
    fields = "JobIDRaw,State,ExitCode,Submit,Start,End"
    which = ("-u", str(uid), "-j", job_id, "-S", _day(float(start)))
    answer = tools.run("sacct", "-n", "-P", "-X", *which, "-o", fields)
    if "disabled" in answer.complaint:
        return None
    if answer.code:
        raise ClusterBusy("sacct", answer.complaint or "no answer", "Run `sacctmgr ping`")
    for line in reversed(answer.out.decode("utf-8", "replace").splitlines()):
        words = line.split("|")
        if len(words) == 6 and words[0] == job_id and _instant(words[3]) >= since_s - SAME_JOB_S:
            code = words[2].partition(":")[0]
            submit_s, start_s, end_s = map(_instant, words[3:])
            exit_code = int(code) if code.isdecimal() else None
            return LinkJob(job_id, words[1].partition(" ")[0], "", submit_s, start_s, end_s, exit_code=exit_code)
    return None


@dataclass(frozen=True, slots=True)
class SubmitOrder:
    """One call of ``sbatch``."""

    script: str
    options: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    lock: int  # a file that sbatch keeps locked as long as it lives


def submit(order: SubmitOrder, tools: Tools) -> str:
    """Submit a job; returns its id.

    Raises `LimitReached` and `ClusterError` where it is refused, `ClusterBusy` where it may have been accepted.
    """
    process = subprocess.Popen(
        [tools.find("sbatch"), "--parsable", *order.options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=order.directory,
        env={**order.environment, "LC_ALL": order.environment.get("LC_ALL", "C")},
        pass_fds=(order.lock,),
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(order.script.encode("utf-8", "surrogateescape"), timeout=SUBMIT_S)
    except subprocess.TimeoutExpired as err:
        raise ClusterBusy("sbatch", "no answer in time", "Run `scontrol ping`") from err
    return submitted_id(out.decode("utf-8", "replace"))


def submitted_id(text: str) -> str:
    """The id that ``sbatch`` has printed; raises as `submit` does."""
    if found := _ID.search(text):
        return str(found[1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = next((line for line in lines if any(word in line for word in _LIMIT)), "")
    last = lines[-1].removeprefix("sbatch: ").removeprefix("error: ").rstrip(".") if lines else "it has said nothing"
    if told:
        what = told.removeprefix("sbatch: ").removeprefix("error: ").rstrip(".")
        raise LimitReached("sbatch", what, "Wait until other jobs of yours have ended")
    if not lines or any(word in line for line in lines for word in _BUSY):
        raise ClusterBusy("sbatch", last, "Run `scontrol ping`")
    raise ClusterError("sbatch", last, "Change the script or the options")


def cancel(tools: Tools, job_id: str) -> None:
    """Cancel one job; one that is over already is no error. Raises `ClusterBusy`."""
    answer = tools.run("scancel", job_id)
    if answer.code and "Invalid job id" not in answer.complaint:
        raise ClusterBusy("scancel", answer.complaint or "no answer", "Run `scontrol ping`")


def release(tools: Tools, job_id: str) -> None:
    """Release a job that is held. Raises `ClusterBusy`."""
    answer = tools.run("scontrol", "release", job_id)
    if answer.code:
        raise ClusterBusy("scontrol", answer.complaint or "no answer", "Run `scontrol ping`")


def walltime_of(
    partitions: Sequence[QueuedPartition], names: Sequence[str], asked_s: float | None, where: str
) -> float:
    """The walltime that a job gets in a partition. Raises `InputError` where it has none, or too much."""
    by_name = {each.name: each for each in partitions}
    chosen = names or [each.name for each in partitions if each.is_default][:1]
    for name in chosen:
        if name not in by_name:
            raise InputError(
                f"partition {name!r}", "the cluster has no such partition", f"Use one of: {', '.join(by_name)}"
            )
    known = [by_name[name] for name in chosen]
    longest = max(known, key=lambda each: math.inf if each.max_time_s is None else each.max_time_s, default=None)
    most_s = None if longest is None else longest.max_time_s
    if longest is not None and asked_s is not None and most_s is not None and asked_s > most_s:
        what = f"--time asks for {_hours(asked_s)}, and {longest.name} allows {_hours(most_s)}"
        raise InputError(where, what, f"Write --time={_slurm_time(most_s)} or less, or use another partition")
    defaults_s = [each.default_time_s or each.max_time_s for each in known]  # as Slurm gives it
    given = asked_s or next((each_s for each_s in defaults_s if each_s), None)
    if given is None:
        raise InputError(
            where, "it has no walltime, so its job never needs a successor", "Give one: #SBATCH --time=24:00:00"
        )
    return given


def read_partitions(tools: Tools) -> tuple[QueuedPartition, ...]:
    """Raises `ClusterBusy`, `ConfigError`."""
    tools.check()
    with tools.dialog() as scontrol:
        return ask_partitions(scontrol)


def environment_for_links(environment: Mapping[str, str]) -> dict[str, str]:
    """What a user's environment gives to all links.

    Without what an allocation or a launcher around has set, and without what no chain can be made of.
    """
    kept = ("SLURM_CONF", "SLURM_CLUSTERS")
    dropped = ("SLURM_", "SLURMD_", "PERDURE_FENCE", "PERDURE_JOB", "PERDURE_INCARNATION", "PERDURE_LINK")
    options = ("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT")
    return {
        name: text
        for name, text in environment.items()
        if name in kept or not (name.startswith(dropped) or name in options)
    }


def _instant(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def _day(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.4g} h"


def _slurm_time(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86_400)
    return f"{days}-{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
