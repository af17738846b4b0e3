"""What must hold after every step, whatever failed: checked on what was acknowledged, asked for and really done."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

import msgspec

from perdure.coordination.record import AnswerKind, Component, Outcome
from perdure.model.actions import Drain, Hold, JobAction, Release, Requeue
from perdure.model.jobs import AttemptState, JobState
from perdure.service.access.auth import Role

HOUR_S = 3600.0
ENDS = "SELECT key, state, detail FROM actions WHERE state NOT IN ('planned', 'started')"


class Broken(AssertionError):
    """A law does not hold."""


def must(holds: object, law: str, *about: object) -> None:
    if not holds:
        raise Broken(f"{law}: {', '.join(map(str, about))}")


class Auditor:
    """Remembers what was acknowledged, and compares."""

    def __init__(self, disk, line, manager, switch, limits, clock, *, alone: bool = True) -> None:
        """`alone` is False where another service acts on the same manager."""
        self._db, self._line, self._manager, self._switch, self._clock = disk.raw, line, manager, switch, clock
        self._alone, self._told = alone, set()  # keys of actions whose end was compared with what is true
        self.latest = lambda job_id: 0  # the incarnation of a job that the service knows
        self._limits, self._caps, self._rules = limits, limits.caps, limits.rules
        self._retries = {}  # by key of Perdure's own requeues: when it may start, and the attempt that failed
        self._seen = {}  # records by id, as they stood when the service last said so
        self.orders = 0
        self._chain = None  # as it was last checked
        self._begun = {}  # by key of Perdure's own actions: when it was last begun
        self.raised = defaultdict(int)  # by id of the exception that it became: how often
        self.set_by_s = 0.0  # how far the service's clock was set off, at most
        self.voices = defaultdict(set)  # by type and nodes of a fault: who has said so
        self.annotated = defaultdict(list)
        self.answered = []
        self.ordered = []
        self.enlisted = {}
        self._written = {}  # records by id, as they stand in the end

    # -- after every step

    def check_all(self, engine, *, guarded: bool, acted: bool = True) -> None:
        """`acted` where an action may have come to its end."""
        self.check_chain(engine.state.chain)
        self.check_deeds(guarded)
        if acted:
            self.check_ends()

    def check_chain(self, chain) -> None:
        """What was said of an exception stays said; it has one owner at most."""
        now = self._clock()
        for handler in [name for name, until_s in self.enlisted.items() if until_s <= now]:
            del self.enlisted[handler]  # it may be forgotten from now on
        if chain is self._chain:
            return
        self._chain, seen = chain, self._seen
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

    def _check_asked(self, registration, record) -> None:
        owner = self.owner_of(record)
        must(registration.owner in ("", owner), "a handler hears of its user's jobs alone", registration.id, record.id)

    def owner_of(self, record) -> str:
        """Whose job a record is about; "" where it is about none."""
        return self._manager.job(record.subject.job_id).user if record.subject.job_id else ""

    def _check_record(self, before, after) -> None:
        owners = sum(answer.kind is AnswerKind.HANDLED for answer in after.verdicts)
        must(owners <= 1, "at most one owner", after.id)
        if before is None:
            return
        said = after.annotations[: len(before.annotations)]
        must(said == before.annotations, "annotations are never lost or reordered", after.id)
        said = after.verdicts[: len(before.verdicts)]
        must(said == before.verdicts, "verdicts are never lost or reordered", after.id)
        must(after.repeats >= before.repeats, "a repeat is never forgotten", after.id)
        must(after.state.is_over or not before.state.is_over, "what has ended stays ended", after.id, after.state)

    def _check_truth(self, before, after) -> None:
        """What a record says of a job or a node is so, or was when the service last looked."""
        outcome = after.outcome if before is None or before.outcome is not after.outcome else Outcome.OPEN
        if outcome is Outcome.RECOVERED and before is not None and before.needs_a_person:
            out = [self._manager.was_out(node, self._line.known_s) for node in after.subject.nodes]
            must(all(out), "a fault that is seen to leaves its nodes without new work", after.id, after.subject.nodes)
        if not after.id.startswith(f"{self._manager.name}/") or after.attempt is None:
            return
        later = [a for a in self._manager.attempts(after.subject.job_id) if a.id > after.attempt]
        if outcome is Outcome.RECOVERED:
            good = any(attempt.state is AttemptState.COMPLETED for attempt in later)
            must(good, "what is called recovered has ended well", after.id)
        if outcome is Outcome.WITHDRAWN:
            is_past = later or self._manager.job(after.subject.job_id).state is JobState.CANCELLED
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
        elif self._alone and not again:
            must(not times, "what is said not to have been done has not", key, state, detail)

    # -- before every order

    def watch(self, action) -> None:
        """Nothing is begun that nobody owns, that is not written down, or that is not allowed now."""
        self.orders += 1
        must(not self._switch.on, "the kill switch is heeded", action.key)
        row = self._db.execute(
            "SELECT by, exception_id, created_s FROM actions "
            "WHERE state = 'started' AND (key = ? OR key LIKE ? || '~%')",
            (action.key, action.key),
        ).fetchone()
        must(row, "an action is written down as begun before it is", action.key)
        by, exception_id, created_s = row
        if by != "perdure":
            return
        must(self._owns(exception_id, action.key), "no action without the verdict that owns it", action.key)
        if isinstance(action, JobAction):
            is_current = self.latest(action.attempt.job_id) <= action.attempt.incarnation
            must(is_current, "nothing is done to a start that was replaced", action.key)
        if isinstance(action, Drain):
            self._check_vouched_for(exception_id)
        if isinstance(action, Hold) or (isinstance(action, Release) and action.episode):
            self._check_of_the_site(exception_id)
        self._check_caps(action)
        if isinstance(action, Requeue):
            self._check_retry(action, created_s)

    def _check_of_the_site(self, exception_id: str) -> None:
        record = self._record(exception_id)
        by = [record["detected_by"], *(each["by"] for each in record.get("seen_by", ()))]
        must(any(each.startswith(("perdure", "operator:")) for each in by), "no user holds or releases others", by)

    def _check_retry(self, action, created_s: float) -> None:
        """Retries fit into the budgets of cluster, nodes and users, and into the job's own.

        What is charged is the instant for which a retry was planned, by the clock of then; one that comes late may come
        so much nearer to the next.
        """
        found = [a for a in self._manager.attempts(action.attempt.job_id) if a.id == action.attempt]
        if not found or not self._limits.bounds_retries:
            return
        clock = self._clock()
        self._retries[action.key] = (clock + action.delay_s, found[0], abs(clock - created_s) + self.set_by_s)
        done = self._manager.effects
        counted = [retry for key, retry in self._retries.items() if key in done or key == action.key]
        self._check_budgets(counted)
        own = [a for _, a, _ in counted if a.id.job_id == action.attempt.job_id and a.state is AttemptState.FAILED]
        error = self._manager.script(action.attempt.job_id).error
        most = self._rules.max_probes if error == "odd" else self._rules.max_user_retries
        must(len(own) <= most, "a job has so many tries and no more", action.key, error, len(own))

    def _check_budgets(self, retries) -> None:
        rules = self._rules
        nodes = {node for _, attempt, _ in retries for node in attempt.nodes}
        jobs = len(self._manager.job_ids)
        of_all = max(rules.cluster_floor_per_hour, int(rules.cluster_share_per_hour * jobs))
        of_node = max(rules.per_node_per_hour, int(rules.cluster_share_per_hour * jobs))
        for node in (None, *nodes):
            limit = of_all if node is None else of_node
            here = [retry for retry in retries if node is None or node in retry[1].nodes]
            _must_fit_but_for([(at, late) for at, _, late in here], limit, f"the budget of retries is kept: {node}")
            share = max(1, int(rules.user_share * limit))
            for user in {attempt.user for _, attempt, _ in here}:
                own = [(at, late) for at, attempt, late in here if attempt.user == user]
                _must_fit_but_for(own, share, f"a user's share of retries is kept: {node}, {user}")

    def _check_vouched_for(self, exception_id: str) -> None:
        record = self._record(exception_id)
        voices = self.voices[record["type"], tuple(record["subject"]["nodes"])]
        vouched_for = len(voices) > 1 or any(by.role is Role.OPERATOR for by in voices)
        must(vouched_for, "one user's word takes no node out of service", exception_id, voices)

    def _owns(self, exception_id: str, key: str) -> bool:
        return any(v["kind"] == "handled" and key in v["action_keys"] for v in self._record(exception_id)["verdicts"])

    def _record(self, exception_id: str):
        if exception_id in self._written:
            return self._written[exception_id]
        found = self._db.execute("SELECT payload FROM exceptions WHERE id = ?", (exception_id,)).fetchone()
        must(found, "what is acknowledged is written down", exception_id)
        return _read(found[0])

    def _check_caps(self, action) -> None:
        """A retry counts at the instant from which on it may start, which may lie ahead."""
        if _lets_go(action.key):
            return
        self._begun[action.key] = self._clock() + (action.delay_s if isinstance(action, Requeue) else 0.0)
        done = self._manager.effects  # an order that was lost on the way is given again, and counts once
        counted = {k: at for k, at in self._begun.items() if k in done or k == action.key}
        _must_fit(counted.values(), self._caps.actions_per_hour, "the cap on actions is kept")
        drains = [at for key, at in counted.items() if key.startswith(("drain:", "down:"))]
        _must_fit(drains, self._caps.drains_per_hour, "the cap on drains is kept")

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
        self._check_failures()
        self._check_sizes()

    def _check_sizes(self) -> None:
        """A job starts as large as it was submitted; its restarts have no fewer nodes than its owner allows."""
        for job_id in self._manager.job_ids:
            script, attempts = self._manager.script(job_id), self._manager.attempts(job_id)
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
        brakes = [record["id"] for record in standing if not record["outcome"]]
        clearing = [record["id"] for record in standing if record["outcome"] == "clearing"]
        must(brakes or not clearing, "what an all-clear was given for is over", clearing)

    def _check_acknowledged(self) -> None:
        for exception_id, record in self._seen.items():
            written = self._record(exception_id)
            must(len(written["verdicts"]) >= len(record.verdicts), "verdicts are written down", exception_id)
            must(len(written["annotations"]) >= len(record.annotations), "annotations are written down", exception_id)
        for exception_id, times in self.raised.items():
            must(self._record(exception_id)["repeats"] + 1 >= times, "what was raised is there", exception_id)
        for exception_id, said in self.annotated.items():
            values = [a["value"] for a in self._record(exception_id)["annotations"]]
            must(_in_order(said, values), "annotations are there, in their order", exception_id)
        for exception_id, handler, kind in self.answered:
            said = [(v["handler"], v["kind"]) for v in self._record(exception_id)["verdicts"]]
            must((handler, kind) in said, "answers are there", exception_id, handler, kind)
        for key, by in self.ordered:
            found = self._db.execute("SELECT by FROM actions WHERE key = ?", (key,)).fetchone()
            must(found, "what a person ordered is there", key, by)

    def check_handlers(self, chain) -> None:
        """After a start: who was registered is, until the lease runs out."""
        for handler, until_s in self.enlisted.items():
            must(handler in chain.handlers or until_s <= self._clock(), "a registration is kept", handler)

    def _check_failures(self) -> None:
        """Each failed attempt is known and answered; what its owner decided has really happened."""
        for job_id in self._manager.job_ids:
            for attempt in self._manager.attempts(job_id):
                if attempt.state.is_failure:
                    self._check_failure(attempt)

    def _check_failure(self, attempt) -> None:
        found = self._db.execute(
            "SELECT id, owner FROM exceptions WHERE of_attempt AND job_id = ? AND incarnation = ?",
            (attempt.id.job_id, attempt.id.incarnation),
        ).fetchone()
        must(found, "every failure is known", attempt.id)
        exception_id, owner = found
        record = self._record(exception_id)
        owning = [v for v in record["verdicts"] if v["kind"] == "handled" and not v["handler"]]
        if not owning or record["state"] == "escalated":
            return
        *_, last = self._manager.attempts(attempt.id.job_id)
        if last.state is AttemptState.COMPLETED and last.id.incarnation == attempt.id.incarnation + 1:
            must(record["outcome"] == "recovered", "what has ended well is called recovered", exception_id)
        keys = owning[0]["action_keys"]
        if owner == "resource_manager" or any(key.startswith("requeue:") for key in keys):
            times = self._manager.recoveries[attempt.id]
            must(times == 1, "what was decided is done", exception_id, owner, keys, times)


def _must_fit(instants, limit: int, law: str) -> None:
    """No hour, wherever it begins, holds more than `limit`."""
    times = sorted(instants)
    for first, last in zip(times, times[limit:], strict=False):
        must(last - first > HOUR_S - 0.01, law, first, last)


def _must_fit_but_for(retries, limit: int, law: str) -> None:
    """The same, of instants of which some are so much later than planned."""
    times, late = sorted(at for at, _ in retries), max(late for _, late in retries)
    for first, last in zip(times, times[limit:], strict=False):
        must(last - first > HOUR_S - late - 0.01, law, first, last, late)


def _lets_go(key: str) -> bool:
    """Of what Perdure held itself: that is never too much."""
    return key.startswith("release:") and "@" in key


def _may_repeat(key: str) -> bool:
    """The manager itself guards what moves a job on; setting a state twice is the same as once."""
    return key.split(":", 1)[0] in ("hold", "release", "exclude")


@lru_cache(maxsize=1024)
def _read(text: str):
    """The same record is asked about many times."""
    return msgspec.json.decode(text)


def _in_order(some, all_) -> bool:
    rest = iter(all_)
    return all(one in rest for one in some)
