"""Jobs that depend on one that is put back: how to fix what its failure did to them, and what cannot be fixed.

Slurm tests dependencies when a job ends. A failure that is seen marks ``afterok`` and ``aftercorr`` as failed for good
(or cancels the dependant, after --kill-on-invalid-dep), and starts what waits ``afterany``, ``afternotok`` or for a
singleton. Of a whole array it also remembers that one task failed, whatever happened to it later; of tasks named one by
one it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import re2

from perdure.backends.slurm.records import JobRecord
from perdure.slurm_words.states import is_waiting

MAX_DEPENDANTS = 50  # of one job that are asked about
MAX_TASKS = 1000  # of an array that are named one by one

_PART = re2.compile(r"([a-z]+)(?::(\d{1,10})(?:_(\d{1,10}|\*))?(\+\d{1,10})?)?(?:\((\w+)\))?")
_SEPARATOR = re2.compile(r"([,?])")
_RESTORED = frozenset({"afterok", "aftercorr"})


class Part(NamedTuple):
    """One condition of an expression like ``afterok:12_*(failed),singleton(unfulfilled)``."""

    kind: str
    job: str  # number of the job or array; "" of a singleton
    task: str  # "*" for a whole array; "" for no array
    delay: str  # "+5", in minutes
    mark: str  # failed, unfulfilled

    def waits_for(self, job_id: str) -> bool:
        """Whether it is about this job, or about the array that it is a task of."""
        array, _, task = job_id.partition("_")
        return self.job == array and self.task in (("*", task) if task else ("",))


Dependants = Mapping[str, Mapping[str, str]]
"""By number of the job or array, or by `_singleton`: the jobs that wait for it, each with its whole expression."""


def parts(expression: str) -> list[Part]:
    """The conditions of an expression. Raises `ValueError` for one that cannot be read."""
    found = []
    for text in _SEPARATOR.split(expression)[::2]:
        match = _PART.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:80]!r} is not a dependency")
        found.append(Part(*(group or "" for group in match.groups())))
    return found


def dependants(records: Iterable[JobRecord], before: Dependants) -> dict[str, dict[str, str]]:
    """Who waits for whom. What was known before stays while the controller knows both jobs, even where it has run."""
    records = tuple(records)
    known = {record.job_id for record in records}
    waited_for = {record.job_id.partition("_")[0] for record in records} | {_singleton(r) for r in records}
    found = {
        target: kept
        for target, waiting in before.items()
        if target in waited_for and (kept := {job_id: text for job_id, text in waiting.items() if job_id in known})
    }
    going_on = {
        record.job_id for record in records if record.state == "RUNNING"
    }  # of an array one task may have failed
    for record in filter(lambda each: is_waiting(each.state), records):
        targets = _targets(record) if record.dependency else set()
        for target in sorted(targets):
            found.setdefault(target, {})[record.job_id] = record.dependency
        for target in going_on.intersection(found) - targets:  # no failure, but its owner has taken it back
            found[target].pop(record.job_id, None)
    return found


def of_job(job: JobRecord, known: Dependants) -> dict[str, str]:
    """The jobs that wait for this one, with their expressions as they were last seen; at most `MAX_DEPENDANTS`."""
    found = {**known.get(job.job_id.partition("_")[0], {}), **known.get(_singleton(job), {})}
    found.pop(job.job_id, None)
    return dict(sorted(found.items())[:MAX_DEPENDANTS])


def repaired_dependency(expression: str, job_id: str, tasks: Iterable[int]) -> str | None:
    """The expression to give back to a dependant of job `job_id`, which is put back; None where nothing needs it.

    ``afterok`` of a whole array becomes one condition for each of its `tasks`.
    """
    try:
        found = parts(expression)
    except ValueError:
        return None
    if not any(_is_broken(part, job_id) for part in found):
        return None
    separators = [*_SEPARATOR.split(expression)[1::2], ""]
    texts = (_text(part, job_id, tasks) for part in found)
    return "".join(text + separator for text, separator in zip(texts, separators, strict=True))


def is_dependant(expression: str, job_id: str) -> bool:
    """Whether a job with this expression waits for that one."""
    try:
        return bool(expression) and any(part.waits_for(job_id) for part in parts(expression))
    except ValueError:
        return False


def is_singleton(expression: str) -> bool:
    """Whether it waits for jobs of its user and name."""
    return "singleton" in expression


def word_on(before: str, now: JobRecord, job: JobRecord, since_s: int) -> str:
    """What a dependant did at this failure that cannot be taken back; "" where it did nothing.

    `before` is its expression as it was last seen, `since_s` when the failed attempt began.
    """
    if is_waiting(now.state):
        return ""
    try:
        kinds = [p.kind for p in parts(before) if _hears_of(p, now, job) or p.kind == "singleton"]
    except ValueError:
        return ""
    is_cancelled = not now.nodes and now.state == "CANCELLED"
    at = now.end_s if is_cancelled else now.start_s
    if not kinds or at is None or at <= since_s:
        return ""
    return f"job {now.job_id} {'was cancelled' if is_cancelled else 'ran'} at this failure ({kinds[0]})"


def _hears_of(part: Part, dependant: JobRecord, job: JobRecord) -> bool:
    """Whether this condition of a dependant is about the job: under ``aftercorr`` a task waits for its counterpart."""
    is_counterpart = dependant.job_id.partition("_")[2] == job.job_id.partition("_")[2]
    return part.waits_for(job.job_id) and (part.kind != "aftercorr" or is_counterpart)


def _is_broken(part: Part, job_id: str) -> bool:
    """A whole array's ``afterok`` breaks at the end of the array, even where it is not marked yet."""
    if part.kind not in _RESTORED or not part.waits_for(job_id):
        return False
    return part.mark == "failed" or (part.kind == "afterok" and part.task == "*")


def _text(part: Part, job_id: str, tasks: Iterable[int]) -> str:
    if not part.job:
        return part.kind
    if part.task == "*" and part.kind == "afterok" and part.waits_for(job_id):
        names = [f"{part.job}_{task}{part.delay}" for task in tasks]
        if names:
            return ":".join([part.kind, *names])
    task = f"_{part.task}" if part.task not in ("", "*") else ""
    return f"{part.kind}:{part.job}{task}{part.delay}"


def _targets(record: JobRecord) -> set[str]:
    try:
        return {part.job or _singleton(record) for part in parts(record.dependency)}
    except ValueError:
        return set()


def _singleton(record: JobRecord) -> str:
    """Jobs of one user and name are singletons to each other."""
    return f"{record.uid}/{record.name}"
