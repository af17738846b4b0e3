"""What a batch script asks Slurm for, from its ``#SBATCH`` lines and options given next to it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import re2

from perdure.errors import InputError
from perdure.model.jobs import JobState
from perdure.slurm_words.durations import time_s
from perdure.slurm_words.hostlist import expand
from perdure.slurm_words.tres import gpus as gpus_of
from perdure.waits.queue import Queue, QueuedJob

MAX_BYTES = 1 << 20
_LONG = {  # of the options that matter here, by their short names
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "t": "time", "p": "partition", "q": "qos",
    "A": "account", "w": "nodelist", "x": "exclude", "b": "begin", "d": "dependency", "a": "array", "C": "constraint",
    "L": "licenses",
}  # fmt: skip
_FLAGS = frozenset({"exclusive", "hold", "requeue", "no-requeue", "overcommit", "contiguous", "wait", "parsable"})
_MAY_DELAY = (  # what may keep a job waiting, and is not read
    "begin", "dependency", "hold", "array", "reservation", "exclusive", "constraint", "licenses", "mem", "mem-per-gpu",
    "mem-per-cpu",
)  # fmt: skip
_SHORT_FLAGS = frozenset("hHIkOQsuvVW")
ENVIRONMENT = {  # what sbatch takes from variables: over the script, below its command line
    "SBATCH_ACCOUNT": "account", "SBATCH_ARRAY_INX": "array", "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_EXCLUSIVE": "exclusive", "SBATCH_GPUS": "gpus", "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SBATCH_GRES": "gres", "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu", "SBATCH_MEM_PER_GPU": "mem-per-gpu", "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_PARTITION": "partition", "SBATCH_QOS": "qos", "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal", "SBATCH_TIMELIMIT": "time",
}  # fmt: skip
_COUNT = re2.compile(r"(\d{1,9})(?:[kK])?(?:-\d{1,9})?")
_GPUS = re2.compile(r"(?:[\w.\-]{1,64}:)?\d{1,6}(?:,(?:[\w.\-]{1,64}:)?\d{1,6})*")


@dataclass(frozen=True, slots=True)
class SbatchRequest:
    """What a job would ask for."""

    nodes: int = 1
    gpus: int = 0
    cpus: int = 1
    walltime_s: float | None = None  # None: what its partition gives
    partitions: tuple[str, ...] = ()
    qos: str = ""
    account: str = ""
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()  # options that may keep it waiting, of which nothing here tells

    def as_job(self, queue: Queue, user: str, priority: int) -> QueuedJob:
        """The job that it would be if it were submitted now. Raises `InputError` for a partition that is not there."""
        defaults = tuple(each.name for each in queue.partitions if each.is_default)
        partitions = self.partitions or defaults[:1] or tuple(each.name for each in queue.partitions[:1])
        for name in partitions:
            if queue.partition(name) is None:
                known = ", ".join(each.name for each in queue.partitions)
                raise InputError(f"partition {name!r}", "the cluster has no such partition", f"Use one of: {known}")
        first = queue.partition(partitions[0])
        limit = self.walltime_s
        if limit is None and first is not None:
            limit = first.default_time_s or first.max_time_s
        return QueuedJob(
            job_id="",
            user=user,
            state=JobState.PENDING,
            partitions=partitions,
            gpus=self.gpus,
            cpus=self.cpus,
            nodes=self.nodes,
            walltime_s=limit,
            priority=priority,
            submit_s=queue.now_s,
            eligible_s=queue.now_s,
            account=self.account,
            qos=self.qos,
            required=self.required,
            excluded=self.excluded,
        )


def request_of(script: bytes, options: Sequence[str] = (), where: str = "script") -> SbatchRequest:
    """Read a script's ``#SBATCH`` lines, and the options of a command line, which win. Raises `InputError`.

    >>> request_of(b"#!/bin/sh\\n#SBATCH -N 2 --gres=gpu:4\\n#SBATCH -t 1-0\\n").gpus
    8
    """
    lines = _option_lines(script)
    if _is_heterogeneous(lines):
        raise InputError(
            where, "it is a heterogeneous job", "Submit it, and ask about its id; its parts start together"
        )
    given: dict[str, str] = {}
    for words in (*(_words(line, where) for line in lines), list(options)):
        given.update(_options(words))
    return _request(given, where)


def environment_options(environment: Mapping[str, str]) -> list[str]:
    """The options that sbatch would take from its environment.

    >>> environment_options({"SBATCH_PARTITION": "gpu", "HOME": "/home/mira"})
    ['--partition=gpu']
    """
    return [f"--{option}={environment[name]}" for name, option in ENVIRONMENT.items() if name in environment]


def directive_words(script: bytes, where: str) -> list[str]:
    """The words of a script's ``#SBATCH`` lines. Raises `InputError`, also for a heterogeneous job."""
    lines = _option_lines(script)
    if _is_heterogeneous(lines):
        raise InputError(where, "it is a heterogeneous job", "Make it one job: a chain is one job at a time")
    return [word for line in lines for word in _words(line, where)]


