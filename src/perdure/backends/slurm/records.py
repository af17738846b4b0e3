"""Reading what ``scontrol show job`` and ``show node`` print, one record a line, where users wrote half of it.

A job's name, comment, paths and network option may hold anything, newlines and whole forged records included, and
are printed as they are. What can be trusted is told apart like this:

- Every instant carries a mark that was drawn at random for this call (`tools`), so ``SubmitTime=<n>~<mark>`` is
  Slurm's own word, once in each record: its *anchor*.
- Before the anchor a user's text (the name) comes first and Slurm's own fields from ``UserId=`` on come last, so the
  last ``UserId=`` counts. Slurm writes accounts and workload keys, which are between the two, in lower case.
- After the anchor Slurm's own fields come first, up to ``Features=``, so the first of each counts.
- A record begins at a line that begins with ``JobId=``. Between two anchors there is exactly one true beginning; where
  text forges a second one, the record is `Torn`, and `repair` finds out whose it is from what else is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import re2
from msgspec import Struct, field

from perdure.errors import InputError
from perdure.slurm_words.durations import duration_s
from perdure.slurm_words.hostlist import expand
from perdure.slurm_words.states import exit_status, is_waiting
from perdure.slurm_words.tres import gpus, node_total

_BEGINNING = re2.compile(rb"(?m)^(?:scontrol: )?JobId=(\d{1,10}) (?:[A-Za-z]+=\S+ )*?JobName=")
_HEADER = re2.compile(rb"(?:scontrol: )?JobId=\d{1,10} ((?:[A-Za-z]+=\S+ )*?)JobName=")
_HET_SET = re2.compile(rb"(?s)(.*) HetJobIdSet=[\d,\-]+")
_USER = re2.compile(r"(.*)\((\d{1,10})\)")
_BETWEEN, _LICENCE = re2.compile(r"[,;|]"), re2.compile(r"[:@]")

CLOCKS_APART_S = 1.0  # at most, between slurmctld's machine and ours; the shortest time limit is a minute
_BAD_ENDS = ("NonZeroExitCode", "RaisedSignal")
_NULL = "(null)"
_TASKS = re2.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")  # part of a list of tasks of an array
MAX_NAME = 1024  # characters of what is compared and never followed
_MAX_TASK = 4_000_000_000  # larger numbers stand for "no task in particular"

# What may follow a path in a record, to find where a path with blanks ends.
_TAIL_KEYS = (
    "AdminComment", "SystemComment", "Comment", "StdErr", "StdIn", "StdOut", "Switches", "BurstBuffer",
    "BurstBufferState", "Power", "GresEnforceBind", "KillOInInvalidDependent", "SpreadJob", "CpusPerTres",
    "MemPerTres", "TresBind", "TresFreq", "TresPerJob", "TresPerNode", "TresPerSocket", "TresPerTask", "MailUser",
    "NtasksPerTRES", "Container", "ContainerID", "SELinuxContext", "SubmitLine", "Extra", "GresAllowTaskSharing",
    "ResvPorts", "CPU_max_freq", "Licenses", "OOMKillStep",
)  # fmt: skip
_SUBMIT_LINE = re2.compile(
    rb"(?s) SubmitLine=.*? WorkDir="
)  # before the directory in newer versions: the owner's words
_TAIL_KEY = re2.compile(rf" (?:{'|'.join(_TAIL_KEYS)})=")


class JobRecord(Struct, frozen=True):
    """One job, as the controller knows it now. Text is Slurm's own; times are whole seconds since the epoch."""

    raw_id: int
    job_id: str  # 7, 7_2 (task of an array), 7+1 (component of a heterogeneous job)
    name: str
    user: str
    uid: int
    state: str
    reason: str
    priority: int
    requeue: bool
    restarts: int
    exit_code: int
    signal: int
    walltime_s: float | None
    submit_s: int
    eligible_s: int | None
    start_s: int | None
    end_s: int | None
    partition: str
    required: tuple[str, ...]
    excluded: tuple[str, ...]
    nodes: tuple[str, ...]
    node_count: int
    gpus: int
    failed_nodes: tuple[str, ...]
    comment: str
    work_dir: str
    stdout: str
    stderr: str
    licences: tuple[str, ...] = ()
    tasks: int = 0
    tasks_per_node: int = 1  # also where only nodes were asked for
    cpus_per_task: int = 1
    most_nodes: int = 0  # of one that waits and asks for a range of nodes; 0: for one number
    gpus_in_all: bool = False  # they were asked for as a total (--gpus), whatever the number of nodes
    dependency: str = ""  # what it waits for: afterok:12(unfulfilled)
    admin_comment: str = ""
    command: str = ""  # the script; "" where it was not a file
    submitted_from: str = ""  # host and session, "login1:4711"
    qos: str = ""
    account: str = ""
    components: int = 1  # of a heterogeneous job, once they were merged; `raw_id` is that of the first
    preempt_s: int | None = None  # since when its latest start is being preempted; a grace time follows
    is_batch: bool = True  # of a heterogeneous job the first component is
    is_cron: bool = False  # of a scrontab: Slurm itself starts it again, and takes no changes of it
    cpus: int = 0  # of all its nodes; what it asks for while it waits
    waiting_tasks: int = 1  # of an array, those that one record stands for
    task_list: str = ""  # their numbers, as Slurm lists them
    reservation: str = ""  # in which it is to run
    most_tasks: int | None = None  # of its array may run at once; told by the record of those that wait
    nice: int = 0
    per_node: str = ""  # what it asks for on each node, as "gres:gpu:4"
    printed_paths: tuple[str, str] = ("", "")  # of stdout and stderr, where patterns in them were written out since

    @property
    def component(self) -> int:
        """Which component of a heterogeneous job this is; 0 for the first, and for every other job."""
        return number_or(self.job_id.partition("+")[2], 0)


