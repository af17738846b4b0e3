"""The failed attempts of a site: from Slurm's accounting, and from logs where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby

import numpy as np
import re2

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.slurm_words.states import ATTEMPT_STATES, ENDS
from perdure.survey.tally import FailedAttempt
from perdure.traces.sacct_columns import Records
from perdure.triage.verdict import Verdict

Judge = Callable[[str | None, Attempt | None], Verdict]
"""``judge(log, attempt)``: the verdict on a log by its name and on what is known of it; None for a log without one."""

_STATES: Mapping[str, AttemptState] = {
    word: ATTEMPT_STATES[word] for word in (ENDS | {"LAUNCH_FAILED"}) - {"CANCELLED", "COMPLETED"}
}
_NUMBER = re2.compile(r"\d{1,10}(?:_\d{1,10})?")


@dataclass(slots=True)
class Collected:
    """What was found, and what could not be used."""

    failed: list[FailedAttempt] = field(default_factory=list)
    attempts: int = 0  # that ended, failed or not
    logs: int = 0  # that were judged
    strangers: int = 0  # logs of no job that failed
    put_back: int = 0  # attempts that went back into the queue, and nothing tells any more how they ended


@dataclass(frozen=True, slots=True)
class _Ended:
    row: int
    state: AttemptState | None  # None: it did not fail
    passed: bool
    is_untold: bool = False


def of_accounting(records: Records, logs: Sequence[str], judge: Judge) -> Collected:
    """The failed attempts that accounting knows. A log belongs to the last one of the job that its name holds."""
    found = Collected()
    by_job = jobs_named({str(name) for name in records.job_id}, logs)
    for attempts in _jobs(records):
        job_id = str(records.job_id[attempts[0].row])
        found.attempts += len(attempts)
        found.put_back += sum(ended.is_untold for ended in attempts)
        last = max((place for place, ended in enumerate(attempts) if ended.state), default=-1)
        for place, ended in enumerate(attempts):
            if ended.state is not None:
                names = by_job.get(job_id, []) if place == last else []
                found.logs += len(names)
                found.failed.append(_failed(records, attempts, place, names, judge))
    found.strangers = len(logs) - found.logs
    return found


def of_logs(logs: Iterable[str], owner_of: Callable[[str], str], judge: Judge) -> Collected:
    """Each log as one failed attempt, where nothing else is known."""
    found = Collected()
    for name in logs:
        verdict = judge(name, None)
        found.logs += 1
        if not verdict.evidence:
            found.strangers += 1
            continue
        found.failed.append(
            FailedAttempt(_job_in(name) or name, owner_of(name), 0, None, verdict.category, verdict.label)
        )
    found.attempts = len(found.failed)
    return found


def jobs_named(job_ids: Iterable[str], logs: Iterable[str]) -> dict[str, list[str]]:
    """Logs by the job whose id is in their file's name; of several ids that are known, the last."""
    known = set(job_ids)
    named: dict[str, list[str]] = {}
    for log in logs:
        numbers = [match.group() for match in _NUMBER.finditer(log.rsplit("/", 1)[-1])]
        ids = [part for number in numbers for part in (number.partition("_")[0], number) if part in known]
        if ids:
            named.setdefault(ids[-1], []).append(log)
    return named


def _job_in(log: str) -> str:
    numbers = _NUMBER.findall(log.rsplit("/", 1)[-1])
    return max(numbers, key=len, default="")


def _jobs(records: Records) -> Iterator[list[_Ended]]:
    """The attempts of each job that ended, by their starts."""
    usable = ~records.is_step & ~records.broken & ~np.isnan(records.start_s)
    rows = np.flatnonzero(usable)
    rows = rows[np.lexsort((records.start_s[rows], records.job_id[rows]))]
    for _, group in groupby(rows.tolist(), key=lambda row: records.job_id[row]):
        yield [_ended(records, row) for row in group]


def _ended(records: Records, row: int) -> _Ended:
    """Slurm calls an attempt REQUEUED that was put back: with its exit code where it had ended, else without."""
    word = str(records.state[row])
    if word != "REQUEUED":
        return _Ended(row, _STATES.get(word), word == "COMPLETED")
    has_code = records.exit_code[row] not in (b"", b"0:0")
    return _Ended(row, AttemptState.FAILED if has_code else None, passed=False, is_untold=not has_code)


def _failed(
    records: Records, attempts: Sequence[_Ended], place: int, logs: Sequence[str], judge: Judge
) -> FailedAttempt:
    row, later = attempts[place].row, attempts[place + 1 :]
    state = attempts[place].state
    assert state is not None
    code, _, signal = records.exit_code[row].decode("ascii", "replace").partition(":")
    attempt = _attempt(state, int(code) if code.isdecimal() else 1, int(signal) if signal.isdecimal() else 0)
    verdict = _surest([judge(name, attempt) for name in logs] or [judge(None, attempt)])
    elapsed_s = float(records.elapsed_s[row])
    return FailedAttempt(
        str(records.job_id[row]),
        str(records.user[row]),
        int(records.gpus[row]),
        None if np.isnan(elapsed_s) else elapsed_s,
        verdict.category,
        verdict.label,
        retried=bool(later),
        passed_later=any(ended.passed for ended in later),
        retry_s=float(np.nan_to_num(records.elapsed_s[later[0].row])) if later else 0.0,
    )


@lru_cache(maxsize=1024)
def _attempt(state: AttemptState, exit_code: int, signal: int) -> Attempt:
    """What accounting says of an attempt's end."""
    return Attempt(AttemptId("", "", 0), state, (), 0.0, 0.0, exit_code=exit_code, signal=signal)


def _surest(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several logs of one attempt, the one that says most: an error stream next to an output stream."""

    return max(verdicts, key=lambda verdict: (verdict.category != "unknown", abs(verdict.p_transient - 0.5)))