def _option_lines(script: bytes) -> list[str]:
    return [line[len(b"#SBATCH") :].decode("utf-8", "replace") for line in _directives(script)]


def _is_heterogeneous(lines: Sequence[str]) -> bool:
    return any(line.split()[:1] in (["hetjob"], ["packjob"]) for line in lines)


def _directives(script: bytes) -> Iterator[bytes]:
    """The ``#SBATCH`` lines above the first command, as sbatch reads them."""
    for line in script[:MAX_BYTES].splitlines():
        stripped = line.strip()
        if stripped.startswith(b"#SBATCH"):
            yield stripped
        elif stripped and not stripped.startswith(b"#"):
            return


def _words(line: str, where: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as err:
        raise InputError(where, f"#SBATCH{line}: {err}", "Close the quotes") from err


def _options(words: Sequence[str]) -> dict[str, str]:
    """Options by their long names; flags and what is not known are passed over."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and name not in _FLAGS and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            found[name] = value
        elif len(word) > 1 and word[0] == "-" and word[1] not in _SHORT_FLAGS:
            value = word[2:].removeprefix("=") or (rest.pop(0) if rest else "")
            found[_LONG.get(word[1], word[1])] = value
        elif word == "-H":
            found["hold"] = ""
    return found


def _request(given: Mapping[str, str], where: str) -> SbatchRequest:
    per_node = _count(given, "ntasks-per-node", where)
    nodes = _count(given, "nodes", where) or 1
    tasks = _count(given, "ntasks", where) or (per_node or 1) * nodes
    if per_node and "nodes" not in given:
        nodes = -(-tasks // per_node)
    return SbatchRequest(
        nodes=nodes,
        gpus=_gpus(given, nodes, tasks, where),
        cpus=tasks * (_count(given, "cpus-per-task", where) or 1),
        walltime_s=_limit_s(given["time"], where) if given.get("time") else None,
        partitions=tuple(name for name in given.get("partition", "").split(",") if name),
        qos=given.get("qos", ""),
        account=given.get("account", ""),
        required=expand(given.get("nodelist", "")),
        excluded=expand(given.get("exclude", "")),
        passed_over=tuple(name for name in _MAY_DELAY if name in given),
    )


def _gpus(given: Mapping[str, str], nodes: int, tasks: int, where: str) -> int:
    """All GPUs of the gang, however they are asked for. Raises `InputError` for what is no number of them."""
    for name, times in (("gpus", 1), ("gpus-per-node", nodes), ("gpus-per-task", tasks)):
        if given.get(name):
            if _GPUS.fullmatch(given[name]) is None:
                what = f"--{name}={given[name]} is not a number of GPUs"
                raise InputError(where, what, f"Write it like --{name}=2 or --{name}=a100:2")
            return times * (gpus_of(f"gpu:{given[name]}") or 0)
    return nodes * (gpus_of(given.get("gres", "")) or 0)


def _count(given: Mapping[str, str], name: str, where: str) -> int:
    if not given.get(name):
        return 0
    found = _COUNT.fullmatch(given[name])
    if found is None:
        raise InputError(where, f"--{name}={given[name]} is not a number", f"Write it like --{name}=2")
    return int(found[1]) * (1024 if given[name].lower().endswith("k") else 1)


def _limit_s(text: str, where: str) -> float | None:
    """Seconds of ``--time``; None for no limit, which 0 is too. Raises `InputError`."""
    try:
        return time_s(text) or None
    except ValueError as err:
        raise InputError(where, f"--time={text} is not a time", "Write it like --time=1-12:00:00") from err
