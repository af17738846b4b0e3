"""What the controller asks to be written down, as rows of the journal's tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.coordination.chain_state import Chain
from perdure.coordination.messages import Refused
from perdure.coordination.record import ExceptionRecord
from perdure.model.actions import Action, NodeAction
from perdure.model.clean_text import clean
from perdure.model.events import (
    ActionEnded,
    AttemptEnded,
    AttemptStarted,
    JobChanged,
    JobGone,
    NodeChanged,
    NodeGone,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job
from perdure.model.nodes import Node
from perdure.retry.history import Fleet
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import (
    Act,
    Effect,
    ExceptionChanged,
    HandlerAsked,
    Journalled,
    Judge,
    Judged,
    Noted,
    Ordered,
    Study,
)
from perdure.service.store import codec
from perdure.service.store.codec import StoredEvent
from perdure.service.store.packed import pack

Row = dict[str, Any]

MOST_COUNT = 2**31 - 1
SPENT = "spent"
UNSEEN = "unseen"
MANAGER = "manager"
TROUBLE = "trouble/"  # and the node's name
BUDGET = "budget/"  # and its key


@dataclass(slots=True)
class Rows:
    """Rows to be written in one transaction, by what is to be done with them."""

    cluster: str
    events: list[Row] = field(default_factory=list)
    jobs: list[Row] = field(default_factory=list)
    gone_jobs: list[Row] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    verdicts: list[Row] = field(default_factory=list)
    nodes: list[Row] = field(default_factory=list)
    gone_nodes: list[Row] = field(default_factory=list)
    exceptions: list[Row] = field(default_factory=list)
    record: ExceptionRecord | None = None  # of which the last of these tells
    actions: list[tuple[Act, float]] = field(default_factory=list)  # with the instant of the decision
    cases: list[Row] = field(default_factory=list)
    closed_cases: list[Row] = field(default_factory=list)
    memory: list[Row] = field(default_factory=list)
    forgotten: list[Row] = field(default_factory=list)
    handlers: list[Row] = field(default_factory=list)
    left_handlers: list[Row] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.events, self.exceptions, self.actions, self.cases, self.closed_cases, self.memory,
                    self.forgotten, self.handlers, self.left_handlers))  # fmt: skip


def rows_of(effects: Iterable[Effect], before: ControllerState, after: ControllerState) -> Rows:
    """The rows for `effects`, and for what lies between the two states."""
    rows = Rows(after.cluster)
    now = 0.0
    for effect in effects:
        match effect:
            case Journalled(event=event):
                now = event.time_s
                _add_event(rows, event)
            case Noted():
                _add_failure(rows, effect)
            case Act():
                rows.actions.append((effect, now))
            case Judge() | Study() | Refused():
                pass
    _add_cases(rows, before, after)
    _add_memory(rows, before, after)
    _add_handlers(rows, before.chain, after.chain)
    return rows


def _add_event(rows: Rows, event: StoredEvent) -> None:
    job_id, payload = "", ""
    match event:
        case ExceptionChanged(record=record):
            text = codec.EXCEPTION.encode(record)
            rows.exceptions.append(exception_row(record, text))
            rows.record = record
            job_id, payload = record.subject.job_id, _payload(event, "record", text)
        case JobChanged(time_s=time_s, job=job):
            text = codec.JOB.encode(job)
            rows.jobs.append(job_row(job, time_s, text))
            job_id, payload = job.job_id, _payload(event, "job", text)
        case JobGone(job=job):
            rows.gone_jobs.append({"at_cluster": job.cluster, "at_job_id": clean(job.job_id)})
            job_id = job.job_id
        case AttemptStarted(attempt=attempt):
            text = codec.ATTEMPT.encode(attempt)
            rows.attempts.append(attempt_row(attempt, text))
            job_id, payload = attempt.id.job_id, _payload(event, "attempt", text)
        case AttemptEnded(attempt=attempt):
            rows.attempts.append(attempt_row(attempt, codec.ATTEMPT.encode(attempt)))
            job_id = attempt.id.job_id
        case NodeChanged(time_s=time_s, node=node):
            rows.nodes.append(node_row(rows.cluster, node, time_s))
        case NodeGone(node=name):
            rows.gone_nodes.append({"at_cluster": rows.cluster, "at_name": clean(name)})
        case Judged(attempt=of, verdict=verdict):
            rows.verdicts.append({**_subject(of, "at_"), "verdict": codec.VERDICT.encode(verdict)})
            job_id = of.job_id
        case ActionEnded(attempt=about):
            job_id = about.job_id if about else ""
        case Ordered(action=action):
            about = subject_of(action)
            job_id = about.job_id if about else ""
        case HandlerAsked(record=record):
            job_id = record.subject.job_id
    rows.events.append(
        {
            "key": clean(event.key),
            "time_s": event.time_s,
            "cluster": rows.cluster,
            "kind": event.kind,
            "job_id": clean(job_id),
            "payload": pack(payload or codec.encode(event)),
        }
    )


def _payload(event: ExceptionChanged | JobChanged | AttemptStarted, name: str, text: str) -> str:
    """What `codec.encode` makes of an event that holds one value besides its instant, whose `text` is there already."""
    return f'{{"time_s":{event.time_s!r},"{name}":{text},"kind":"{event.kind}"}}'


def _count(number: int) -> int:
    """A number as every database takes it: what jobs ask for may be any."""
    return max(0, min(number, MOST_COUNT))


def job_row(job: Job, changed_s: float, payload: str) -> Row:
    return {
        "cluster": job.cluster,
        "job_id": clean(job.job_id),
        "name": clean(job.name),
        "user": clean(job.user),
        "partition": clean(job.partition),
        "state": job.state.value,
        "gpus": _count(job.gpus),
        "node_count": _count(job.node_count),
        "submit_s": job.submit_s,
        "changed_s": changed_s,
        "story_s": 0.0,
        "story_known_s": 0.0,
        "chain": clean(job.link.chain) if job.link is not None else "",
        "payload": payload,
    }


def attempt_row(attempt: Attempt, payload: str) -> Row:
    return {
        **_subject(attempt.id),
        "state": attempt.state.value,
        "start_s": attempt.start_s,
        "end_s": attempt.end_s,
        "gpus": _count(attempt.gpus),
        "payload": payload,
    }


def node_row(cluster: str, node: Node, changed_s: float) -> Row:
    return {
        "cluster": cluster,
        "name": clean(node.name),
        "state": node.state.value,
        "changed_s": changed_s,
        "payload": codec.NODE.encode(node),
    }


def exception_row(record: ExceptionRecord, payload: str) -> Row:
    """The row of an exception, without what is known of failures alone."""
    owner = record.owner
    return {
        "id": clean(record.id),
        "cluster": record.subject.cluster,
        "job_id": clean(record.subject.job_id),
        "incarnation": record.incarnation,
        "time_s": record.time_s,
        "type": clean(record.type),
        "state": record.standing,
        "owner": str(owner) if owner else "",
        "said": len(record.verdicts),
        "payload": payload,
        "of_attempt": False,
        "is_open": record.is_unanswered or record.is_in_force,
    }


def _add_failure(rows: Rows, noted: Noted) -> None:
    """In the place of the row that the event of it has just made, which says less."""
    row = rows.exceptions.pop() if rows.record is noted.record else None
    rows.exceptions.append(failure_row(noted, row))
    rows.record = None


def failure_row(noted: Noted, row: Row | None = None) -> Row:
    """`row` is that of its exception, where it is there already."""
    failure, decision, verdict = noted.failure, noted.failure.decision, noted.failure.verdict
    gpu_hours = failure.attempt.gpu_hours
    return {
        **(row or exception_row(noted.record, codec.EXCEPTION.encode(noted.record))),
        "of_attempt": True,
        "decision": decision.kind.value if decision else "",
        "reason": clean(decision.reason) if decision else "",
        "wasted_gpu_h": verdict.lost_gpu_hours(gpu_hours) if verdict else gpu_hours,
        "saved_gpu_h": decision.saved_gpu_h(failure.attempt) if decision else 0.0,
        "limit_gpu_h": decision.limit_cost_gpu_h if decision else 0.0,
        "limited": bool(decision and decision.limit),
        "decided": codec.DECISION.encode(decision) if decision else None,
    }


def action_row(act: Act, key: str, state: str, created_s: float, cluster: str) -> Row:
    action = act.action
    about = subject_of(action)
    return {
        "key": key,
        "cluster": cluster,
        "kind": action.kind,
        "job_id": clean(about.job_id) if about else "",
        "incarnation": about.incarnation if about else 0,
        "node": clean(action.node) if isinstance(action, NodeAction) else "",
        "exception_id": clean(act.exception_id),
        "state": state,
        "by": clean(act.by),
        "reason": clean(act.reason),
        "detail": "",
        "created_s": created_s,
        "expires_s": act.expires_s,
        "payload": codec.ACTION.encode(action),
    }


def subject_of(action: Action) -> AttemptId | None:
    """The attempt that an action is about; None for a node's."""
    return None if isinstance(action, NodeAction) else action.attempt


