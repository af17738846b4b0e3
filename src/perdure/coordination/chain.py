"""The chain: each exception is offered to one handler after the other until one owns it. Pure.

``advance(chain, inputs, handlers, now) -> chain, effects``. At every level (`record.Component`, in the order of the
scope) programs that registered for the type are asked first, one at a time and each for a limited time, then
Perdure's own handler of that level. Whoever hands on may annotate; whoever handles owns, and its actions come with
its answer. At the deadline, and at the end of the chain, the default handler of the failure's type acts. Equal
faults within a window are one exception. All that the chain knows can be read back from the records and the
registrations.

What always holds: at most one answer is HANDLED; no action without the answer that owns it; annotations and answers
are only appended; what is about an incarnation that is gone changes nothing; every exception ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from perdure.coordination.chain_state import Chain, HandlerSet, Turn
from perdure.coordination.folding import equal_of, is_nothing_new, is_same, open_equal, taken
from perdure.coordination.messages import (
    Annotated,
    Answered,
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
    TurnBegun,
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
)
from perdure.coordination.record_changes import (
    is_of_a_guest,
    most_annotations,
    seen_again,
    with_annotations,
    without_holds,
)
from perdure.coordination.ruling import Registration, Ruling
from perdure.model.actions import Action

MAX_OPEN = 10_000
MAX_OF_GUESTS = MAX_OPEN // 2  # this many of these may be users'
MAX_OF_ONE_GUEST = 200
MAX_PASSED_ON = 10  # at a time, by a handler that is gone or does not answer: each is a decision
MAX_ENDED = 2_000  # kept to fold equal faults into, the latest
MAX_HANDLERS = 1_000
MAX_HANDLERS_OF_ONE_GUEST = 16
MAX_BUDGETS = 10_000
MAX_SPENT, SPENT_S = 1_000, 30 * 86400.0  # recoveries that are remembered of one budget, and how long
MAX_DEPTH = 4  # of exceptions that follow from exceptions


def advance(chain: Chain, inputs: Iterable[Input], handlers: HandlerSet, now: float) -> tuple[Chain, list[Effect]]:
    """Take in what came, in order: the chain after it, and what is to be written, asked and done.

    Where nothing changed, the chain is the same object as before.
    """
    batch = _Batch(chain, handlers, now)
    for given in inputs:
        batch.take(given)
    return batch.done()


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


class _Batch:
    """Applies one batch of inputs, on copies of the chain's maps."""

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
        for exception_id in self._surplus():
            record = self._ended.pop(exception_id)
            if record.needs_a_person:  # of whom none will be notified of it any more
                self._changed[record.id] = replace(record, outcome=ExceptionOutcome.WITHDRAWN)
            if self._equals.get(equal_of(record)) == record.id:
                del self._equals[equal_of(record)]
        changed = [Changed(record, self._actions.get(record.id, ())) for record in self._changed.values()]
        return self._before if self._is_idle() else self._chain, [*changed, *self._effects]

    def _is_idle(self) -> bool:
        """Whether all is as it was: most ticks change nothing."""
        if self._changed:
            return False
        return self._turns == self._before.turns and self._handlers == self._before.handlers

    def _surplus(self) -> list[str]:
        """The oldest that ended, those that need a person last; what holds jobs back is kept until it releases them."""
        too_many = len(self._ended) - MAX_ENDED
        if too_many <= 0:
            return []
        free = [record for record in self._ended.values() if not record.is_in_force]
        return [record.id for record in sorted(free, key=lambda record: record.needs_a_person)[:too_many]]

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
        seen = seen_again(known, again, self._now)
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
        if known is None or not is_nothing_new(known, record, self._chain, self._own_handlers, self._now):
            return False
        self._folded[known.id] += 1
        self._note_source(known, record)
        return True

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
        self._effects.append(TurnBegun(record, registration.id, self._turns[record.id].until_s))

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
        record = with_annotations(record, ruling.annotations)
        answer = ruling.answer(Component.SCHEDULER, self._now)
        self._end(replace(record.with_answer(answer), state=ExceptionState.ESCALATED))

    def _ruled(
        self, record: ExceptionRecord, ruling: Ruling, component: Component, handler: str, depth: int
    ) -> tuple[ExceptionRecord, bool]:
        """Write an answer down; True where it ends the chain."""
        record = with_annotations(record, ruling.annotations).with_answer(ruling.answer(component, self._now, handler))
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
        elif len(record.annotations) + len(annotations) > most_annotations(annotations):
            self._refuse(f"it has {len(record.annotations)} annotations", "Put the rest into a file")
        else:
            self._put(with_annotations(record, annotations))

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
            self._put(replace(with_annotations(record, (told,)), state=ExceptionState.HANDLED))

    def _close(self, given: Closed) -> None:
        record = self._ended.get(given.exception_id)
        if record is None or not record.needs_a_person:
            self._refuse("it does not wait for a person", "See `perdure events --open` for those that do")
        elif record.is_in_force:
            self._refuse(f"jobs are held until {record.subject.resource} works again", "Raise its all-clear")
        else:
            self._put(replace(with_annotations(record, (given.annotation,)), outcome=ExceptionOutcome.CLOSED))

    def _settle(self, exception_id: str, outcome: ExceptionOutcome, note: str = "") -> None:
        if record := self._ended.get(exception_id):
            told = (Annotation(Component.RESOURCE_MANAGER.value, self._now, RETURNED, note),) if note else ()
            self._put(replace(with_annotations(record, told), outcome=outcome))
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
            over = [a for a in record.holds if LetGo(a) in self._let_go or LetGo(a, record.id) in self._let_go]
            if over:
                self._put(without_holds(record, over, self._now))

    def _tick(self) -> None:
        waiting = [record for record in self._ended.values() if record.ends_with_its_job]
        for gone in filter(self._own_handlers.is_past, waiting):
            self._put(replace(gone, outcome=ExceptionOutcome.WITHDRAWN))
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
