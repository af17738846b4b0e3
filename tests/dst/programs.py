"""The programs and people around the service: they raise, annotate, register, answer, order; some of them badly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

from perdure.coordination.handlers.quota import USAGE
from perdure.coordination.messages import ExceptionRaised
from perdure.coordination.record import AnswerKind, ExceptionRecord
from perdure.coordination.ruling import OWNED
from perdure.coordination.wire import decode
from perdure.errors import PerdureError
from perdure.model.jobs import SAME_SUBMIT_S, JobState
from perdure.service.access.auth import Identity, Role
from perdure.service.core.messages import PERDURE, Ordered
from perdure.service.core.orders import job_order, node_order
from perdure.service.exceptions.coordinator import Answering, Enlisting
from perdure.service.exceptions.permissions import handler_id
from perdure.service.store.queries.exceptions import find_exceptions
from perdure.service.store.queries.jobs import latest_attempt
from perdure.service.store.queries.reader import Reader
from tests.copying import replace
from tests.dst.broken import must
from tests.dst.cluster import Manager
from tests.dst.laws import Auditor
from tests.dst.service import HOME, SCRATCH, Life

USERS = (Identity("ada", Role.VIEWER), Identity("bob", Role.VIEWER))
ROOT = Identity("root", Role.OPERATOR)

OF_JOBS = ("app.nan", "app.shape", "process.exit", "launcher.prolog", "launcher.permanent", "site.news")
OF_NODES = ("gpu.xid79", "node.hot")
OVER = "storage.quota.over"
DOWN, UP = "storage.down", "storage.restored"
OF_ALL = (DOWN, UP, "storage.quota", OVER, "network.down", "suspect.pair")
RESOURCES = (SCRATCH, HOME)

VERDICTS = (
    AnswerKind.HANDLED,
    AnswerKind.HANDLED,
    AnswerKind.ANNOTATED,
    AnswerKind.DECLINED,
    AnswerKind.DEFERRED,
    AnswerKind.REJECTED,
)


class Nature(StrEnum):
    """How a handler behaves."""

    GOOD = "good"
    SLOW = "slow"  # answers after its turn
    DEAD = "dead"  # registers, and is never heard of again
    DOUBLED = "doubled"  # two of one name: each answer comes twice
    LYING = "lying"  # answers out of turn, and for others


@dataclass(slots=True)
class Handler:
    name: str
    identity: Identity
    component: str
    types: tuple[str, ...]
    nature: Nature
    asked: list[str] = field(default_factory=list)  # of exceptions that it will answer late


def handlers(rng: Random) -> list[Handler]:
    """A few programs that take part in recoveries."""
    made = []
    for number in range(rng.randint(1, 4)):
        nature = rng.choice(tuple(Nature))
        identity = rng.choice((*USERS, ROOT))
        levels = ("job", "workflow") if identity is not ROOT else ("resource_manager", "job", "workflow", "scheduler")
        types = rng.choice((("",), ("job",), ("app", "process"), ("storage",), ("gpu", "node", "launcher")))
        made.append(Handler(handler_id(f"{nature}-{number}", identity), identity, rng.choice(levels), types, nature))
    return made


class Programs:
    """What they do in one step. Each step returns what it did in a few words, or "" where there was nothing to do."""

    def __init__(
        self,
        rng: Random,
        manager: Manager,
        auditor: Auditor,
        clock: Callable[[], float],
        reader: Reader,
        *,
        guarded: bool,
    ) -> None:
        self._rng, self._manager, self._auditor, self._clock = rng, manager, auditor, clock
        self._guarded = guarded
        self._handlers = handlers(rng)
        self._reader = reader
        self._count = 0
        self.refusals = 0
        self._said = []  # what was raised: values, by whom, ids

    # -- raising

    def raise_one(self, life: Life) -> str:
        rng = self._rng
        kind = rng.random()
        by = ROOT
        value: dict[str, Any] = {}
        if kind < 0.45:
            by, value = self._of_job()
        elif kind < 0.65:
            node = rng.choice(self._manager.node_names)
            value = {"type": rng.choice(OF_NODES), "subject": {"node": [node]}}
        else:
            value = {"type": rng.choice(OF_ALL), "subject": {"resource": rng.choice(RESOURCES)}}
        if not value:
            return ""
        if value["type"] == OVER and rng.random() < 0.7:
            value["annotations"] = [self._usage()]
        self._count += 1
        value |= {"id": f"x{self._count}", "severity": rng.randint(0, 7)}
        return f"{by.user} {value['type']}: {self._raise(life, value, by)}"

    def claim(self, life: Life) -> str:
        """Two users say the same of what all share, for a job of each; with as many annotations as there may be."""
        rng = self._rng
        live = [job for job in map(self._manager.job, self._manager.job_ids) if job.state is JobState.RUNNING]
        mine = {user: [job.job_id for job in live if job.user == user.user] for user in USERS}
        resource = rng.choice((SCRATCH, *RESOURCES))
        kind = UP if self._is_down(life, resource) and rng.random() < 0.5 else rng.choice(OF_ALL)
        said = []
        for user, job_ids in mine.items():
            if job_ids:
                notes = [{"time": self._clock(), "key": f"k{i}", "value": "x"} for i in range(rng.choice((0, 64)))]
                value = {"type": kind, "severity": 0, "subject": {"job": rng.choice(job_ids), "resource": resource}}
                self._count += 1
                said.append(self._raise(life, {**value, "id": f"x{self._count}", "annotations": notes}, user))
        return f"{kind} of {resource}: {said}" if said else ""

    def tell_again(self, life: Life) -> str:
        """Say what was said already, as a program does that has heard no answer."""
        if not self._said:
            return ""
        value, by, exception_id = self._rng.choice(self._said)
        before = self._auditor.folding.counted()
        (became,) = life.coordinator.raise_exceptions([value], by)
        if isinstance(became, PerdureError):
            self.refusals += 1
            return f"{exception_id}: refused, {became}"
        must(became.id == exception_id, "what is told again is one exception", exception_id, became.id)
        after = self._auditor.folding.counted()
        must(after == before, "what is told again brings nothing about", exception_id, before, after)
        return exception_id

    def notice(self, life: Life) -> str:
        """A hook tells of a node's fault, mostly more than once: that is the service's own word."""
        node, number = self._rng.choice(self._manager.node_names), self._rng.randint(1, 2)
        kind = OF_NODES[1]
        value = {"id": f"sim:{kind}:{node}:{number}", "type": kind, "subject": {"cluster": "sim", "node": [node]}}
        severity = self._rng.choice((1, 5, 5, 5))  # few are more than warnings
        record = replace(decode({**value, "severity": severity, "time": self._clock()}), detected_by=PERDURE)
        self._auditor.voices[kind, (node,)].add(ROOT)
        known = life.coordinator.chain().find(record.id) is not None
        before = self._auditor.folding.counted()
        life.engine.tell((ExceptionRaised(record),))
        after = self._auditor.folding.counted()
        must(not known or after == before, "what is told again brings nothing about", record.id, before, after)
        return record.id

    def outage(self, life: Life) -> str:
        """The site says that something that jobs share is down, or works again."""
        resource = self._rng.choice(RESOURCES)
        kind = UP if self._is_down(life, resource) else DOWN
        self._count += 1
        value = {"id": f"x{self._count}", "type": kind, "severity": 1, "subject": {"resource": resource}}
        return f"{kind}: {self._raise(life, value, ROOT)}"

    def _is_down(self, life: Life, resource: str) -> bool:
        return any(
            record.subject.resource == resource for record in life.engine.view().in_force() if record.is_hold_order
        )

    def clear_all(self, life: Life) -> None:
        """The site's all-clear for all that jobs share."""
        for resource in RESOURCES:
            self._count += 1
            value = {"id": f"x{self._count}", "type": UP, "subject": {"resource": resource}}
            self._raise(life, value, ROOT)

    def _raise(self, life: Life, value: Mapping[str, Any], by: Identity) -> str:
        subject = value["subject"]
        self._auditor.voices[value["type"], subject.get("resource") or tuple(subject.get("node", ()))].add(by)
        self._auditor.told_by[value["id"] if by is ROOT else f"{by.user}{OWNED}{value['id']}"].add(by)
        (became,) = life.coordinator.raise_exceptions([value], by)
        if isinstance(became, PerdureError):
            self.refusals += 1
            return f"refused, {became}"
        job_id = value["subject"].get("job", "")
        must(by is ROOT or self._manager.has_had(job_id, by.user), "each raises for his own jobs", by, job_id)
        self._auditor.raised[became.id] += 1
        self._auditor.folding.check_told(value, by, became)
        if became.id.endswith(value["id"]):
            self._said = [*self._said[-30:], (value, by, became.id)]
        return f"{value['id']} is {became.id} {became.state}"

    def _of_job(self) -> tuple[Identity, dict[str, Any]]:
        """About a job: mostly as it runs, sometimes of a start that is over."""
        rng, job_ids = self._rng, self._manager.job_ids
        if not job_ids:
            return ROOT, {}
        job_id = rng.choice(job_ids[-8:])
        job, attempts = self._manager.job(job_id), self._manager.attempts(job_id)
        by = next((u for u in USERS if u.user == job.user), ROOT) if rng.random() < 0.8 else rng.choice(USERS)
        subject: dict[str, Any] = {"job": job_id}
        kind = rng.choice((*OF_JOBS, OF_NODES[0], OF_NODES[0]))
        if attempts and rng.random() < (0.8 if kind == OF_NODES[0] else 0.3):
            subject["node"] = list(attempts[-1].nodes)
        value: dict[str, Any] = {"type": kind, "subject": subject}
        if attempts and rng.random() < 0.6:
            value["incarnation"] = rng.choice(attempts).id.incarnation
        return by, value

    def _usage(self) -> dict[str, Any]:
        jobs = self._manager.job_ids[-4:]
        used = {job_id: self._rng.randint(1, 50) for job_id in jobs}
        text = json.dumps({"limit": 60, "used": sum(used.values()), "by": used})
        return {"component": "operator", "time": self._clock(), "key": USAGE, "value": text}

    def lie(self, life: Life) -> str:
        """Say what cannot be: it must be refused, and must change nothing."""
        rng = self._rng
        before = life.engine.state
        value = {"id": "lie", "type": "process.exit", "subject": {"cluster": "sim", "resource": "x"}, "severity": 1}
        wrong = rng.choice((
            {"severity": 9}, {"type": "job.shape"}, {"type": "nonsense"}, {"verdicts": [{}]}, {"state": "handled"},
            {"subject": {"job": "no-such"}}, {"subject": {"cluster": "moon"}}, {"time": self._clock() + 9e5},
            {"version": 99}, {"subject": {"job": "1"}, "incarnation": 10**6},
        ))  # fmt: skip
        (became,) = life.coordinator.raise_exceptions([{**value, **wrong}], rng.choice(USERS))
        must(isinstance(became, PerdureError), "what cannot be is refused", wrong)
        must(life.engine.state.chain.open == before.chain.open, "what is refused changes nothing", wrong)
        self.refusals += 1
        return str(wrong)

    def forge(self, life: Life) -> str:
        """Speak in another's name, or take a name that another will need: it must be refused, and change nothing."""
        rng, chain = self._rng, life.coordinator.chain()
        by, value = self._of_job()
        if not value:
            return ""
        value["id"] = "forged"
        vouched = [{"component": "operator:root", "time": self._clock(), "key": "seen_by", "value": "n1"}]
        wrong = rng.choice((
            {"annotations": vouched}, {"id": f"sim/{value['subject']['job']}#1:job.failed"},
            {"id": "sim:node.unreachable:n1:0"}, {"outcome": "recovered"}, {"repeats": 5},
        ))  # fmt: skip
        (became,) = life.coordinator.raise_exceptions([{**value, **wrong}], by)
        must(isinstance(became, PerdureError), "nobody speaks in another's name", wrong)
        known = [*chain.open, *list(chain.ended)[-5:]]
        if known:
            self._forge_note(life, rng.choice(known), rng.choice(("seen_by", "clears")), by)
        after = life.coordinator.chain()
        must((after.open, after.ended) == (chain.open, chain.ended), "what is refused changes nothing", wrong)
        self.refusals += 1
        return f"{by.user} {wrong}"

    def _forge_note(self, life: Life, exception_id: str, key: str, by: Identity) -> None:
        try:
            life.coordinator.annotate(exception_id, key, "x", by)
        except PerdureError:
            return
        must(False, "nobody adds what decides", exception_id, key)

    def raise_stale(self, life: Life) -> str:
        """Speak for a start that a newer one has replaced, as a process does that slept meanwhile."""
        view = life.engine.view()
        old = [j for j in self._manager.job_ids if view.latest(j) > 1 and view.job(j) is not None]
        if not old:
            return ""
        job_id = self._rng.choice(old)
        before = life.engine.state.chain
        value = {"id": "stale", "type": "process.exit", "subject": {"job": job_id}, "severity": 1,
                 "incarnation": view.latest(job_id) - 1}  # fmt: skip
        (became,) = life.coordinator.raise_exceptions([value], ROOT)
        must(isinstance(became, PerdureError), "a stale incarnation is refused", value)
        after = life.engine.state.chain
        must((after.open, after.ended) == (before.open, before.ended), "a stale incarnation changes nothing", value)
        self.refusals += 1
        return f"of {job_id}"

    # -- annotating

    def annotate(self, life: Life) -> str:
        chain = life.coordinator.chain()
        known = [*chain.open, *list(chain.ended)[-5:]]
        if not known:
            return ""
        exception_id, by = self._rng.choice(known), self._rng.choice((*USERS, ROOT))
        self._count += 1
        key, value = "checkpoint", f"v{self._count}"
        if chain.find(exception_id).type == OVER and by is not ROOT:
            key, value = USAGE, self._usage()["value"]  # as only the site may say it: others would move their files
        try:
            life.coordinator.annotate(exception_id, key, value, by)
        except PerdureError as err:
            self.refusals += 1
            return f"{exception_id}: refused, {err}"
        self._auditor.annotated[exception_id].append(value)
        about = chain.find(exception_id)
        assert about is not None
        is_own = by is ROOT or not about.subject.job_id or self._is_about(about, by)
        must(is_own, "each writes on his own", by, exception_id)
        return f"{exception_id}: {value}"

    def _is_about(self, record: ExceptionRecord, by: Identity) -> bool:
        is_own = self._auditor.owner_of(record) == by.user
        job_id = record.subject.job_id
        late_s = record.time_s + SAME_SUBMIT_S  # told after another came, as far as times tell
        is_late = any(s.job.submit_s <= late_s for s in self._manager.later(job_id))
        is_unclear = is_late or self._auditor.retries.set_by_s or self._manager.may_be_mistaken(job_id)
        return bool(is_own or (is_unclear and self._manager.was_given_again(record.subject.job_id)))

    # -- reading

    def read(self, life: Life) -> str:
        """A user reads what the pages and the API show of exceptions: that is his own, and what concerns all."""
        by = self._rng.choice(USERS)
        shown = find_exceptions(self._reader, user=by.user, limit=200).items
        others = [r.id for r in shown if r.subject.job_id and not self._is_about(r, by)]
        must(not others, "each reads his own", by, others)
        chain = life.coordinator.chain()
        known = [r for r in (*chain.open.values(), *chain.ended.values()) if r.is_unanswered]
        mine = [r for r in known if not r.subject.job_id or self._is_about(r, by)]
        count = life.coordinator.count_open(by, len(known))
        must(count <= len(mine), "what is counted is his own", by, count, len(mine))
        return f"{by.user}: {len(shown)}"

    # -- handling

    def handle(self, life: Life) -> str:
        """One of the handlers does what it does."""
        handler = self._rng.choice(self._handlers)
        known = life.coordinator.chain().handlers.get(handler.name)
        if known is None or (handler.nature is not Nature.DEAD and known.until_s - self._clock() < 10.0):
            if known is None and handler.nature is Nature.DEAD and handler.asked:
                return ""  # dead for good
            handler.asked = handler.asked or ([""] if handler.nature is Nature.DEAD else [])
            return self._enlist(life, handler)
        if handler.nature is not Nature.DEAD and self._rng.random() < 0.03:
            return self._leave(life, handler)
        turns = life.coordinator.chain().turns
        mine = [exception_id for exception_id, turn in turns.items() if turn.handler == handler.name]
        match handler.nature:
            case Nature.DEAD:
                return ""
            case Nature.LYING:
                return self._answer_out_of_turn(life, handler, mine)
            case Nature.SLOW:
                late = [exception_id for exception_id in handler.asked if exception_id not in mine]
                handler.asked = [*dict.fromkeys((*handler.asked, *mine))][-8:]
                return self._answer(life, handler, late[0], known.component) if late else ""
        if not mine:
            return ""
        exception_id = self._rng.choice(mine)
        said = self._answer(life, handler, exception_id, known.component)
        if handler.nature is Nature.DOUBLED:
            said += " | " + self._answer(life, handler, exception_id, known.component)
        return said

    def _enlist(self, life: Life, handler: Handler) -> str:
        rng = self._rng
        wish = Enlisting(handler.component, handler.types, rng.choice((30.0, 120.0, 600.0)), rng.choice((5.0, 30.0)))
        self._auditor.enlisted.pop(handler.name, None)  # until it is acknowledged, either is right
        registration = life.coordinator.enlist(handler.name, wish, handler.identity)
        self._auditor.enlisted[handler.name] = registration.until_s
        return f"{handler.name} registers as {handler.component} for {handler.types} until {registration.until_s:.0f}"

    def _leave(self, life: Life, handler: Handler) -> str:
        self._auditor.enlisted.pop(handler.name, None)
        life.coordinator.dismiss(handler.name, handler.identity)
        return f"{handler.name} leaves"

    def _answer(self, life: Life, handler: Handler, exception_id: str, component: str) -> str:
        kind, now = self._rng.choice(VERDICTS), self._clock()
        until_s = now + self._rng.choice((3.0, 20.0, 500.0)) if kind is AnswerKind.DEFERRED else None
        notes = {"from": handler.name} if kind is AnswerKind.ANNOTATED else {}
        said = Answering(kind, f"{component} {handler.name}", notes, ("requeue",), until_s)
        return self._say(life, handler, handler.identity, exception_id, said)

    def _say(self, life: Life, handler: Handler, by: Identity, exception_id: str, said: Answering) -> str:
        try:
            life.coordinator.answer(exception_id, handler.name, said, by)
        except PerdureError as err:
            self.refusals += 1
            return f"{handler.name} {said.verdict} {exception_id}: refused, {err}"
        self._auditor.answered.append((exception_id, handler.name, str(said.verdict)))
        return f"{handler.name} {said.verdict} {exception_id}"

    def _answer_out_of_turn(self, life: Life, handler: Handler, mine: list[str]) -> str:
        """Claim what nobody asked it about, or in another's name."""
        chain = life.coordinator.chain()
        others = [exception_id for exception_id in chain.open if exception_id not in mine] or list(chain.ended)[-3:]
        if not others:
            return ""
        exception_id, by = self._rng.choice(others), self._rng.choice((*USERS, ROOT))
        before = len(self._auditor.answered)
        said = self._say(life, handler, by, exception_id, Answering(AnswerKind.HANDLED, "mine"))
        must(len(self._auditor.answered) == before, "who is not asked does not own", said)
        return said

    # -- people

    def order(self, life: Life) -> str:
        """A person asks for an action, as at the desk."""
        rng, engine = self._rng, life.engine
        kinds = ("hold", "release", "drain", "undrain") + (("retry",) if self._guarded else ())
        kind = rng.choice(kinds)
        try:
            if kind in ("drain", "undrain"):
                self._count += 1
                action = node_order(kind, rng.choice(self._manager.node_names), "a look", f"e{self._count}")
            else:
                jobs = [j for j in engine.state.known.jobs.values() if kind == "retry" or j.state.is_waiting]
                if not jobs:
                    return ""
                job = rng.choice(jobs)
                latest = latest_attempt(self._reader, job.job_id)  # that the service knows
                if kind == "retry" and (latest is None or job.state is JobState.CANCELLED):
                    return ""
                action = job_order(kind, job, latest)
        except PerdureError as err:
            return f"{kind}: refused, {err}"
        engine.absorb([Ordered(self._clock(), action, "root", "by hand")])
        key = engine.journal.latest_key(action)
        self._auditor.ordered.append((key, "root"))
        return key
