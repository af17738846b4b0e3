"""Exceptions of the past under another playbook: who would have owned what, and when. Pure.

What is replayed: the raisings, what registered programs answered and when, and the outcome of the retry decision on
failed attempts, as recorded. What cannot be: how many jobs waited then, so that a handler that holds jobs holds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from perdure.coordination.chain import advance
from perdure.coordination.chain_state import Chain
from perdure.coordination.handler_set import PlaybookHandlers
from perdure.coordination.messages import Answered, ExceptionRaised, HandlerEnlisted, Input, Ticked
from perdure.coordination.playbook import Playbook
from perdure.coordination.record import Component, ExceptionOutcome, ExceptionRecord, ExceptionState
from perdure.coordination.ruling import Registration, Ruling
from perdure.coordination.site import Resource
from perdure.model.actions import ActionKey
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job, JobState
from perdure.model.nodes import Node, NodeState

MAX_RECORDS = 100_000
FAR_S = 1e12
OF_ATTEMPTS = "job"  # the family of what the service itself reports of failed attempts


@dataclass(frozen=True, slots=True)
class Difference:
    """One exception under two playbooks."""

    id: str
    type: str
    old: str  # who owns it, how soon, by what
    new: str


def differences(records: Sequence[ExceptionRecord], old: Playbook, new: Playbook) -> list[Difference]:
    """Replay under both, and say where they part."""
    before, after = replay(records, old), replay(records, new)
    found = []
    for record in records:
        was, would = said(before.get(record.id)), said(after.get(record.id))
        if was != would:
            found.append(Difference(record.id, record.type, was, would))
    return found


def said(record: ExceptionRecord | None) -> str:
    """Who owns it, how soon, and by what, in one line."""
    if record is None:
        return "counted with an equal one"
    owning = record.owning
    if owning is None:
        return f"{record.state}: nobody"
    kinds = sorted({ActionKey.of(key).kind for key in owning.action_keys})
    by = f" ({owning.handler})" if owning.handler else ""
    acts = f", {', '.join(kinds)}" if kinds else ""
    return f"{owning.component}{by} after {owning.time_s - record.time_s:.0f} s{acts}: {owning.note}"


def replay(records: Iterable[ExceptionRecord], playbook: Playbook) -> dict[str, ExceptionRecord]:
    """How each would have ended, by id; one that is missing was folded into an equal one."""
    site = _Past(playbook)
    chain, final = Chain(), dict[str, ExceptionRecord]()
    for now, inputs in _story(records, playbook, site):
        site.now = now
        chain, _ = advance(chain, inputs, PlaybookHandlers(playbook, site, now), now)
        final.update(chain.ended)
        final.update(chain.open)
    return {name: record for name, record in final.items() if name in site.known}


def _story(records: Iterable[ExceptionRecord], playbook: Playbook, site: _Past) -> list[tuple[float, list[Input]]]:
    """All that came in, in the order of time; time passes at every deadline, and when anything may have run out."""
    steps: list[tuple[float, int, list[Input]]] = []
    for n, record in enumerate(records):
        site.known[record.id] = record
        plan = playbook.plan_for(record.type)
        deadline_s, lasts_s = (plan.deadline_s, plan.lasts_s) if plan else (300.0, 0.0)
        scope = plan.scope if plan else record.scope
        fresh = replace(
            record, scope=scope, verdicts=(), state=ExceptionState.RAISED, outcome=ExceptionOutcome.OPEN, repeats=0,
            budget=None,
            deadline_s=None,
        )  # fmt: skip
        outside = [answer for answer in record.verdicts if answer.handler]
        asked: list[Input] = [
            HandlerEnlisted(Registration(a.handler, a.component, (record.type,), "", FAR_S, answer_s=FAR_S))
            for a in outside
        ]
        own = record.type.partition(".")[0] == OF_ATTEMPTS
        steps.append((record.time_s, n, [*asked, ExceptionRaised(fresh, own=own)]))
        for a in outside:
            ruling = Ruling(a.kind, a.note, forbids=a.forbids, until_s=a.until_s)
            steps.append((a.time_s, n, [Answered(record.id, a.handler, ruling)]))
        steps += [(record.time_s + at_s, n, [Ticked()]) for at_s in (lasts_s, deadline_s, deadline_s + 1.0)]
    return [(now, inputs) for now, _, inputs in sorted(steps, key=lambda step: step[:2])]


@dataclass(slots=True)
class _Past:
    """A site of which nothing is known but what the records say: their nodes were up, their jobs ran."""

    playbook: Playbook
    known: dict[str, ExceptionRecord] = field(default_factory=dict)
    now: float = 0.0

    def job(self, job_id: str) -> Job | None:
        return Job("", job_id, "", "", JobState.RUNNING, 0.0)

    def owner_of(self, record: ExceptionRecord) -> str:
        job = self.job(record.subject.job_id)
        return job.user if job else ""

    def latest(self, job_id: str) -> int:  # noqa: ARG002
        return 0

    def node(self, name: str) -> Node | None:
        return Node(name, NodeState.UP)

    def waiting(self) -> Sequence[Job]:
        return ()

    def running(self) -> Sequence[Attempt]:
        return ()

    def resource(self, name: str) -> Resource:
        return self.playbook.resource(name)

    def is_of_attempt(self, record: ExceptionRecord) -> bool:
        return self.recovery(record) is not None

    def recovery(self, record: ExceptionRecord) -> tuple[Component, Ruling] | None:
        if record.type.partition(".")[0] != OF_ATTEMPTS:
            return None
        recorded = self.known.get(record.id)
        owning = recorded.owning if recorded else None
        if owning is None or owning.handler:
            return None
        return owning.component, Ruling(owning.kind, owning.note)

    def settle_on(self, record: ExceptionRecord) -> None:
        """What was decided then stands."""

    def failure_of(self, attempt: AttemptId) -> str:
        ended = (
            r.id for r in self.known.values()
            if r.type.partition(".")[0] == OF_ATTEMPTS and r.attempt == attempt and r.time_s <= self.now
        )  # fmt: skip
        return next(ended, "")

    def seeing(self, chain: Chain) -> _Past:  # noqa: ARG002
        return self

    def in_force(self) -> Sequence[ExceptionRecord]:
        return ()

    def open_about(self, resource: str) -> Sequence[str]:  # noqa: ARG002
        return ()