def waits_again(record: JobRecord, now: float) -> bool:
    """True for a job that was put back while its nodes still clear up: COMPLETING, with an end that lies ahead.

    Of a job without a time limit the end is told only where it lies behind.
    """
    return record.state == "COMPLETING" and (record.end_s is None or record.end_s > now + CLOCKS_APART_S)


def ended_badly(record: JobRecord, now: float) -> bool:
    """True for a job that failed by itself, while its nodes or an EpilogSlurmctld still clear up.

    Slurm takes a requeue now, and what depends on the job has not heard of its end.
    """
    return tells_failure(record) and not waits_again(record, now)


def tells_failure(record: JobRecord) -> bool:
    """Whether a job that is COMPLETING failed: that hides the state, while the reason shows a code or a signal."""
    return record.state == "COMPLETING" and record.reason.startswith(_BAD_ENDS)


class Torn(Struct, frozen=True):
    """A record of which only the number is in doubt: `candidates` holds each beginning, the true one among them."""

    candidates: tuple[tuple[int, bytes], ...]  # (number, the text from there to the anchor)
    after: bytes  # from the anchor on

    def as_(self, number: int, mark: str) -> JobRecord:
        """Read it as the record of job `number`. Raises `InputError` where it cannot be that."""
        for candidate, before in self.candidates:
            if candidate == number:
                return _job(number, before, self.after, mark)
        raise InputError("scontrol", f"no beginning of job {number}", "Report this")


class OwnerClaim(NamedTuple):
    """Who a job belongs to and when it was submitted, by another source's word."""

    uid: int
    submit_s: int


class JobRecords(Struct, frozen=True):
    """All that could be read, what is in doubt, and how many records made no sense."""

    whole: tuple[JobRecord, ...]
    torn: tuple[Torn, ...] = ()
    unreadable: int = 0
    by_text: Mapping[bytes, JobRecord] = field(default_factory=dict)  # by what stands for the text of each


