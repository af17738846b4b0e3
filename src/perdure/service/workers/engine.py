"""The engine: one controller with its hands.

Whoever has an event takes the lock, runs the pure `step` and has its effects journalled in one transaction before
anything else happens (`Engine.absorb`). It holds nothing that the journal does not: killed at any point, the journal
tells the next run what was asked and not answered.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime

from msgspec.structs import replace

from perdure.backends.protocol import TAIL_BYTES, Backend, Commented, batch_of
from perdure.coordination.messages import Failed, Input, Refused
from perdure.coordination.record import ExceptionRecord
from perdure.errors import PerdureError
from perdure.model.actions import Action, NodeAction, Release, Requeue
from perdure.model.events import ActionEnded
from perdure.model.jobs import Attempt, Job
from perdure.model.observation import MANAGER, Observation
from perdure.model.output import LogMark, Output, OutputKind
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step, unfinished
from perdure.service.core.foreign_marks import foreign_marks
from perdure.service.core.launcher_notes import HANG, WALLTIME, notes_of, of_hang, of_walltime
from perdure.service.core.loglines import lines
from perdure.service.core.messages import (
    PERDURE,
    Act,
    ChainInput,
    Effect,
    Ended,
    Event,
    Judge,
    Judged,
    Looked,
    Ordered,
    Study,
)
from perdure.service.core.recovery import is_not_as_left
from perdure.service.core.settings import ControllerSettings
from perdure.service.core.successor import successor_of
from perdure.service.core.triage_context import context_of
from perdure.service.core.view import SiteView
from perdure.service.store.journal import NOT_AS_LEFT, Journal
from perdure.service.workers.comment_writer import CommentWriter
from perdure.service.workers.executor import Executor
from perdure.service.workers.good_run_queue import GOOD_BYTES, GoodRunQueue
from perdure.service.workers.kept_logs import KeptLogs
from perdure.service.workers.log_queue import LogQueue
from perdure.triage.evidence.context import OF_STORAGE, Context
from perdure.triage.evidence.ending import with_ending
from perdure.triage.evidence.reached import reached
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Label, Verdict

log = logging.getLogger("perdure")

Triage = Callable[[Output, Attempt, Context], Verdict]
Student = Callable[[Output, Job], None]

CLOCKS_APART_S = 1.0  # at most, between the resource manager's machine and ours; it tells whole seconds
LOOK_BACK_S = 600.0  # accounting may report an end this much later
ROUND_S = 2.0  # that actions may take before a look has its turn
GOOD_LOG_PATIENCE_S = 2.0  # failures wait meanwhile


class Engine:
    """The controller with its hands: everything the threads call, and nothing that knows of threads."""

    def __init__(
        self,
        backend: Backend,
        journal: Journal,
        executor: Executor,
        triage: Triage,
        settings: ControllerSettings,
        clock: Callable[[], float],
        decided: Callable[[float, Label], None] = lambda _seconds, _label: None,
        student: Student | None = None,
        kept: KeptLogs | None = None,
    ) -> None:
        """`decided` is told the seconds from a log at hand to the decision in the journal, and the verdict's label.

        `student` is handed logs of attempts that went well, while no failure waits; None: nobody asks for them.
        `kept` takes the logs of those that failed.
        """
        self.backend = backend
        self.journal = journal
        self.executor = executor
        self._comments = CommentWriter(journal, backend, executor.settings) if isinstance(backend, Commented) else None
        self._triage = triage
        self.clock = clock
        self._decided = decided
        self._student = student
        self.kept = kept
        self._lock = threading.Lock()  # of the state and the journal's order
        self._backend_lock = threading.Lock()  # a backend is asked one thing at a time
        self._state: ControllerState = journal.restore()
        self.logs = LogQueue(self._read)  # of attempts that wait to be judged
        self._to_study = GoodRunQueue()
        self._good_reader = ThreadPoolExecutor(1, thread_name_prefix="good-log")  # stuck, it holds up no failure
        self.acts_wait = threading.Event()  # set while there may be an action to carry out
        self.look_now = threading.Event()  # set where something is known to have happened
        self.has_looked = threading.Event()  # set after each look; who decides on looks clears it
        self.last_look_s: float | None = None
        self.looked_s: float | None = None  # the same instant by a clock that nobody sets
        self.look_took_s = 0.0  # the last one, of the resource manager's time and ours
        now, first_s = clock(), journal.first_event_s()
        self.answered_s = journal.seen_until_s(now)  # when the resource manager answered last, also before a restart
        self._seen_until_s = now if self.answered_s is None else self.answered_s
        self._is_unwritten = True  # the last look at all: none yet, or the journal could not take it
        # What failed before we came is not ours. Slurm tells instants in whole seconds.
        ours_since_s = now if first_s is None else first_s
        self._settings = dataclasses.replace(settings, ignore_before_s=math.floor(ours_since_s))
        self._after(unfinished(self._state))

    @property
    def state(self) -> ControllerState:
        return self._state

    def absorb(self, events: Iterable[Event]) -> list[Effect]:
        """Take in events: decide, journal in one transaction, then hand on what is to be done."""
        with self._lock:
            before = after = self._state
            effects: list[Effect] = []
            for event in events:
                after, more = step(after, event, self._settings)
                effects += more
            if effects or after is not before:
                self.journal.record(effects, before, after)
            self._state = after
        if effects:  # most of the time little happens
            self._say(effects, before)
            self._after(effects)
        return effects

    def _say(self, effects: Iterable[Effect], before: ControllerState) -> None:
        for line in lines(effects, before, self.clock()):
            log.log(line.level, "%s", line.text)

    def tell(self, inputs: tuple[Input, ...]) -> list[Refused]:
        """Take in what programs say of exceptions; what could not be taken, with the reason."""
        effects = self.absorb([ChainInput(self.clock(), inputs)])
        return [effect for effect in effects if isinstance(effect, Refused)]

    def order(self, action: Action, why: str, ttl_s: float) -> None:
        """Plan an action of Perdure's own that no failure is the reason of."""
        self.absorb([Ordered(self.clock(), action, PERDURE, why, ttl_s)])

    def tick(self) -> None:
        """Advance the chain of exceptions in time: end leases, deadlines, and exceptions whose job is over."""
        chain = self._state.chain
        if chain.open or chain.handlers or any(record.ends_with_its_job for record in chain.ended.values()):
            self.absorb([ChainInput(self.clock())])

    def view(self) -> SiteView:
        """The site as handlers of exceptions see it now."""
        return SiteView(self._state, self._settings.playbook, self._settings.retry, self.clock())

    def _after(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Judge(attempt=attempt):
                    self.logs.put(attempt)
                case Study(attempt=attempt, job=job) if self._student is not None:
                    self._to_study.put(attempt, job)
                case Act():
                    self.acts_wait.set()
                case _:
                    pass

    def _look_back_to_s(self) -> float:
        """Until when all is known. What was seen while the clock was ahead of now is seen again."""
        now = self.clock()
        if self._seen_until_s > now:
            seen_until_s = self.journal.seen_until_s(now)
            self._seen_until_s = now if seen_until_s is None else seen_until_s
        return self._seen_until_s

    def look(self) -> None:
        """Look at the cluster once."""
        self.look_now.clear()
        with self._backend_lock:
            begun_s = time.monotonic()
            seen = self.backend.observe(self._look_back_to_s() - LOOK_BACK_S)
            shown = self.executor.taken_out()
            self.look_took_s = time.monotonic() - begun_s
        self._is_unwritten = True
        effects = self.absorb([Looked(seen)])
        self._is_unwritten = False
        if not seen.unseen:
            self._seen_until_s = seen.time_s  # not before it is written down: the next look has to find it else
        self._doubt(seen)
        self.last_look_s, self.looked_s = seen.time_s, time.monotonic()
        self.has_looked.set()
        if MANAGER not in seen.unseen:
            self.answered_s = seen.time_s
            self.executor.saw(shown)
        for node in foreign_marks(effects, lambda key: self.journal.action(key) is not None, self.clock()):
            log.warning("another Perdure acts on this cluster: node %s: %s", node.name, node.reason)

    def _doubt(self, seen: Observation) -> None:
        """Carry out again what did not hold: its manager died before it saved it, or the job cannot start so."""
        for job in seen.jobs:
            case = self._state.cases.get(job.job_id) if is_not_as_left(job) else None
            if case is None or case.failure is None or case.moved_on:
                continue
            key = Requeue(case.failure.attempt.id).key
            if self.journal.doubt(key, seen.time_s):
                log.warning("action %s: %s: it is carried out again", key, NOT_AS_LEFT)
                self.acts_wait.set()

    def look_at(self, look: Callable[[], Observation]) -> None:
        """Take in a look at a few jobs. Raises what `look` raises.

        A look at all comes first where none was written down since the start: a restart looks back to the latest
        that was, and would take this one for it.
        """
        if self._is_unwritten:
            self.look()
        with self._backend_lock:
            seen = look()
        self.absorb([Looked(seen)])

    def undecided(self) -> set[str]:
        """The jobs whose latest failure nobody has decided on yet, or of which an action is still to be carried out."""
        failures = (case.failure for case in self._state.cases.values())
        open_ = {each.attempt.id.job_id for each in failures if each is not None and _is_open(each.record)}
        rows = (*self.journal.planned(), *self.journal.open_intents())
        return open_ | {row.attempt.job_id for row in rows if row.attempt and row.action.moves}

    def judge_next(self, timeout_s: float) -> bool:
        """Judge one failed attempt, if there is one within `timeout_s`; else study one that went well."""
        found = self.logs.next(timeout_s)
        if found is None:
            self._study_next()
            return False
        (attempt, output), begun_s = found, time.monotonic()
        try:
            output = self._with_newcomers(attempt, output)
            if self.kept is not None:
                self.kept.keep(attempt.id, output)
            verdict = self._judge(attempt, output)
            self.absorb([Judged(self.clock(), attempt.id, verdict)])
        except BaseException:  # a full disk, say: the failure must not be left without an answer
            self.logs.put(attempt)
            raise
        finally:
            self.logs.charge(attempt.user, time.monotonic() - begun_s)
        self._decided(time.monotonic() - begun_s, verdict.label)
        return True

    def _with_newcomers(self, attempt: Attempt, output: Output) -> Output:
        """The output, after another look where a job may matter that is so new that nobody has seen it.

        That is its successor where it submits jobs; and whoever wrote to its log after its end, since the last look.
        """
        seen_s, end_s = self.last_look_s or 0.0, attempt.end_s or 0.0
        if output.resubmits and seen_s <= end_s + CLOCKS_APART_S:
            self.look()
        written_s = max((f.written_s for f in output.files if f.kind is not OutputKind.RANK and f.text), default=0.0)
        if max(end_s + 1.0, seen_s) < written_s <= self.clock():  # managers tell ends in whole seconds
            self.look()  # not for a file server whose clock is ahead: there that would be each time
            return self._read(attempt)
        return output

    def _study_next(self) -> None:
        """Hand on the log of one attempt that went well. One that cannot be had at once is passed over."""
        found = self._to_study.take()
        if found is None or self._student is None:
            return
        attempt, job = found
        reading = self._good_reader.submit(self.backend.output, attempt, GOOD_BYTES)
        try:
            output = reading.result(GOOD_LOG_PATIENCE_S)
            if output.files:
                self._student(output, job)
        except NotInTime:
            reading.cancel()
        except PerdureError as err:
            log.info("%s: its good run is not kept: %s", attempt.id, err)

    def _judge(self, attempt: Attempt, output: Output) -> Verdict:
        """A log that triage stumbles over must not leave the failure without an answer."""
        state = self._state
        case = state.cases.get(attempt.id.job_id)
        try:
            context = context_of(attempt, case, state.fleet, output.free_bytes, self.clock())
            verdict = self._triage(output, attempt, context)
            verdict = with_ending(verdict, LogText.of_output(output), attempt)
            full = output.full_store if verdict.category in OF_STORAGE else ""
            verdict = replace(verdict, reached=reached(output), full_store=full)
            said = (*state.chain.ended.values(), *state.chain.open.values())
            verdict = of_hang(verdict, attempt, notes_of(HANG, attempt, said))
            walltime_s, notes = case.job.walltime_s if case else None, notes_of(WALLTIME, attempt, said)
            verdict = of_walltime(verdict, output, attempt, walltime_s, notes)
            return replace(verdict, resubmits=output.resubmits)
        except Exception:
            log.exception("%s: triage failed", attempt.id)
            return Verdict(Label.UNSURE, 0.5, "unknown", "triage itself failed on this log")

    def _read(self, attempt: Attempt) -> Output:
        """What to judge by. Raises what the backend raises."""
        return self.backend.output(attempt, TAIL_BYTES, self._marks(attempt))

    def _marks(self, attempt: Attempt) -> tuple[LogMark, ...]:
        """How far the logs of the job's attempt before this one were read."""
        case = self._state.cases.get(attempt.id.job_id)
        return case.past[-1].logs if case is not None and case.past else ()

    def act(self) -> bool:
        """Carry out what is due, all of it together. True where the resource manager was asked for something."""
        before = self.executor.asked
        with self._backend_lock, batch_of(self.backend):
            end_s = time.monotonic() + ROUND_S
            ended = self.executor.run_due(self.clock(), self._overtakes, lambda: time.monotonic() < end_s)
        if held_back := self.executor.held_back():
            failed = (Failed(key, f"not done yet: {why}") for key, why in held_back)
            self.absorb([ChainInput(self.clock(), tuple(failed))])
        if ended:
            self._end(ended)
            self.look_now.set()
        return self.executor.asked != before

    def _end(self, ended: Sequence[ActionEnded]) -> None:
        """Take in what came to its end. A release frees nothing that is held after it."""
        releases = (end.action_key for end in ended if end.action.is_a(Release))
        held = [key for release in releases for key in self.journal.held_after(release)]
        self.absorb([Ended(tuple(ended), frozenset(held))])

    def _overtakes(self, action: Action) -> str:
        """What has come since an action on a job was decided: a newer start, a successor, a fault of what it needs."""
        if isinstance(action, NodeAction):
            return ""
        view = self.view()
        latest = view.latest(action.attempt.job_id)
        if latest > action.attempt.incarnation:
            return f"attempt {latest} exists"
        if action.undoes_own and (still := view.still_needs(action.attempt)):
            return still
        case = self._state.cases.get(action.attempt.job_id) if isinstance(action, Requeue) else None
        failure = case.failure if case else None
        return successor_of(case.job, failure.attempt, self._state.known.jobs) if case and failure else ""

    def write_comments(self) -> None:
        """Write into jobs' own records what was decided. No look or action waits for it."""
        if self._comments is not None and (ended := self._comments.write_due(self.clock())):
            self._end(ended)

    def recover(self) -> None:
        """Look up the result of every action that was begun before the service last died."""
        with self._backend_lock, batch_of(self.backend):
            ended = self.executor.recover(self.clock())
        if ended:
            self._end(ended)

    def close(self) -> None:
        self.logs.close()
        self._good_reader.shutdown(wait=False, cancel_futures=True)
        self.journal.close()
        self.backend.close()


def _is_open(record: ExceptionRecord) -> bool:
    return record.owner is None and not record.state.is_over
