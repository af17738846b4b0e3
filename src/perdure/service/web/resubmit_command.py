"""The command that starts a failed job away from where it failed, for a person to paste. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.backends.kind import NODE_NAME
from perdure.backends.registry import BACKENDS
from perdure.model.jobs import Attempt
from perdure.service.store.journal import ActionState
from perdure.service.store.queries.actions import ListedAction
from perdure.service.store.queries.jobs import DecidedException, JobDetail, JudgedAttempt
from perdure.triage.verdict import Bound, Label

UNDER_WAY = (ActionState.PLANNED, ActionState.STARTED, ActionState.DONE)


def command_elsewhere(found: JobDetail, actions: Iterable[ListedAction], backend: str) -> str:
    """What a person can paste so that a job runs away from the nodes of its latest attempt, which failed.

    "" where no other node would help, where Perdure or a person has put it back already, or where the backend
    of that kind has no such command.
    """
    job, judged = found.job, next(iter(found.attempts), None)
    nodes = _avoided(judged, found.exceptions) if judged is not None else ()
    if judged is None or not nodes or any(_recovers(row, judged.attempt) for row in actions):
        return ""
    return BACKENDS[backend].command_elsewhere(job, nodes) if backend in BACKENDS else ""


def _avoided(judged: JudgedAttempt, exceptions: Iterable[DecidedException]) -> Sequence[str]:
    """The nodes that a retry must avoid; also of one that was worth it and that a limit refused."""
    attempt, verdict = judged.attempt, judged.verdict
    own = (row for row in exceptions if row.of_attempt and row.record.incarnation == attempt.id.incarnation)
    decision = next((row.decided for row in own if row.decided is not None), None)
    if decision is None or verdict is None or not attempt.state.is_failure:
        return ()
    named: Sequence[str] = decision.exclude
    if not decision.retries and decision.limit and verdict.label is Label.TRANSIENT and verdict.bound is Bound.NODE:
        named = attempt.failed_nodes or attempt.nodes
    return [node for node in named if NODE_NAME.fullmatch(node)]


def _recovers(row: ListedAction, attempt: Attempt) -> bool:
    ended_s = attempt.end_s or attempt.start_s
    return row.action.recovers and row.state in UNDER_WAY and row.created_s >= ended_s