def _subject(attempt: AttemptId, prefix: str = "") -> Row:
    return {
        f"{prefix}cluster": attempt.cluster,
        f"{prefix}job_id": clean(attempt.job_id),
        f"{prefix}incarnation": attempt.incarnation,
    }


def _add_cases(rows: Rows, before: ControllerState, after: ControllerState) -> None:
    """Cases are values: one that is the same object has not changed."""
    if before.cases is after.cases:
        return
    old, new = before.cases, after.cases
    rows.cases += [
        {"cluster": rows.cluster, "job_id": clean(job_id), "payload": codec.CASE.encode(case)}
        for job_id, case in new.items()
        if old.get(job_id) is not case
    ]
    rows.closed_cases += [{"at_cluster": rows.cluster, "at_job_id": clean(j)} for j in old.keys() - new.keys()]


def _add_handlers(rows: Rows, before: Chain, after: Chain) -> None:
    old, new = before.handlers, after.handlers
    if not old and not new:
        return
    rows.handlers += [
        {"cluster": rows.cluster, "id": clean(handler), "payload": codec.REGISTRATION.encode(registration)}
        for handler, registration in new.items()
        if old.get(handler) is not registration
    ]
    rows.left_handlers += [{"at_cluster": rows.cluster, "at_id": clean(handler)} for handler in old.keys() - new.keys()]


