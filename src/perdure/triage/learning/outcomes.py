"""Labels from what retries did. They are one-sided: most outcomes prove nothing.

- A later attempt got past the point at which this one failed: the failure was transient.
- A later attempt failed alike, at the same point, on other nodes: it was deterministic.
- Anything else proves nothing: no retry, the same node again, another failure, a fix in between that nobody saw.

Labels from mere reruns are wrong for a third of intermittent failures ("Efficient Detection of Intermittent Job
Failures Using Few-Shot Learning", 2025), since a rerun that fails, or that nobody made, says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.model.identity import AttemptId
from perdure.triage.verdict import UNNAMED

PAST_THE_POINT = 1.25
"""A retry must have run this many times as long as the failed attempt to have got past its point, unless it passed."""
PAST_SLACK_S = 60.0
"""And at least so much longer: starts take unequal time."""
SAME_POINT = 0.25
"""Two attempts failed at the same point if their run times differ by at most this share of the longer."""
SAME_SLACK_S = 30.0
OF_A_SERVICE = frozenset({"net", "tracker", "obj_store", "fs", "nccl_timeout", "nccl_comm", "rdzv_store", "preempt"})
"""A service that is down fails on every node alike, and comes back: for these, alike elsewhere proves nothing."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One attempt of a job, as far as it labels failures. The same program: a changed one is another job to us."""

    attempt: AttemptId
    nodes: frozenset[str]
    ran_s: float
    passed: bool
    failed: bool  # neither passed nor failed: it runs, was cancelled or preempted
    fingerprint: str = ""
    category: str = ""
    p_transient: float | None = None  # of triage's own verdict; None where there is none


def labels(trials: Sequence[Trial]) -> dict[AttemptId, bool]:
    """What the attempts of one job, in order, prove of each other's failures: is it transient?

    Both proofs of one failure contradict each other; then neither counts.
    """
    proved: dict[AttemptId, bool] = {}
    for place, trial in enumerate(trials):
        if not trial.failed or not trial.fingerprint:
            continue
        later = trials[place + 1 :]
        transient = any(_got_past(trial, other) for other in later)
        deterministic = any(_failed_alike_elsewhere(trial, other) for other in later)
        if transient != deterministic:
            proved[trial.attempt] = transient
            if deterministic:
                proved |= {o.attempt: False for o in later if _failed_alike_elsewhere(trial, o)}
    return proved


def _got_past(failure: Trial, later: Trial) -> bool:
    if later.passed:
        return True
    if failure.fingerprint.startswith(UNNAMED):  # another last line is no other failure
        return False
    return later.fingerprint != failure.fingerprint and later.ran_s > max(
        failure.ran_s * PAST_THE_POINT, failure.ran_s + PAST_SLACK_S
    )


def _failed_alike_elsewhere(failure: Trial, later: Trial) -> bool:
    apart = abs(later.ran_s - failure.ran_s)
    at_the_same_point = apart <= max(SAME_SLACK_S, SAME_POINT * max(later.ran_s, failure.ran_s))
    return (
        later.failed
        and later.fingerprint == failure.fingerprint
        and failure.category not in OF_A_SERVICE
        and not later.nodes & failure.nodes
        and bool(later.nodes and failure.nodes)
        and at_the_same_point
    )
