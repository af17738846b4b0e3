"""The chain: each exception is offered to one handler after the other until one owns it. Pure.

``advance(chain, inputs, handlers, now) -> chain, effects``. At every level (`record.Component`, in the order of the
scope) programs that registered for the type are asked first, one at a time and each for a limited time, then
Perdure's own handler of that level. Whoever hands on may annotate; whoever handles owns, and its actions come with
its verdict. At the deadline, and at the end of the chain, the default handler of the failure's type acts. Equal
faults within a window are one exception. All that the chain knows can be read back from the records and the
registrations.

What always holds: at most one verdict is HANDLED; no action without the verdict that owns it; annotations and verdicts
are only appended; what is about an incarnation that is gone changes nothing; every exception ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import islice, takewhile
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.coordination.messages import (
    Annotated,
    Answered,
    Asked,
    Changed,
    Closed,
    Effect,
    ExceptionRaised,
    Failed,
    HandlerEnlisted,
    Input,
    Left,
    LetGo,
    ReadBack,
    Refused,
    Settled,
    Ticked,
)
from perdure.coordination.record import (
    READ_BACK,
    RETURNED,
    Annotation,
    Answer,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Scope,
    Sighting,
)
from perdure.coordination.ruling import Registration, Ruling
from perdure.coordination.source import Source
from perdure.model.actions import Action, Hold
from perdure.model.identity import AttemptId

MAX_OPEN = 10_000
MAX_OF_GUESTS = MAX_OPEN // 2  # so many of these may be users'
MAX_OF_ONE_GUEST = 200
MAX_PASSED_ON = 10  # at a time, by a handler that is gone or does not answer: each is a decision
MAX_ENDED = 2_000  # kept to fold equal faults into, the latest
MAX_HANDLERS = 1_000
MAX_HANDLERS_OF_ONE_GUEST = 16
MAX_BUDGETS = 10_000
MAX_SPENT, SPENT_S = 1_000, 30 * 86400.0  # recoveries that are remembered of one budget, and how long
MAX_ANNOTATIONS = 64
MAX_ANNOTATIONS_OF_GUESTS = MAX_ANNOTATIONS // 2
MAX_DEPTH = 4  # of exceptions that follow from exceptions
FRESH_S = 10.0  # what was read back of a node is believed so long
MAX_SOURCES = 8  # users that are kept as sources of one fault


class HandlerSet(Protocol):
    """What the chain asks the site: its own handlers, its plans, and the standing of jobs."""

    def levels(self, record: ExceptionRecord) -> Collection[Component]:
        """Those in which Perdure has a handler of its own for this."""

    def rule(self, record: ExceptionRecord, component: Component, chain: Chain) -> Ruling:
        """The verdict of Perdure's own handler at one of these levels."""

    def fall_back(self, record: ExceptionRecord, chain: Chain) -> Ruling:
        """The verdict of the default handler, where nobody took it in time."""

    def deadline_s(self, record: ExceptionRecord) -> float:
        """Seconds from the raising on that the chain has."""

    def window_s(self, record: ExceptionRecord) -> float:
        """How long equal faults are one exception."""

    def is_stale(self, record: ExceptionRecord) -> bool:
        """Whether it is about an incarnation that a newer one has replaced, or a job that is over."""

    def owner_of(self, record: ExceptionRecord) -> str:
        """The user whose job it is about; "" where it is about none."""


class Turn(Struct, frozen=True):
    """Whom the chain waits for; `handler` "" is Perdure's own, which has put it off."""

    component: Component
    handler: str
    until_s: float
    note: str = ""  # why it is put off


class Chain(Struct, frozen=True):
    """All exceptions on their way and those that ended recently, and who may be asked. Never changed in place."""

    open: Mapping[str, ExceptionRecord] = field(default_factory=dict)
    ended: Mapping[str, ExceptionRecord] = field(default_factory=dict)  # oldest first, at most `MAX_ENDED`
    turns: Mapping[str, Turn] = field(default_factory=dict)  # by exception id
    handlers: Mapping[str, Registration] = field(default_factory=dict)
    equals: Mapping[tuple[object, ...], str] = field(default_factory=dict)  # what is being folded into which exception
    spent: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # when each budget was charged, oldest first

    def find(self, exception_id: str) -> ExceptionRecord | None:
        return self.open.get(exception_id) or self.ended.get(exception_id)