def _add_memory(rows: Rows, before: ControllerState, after: ControllerState) -> None:
    if before.fleet is not after.fleet:
        _add_fleet(rows, before.fleet, after.fleet)
    if before.known.unseen != after.known.unseen:
        remember(rows, UNSEEN, codec.UNSEEN.encode(dict(after.known.unseen)))
    if before.chain is not after.chain:
        _add_budgets(rows, before.chain.spent, after.chain.spent)


def _add_budgets(rows: Rows, old: Mapping[str, tuple[float, ...]], new: Mapping[str, tuple[float, ...]]) -> None:
    for key, spent in new.items():
        if old.get(key) is not spent:
            remember(rows, BUDGET + clean(key), codec.INSTANTS.encode(spent))
    for key in old.keys() - new.keys():
        rows.forgotten.append({"at_cluster": rows.cluster, "at_name": BUDGET + clean(key)})


def _add_fleet(rows: Rows, old: Fleet, new: Fleet) -> None:
    """Troubles go by node: one failure must not rewrite what is known of a thousand others."""
    if old.spent is not new.spent:
        remember(rows, SPENT, codec.SPENT.encode(new.spent))
    if old.troubles is new.troubles:
        return
    for node, troubles in new.troubles.items():
        if old.troubles.get(node) != troubles:
            remember(rows, TROUBLE + clean(node), codec.TROUBLES.encode(troubles))
    for node in old.troubles.keys() - new.troubles.keys():
        rows.forgotten.append({"at_cluster": rows.cluster, "at_name": TROUBLE + clean(node)})


def remember(rows: Rows, name: str, payload: str) -> None:
    """Write down what is remembered under a name, over what was remembered there before."""
    rows.memory.append({"cluster": rows.cluster, "name": name, "payload": payload})
