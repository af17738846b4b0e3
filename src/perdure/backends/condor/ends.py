"""How a run ended, by what HTCondor writes about it. Pure.

A run that its program ended has the exit code in its record. One that HTCondor ended has a code of its own: below 1000
the reason for which the job was held, from 1000 on why it was put back.
Source: HTCondor's manual, "Machine-readable Hold Reasons", and the records that 23.9 wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perdure.backends.condor.ads import ClassAd, instant, is_true, text, whole
from perdure.model.jobs import AttemptState

BY_USER, BY_POLICY, SUBMITTED_ON_HOLD, SPOOLING, BY_SITE, OUT_OF_RESOURCES = 1, 3, 15, 16, 26, 34
HELD_BY_PERSONS = (BY_USER, SUBMITTED_ON_HOLD)
_LOST_NODE = frozenset({1008, 1012, 1013})  # it does not answer, its startd failed or was shut down
_NO_CLAIM = 1006  # a startd did not take the job that was to start there
_PUT_BACK = (
    (frozenset({1003, _NO_CLAIM}), AttemptState.LAUNCH_FAILED),
    (frozenset({1011, 1018, 1019}), AttemptState.PREEMPTED),
    (frozenset({1002, 1007}), AttemptState.LOST),  # a daemon of HTCondor failed
)
_NEVER_RAN = frozenset({4, 6, 7, 8, 9, 10, 13, 14, 17, 19, 20, 22, 23, 24, 25, 32, 35, 43, 45, 48})
_TIMEOUTS = (46, 47)
_IDLE, _REMOVED, HELD_STATUS = 1, 3, 5
_FIRST_VACATE = 1000  # of the codes that say why a run was put back
_MEMORY_WORDS = ("memory", "oom")


class CondorEnd(NamedTuple):
    """How a run ended."""

    state: AttemptState
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    lost_node: bool = False


def end_of(run: ClassAd, job: ClassAd | None, down: Iterable[str], nodes: Iterable[str]) -> CondorEnd:
    """Tell how a run ended.

    `run` is its record, `job` the job's own where this was its latest run; `down` are nodes that were set down, or of
    which nothing is heard.
    """
    lost_node = not set(down).isdisjoint(nodes)
    latest = job if job is not None else run
    held, held_for = 0, text(run, "HoldReason")
    if whole(run, "HoldReasonCode") or whole(latest, "JobStatus") == HELD_STATUS:
        held = whole(run, "HoldReasonCode") or whole(latest, "HoldReasonCode")
        held_for = held_for or text(latest, "HoldReason")
    if may_be_nodes_fault(run) and lost_node:
        return CondorEnd(AttemptState.NODE_FAIL, reason=text(run, "VacateReason") or "it lost a node", lost_node=True)
    if _is_unexplained(run):
        return CondorEnd(AttemptState.LOST, reason="HTCondor does not say how it ended")
    if not _is_vacated(run):
        return _by_itself(run, held, held_for)
    code, reason = whole(run, "VacateReasonCode"), text(run, "VacateReason")
    if code in _LOST_NODE:
        return CondorEnd(AttemptState.NODE_FAIL, reason=reason, lost_node=True)
    if job is not None and whole(job, "JobStatus") == _REMOVED:
        return CondorEnd(AttemptState.CANCELLED, reason=text(job, "RemoveReason"))
    cause = code if 0 < code < _FIRST_VACATE else held
    if cause and cause not in HELD_BY_PERSONS:
        return CondorEnd(state_of_hold(cause, reason or held_for), reason=reason or held_for)
    if lost_node:
        return CondorEnd(AttemptState.NODE_FAIL, reason=reason or "its node was set down", lost_node=True)
    state = next((state for codes, state in _PUT_BACK if code in codes), AttemptState.REQUEUED)
    return CondorEnd(state, reason=reason or held_for or "evicted")


def may_be_nodes_fault(run: ClassAd) -> bool:
    """Whether a node that is down would explain the end, of which HTCondor says nothing of the kind.

    So it is where a gang loses a node, or is started on one that is gone and not missed yet.
    """
    return _is_unexplained(run) or (_is_vacated(run) and whole(run, "VacateReasonCode") == _NO_CLAIM)


def _is_unexplained(run: ClassAd) -> bool:
    return instant(run, "EpochWriteDate") is None and whole(run, "JobStatus") == _IDLE and not _is_vacated(run)


def _is_vacated(run: ClassAd) -> bool:
    """Whether HTCondor ended the run, and not an earlier one of the job."""
    vacated_s = instant(run, "LastVacateTime")
    start_s = instant(run, "JobCurrentStartDate") or instant(run, "ShadowBday") or 0.0
    return vacated_s is not None and vacated_s >= start_s


def _by_itself(run: ClassAd, held: int, hold_reason: str) -> CondorEnd:
    """The program ended; HTCondor may have held the job nevertheless, as for output that cannot be transferred."""
    is_signal = is_true(run, "ExitBySignal")
    signal = whole(run, "ExitSignal") if is_signal else 0
    code = 0 if is_signal else whole(run, "ExitCode")
    if held and held not in (*HELD_BY_PERSONS, BY_POLICY, BY_SITE):
        return CondorEnd(state_of_hold(held, hold_reason), code, signal, hold_reason)
    state = AttemptState.FAILED if code or signal else AttemptState.COMPLETED
    return CondorEnd(state, code, signal, hold_reason if held else "")


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