def read_jobs(
    text: bytes,
    mark: str,
    known: Mapping[bytes, JobRecord] | None = None,
    finish: Callable[[JobRecord], JobRecord] = lambda record: record,
) -> JobRecords:
    """Read the answer to ``show job``. Never raises: what cannot be read is counted.

    `known`: `JobRecords.by_text` of the last answer. A record whose text is the same is not read again and is the same
    object. `finish` is applied to each record that is read.
    """
    anchor = re2.compile(rb" SubmitTime=\d{1,12}~" + mark.encode() + rb" EligibleTime=")
    anchors = [match.start() for match in anchor.finditer(text)]
    edges = [0, *anchors, len(text)]
    beginnings = [  # those between two anchors
        [(int(match[1]), match.start() + begin) for match in _BEGINNING.finditer(text[begin:end])]
        for begin, end in pairwise(edges)
    ]
    by_text: dict[bytes, JobRecord] = {}
    whole: list[JobRecord] = []
    torn: list[Torn] = []
    unreadable = 0
    for at, end, found, following in zip(anchors, edges[2:], beginnings, beginnings[1:], strict=False):
        after = text[at : following[0][1] if following and end != len(text) else end]
        candidates = tuple((number, text[start:at]) for number, start in found)
        try:
            if len(candidates) == 1:
                key = _text_key(candidates[0][1], after, mark.encode())
                record = (known or {}).get(key) or finish(_job(*candidates[0], after, mark))
                by_text[key] = record
                whole.append(record)
            elif candidates:
                torn.append(Torn(candidates, after))
            else:
                unreadable += 1
        except InputError:
            unreadable += 1
    return JobRecords(tuple(whole), tuple(torn), unreadable, by_text)


def _text_key(before: bytes, after: bytes, mark: bytes) -> bytes:
    """Stands for a record's text, without the mark and without instants that change at each look and are not read.

    Only Slurm's own words are left out; a user can write neither the mark nor a zero byte.
    """
    user_at = before.rfind(b" UserId=")
    features_at = after.find(b" Features=")
    parts = (
        before[:user_at],
        _without(b" RunTime=", before[user_at:]),
        _without(b" LastSchedEval=", after[:features_at]),
        after[features_at:],
    )
    return blake2b(b"\0\0".join(parts).replace(mark, b"\0"), digest_size=16).digest()


def _without(key: bytes, text: bytes) -> bytes:
    """`text` without the first word that begins with `key`."""
    at = text.find(key)
    end = text.find(b" ", at + 1)
    return text if at < 0 or end < 0 else text[:at] + text[end:]


def read_one_answer(text: bytes, mark: str) -> list[JobRecord]:
    """Read the answer to ``show job JOB_ID``: one record, or all components of a heterogeneous job.

    Everything in the answer belongs to that job, so its first line is the true beginning.
    """
    records = read_jobs(text, mark)
    found = list(records.whole)
    for torn in records.torn:
        try:
            found.append(torn.as_(torn.candidates[0][0], mark))
        except InputError:
            continue
    return found


def claims_in_doubt(
    torn: Sequence[Torn], told: Iterable[tuple[int, OwnerClaim]], before: Mapping[int, frozenset[OwnerClaim]]
) -> dict[int, frozenset[OwnerClaim]]:
    """All that accounting ever said of the numbers that are in doubt: what it `told` now, and what was known `before`.

    Accounting is asked for what is recent, while the controller may list a job for long after its end.
    """
    numbers = {number for one in torn for number, _ in one.candidates}
    claims = {number: before.get(number, frozenset()) for number in numbers}
    for number, claim in told:
        if number in numbers:
            claims[number] |= {claim}
    return claims


def repair(
    torn: Sequence[Torn], taken: Collection[int], claims: Mapping[int, Collection[OwnerClaim]], mark: str
) -> JobRecords:
    """Find out which jobs the torn records belong to, as far as that can be proved.

    A number that another record has is not this one's. Of what is left, the owner and the submit instant, which
    are beyond doubt, must agree with what accounting says of that number. A record with none or several such
    numbers stays unreadable: nothing is done for a job whose own text hides it.
    """
    whole: list[JobRecord] = []
    unreadable = 0
    for one in torn:
        fitting = []
        numbers = {number for number, _ in one.candidates} - set(taken)
        for number in numbers:
            try:
                record = one.as_(number, mark)
            except InputError:
                continue
            if OwnerClaim(record.uid, record.submit_s) in claims.get(number, ()):
                fitting.append(record)
        if len(fitting) == 1:
            whole.append(fitting[0])
        else:
            unreadable += 1
    return JobRecords(tuple(whole), (), unreadable)