def advance(chain: Chain, inputs: Iterable[Input], handlers: HandlerSet, now: float) -> tuple[Chain, list[Effect]]:
    """Take in what came, in order: the chain after it, and what is to be written, asked and done.

    Where nothing came of it, the chain is the same object as before.
    """
    draft = _Draft(chain, handlers, now)
    for given in inputs:
        draft.take(given)
    return draft.done()


def restored(
    records: Iterable[ExceptionRecord], handlers: Iterable[Registration], spent: Mapping[str, tuple[float, ...]]
) -> Chain:
    """The chain as a service left it: of its records, oldest first, the next `Ticked` goes on with the open ones."""
    opened: dict[str, ExceptionRecord] = {}
    ended: dict[str, ExceptionRecord] = {}
    equals: dict[tuple[object, ...], str] = {}
    for record in records:
        (ended if record.state.is_over else opened)[record.id] = record
        equals[equal_of(record)] = record.id
    return Chain(open=opened, ended=ended, handlers={h.id: h for h in handlers}, equals=equals, spent=spent)


def equal_of(record: ExceptionRecord) -> tuple[object, ...]:
    """Faults that agree in this are one: ranks and GPUs of one start, and all users of one shared resource."""
    kind, is_over, about = record.type, record.is_all_clear, record.subject
    if record.scope is Scope.GLOBAL:
        return kind, is_over, about.cluster, about.resource, about.nodes if not about.resource else ()
    return kind, is_over, about.cluster, about.job_id, record.incarnation, about.nodes, about.resource


def open_equal(chain: Chain, record: ExceptionRecord) -> ExceptionRecord | None:
    """An equal fault that the site has told of, and that is on its way or a brake, whatever users have said since."""
    equal, brakes = equal_of(record), (ended for ended in chain.ended.values() if ended.is_brake)
    of_the_site = (known for known in (*chain.open.values(), *brakes) if not is_of_a_guest(known))
    return next((known for known in of_the_site if equal_of(known) == equal), None)


def is_same(known: ExceptionRecord, again: ExceptionRecord) -> bool:
    """Whether one of the same id is told again, or another bears its id."""
    return (known.type, known.subject) == (again.type, again.subject)


def taken(exception_id: str) -> tuple[str, str]:
    """What to say of an id that another exception bears, and how that is fixed."""
    return f"the id {exception_id} is taken by another exception", "Leave the id out, or make a new one"


def _seen_again(known: ExceptionRecord, again: ExceptionRecord, now: float) -> ExceptionRecord:
    """A second source of one fault is worth knowing: who it is, and what it has to say."""
    is_one_more = is_of_a_guest(again) and len(known.sources) > MAX_SOURCES
    if again.detected_by in known.sources or is_one_more:
        return known
    seen = (*known.seen_by, Sighting(again.detected_by, now, again.origin.host))
    room = MAX_ANNOTATIONS_OF_GUESTS if is_of_a_guest(again) else MAX_ANNOTATIONS
    more = again.annotations[: max(0, room - len(known.annotations))]
    return replace(known, seen_by=seen, annotations=(*known.annotations, *more))


def is_of_a_guest(record: ExceptionRecord) -> bool:
    """Whether a user raised it, and neither the service itself nor an operator."""
    return not Source.of(record.detected_by).is_of_the_site


