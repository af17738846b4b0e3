"""For which jobs of a queue a job waits, by its dependency as the manager shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import re2

from perdure.waits.queue import Queue, QueuedJob

MOST = 100  # jobs of an array that one waits for, in a simulation: those that start last
SINGLETON = "singleton"
_KINDS = {"after": "after", "afterany": "afterany", "afterok": "afterok", "afternotok": "afternotok",
          "aftercorr": "afterok", "afterburstbuffer": "afterany"}  # fmt: skip
_STATE = re2.compile(r"\((\w+)\)")


@dataclass(frozen=True, slots=True)
class Condition:
    """One job, or all of an array, for which a job waits."""

    kind: str  # of sbatch: "afterok", ..., or `SINGLETON`
    array: str = ""  # the number of the job or array
    task: str = ""  # one task of it; "" for all
    delay: bool = False  # some minutes after its start

    def means(self, job: QueuedJob) -> bool:
        """Whether a job is among those that are waited for; of tasks that wait together none is told apart."""
        if job.array != self.array:
            return False
        return not self.task or job.job_id == f"{self.array}_{self.task}" or "_" not in job.job_id


def conditions(dependency: str) -> Iterator[Condition]:
    """What is left to wait for, of ``afterok:12_*(unfulfilled),afterany:9(unfulfilled)``.

    >>> [(each.kind, each.array, each.task) for each in conditions("afterok:12_*(unfulfilled)?after:9_3+5,singleton")]
    [('afterok', '12', ''), ('after', '9', '3'), ('singleton', '', '')]
    """
    for word in dependency.replace("?", ",").split(","):
        state = _STATE.search(word)
        kind, _, others = _STATE.sub("", word).partition(":")
        if state is not None and state[1] == "fulfilled":
            continue
        if kind == SINGLETON:
            yield Condition(SINGLETON)
        elif kind in _KINDS:
            for other in filter(None, others.split(":")):
                name, _, rest = other.partition("+")
                array, _, task = name.partition("_")
                if array.isdecimal():
                    yield Condition(kind, array, "" if task == "*" else task, kind == "after" and bool(rest))


def as_sbatch(jobs: Sequence[QueuedJob]) -> dict[str, str]:
    """The dependency of each job that has one, by its id, over the ids of those that are there, as sbatch takes it."""
    by_array: dict[str, list[QueuedJob]] = {}
    by_name: dict[tuple[str, str], list[QueuedJob]] = {}
    for job in jobs:
        by_array.setdefault(job.array, []).append(job)
        by_name.setdefault((job.user, job.name), []).append(job)
    return {job.job_id: _words(job, by_array, by_name) for job in jobs if job.dependency}


def _words(
    job: QueuedJob, by_array: Mapping[str, list[QueuedJob]], by_name: Mapping[tuple[str, str], list[QueuedJob]]
) -> str:
    found = []
    for each in conditions(job.dependency):
        alike = by_name[job.user, job.name] if each.kind == SINGLETON else by_array.get(each.array, [])
        ids = [other.job_id for other in _awaited(job, each, alike)][-MOST:]
        if ids:
            found.append(":".join((_KINDS.get(each.kind, "afterany"), *ids)))
    return ",".join(found)


def awaited(job: QueuedJob, queue: Queue) -> list[QueuedJob]:
    """The jobs of the queue that this one waits for."""
    found = (other for each in conditions(job.dependency) for other in _awaited(job, each, queue.jobs))
    return list({other.job_id: other for other in found}.values())


def _awaited(job: QueuedJob, condition: Condition, others: Iterable[QueuedJob]) -> Iterator[QueuedJob]:
    for other in others:
        if other.array == job.array:
            continue
        if condition.kind == SINGLETON:
            if (other.user, other.name) == (job.user, job.name) and _number(other) < _number(job):
                yield other
        elif condition.means(other):
            yield other


def doubts_on(job: QueuedJob, queue: Queue, simulated: Iterable[str]) -> list[str]:
    """What of its dependency the futures do not show; `simulated` are the ids of the jobs that are in them."""
    found, there = [], set(simulated)
    elsewhere = [other.job_id for other in awaited(job, queue) if other.job_id not in there]
    if elsewhere:
        more = f" and {len(elsewhere) - 1} more" if len(elsewhere) > 1 else ""
        found.append(
            f"job {elsewhere[0]}{more}, for which it waits, is on other nodes and not simulated: it may take longer"
        )
    if "?" in job.dependency:
        found.append("one of the jobs for which it waits is enough, and all are waited for here: it may start sooner")
    if any(each.delay for each in conditions(job.dependency)):
        found.append("the delay after the start of another job is not simulated: it may take longer")
    if any(each.task for each in conditions(job.dependency)) or "aftercorr" in job.dependency:
        found.append("tasks that wait together are not told apart: all are waited for, and it may start sooner")
    return found


def not_foreseen(job: QueuedJob, queue: Queue) -> str:
    """Why nothing tells when its dependency is met; "" where futures do."""
    held = next((other for other in awaited(job, queue) if other.is_held), None)
    if held is not None:
        return f"job {held.job_id}, for which it waits, is held"
    if any(each.kind == "afternotok" for each in conditions(job.dependency)):
        return "whether a job fails is not simulated"
    return ""


def _number(job: QueuedJob) -> float:
    return float(job.array) if job.array.isdecimal() else float("inf")