def _job(number: int, before: bytes, after: bytes, mark: str) -> JobRecord:
    header, user_at = _HEADER.match(before), before.rfind(b" UserId=")
    if header is None or user_at < header.end():
        raise InputError("scontrol", f"job {number} has no name or no owner", "Report this with Slurm's version")
    first = dict(pairs(header[1].decode("utf-8", "replace")))
    own, tail = _sections(before[user_at:], after)
    (user, uid, submit_s), (exit_code, signal) = _origin(number, own, mark), exit_status(own.get("ExitCode", ""))
    node_count, work_dir = _node_count(own), _after("WorkDir", tail)
    return JobRecord(
        raw_id=number,
        job_id=_job_id(number, first),
        name=_name(before[header.end() : user_at]),
        user=user,
        uid=uid,
        state=own.get("JobState", ""),
        reason="" if own.get("Reason", "None") == "None" else own["Reason"],
        priority=number_or(own.get("Priority", ""), 1),
        requeue=own.get("Requeue") != "0",
        restarts=number_or(own.get("Restarts", ""), 0),
        exit_code=exit_code,
        signal=signal,
        walltime_s=duration_s(own.get("TimeLimit", "")),
        submit_s=submit_s,
        eligible_s=instant(own.get("EligibleTime", ""), mark),
        start_s=instant(own.get("StartTime", ""), mark),
        end_s=instant(own.get("EndTime", ""), mark),
        partition=own.get("Partition", ""),
        required=expand(own.get("ReqNodeList", "")),
        excluded=expand(own.get("ExcNodeList", "")),
        nodes=expand(own.get("NodeList", "")),
        node_count=node_count,
        gpus=_job_gpus(own, tail, node_count),
        failed_nodes=expand(own.get("FailedNode", "")),
        comment=_after("Comment", tail),
        work_dir=work_dir,
        stdout=_path("StdOut", tail, work_dir),
        stderr=_path("StdErr", tail, work_dir),
        licences=_licences(tail),
        tasks=number_or(own.get("NumTasks", ""), 0),
        tasks_per_node=number_or(own.get("NtasksPerN:B:S:C", "").partition(":")[0], 0) or 1,
        cpus_per_task=number_or(own.get("CPUs/Task", ""), 0) or 1,
        most_nodes=number_or(own.get("NumNodes", "").partition("-")[2], 0),
        per_node=_after("TresPerNode", tail).partition(" ")[0],
        gpus_in_all=bool(_after("TresPerJob", tail)),
        dependency="" if own.get("Dependency", _NULL) == _NULL else own["Dependency"],
        admin_comment=_after("AdminComment", tail),
        command=_command(tail),
        submitted_from=own.get("AllocNode:Sid", "")[:MAX_NAME],
        qos=_named(own.get("QOS", "")),
        account=_named(own.get("Account", "")),
        preempt_s=instant(own.get("PreemptTime", ""), mark),
        is_batch=own.get("BatchFlag") != "0",
        is_cron=own.get("CronJob") == "Yes",
        cpus=number_or(own.get("NumCPUs", "").partition("-")[0], 0),
        waiting_tasks=_task_count(first.get("ArrayTaskId", "")),
        task_list=first.get("ArrayTaskId", "").partition("%")[0][:MAX_NAME],
        reservation=_named(_after("Reservation", tail).partition(" ")[0]),
        most_tasks=number_or(first.get("ArrayTaskThrottle", ""), 0) or None,
        nice=_nice(own.get("Nice", "")),
    )


def _nice(text: str) -> int:
    """0 where it is not told."""
    return -number_or(text[1:], 0) if text.startswith("-") else number_or(text, 0)


def _origin(number: int, own: Mapping[str, str], mark: str) -> tuple[str, int, int]:
    """Whose job it is, by name and number, and when it was submitted."""
    owner = _USER.fullmatch(own["UserId"])
    submit_s = instant(own.get("SubmitTime", ""), mark)
    if owner is None or submit_s is None:
        raise InputError("scontrol", f"job {number} has no owner or submit time", "Report this with Slurm's version")
    return owner[1], int(owner[2]), submit_s