class _Draft:
    """One batch of inputs at work on copies of the chain's maps."""

    def __init__(self, chain: Chain, handlers: HandlerSet, now: float) -> None:
        self._before, self._own_handlers, self._now = chain, handlers, now
        self._open, self._ended, self._turns = dict(chain.open), dict(chain.ended), dict(chain.turns)
        self._handlers, self._equals, self._spent = dict(chain.handlers), dict(chain.equals), dict(chain.spent)
        self._chain = Chain(self._open, self._ended, self._turns, self._handlers, self._equals, self._spent)
        self._changed: dict[str, ExceptionRecord] = {}
        self._actions: dict[str, tuple[Action, ...]] = {}  # by exception
        self._effects: list[Effect] = []
        self._folded: defaultdict[str, int] = defaultdict(int)
        self._let_go: set[LetGo] = set()
        self._sources: Counter[str] | None = None  # counted where it is asked for
        self._given: Input = Ticked()

    def done(self) -> tuple[Chain, list[Effect]]:
        self._count_folded()
        self._write_let_go()
        changed = [Changed(record, self._actions.get(record.id, ())) for record in self._changed.values()]
        for exception_id in self._surplus():
            equal = equal_of(self._ended.pop(exception_id))
            if self._equals.get(equal) == exception_id:
                del self._equals[equal]
        return self._before if self._is_idle() else self._chain, [*changed, *self._effects]

    def _is_idle(self) -> bool:
        """Whether all is as it was: most ticks change nothing."""
        if self._changed:
            return False
        return self._turns == self._before.turns and self._handlers == self._before.handlers

    def _surplus(self) -> list[str]:
        """The oldest that ended; those that hold jobs back are kept until they let go."""
        too_many = len(self._ended) - MAX_ENDED
        if too_many <= 0:
            return []
        return list(islice((i for i, record in self._ended.items() if not record.is_in_force), too_many))

    def take(self, given: Input) -> None:
        self._given = given
        match given:
            case ExceptionRaised(record=record, own=own, guest=guest):
                self._raise(record, 0, own=own, guest=guest)
            case Answered():
                self._answer(given)
            case Annotated():
                self._annotate(given.exception_id, (given.annotation,))
            case HandlerEnlisted(registration=registration):
                self._enlist(registration)
            case Left(handler=handler):
                self._leave(handler)
            case Failed():
                self._escalate(given)
            case ReadBack():
                self._read_back(given)
            case Settled(exception_id=exception_id, outcome=outcome, note=note):
                self._settle(exception_id, outcome, note)
            case Closed():
                self._close(given)
            case LetGo():
                self._let_go.add(given)
            case Ticked():
                self._tick()

    # -- raising

    def _raise(self, record: ExceptionRecord, depth: int, *, own: bool = False, guest: bool = False) -> None:
        known = self._find(record.id)
        if known is not None:
            self._raise_again(known, record)
            return
        equal = equal_of(record)
        if not own:
            if equal in self._equals and self._fold(record, equal):
                return
            if full := self._full(record, guest=guest):
                self._refuse(full, "Answer some, or wait for their deadlines")
                return
        deadline_s = self._now + self._own_handlers.deadline_s(record)
        if record.deadline_s is not None:
            deadline_s = min(deadline_s, max(record.deadline_s, self._now))
        record = replace(record, deadline_s=deadline_s, state=ExceptionState.IN_CHAIN)
        self._equals[equal] = record.id
        self._put(record)
        self._walk(record, depth)

    def _find(self, exception_id: str) -> ExceptionRecord | None:
        return self._open.get(exception_id) or self._ended.get(exception_id)

    def _raise_again(self, known: ExceptionRecord, again: ExceptionRecord) -> None:
        """Told twice, by one source or by two; or an id that is taken."""
        if not is_same(known, again):
            self._refuse(*taken(again.id))
        else:
            self._note_source(known, again)

    def _note_source(self, known: ExceptionRecord, again: ExceptionRecord) -> None:
        """Write a second source down; whoever waited for one is asked again."""
        seen = _seen_again(known, again, self._now)
        if seen is known:
            return
        self._put(seen)
        turn = self._turns.get(known.id)
        if turn is not None and not turn.handler:
            self._walk(seen)

    def _full(self, record: ExceptionRecord, *, guest: bool) -> str:
        """Why no further exception can be taken in; "" where one can."""
        n_open, source = len(self._open), record.detected_by
        if guest and self._open_of()[source] >= MAX_OF_ONE_GUEST:
            return f"{MAX_OF_ONE_GUEST} exceptions of {source} are open"
        if n_open >= (MAX_OF_GUESTS if guest else MAX_OPEN):
            return f"{n_open} exceptions are open"
        return ""

    def _open_of(self) -> Counter[str]:
        """How many exceptions are open, by who raised them."""
        if self._sources is None:
            self._sources = Counter(record.detected_by for record in self._open.values())
        return self._sources

    def _fold(self, record: ExceptionRecord, equal: tuple[object, ...]) -> bool:
        """Count an equal fault with the one that it would be folded into, if that is known still and says as much.

        What the site says is an exception of its own, whatever a user said before; that is over with it.
        """
        known = self._find(self._equals[equal])
        if known is not None and is_of_a_guest(known) and not is_of_a_guest(record):
            if known.id in self._open:
                said = Answer(Component.SCHEDULER, AnswerKind.ANNOTATED, self._now, f"the site says so, as {record.id}")
                self._end(
                    replace(known.with_answer(said), state=ExceptionState.EXPIRED, outcome=ExceptionOutcome.WITHDRAWN)
                )
            known = open_equal(self._chain, record)
        if known is None or not self._covers(known, record):
            return False
        self._folded[known.id] += 1
        self._note_source(known, record)
        return True

    def _covers(self, known: ExceptionRecord, again: ExceptionRecord) -> bool:
        """Whether `again` is nothing new: no worse than what is known, and that is being seen to, or was recently.

        What nobody would act on when one source said it, is a new matter when another does; so is a fault that comes
        back after it was fixed.
        """
        if again.severity < known.severity:
            return False
        if known.id in self._open or known.is_brake:
            return True
        ended_s = known.verdicts[-1].time_s if known.verdicts else known.time_s
        if self._now - ended_s > self._own_handlers.window_s(known):
            return False
        match known.state:
            case ExceptionState.HANDLED:
                if known.read_back_s is not None and self._now - known.read_back_s > FRESH_S:
                    return False  # somebody may have returned the node since: it is looked at again
                return known.outcome in (ExceptionOutcome.OPEN, ExceptionOutcome.STOPPED) and not self._is_overtaken(
                    known, ended_s
                )
            case ExceptionState.ESCALATED:
                return again.detected_by in known.sources
            case _:
                return self._own_handlers.is_stale(again)

    def _is_overtaken(self, known: ExceptionRecord, ended_s: float) -> bool:
        """Whether its resource went down since: an all-clear from before does not speak of that."""
        resource = known.subject.resource
        if not resource:
            return False
        since = takewhile(lambda record: record.id != known.id, reversed(self._ended.values()))
        braked = any(record.is_brake and record.subject.resource == resource for record in since)
        return braked or any(r.subject.resource == resource and r.time_s >= ended_s for r in self._open.values())

    def _count_folded(self) -> None:
        """A storm is counted once a batch: a record is not made again for each of a thousand equal faults."""
        for exception_id, times in self._folded.items():
            known = self._open.get(exception_id) or self._ended[exception_id]
            self._put(replace(known, repeats=known.repeats + times))

    # -- the walk

    def _walk(self, record: ExceptionRecord, depth: int = 0) -> None:
        """Ask on until somebody owns it, must be waited for, or nobody is left."""
        self._turns.pop(record.id, None)
        if self._own_handlers.is_stale(record):
            self._end(replace(record, state=ExceptionState.EXPIRED, outcome=ExceptionOutcome.WITHDRAWN))
            return
        levels = self._own_handlers.levels(record)
        if (levels or self._handlers) and not self._due(record):
            ruled = {a.component for a in record.verdicts if not a.handler and a.kind is not AnswerKind.DEFERRED}
            for component in record.scope.order:
                if self._handlers and self._must_wait(record, component):
                    return
                if component in levels and component not in ruled:
                    record, is_over = self._rule(record, component, depth)
                    if is_over:
                        return
        self._fall_back(record, depth)

    def _due(self, record: ExceptionRecord) -> bool:
        return record.deadline_s is not None and self._now >= record.deadline_s

    def _must_wait(self, record: ExceptionRecord, component: Component) -> bool:
        """Ask the next registered handler of this level, if there is one left."""
        owner = self._own_handlers.owner_of(record)
        last = {a.handler: a for a in record.verdicts if a.component is component and a.handler}
        for handler in sorted(self._handlers):
            registration = self._handlers[handler]
            if registration.component is not component or registration.until_s <= self._now:
                continue
            if handler in last and not self._is_put_off(last[handler]):
                continue
            if not registration.hears(record, owner):
                continue
            if handler in last:
                self._wait(record, Turn(component, handler, last[handler].until_s or self._now))
            else:
                self._ask(record, registration)
            return True
        return False

    def _is_put_off(self, answer: Answer) -> bool:
        return answer.kind is AnswerKind.DEFERRED and (answer.until_s or 0.0) > self._now

    def _ask(self, record: ExceptionRecord, registration: Registration) -> None:
        until_s = min(self._now + registration.answer_s, registration.until_s)
        self._wait(record, Turn(registration.component, registration.id, until_s))
        self._effects.append(Asked(record, registration.id, self._turns[record.id].until_s))

    def _wait(self, record: ExceptionRecord, turn: Turn) -> None:
        until_s = turn.until_s if record.deadline_s is None else min(turn.until_s, record.deadline_s)
        self._turns[record.id] = replace(turn, until_s=until_s)
        self._put(record)

    def _rule(self, record: ExceptionRecord, component: Component, depth: int) -> tuple[ExceptionRecord, bool]:
        """Ask Perdure's own handler of a level; True where the walk is over for now."""
        ruling = self._own_handlers.rule(record, component, self._chain)
        if ruling.kind is AnswerKind.DEFERRED:
            self._wait(record, Turn(component, "", ruling.until_s or self._now, ruling.note))
            return record, True
        return self._ruled(record, ruling, component, "", depth)

    def _fall_back(self, record: ExceptionRecord, depth: int) -> None:
        ruling = self._own_handlers.fall_back(record, self._chain)
        if ruling.kind is AnswerKind.HANDLED:
            self._ruled(record, ruling, Component.SCHEDULER, "", depth)
            return
        record = self._with(record, ruling.annotations)
        answer = ruling.answer(Component.SCHEDULER, self._now)
        self._end(replace(record.with_answer(answer), state=ExceptionState.ESCALATED))

    def _ruled(
        self, record: ExceptionRecord, ruling: Ruling, component: Component, handler: str, depth: int
    ) -> tuple[ExceptionRecord, bool]:
        """Write a verdict down; True where it ends the chain."""
        record = self._with(record, ruling.annotations).with_answer(ruling.answer(component, self._now, handler))
        is_over = ruling.kind is AnswerKind.HANDLED
        if is_over:
            if ruling.ends_job or ruling.budget is not None:
                outcome = ExceptionOutcome.STOPPED if ruling.ends_job else record.outcome
                record = replace(record, outcome=outcome, budget=ruling.budget or record.budget)
            if ruling.charges:
                self._charge(ruling.charges)
            self._end(record, ruling.actions)
            for exception_id in ruling.clears:
                self._clear(exception_id)
        else:
            self._put(record)
        if depth < MAX_DEPTH:
            for child in ruling.children:
                self._raise(replace(child, cause=record.id), depth + 1, own=True)
        return record, is_over

    def _charge(self, budgets: tuple[str, ...]) -> None:
        for key in budgets:
            recent = [at_s for at_s in self._spent.get(key, ()) if at_s > self._now - SPENT_S]
            self._spent[key] = (*recent[-MAX_SPENT + 1 :], self._now)
        while len(self._spent) > MAX_BUDGETS:
            del self._spent[min(self._spent, key=lambda key: self._spent[key][-1])]

    # -- what handlers say

    def _answer(self, given: Answered) -> None:
        record, turn = self._open.get(given.exception_id), self._turns.get(given.exception_id)
        registration = self._handlers.get(given.handler)
        if record is None:
            ended = self._ended.get(given.exception_id)
            said = f"it is {ended.standing} already" if ended else "no such exception is open"
            self._refuse(said, "See `perdure events` for those that are open")
            return
        if registration is None or registration.until_s <= self._now:
            self._refuse(f"the lease of {given.handler} has run out", "Register again")
            return
        if turn is None or turn.handler != given.handler:
            self._refuse(f"it is not the turn of {given.handler}", "Answer once, when asked")
            return
        ruling = given.ruling
        if ruling.kind is AnswerKind.DEFERRED:
            most_s = record.deadline_s if record.deadline_s is not None else self._now
            ruling = replace(ruling, until_s=min(ruling.until_s or self._now, most_s))
        record, is_over = self._ruled(record, ruling, registration.component, given.handler, 0)
        if not is_over:
            self._walk(record)

    def _annotate(self, exception_id: str, annotations: tuple[Annotation, ...]) -> None:
        record = self._open.get(exception_id) or self._ended.get(exception_id)
        if record is None:
            self._refuse("no such exception is known", "See `perdure events` for those that are")
        elif len(record.annotations) + len(annotations) > self._room(annotations):
            self._refuse(f"it has {len(record.annotations)} annotations", "Put the rest into a file")
        else:
            self._put(self._with(record, annotations))

    def _room(self, annotations: tuple[Annotation, ...]) -> int:
        """Users leave room for what the site and handlers have to say."""
        of_the_site = all(Source.of(a.component).is_of_the_site for a in annotations)
        return MAX_ANNOTATIONS if of_the_site else MAX_ANNOTATIONS_OF_GUESTS

    def _with(self, record: ExceptionRecord, annotations: tuple[Annotation, ...]) -> ExceptionRecord:
        room = MAX_ANNOTATIONS - len(record.annotations)
        return replace(record, annotations=(*record.annotations, *annotations[:room])) if annotations else record

    def _enlist(self, registration: Registration) -> None:
        if registration.id not in self._handlers:
            of_guest = [h for h in self._handlers.values() if h.owner and h.owner == registration.owner]
            if len(self._handlers) >= MAX_HANDLERS or len(of_guest) >= MAX_HANDLERS_OF_ONE_GUEST:
                many = f"{len(of_guest)} handlers of {registration.owner}" if of_guest else f"{MAX_HANDLERS} handlers"
                self._refuse(f"{many} are registered", "End some, or let their leases run out")
                return
        self._handlers[registration.id] = registration

    def _leave(self, handler: str) -> None:
        """A handler that leaves, or whose lease has run out, is waited for no more."""
        if self._handlers.pop(handler, None) is None:
            return
        left = [i for i, turn in self._turns.items() if turn.handler == handler and i in self._open]
        for exception_id in left:
            self._decline(exception_id, "left without an answer")
        for exception_id in left[:MAX_PASSED_ON]:  # the others with the next ticks
            if record := self._open.get(exception_id):  # an all-clear among them may have ended it
                self._walk(record)

    def _decline(self, exception_id: str, why: str) -> None:
        """Wait no more for the handler whose turn it is. The exception itself is passed on by `_walk`."""
        turn = self._turns[exception_id]
        if turn.handler:
            answer = Ruling(AnswerKind.DECLINED, f"{turn.handler} {why}").answer(
                turn.component, self._now, turn.handler
            )
            self._put(self._open[exception_id].with_answer(answer))
            self._turns[exception_id] = Turn(turn.component, "", self._now)

    def _escalate(self, given: Failed) -> None:
        """The owner's action was refused or came too late. The owner stays the owner."""
        owning = (r for r in self._ended.values() if any(given.action_key in a.action_keys for a in r.verdicts))
        record = next(owning, None)
        if record is None or record.state is ExceptionState.ESCALATED:
            return
        answer = Answer(Component.SCHEDULER, AnswerKind.ANNOTATED, self._now, given.note)
        self._put(replace(record.with_answer(answer), state=ExceptionState.ESCALATED))

    def _read_back(self, given: ReadBack) -> None:
        """What an action on a node came to. One that a cap held back was escalated meanwhile."""
        owning = (r for r in self._ended.values() if any(given.action_key in a.action_keys for a in r.verdicts))
        if (record := next(owning, None)) is not None:
            told = Annotation(Component.RESOURCE_MANAGER.value, self._now, READ_BACK, given.note)
            self._put(replace(self._with(record, (told,)), state=ExceptionState.HANDLED))

    def _close(self, given: Closed) -> None:
        record = self._ended.get(given.exception_id)
        if record is None or not record.needs_a_person:
            self._refuse("it does not wait for a person", "See `perdure events --open` for those that do")
        elif record.is_in_force:
            self._refuse(f"jobs are held until {record.subject.resource} works again", "Raise its all-clear")
        else:
            self._put(replace(self._with(record, (given.annotation,)), outcome=ExceptionOutcome.RECOVERED))

    def _settle(self, exception_id: str, outcome: ExceptionOutcome, note: str = "") -> None:
        if record := self._ended.get(exception_id):
            told = (Annotation(Component.RESOURCE_MANAGER.value, self._now, RETURNED, note),) if note else ()
            self._put(replace(self._with(record, told), outcome=outcome))
        elif record := self._open.get(exception_id):
            self._end(replace(record, state=ExceptionState.EXPIRED, outcome=outcome))

    def _clear(self, exception_id: str) -> None:
        """The all-clear has come. It is over once nothing is held because of it any more."""
        if exception_id in self._open:
            self._settle(exception_id, ExceptionOutcome.RECOVERED)
            return
        record = self._ended.get(exception_id)
        if record is not None and record.outcome is ExceptionOutcome.OPEN:
            self._put(
                replace(record, outcome=ExceptionOutcome.CLEARING if record.holds else ExceptionOutcome.RECOVERED)
            )

    def _write_let_go(self) -> None:
        """Jobs that are not held any more are written down once a batch, in the records that held them."""
        if not self._let_go:
            return
        for record in [record for record in self._ended.values() if record.holds]:
            holds = record.holds
            over = [a for a in holds if LetGo(a) in self._let_go or LetGo(a, record.id) in self._let_go]
            if over:
                self._put(self._without(record, over, len(holds) - len(over)))

    def _without(self, record: ExceptionRecord, over: list[AttemptId], left: int) -> ExceptionRecord:
        jobs = "1 job is" if len(over) == 1 else f"{len(over)} jobs are"
        note, keys = f"{jobs} held no more, {left} still", [Hold(a, record.id).key for a in over]
        record = record.with_answer(Answer(Component.SCHEDULER, AnswerKind.ANNOTATED, self._now, note, tuple(keys)))
        is_over = not left and record.outcome is ExceptionOutcome.CLEARING
        return replace(record, outcome=ExceptionOutcome.RECOVERED) if is_over else record

    def _tick(self) -> None:
        for handler in [h.id for h in self._handlers.values() if h.until_s <= self._now]:
            self._leave(handler)
        passed_on = 0
        for exception_id in list(self._open):
            record, turn = self._open.get(exception_id), self._turns.get(exception_id)
            if record is None:
                continue
            if turn is None or self._own_handlers.is_stale(record):
                self._walk(record)
            elif turn.until_s <= self._now and passed_on < MAX_PASSED_ON:
                self._decline(exception_id, "gave no answer in time")
                self._walk(self._open[exception_id])
                passed_on += 1

    # -- writing

    def _put(self, record: ExceptionRecord) -> None:
        where = self._ended if record.id in self._ended else self._open
        if self._sources is not None and where is self._open and record.id not in where:
            self._sources[record.detected_by] += 1
        where[record.id] = self._changed[record.id] = record

    def _end(self, record: ExceptionRecord, actions: tuple[Action, ...] = ()) -> None:
        if self._open.pop(record.id, None) is not None and self._sources is not None:
            self._sources[record.detected_by] -= 1
        self._turns.pop(record.id, None)
        self._ended[record.id] = self._changed[record.id] = record
        if actions:
            self._actions[record.id] = self._actions.get(record.id, ()) + actions

    def _refuse(self, what: str, fix: str) -> None:
        self._effects.append(Refused(self._given, what, fix))
