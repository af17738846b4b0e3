"""The command that starts a failed job away from where it failed, for a person to paste. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perdure.installation import program
from perdure.model.jobs import Attempt
from perdure.service.store.journal import ActionState
from perdure.service.store.queries.actions import ListedAction
from perdure.service.store.queries.jobs import DecidedException, JobDetail, JudgedAttempt
from perdure.triage.verdict import Bound, Label

RECOVERING = ("requeue", "exclude", "release")
UNDER_WAY = (ActionState.PLANNED, ActionState.STARTED, ActionState.DONE)
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
JOB_ID = re.compile(r"[0-9]{1,18}(?:[_+][0-9]{1,18})?", re.ASCII)


def command_elsewhere(found: JobDetail, actions: Iterable[ListedAction], backend: str) -> str:
    """What a person can paste so that a job runs away from the nodes of its latest attempt, which failed.

    "" where no other node would help, where Perdure or a person has put it back already, or where `backend` ("local",
    "slurm") has no such command.
    """
    job, judged = found.job, next(iter(found.attempts), None)
    nodes = _avoided(judged, found.exceptions) if judged is not None else ()
    if judged is None or not nodes or any(_recovers(row, judged.attempt) for row in actions):
        return ""
    if backend == "local":
        given = " ".join(f"--exclude {node}" for node in nodes)
        return f"{program()} submit {given} -- PROGRAM" if job.state.is_over else ""
    if backend != "slurm" or JOB_ID.fullmatch(job.job_id) is None:
        return ""
    if job.state.is_over:
        return f"sbatch --exclude={','.join(nodes)} SCRIPT"
    if not job.state.is_waiting or set(nodes) <= set(job.excluded):
        return ""
    known = [node for node in job.excluded if NODE_NAME.fullmatch(node)]
    every = ",".join(dict.fromkeys((*known, *nodes)))
    return f"scontrol update JobId={job.job_id} ExcNodeList={every}"  # which replaces what the list held


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
    return row.kind in RECOVERING and row.state in UNDER_WAY and row.created_s >= ended_s