def _sections(from_user: bytes, after: bytes) -> tuple[dict[str, str], str]:
    """The words that Slurm wrote itself, and the tail, in which a job's owner may have written as well."""
    middle, _, rest = after.partition(b" Features=")
    rest = _SUBMIT_LINE.sub(b" WorkDir=", rest, count=1)
    own, between = (dict(pairs(part.decode("utf-8", "replace"))) for part in (from_user, middle))
    return {**between, **own}, rest.decode("utf-8", "replace")


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield ``KEY=VALUE`` words in reverse, so that a dict made of them keeps the first of each key."""
    for word in reversed(text.split(" ")):
        key, equals, value = word.partition("=")
        if equals:
            yield key, value.strip("\n")


def _name(text: bytes) -> str:
    het = _HET_SET.fullmatch(text)
    return (het[1] if het else text).decode("utf-8", "replace")


def _job_id(number: int, header: Mapping[str, str]) -> str:
    """``ArrayTaskId=1-3%1`` is what is left of an array together; it goes by the array's own number."""
    task = header.get("ArrayTaskId", "")
    if task.isdecimal() and int(task) <= _MAX_TASK:
        return f"{header['ArrayJobId']}_{task}" if header.get("ArrayJobId", "").isdecimal() else str(number)
    if header.get("HetJobId", "").isdecimal() and header.get("HetJobOffset", "").isdecimal():
        return f"{header['HetJobId']}+{header['HetJobOffset']}"
    return str(number)


def _task_count(text: str) -> int:
    """How many tasks ``1-3,7%2`` or ``0-98:2`` names; 1 for what is no list, or one that Slurm cut short.

    >>> _task_count("1-3,7%2"), _task_count("0-98:2"), _task_count("5"), _task_count("")
    (4, 50, 1, 1)
    """
    total = 0
    for part in text.partition("%")[0].split(","):
        found = _TASKS.fullmatch(part)
        if found is None:
            return max(1, total)
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        total += max(0, last - first) // max(1, step) + 1
    return total


def _node_count(own: Mapping[str, str]) -> int:
    """The nodes that a job has, or the fewest that it waits for.

    Of a job that was put back ``NumNodes`` tells how many it had, whatever it asks for (22.05).
    """
    asked = node_total(own.get("ReqTRES", "")) or node_total(own.get("TRES", ""))
    if asked and is_waiting(own.get("JobState", "")):
        return asked
    return number_or(own.get("NumNodes", "").partition("-")[0], 1)


def _job_gpus(own: Mapping[str, str], tail: str, node_count: int) -> int:
    """All GPUs of a job: what it was given, else what it asked for."""
    for key in ("AllocTRES", "TRES", "ReqTRES"):
        found = gpus(own.get(key, ""))
        if found is not None:
            return found
    # Sites that do not account for GPUs print them only here.
    each = {"TresPerJob": 1, "TresPerNode": node_count, "TresPerTask": number_or(own.get("NumTasks", ""), 1)}
    return next((count * times for key, times in each.items() if (count := gpus(_after(key, tail)))), 0)


def _licences(tail: str) -> tuple[str, ...]:
    """Names of ``Licenses=pfs:2,ansys@server:1``, without number and server."""
    _, _, text = tail.partition(" Licenses=")
    word = text.partition(" ")[0]
    if not word or word == "(null)":
        return ()
    return tuple(_LICENCE.split(part)[0] for part in _BETWEEN.split(word) if part)


def _after(key: str, tail: str) -> str:
    """The text of `key`, which may hold blanks, up to the next key that Slurm prints. Its owner can forge it."""
    _, found, text = tail.partition(f" {key}=")
    if not found:
        return ""
    following = _TAIL_KEY.search(text)
    return text[: following.start()].rstrip() if following else text.rstrip()


def _command(tail: str) -> str:
    """The script. Its owner can forge it."""
    text = tail.partition(" Command=")[2].partition(" WorkDir=")[0]
    return "" if text == "(null)" else text[:MAX_NAME]


def _named(word: str) -> str:
    return "" if word in ("(null)", "N/A") else word[:MAX_NAME]


def _path(key: str, tail: str, work_dir: str) -> str:
    """A path, as Slurm prints it last: comments and what else an owner writes stand before it."""
    text = _after(key, tail[max(0, tail.rfind(f" {key}=")) :])
    if text in ("", "(null)"):
        return ""
    return text if text.startswith("/") else f"{work_dir}/{text}"


def instant(text: str, mark: str) -> int | None:
    """Read ``<seconds>~<mark>``. None for Unknown, None, N/A, and for what somebody else wrote."""
    number, _, tag = text.partition("~")
    return int(number) if tag == mark and number.isdecimal() and len(number) <= 12 else None


def number_or(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() and len(text) <= 12 else otherwise
