"""What must hold after every step, whatever failed: checked on what was acknowledged, asked for and really done."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from perdure.coordination.chain_state import Chain
from perdure.coordination.record import (
    RETURNED,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
)
from perdure.coordination.ruling import Registration
from perdure.model.actions import Action, Comment, Down, Drain, Exclude, Hold, JobAction, Release, Requeue
from perdure.model.jobs import SAME_SUBMIT_S, Attempt, AttemptState, Job, JobState
from perdure.service.access.auth import Identity, Role
from perdure.service.core.case import ControllerState
from perdure.service.core.hardware import HARDWARE
from perdure.service.core.view import SiteView
from perdure.service.store.codec import EXCEPTION
from perdure.service.store.queries.reader import Reader
from perdure.service.workers.comment_writer import NO_ANSWER
from perdure.service.workers.engine import Engine
from tests.dst.apart import check_apart, is_written, store_on
from tests.dst.broken import must, must_fit
from tests.dst.cluster import LICENCES, Line, Manager
from tests.dst.disk import Disk
from tests.dst.folding import Folding
from tests.dst.holds import Holds
from tests.dst.restart import check_restored
from tests.dst.retries import Retries
from tests.dst.service import BROKEN, HOME, Limits, Switch

ENDS = "SELECT key, state, detail FROM actions WHERE state NOT IN ('planned', 'started')"


def _of_none() -> SiteView:
    raise AssertionError("no service is watched yet")


class Auditor:
    """Remembers what was acknowledged, and compares."""

    def __init__(
        self,
        disk: Disk,
        line: Line,
        manager: Manager,
        switch: Switch,
        limits: Limits,
        clock: Callable[[], float],
        *,
        alone: bool = True,
    ) -> None:
        """`alone` is False where another service acts on the same manager."""
        self._reader, self.store = Reader(disk.reader, manager.name), store_on(disk)
        self._db, self._line, self._manager, self._switch, self._clock = disk.raw, line, manager, switch, clock
        self._alone, self._told = alone, set()  # keys of actions whose end was compared with what is true
        self.view: Callable[[], SiteView] = _of_none  # of the service, as its handlers see the site
        self._caps = limits.caps
        self.retries = Retries(disk.raw, manager, limits, clock)
        self.voices = defaultdict(set)  # by type and nodes or resource of a fault: who has said so
        self.told_by = defaultdict(set)  # by id of an exception: who has told of it
        self._holds = Holds(disk.raw, manager, self.voices, self.told_by, self._needs, self._knows)
        self.folding = Folding(disk.raw, lambda job_id: self.view().latest(job_id))
        self._seen = {}  # records by id, as they stood when the service last said so
        self.orders = 0
        self._chain: Chain | None = None  # as it was last checked
        self._begun = {}  # by key of Perdure's own actions: when it was last begun
        self.raised = defaultdict(int)  # by id of the exception that it became: how often
        self.annotated = defaultdict(list)
        self.answered = []
        self.ordered = []
        self.enlisted = {}
        self._owners, self._users = {}, {}  # whose jobs records are about; by key of an action, of whose it was
        self._written = {}  # records by id, as they stand in the end

    # -- after every step

    def check_all(self, engine: Engine, *, guarded: bool, acted: bool = True) -> None:
        """`acted` where an action may have come to its end."""
        self.check_chain(engine.state.chain)
        self.check_deeds(guarded)
        if acted:
            self.check_ends()

    def check_chain(self, chain: Chain) -> None:
        """What was said of an exception stays said; it has one owner at most."""
        now = self._clock()
        for handler in [name for name, until_s in self.enlisted.items() if until_s <= now]:
            del self.enlisted[handler]  # it may be forgotten from now on
        if chain is self._chain:
            return
        self._chain = chain
        seen = self._seen
        self.folding.check_open(chain)
        for records in (chain.open, chain.ended):
            for name, record in records.items():
                before = seen.get(name)
                if before is not record:
                    self._check_record(before, record)
                    self._check_truth(before, record)
                    seen[name] = record
        for exception_id, turn in chain.turns.items():
            if turn.handler:
                self._check_asked(chain.handlers[turn.handler], chain.open[exception_id])

    def _check_asked(self, registration: Registration, record: ExceptionRecord) -> None:
        owner, later = self.owner_of(record), self._manager.later(record.subject.job_id)
        unclear_s = SAME_SUBMIT_S + self.retries.set_by_s
        if any(abs(each.job.submit_s - record.time_s) <= unclear_s for each in later):
            return  # said as the id changed hands, by the service's clock: times do not tell of whose job
        must(registration.owner in ("", owner), "a handler hears of its user's jobs alone", registration.id, record.id)

    def owner_of(self, record: ExceptionRecord) -> str:
        """Whose job a record is about; "" where it is about none."""
        if record.id not in self._owners:
            job_id = record.subject.job_id
            known = self.view().state.known.jobs.get(job_id)  # another may have the id, of which it does not know yet
            first = next((s for s in self._manager.every if known and _is_same(s.job, known)), None)
            if not job_id:
                whose = None
            elif record.incarnation:
                whose = self._manager.whose(job_id, record.incarnation)
            else:
                whose = first or self._manager.whose_at(job_id, record.time_s)
            self._owners[record.id] = whose.job.user if whose else ""
        return self._owners[record.id]

    def _check_record(self, before: ExceptionRecord | None, after: ExceptionRecord) -> None:
        owners = sum(answer.kind is AnswerKind.HANDLED for answer in after.verdicts)
        must(owners <= 1, "at most one owner", after.id)
        if before is None:
            return
        noted = after.annotations[: len(before.annotations)]
        must(noted == before.annotations, "annotations are never lost or reordered", after.id)
        said = after.verdicts[: len(before.verdicts)]
        must(said == before.verdicts, "verdicts are never lost or reordered", after.id)
        must(after.repeats >= before.repeats, "a repeat is never forgotten", after.id)
        must(after.state.is_over or not before.state.is_over, "what has ended stays ended", after.id, after.state)

    def _check_truth(self, before: ExceptionRecord | None, after: ExceptionRecord) -> None:
        """What a record says of a job or a node is so, or was when the service last looked."""
        outcome = after.outcome if before is None or before.outcome is not after.outcome else ExceptionOutcome.OPEN
        if outcome is ExceptionOutcome.RECOVERED and before is not None and before.needs_a_person:
            is_back = any(told.key == RETURNED for told in after.annotations)
            was_so = self._manager.was_in if is_back else self._manager.was_out
            law = "is back in service" if is_back else "gets no new work"
            found = [was_so(node, self._line.known_s) for node in after.subject.nodes]
            must(all(found), f"a node of a fault that is dealt with {law}", after.id, after.subject.nodes)
        if not after.id.startswith(f"{self._manager.name}/") or after.attempt is None:
            return
        whose = self._manager.whose(after.subject.job_id, after.attempt.incarnation)
        later = [a for a in whose.attempts if a.id > after.attempt]
        is_gone = whose.job is not self._manager.job(after.subject.job_id)  # another has its id
        if outcome is ExceptionOutcome.RECOVERED:
            good = any(attempt.state is AttemptState.COMPLETED for attempt in later)
            unseen = is_gone and not is_written(self._db, self._manager.job(after.subject.job_id))
            is_unclear = unseen or self._manager.may_be_mistaken(after.subject.job_id)
            must(good or is_unclear, "what is called recovered has ended well", after.id)
        if outcome is ExceptionOutcome.WITHDRAWN:
            is_past = later or is_gone or whose.job.state is JobState.CANCELLED
            must(is_past, "what is called withdrawn is past", after.id)
        owning = after.owning
        is_new = owning is not None and not owning.handler and (before is None or before.owning is None)
        if is_new and owning.component is Component.RESOURCE_MANAGER:
            back = later or self._manager.recoveries[after.attempt]
            must(back, "what the manager is said to have put back, it has", after.id)

    def check_ends(self) -> None:
        """After actions: what is said of each is so."""
        for key, state, detail in self._db.execute(ENDS).fetchall():
            if key not in self._told:
                self._told.add(key)
                self._check_end_of(key, state, detail)

    def _check_end_of(self, key: str, state: str, detail: str) -> None:
        asked, _, again = key.partition("~")
        times = self._manager.effects[asked]
        if state == "done":
            must(times, "what is called done has been done", key)
        elif self._alone and not again and not (key.startswith("comment:") and detail == NO_ANSWER):
            must(not times, "what is said not to have been done has not", key, state, detail)

    # -- before every order

    def watch_comment(self, action: Comment) -> None:
        """A line in a job's record is of a decision that stands in the journal, and of nobody else's job."""
        _, exception_id, _ = self._intent_of(action)
        record = self._record(exception_id)
        must(record.subject.job_id == action.attempt.job_id, "a job's record tells of that job", action.key)
        must(record.verdicts, "a job's record tells of what was decided", action.key)

    def watch(self, action: Action) -> None:
        """Nothing is begun that nobody owns, that is not written down, or that is not allowed now."""
        self.orders += 1
        by, exception_id, created_s = self._intent_of(action)
        if by != "perdure":
            return
        must(self._owns(exception_id, action.key), "no action without the verdict that owns it", action.key)
        if isinstance(action, JobAction):
            is_current = self.view().latest(action.attempt.job_id) <= action.attempt.incarnation
            must(is_current, "nothing is done to a start that was replaced", action.key)
        if isinstance(action, Drain | Down):
            self._check_vouched_for(exception_id)
            self._check_left(action)
        if isinstance(action, JobAction) and not action.attempt.incarnation and self._is_again(action.key):
            return  # it names no start, and may be about the job that had the id
        if isinstance(action, Hold) and action.episode:
            self._holds.check_hold(action, self._record(exception_id), self.view().state.chain)
        if isinstance(action, Release) and action.episode:
            self._holds.check_release(action, self._record(exception_id), self.view().state.chain)
        self._check_caps(action)
        if isinstance(action, Requeue | Exclude):
            self.retries.check_place(action)
        if isinstance(action, Requeue):
            self.retries.check_order(action, created_s)

    def _intent_of(self, action: Action) -> tuple[str, str, float]:
        """By whom, for which exception and when an action was written down that is begun now."""
        must(not self._switch.on, "the kill switch is heeded", action.key)
        row = self._db.execute(
            "SELECT by, exception_id, created_s FROM actions "
            "WHERE state = 'started' AND (key = ? OR key LIKE ? || '~%')",
            (action.key, action.key),
        ).fetchone()
        must(row, "an action is written down as begun before it is", action.key)
        by, exception_id, created_s = row
        return by, exception_id, created_s

    def _needs(self, job_id: str, resource: str) -> bool:
        return resource != HOME or bool(LICENCES.get(self._manager.script(job_id).user))

    def _check_left(self, action: Drain | Down) -> None:
        """Half of the nodes are left to work, as far as the last look told, and less what was taken out since.

        What a person returned meanwhile works.
        """
        nodes = self.view().state.known.nodes
        since = {name for name in self._line.taken_out if not self._manager.was_in(name, math.inf)}
        out = {name for name, node in nodes.items() if not node.is_usable} | since | {action.node}
        self._line.taken_out.add(action.node)
        must(len(out) <= int(self._caps.nodes_out_share * len(nodes)), "half of the nodes are left", action.key, out)

    def _check_vouched_for(self, exception_id: str) -> None:
        record = self._record(exception_id)
        kind, nodes = record.type, record.subject.nodes
        voices = self._users_shown_broken(nodes) if kind == HARDWARE else self.voices[kind, nodes]
        vouched_for = len(voices) > 1 or any(by.role is Role.OPERATOR for by in voices)
        must(vouched_for, "one user's word takes no node out of service", exception_id, voices)

    def _users_shown_broken(self, nodes: tuple[str, ...]) -> set[Identity]:
        """Users of jobs whose logs show broken hardware, and that ran there."""
        shown = set()
        for each in self._manager.every:
            script = each.script
            ended = (a for a in each.attempts if a.state.is_failure and set(nodes) <= set(a.nodes))
            if script.error.startswith(BROKEN.decode()) and any(ended):
                shown.add(Identity(script.user, Role.VIEWER))
        return shown

    def _owns(self, exception_id: str, key: str) -> bool:
        attempt = key.removeprefix("lift:")  # who owns a requeue or an exclusion may take back a part of it
        owned = {key, f"requeue:{attempt}", f"exclude:{attempt}"}
        answers = self._record(exception_id).verdicts
        return any(v.kind is AnswerKind.HANDLED and owned & set(v.action_keys) for v in answers)

    def _record(self, exception_id: str) -> ExceptionRecord:
        if exception_id in self._written:
            return self._written[exception_id]
        found = self._db.execute("SELECT payload FROM exceptions WHERE id = ?", (exception_id,)).fetchone()
        must(found, "what is acknowledged is written down", exception_id)
        return _read(found[0])

    def _check_caps(self, action: Action) -> None:
        """A retry counts at the instant from which on it may start, which may lie ahead."""
        if _lets_go(action.key):
            return
        self._begun[action.key] = self._clock() + (action.delay_s if isinstance(action, Requeue) else 0.0)
        done = self._manager.effects  # an order that was lost on the way is given again, and counts once
        counted = {k: at for k, at in self._begun.items() if k == action.key or (k in done and self._may_be_own(k))}
        caps = self._caps
        most = min(caps.actions_per_hour, max(caps.floor_per_hour, int(caps.jobs_share_per_hour * self._jobs)))
        must_fit(counted.values(), most, "the cap on actions is kept")
        if isinstance(action, JobAction):
            user = self._user_of(action.key)
            own = [at for key, at in counted.items() if self._user_of(key) == user and not self._is_again(key)]
            must_fit(own, math.ceil(most / 2), "one user's jobs cause half of all actions at most")
        least = max(caps.drains_floor_per_hour, int(caps.nodes_share_per_hour * len(self._manager.node_names)))
        drains = [at for key, at in counted.items() if key.startswith(("drain:", "down:"))]
        must_fit(drains, min(caps.drains_per_hour, least), "the cap on drains is kept")

    def _may_be_own(self, key: str) -> bool:
        """False of what this service found not to have been done, and another service has done since."""
        query = "SELECT 1 FROM actions WHERE started_s IS NOT NULL AND (key = ? OR key LIKE ? || '~%')"
        return self._alone or self._db.execute(query, (key, key)).fetchone() is not None

    @property
    def _jobs(self) -> int:
        return len(self._manager.every)

    def _is_again(self, key: str) -> bool:
        job_id = key.partition("/")[2].partition("#")[0]
        return self._manager.was_given_again(job_id)  # the service counts it for who has the id

    def _user_of(self, key: str) -> str:
        """Whose job an action is about; "" for one on a node."""
        if key not in self._users:
            attempt = key.partition(":")[2].partition("@")[0]
            is_of_node = key.startswith(("drain:", "down:", "undrain:"))
            job_id, _, start = attempt.rpartition("/")[2].partition("#")
            self._users[key] = "" if is_of_node else self._manager.whose(job_id, int(start)).job.user
        return self._users[key]

    def check_deeds(self, guarded: bool) -> None:
        """No failure is recovered twice; no order is carried out more often than it was given."""
        for attempt, times in self._manager.recoveries.items():
            if times > 1:
                must(False, "at most one recovery of an attempt", attempt, times)
        for key, times in self._manager.effects.items():
            if times > 1:
                asked = self._db.execute(
                    "SELECT count(*) FROM actions WHERE key = ? OR key LIKE ? || '~%'", (key, key)
                ).fetchone()[0]
                must(times <= asked or (guarded and _may_repeat(key)), "an action is carried out once", key, times)

    # -- at the end

    def check_end(self) -> None:
        """Everything that was acknowledged is there, everything has ended, and what was decided has been done."""
        self._written = {name: _read(text) for name, text in self._db.execute("SELECT id, payload FROM exceptions")}
        self._check_acknowledged()
        left = self._db.execute("SELECT key, state FROM actions WHERE state IN ('planned', 'started')").fetchall()
        must(not left, "every action ends", left)
        left = self._db.execute("SELECT id FROM exceptions WHERE state IN ('raised', 'in_chain')").fetchall()
        must(not left, "every exception ends", left)
        self._check_holds()
        self._holds.check_end(self.view().state.chain)
        self.retries.check_end()
        self._check_failures()
        self._check_sizes()
        check_apart(self.store, self._reader, self._db, self._manager)

    def _check_sizes(self) -> None:
        """A job starts as large as it was submitted; its restarts have no fewer nodes than its owner allows."""
        for each in self._manager.every:
            script, attempts = each.script, each.attempts
            for attempt in attempts:
                least = script.node_count if attempt is attempts[0] else script.min_nodes or script.node_count
                must(least <= len(attempt.nodes) <= script.node_count, "a start has its nodes", attempt.id)

    def _check_holds(self) -> None:
        """What Perdure holds, an exception that is in force holds; one that is over holds nothing."""
        held = self._db.execute(
            "SELECT job_id, incarnation, exception_id FROM actions "
            "WHERE kind = 'hold' AND by = 'perdure' AND state = 'done' AND key LIKE '%@%'"
        ).fetchall()
        for job_id, incarnation, exception_id in held:
            (in_force,) = self._db.execute("SELECT is_open FROM exceptions WHERE id = ?", (exception_id,)).fetchone()
            released = self._db.execute(
                "SELECT 1 FROM actions WHERE kind = 'release' AND job_id = ? AND incarnation = ? "
                "AND state IN ('done', 'superseded')",
                (job_id, incarnation),
            ).fetchone()
            must(in_force or released, "what is held is let go", exception_id, job_id)
        standing = [self._record(name) for (name,) in self._db.execute("SELECT id FROM exceptions WHERE is_open")]
        brakes = [record.id for record in standing if record.outcome is ExceptionOutcome.OPEN]
        clearing = [record.id for record in standing if record.outcome is ExceptionOutcome.CLEARING]
        must(brakes or not clearing, "what an all-clear was given for is over", clearing)
        failures = {name for (name,) in self._db.execute("SELECT id FROM exceptions WHERE of_attempt")}
        for record in standing:
            job = self.view().state.known.jobs.get(record.subject.job_id)
            plan = self.view().playbook.plan_for(record.type)
            outlives = record.id in failures or (plan is not None and plan.outlives_job)
            is_left = record.needs_a_person and not outlives
            must(not (is_left and job and job.state.is_over), "what is about a job ends with it", record.id)

    def _knows(self, job_id: str) -> bool:
        return job_id in self.view().state.known.jobs

    def _check_acknowledged(self) -> None:
        for exception_id, record in self._seen.items():
            written = self._record(exception_id)
            must(len(written.verdicts) >= len(record.verdicts), "verdicts are written down", exception_id)
            must(len(written.annotations) >= len(record.annotations), "annotations are written down", exception_id)
        for exception_id, times in self.raised.items():
            must(self._record(exception_id).repeats + 1 >= times, "what was raised is there", exception_id)
        for exception_id, said in self.annotated.items():
            values = [a.value for a in self._record(exception_id).annotations]
            must(_in_order(said, values), "annotations are there, in their order", exception_id)
        for exception_id, handler, kind in self.answered:
            said = [(v.handler, v.kind) for v in self._record(exception_id).verdicts]
            must((handler, kind) in said, "answers are there", exception_id, handler, kind)
        for key, by in self.ordered:
            found = self._db.execute("SELECT by FROM actions WHERE key = ?", (key,)).fetchone()
            must(found, "what a person ordered is there", key, by)

    def check_start(self, before: ControllerState, after: ControllerState) -> None:
        """Between two steps a service dies: the next one knows the same."""
        check_restored(before, after)

    def knows_end_of(self, job_id: str) -> bool:
        """Whether a job is over, and the service has seen it so and each of its failures."""
        job, known = self._manager.job(job_id), self.view().state.known.jobs.get(job_id)
        query = "SELECT incarnation FROM exceptions WHERE of_attempt AND job_id = ?"
        told = {row[0] for row in self._db.execute(query, (job_id,))}
        failed = {a.id.incarnation for a in self._manager.attempts(job_id) if a.state.is_failure}
        is_seen = known is None or (known.state.is_over and _is_same(known, job))
        has_run = bool(self._manager.attempts(job_id))  # what is done to a job before it runs names no start of it
        return job.state.is_over and has_run and is_seen and failed <= told and is_written(self._db, job)

    def check_handlers(self, chain: Chain) -> None:
        """After a start: who was registered is, until the lease runs out."""
        for handler, until_s in self.enlisted.items():
            must(handler in chain.handlers or until_s <= self._clock(), "a registration is kept", handler)

    def _check_failures(self) -> None:
        """Each failed attempt is known and answered; what its owner decided has really happened."""
        for each in self._manager.every:
            for attempt in each.attempts:
                if attempt.state.is_failure:
                    self._check_failure(attempt)

    def _state_told(self, attempt: Attempt) -> str:
        """How the service says that an attempt ended: "lost" where the manager forgot the job while nobody looked."""
        query = "SELECT state FROM attempts WHERE job_id = ? AND incarnation = ?"
        row = self._db.execute(query, (attempt.id.job_id, attempt.id.incarnation)).fetchone()
        return row[0] if row else ""

    def _check_failure(self, attempt: Attempt) -> None:
        found = self._db.execute(
            "SELECT id, owner FROM exceptions WHERE of_attempt AND job_id = ? AND incarnation = ?",
            (attempt.id.job_id, attempt.id.incarnation),
        ).fetchall()
        must(found, "every failure is known", attempt.id)
        must(len(found) == 1, "a failure is one exception", *found)
        exception_id, owner = found[0]
        record = self._record(exception_id)
        owning = [v for v in record.verdicts if v.kind is AnswerKind.HANDLED and not v.handler]
        if not owning or record.state is ExceptionState.ESCALATED:
            return
        whose = self._manager.whose(attempt.id.job_id, attempt.id.incarnation)
        last = whose.attempts[-1]
        follows = last.id.incarnation == attempt.id.incarnation + 1
        if last.state is AttemptState.COMPLETED and follows and self._state_told(last) not in ("lost", ""):
            must(record.outcome is ExceptionOutcome.RECOVERED, "what has ended well is called recovered", exception_id)
        keys = owning[0].action_keys
        if owner == "resource_manager" or any(key.startswith("requeue:") for key in keys):
            times = self._manager.recoveries[attempt.id]
            if whose.job is not self._manager.job(attempt.id.job_id):
                return  # another has its id: what is not done by then never is
            must(times == 1, "what was decided is done", exception_id, owner, keys, times)


def _is_same(job: Job, other: Job) -> bool:
    return job.job_id == other.job_id and job.submit_s == other.submit_s


def _lets_go(key: str) -> bool:
    """Of what Perdure held itself: that is never too much."""
    return key.startswith("release:") and "@" in key


def _may_repeat(key: str) -> bool:
    """The manager itself guards what moves a job on; setting a state twice is the same as once."""
    return key.split(":", 1)[0] in ("hold", "release", "exclude", "lift")


@lru_cache(maxsize=1024)
def _read(text: str) -> ExceptionRecord:
    """The same record is asked about many times."""
    return EXCEPTION.decode(text)


def _in_order(some: Any, all_: list[Any]) -> bool:
    rest = iter(all_)
    return all(one in rest for one in some)
