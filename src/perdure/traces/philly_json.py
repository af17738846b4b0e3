"""Microsoft's Philly, raw: ``cluster_job_log``, a JSON list of jobs with every attempt that was scheduled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from perdure.model.table import Attempts, TableEnding
from perdure.traces.clocks import from_wall_clock, spans
from perdure.traces.source import TraceSource
from perdure.traces.trace import NEVER_STARTED, Format, Sieve, Trace, gather

ZONE = "America/Los_Angeles"
_ENDINGS = {"Pass": TableEnding.PASSED, "Killed": TableEnding.KILLED, "Failed": TableEnding.FAILED}
_WIDEST = 128  # characters of a text that is kept
_SEPARATORS = " \t\r\n,"
_CUT = object()  # in place of a job that does not end
_MAX_ATTEMPTS = 10_000


def sniff(head: bytes, _name: str) -> bool:
    return head.lstrip().startswith(b"[") and b'"attempts"' in head and b'"jobid"' in head


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the jobs that ran, with their attempts. A missing time is the text "None".

    A job's GPUs are those of its widest attempt, for hosts and counts may change between attempts. Its duration is
    the sum of its attempts; one that misses its start or its end has no duration and is not an attempt here. The last
    attempt of a passed job passed; all others failed or were killed. Jobs without an attempt that can be timed are
    left out and counted: whether they asked for GPUs is not known.
    """
    jobs, notes = _Jobs(), []
    for place, job in _objects(source, skip_bad):
        jobs.add(place, job)
        if job is _CUT:
            notes.append(f"job {place} does not end, and whatever comes behind it was not read")
    sieve = Sieve(len(jobs.where), lambda row: f"{source.path}, job {jobs.where[row]}", skip_bad)
    sieve.bad(np.array(jobs.broken, bool), "the job has no jobid or no list of attempts", "Give both")
    sieve.leave_out(np.array(jobs.scheduled) == 0, NEVER_STARTED)
    first = np.concatenate([[0], np.cumsum(jobs.timed)]).astype(np.int64)
    sieve.leave_out(np.diff(first) == 0, "no attempt with a start and an end")
    if untimed := sum(jobs.scheduled) - int(first[-1]):
        notes.append(f"{untimed} attempts miss a start or an end and are not among the attempts")
    start_s, end_s = spans(np.array(jobs.start_s, np.float64), np.array(jobs.end_s, np.float64), ZONE)
    began_s, ended_s = spans(np.array(jobs.began_s, np.float64), np.array(jobs.ended_s, np.float64), ZONE)
    duration_s = ended_s - began_s
    sieve.bad(_any(duration_s < 0, first), "an attempt ends before it starts", "Give its true times")
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=np.array(jobs.job_id, np.str_),
        submit_s=from_wall_clock(np.array(jobs.submit_s, np.float64), ZONE),
        gpus=np.array(jobs.gpus, np.float64),
        duration_s=np.diff(np.concatenate([[0], np.cumsum(duration_s)])[first]),
        epoch_s=0.0,
        attempts=Attempts(first, duration_s, np.array(jobs.passed, bool)),
        notes=tuple(notes),
        start_s=start_s,
        end_s=end_s,
        user=np.array(jobs.user, np.str_),
        vc=np.array(jobs.vc, np.str_),
        ending=np.array(jobs.ending, np.int8),
    )


def _any(attempts: np.ndarray[Any, np.dtype[np.bool_]], first: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
    """For each job, whether any of its attempts is so."""
    return np.diff(np.concatenate([[0], np.cumsum(attempts)])[first]) > 0


def _objects(source: TraceSource, skip_bad: bool) -> Iterator[tuple[int, object]]:
    """The elements of the list, one at a time, with their places; the tree of the whole is never in memory."""
    decoder = json.JSONDecoder()
    with source.text() as stream:
        text = stream.read()
    at = text.find("[") + 1
    place = 0
    while True:
        while text[at : at + 1] in tuple(_SEPARATORS):
            at += 1
        if text[at : at + 1] == "]":
            return
        place += 1
        try:
            job, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as err:  # also of a number with too many digits
            if skip_bad:
                yield place, _CUT
                return
            line = text.count("\n", 0, at) + 1
            raise source.damaged(f"job {place}, which begins in line {line}, does not end") from err
        yield place, job


@dataclass(slots=True)
class _Jobs:
    """Columns under construction."""

    where: list[int] = field(default_factory=list)
    broken: list[bool] = field(default_factory=list)
    job_id: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    vc: list[str] = field(default_factory=list)
    ending: list[int] = field(default_factory=list)
    submit_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)
    scheduled: list[int] = field(default_factory=list)  # attempts in the file
    timed: list[int] = field(default_factory=list)  # attempts with a start and an end
    began_s: list[float] = field(default_factory=list)  # of each attempt that is timed, by the wall clock
    ended_s: list[float] = field(default_factory=list)  # likewise
    passed: list[bool] = field(default_factory=list)

    def add(self, place: int, job: object) -> None:
        said = job if isinstance(job, dict) else {}
        attempts = said.get("attempts")
        good = isinstance(attempts, list) and len(attempts) <= _MAX_ATTEMPTS and isinstance(said.get("jobid"), str)
        tried = [each for each in attempts if isinstance(each, dict)] if good and isinstance(attempts, list) else []
        times = [(_wall_s(each.get("start_time")), _wall_s(each.get("end_time"))) for each in tried]
        timed = [(start, end) for start, end in times if np.isfinite(end - start)]
        ending = _ENDINGS.get(str(said.get("status")), TableEnding.UNKNOWN)
        self.where.append(place)
        self.broken.append(not good)
        self.job_id.append(_encodable(str(said.get("jobid"))[:_WIDEST]))
        self.user.append(_text(said.get("user")))
        self.vc.append(_text(said.get("vc")))
        self.ending.append(ending)
        self.submit_s.append(_wall_s(said.get("submitted_time")))
        self.start_s.append(times[0][0] if times else np.nan)
        self.end_s.append(times[-1][1] if times else np.nan)
        self.gpus.append(max(map(_gpus, tried), default=0))
        self.scheduled.append(len(tried))
        self.timed.append(len(timed))
        self.began_s.extend(start for start, _ in timed)
        self.ended_s.extend(end for _, end in timed)
        self.passed.extend([False] * len(timed))
        if timed and ending is TableEnding.PASSED:
            self.passed[-1] = True


def _text(value: object) -> str:
    return _encodable(value[:_WIDEST]) if isinstance(value, str) and value != "None" else ""


def _encodable(text: str) -> str:
    """`text` without the halves of characters that JSON may hold and no file can."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _gpus(attempt: dict[str, Any]) -> int:
    """GPUs of all hosts of an attempt."""
    hosts = attempt.get("detail")
    held = [host.get("gpus") for host in hosts if isinstance(host, dict)] if isinstance(hosts, list) else []
    return sum(len(names) for names in held if isinstance(names, list))


def _wall_s(value: object) -> float:
    """Seconds that a wall clock shows, as if in UTC; NaN for the text "None" and anything else that is not a time."""
    if not isinstance(value, str) or len(value) != len("2017-10-07 01:12:09"):
        return np.nan
    try:
        return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return np.nan


FORMAT = Format("philly-json", "Philly's raw cluster_job_log (JSON, with attempts)", sniff, read)
