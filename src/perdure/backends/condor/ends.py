"""How a run ended, by what HTCondor writes about it. Pure.

A run that its program ended has the exit code in its record. One that HTCondor ended has a code of its own: below 1000
the reason for which the job was held, from 1000 on why it was put back.
Source: HTCondor's manual, "Machine-readable Hold Reasons", and the records that 23.9 wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perdure.backends.condor.ads import ClassAd, is_true, number, text, whole
from perdure.model.jobs import AttemptState

BY_USER, BY_POLICY, SUBMITTED_ON_HOLD, SPOOLING, BY_SITE, OUT_OF_RESOURCES = 1, 3, 15, 16, 26, 34
HELD_BY_PERSONS = (BY_USER, SUBMITTED_ON_HOLD)
LEASE_EXPIRED = 1008
_NEVER_RAN = frozenset({4, 6, 7, 8, 9, 10, 13, 14, 17, 19, 20, 22, 23, 24, 25, 32, 35, 43, 45, 48})
_TIMEOUTS = (46, 47)
_REMOVED = 3
_MEMORY_WORDS = ("memory", "oom")


class RunEnd(NamedTuple):
    """How a run ended."""

    state: AttemptState
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    lost_node: bool = False


def end_of(run: ClassAd, job: ClassAd | None, given_up: Iterable[str], nodes: Iterable[str]) -> RunEnd:
    """Tell how a run ended.

    `run` is its record, `job` the job's own where this was its latest run; `given_up` are nodes that Perdure set down.
    """
    start_s = number(run, "JobCurrentStartDate") or number(run, "ShadowBday") or 0.0
    vacated_s = number(run, "LastVacateTime")
    latest = job if job is not None else run
    held = whole(latest, "HoldReasonCode") if whole(latest, "JobStatus") == 5 else 0
    if vacated_s is None or vacated_s < start_s:
        return _by_itself(run, held, text(latest, "HoldReason"))
    code, reason = whole(run, "VacateReasonCode"), text(run, "VacateReason")
    if code == LEASE_EXPIRED:
        return RunEnd(AttemptState.NODE_FAIL, reason=reason, lost_node=True)
    if 0 < code < 1000 and code != BY_USER:
        return RunEnd(state_of_hold(code, reason), whole(run, "ExitCode") if code == BY_POLICY else 0, reason=reason)
    if job is not None and whole(job, "JobStatus") == _REMOVED:
        return RunEnd(AttemptState.CANCELLED, reason=text(job, "RemoveReason"))
    if not set(given_up).isdisjoint(nodes):
        return RunEnd(AttemptState.NODE_FAIL, reason=reason or "its node was set down", lost_node=True)
    return RunEnd(AttemptState.REQUEUED, reason=reason or text(latest, "HoldReason") or "evicted")


def _by_itself(run: ClassAd, held: int, hold_reason: str) -> RunEnd:
    """The program ended; HTCondor may have held the job nevertheless, as for output that cannot be transferred."""
    is_signal = is_true(run, "ExitBySignal")
    signal = whole(run, "ExitSignal") if is_signal else 0
    code = 0 if is_signal else whole(run, "ExitCode")
    if held and held not in (*HELD_BY_PERSONS, BY_POLICY, BY_SITE):
        return RunEnd(state_of_hold(held, hold_reason), code, signal, hold_reason)
    state = AttemptState.FAILED if code or signal else AttemptState.COMPLETED
    return RunEnd(state, code, signal, hold_reason if held else "")


def state_of_hold(code: int, reason: str) -> AttemptState:
    """What a hold says of the run that it ended.

    >>> state_of_hold(47, "").value, state_of_hold(6, "").value, state_of_hold(26, "job used too much memory").value
    ('timeout', 'launch_failed', 'out_of_memory')
    """
    if code in _TIMEOUTS:
        return AttemptState.TIMEOUT
    if code in _NEVER_RAN:
        return AttemptState.LAUNCH_FAILED
    if any(word in reason.lower() for word in _MEMORY_WORDS):
        return AttemptState.OUT_OF_MEMORY
    return AttemptState.FAILED
