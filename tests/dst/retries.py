"""Laws of retries: the budgets that jobs share, a job's own tries, the wait that its owner is told, where it goes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from sqlite3 import Connection
from typing import Any, NamedTuple

import msgspec

from perdure.backends.simulated.cluster import SubmittedJob
from perdure.coordination.record import AnswerKind, ExceptionRecord
from perdure.model.actions import Exclude, Requeue
from perdure.model.jobs import Attempt, AttemptState
from perdure.retry.budget import at
from perdure.service.store.codec import EXCEPTION
from tests.dst.apart import is_written
from tests.dst.broken import must, must_fit
from tests.dst.cluster import Manager
from tests.dst.service import BROKEN, Limits

PLANNED = (
    "SELECT key, job_id, incarnation, exception_id, created_s, payload FROM actions "
    "WHERE kind = 'requeue' AND by = 'perdure' ORDER BY seq"
)
BY_HAND = "SELECT 1 FROM actions WHERE kind = 'requeue' AND by != 'perdure'"
DECIDED = "SELECT job_id, incarnation, owner, decided, payload FROM exceptions WHERE of_attempt AND decided IS NOT NULL"
KINDS = "SELECT incarnation, type FROM exceptions WHERE of_attempt AND job_id = ?"
PROBED = ("job.unknown", "job.gpu")  # nobody can tell; hearsay of broken hardware
OF_ALL = " of an hour "  # in the words for a budget that jobs share
PARKED = "it waits until"  # what it needs is down
LATER = re.compile(r", later, at (.*?), since ")
FEW_S = 1.0  # that a wait may be longer than the budgets ask for


class Planned(NamedTuple):
    """A retry of Perdure's own: the instant for which it was planned, by the clock of then, and what it follows."""

    at_s: float
    attempt: Attempt
    late_s: float = 0.0  # how much later it may come than planned


class Retries:
    """Remembers what was asked for, whatever service asked; the budgets of an hour know no restarts."""

    def __init__(self, db: Connection, manager: Manager, limits: Limits, clock: Callable[[], float]) -> None:
        self._db, self._manager, self._limits, self._clock = db, manager, limits, clock
        self._rules = limits.rules
        self._asked: dict[str, Planned] = {}  # by key
        self.set_by_s = 0.0  # how far the service's clock was set off, at most

    # -- before an order

    def check_order(self, action: Requeue, created_s: float) -> None:
        """A retry fits into the budgets of cluster, nodes and users, and into the job's own tries."""
        attempt = self._attempt(action.attempt.job_id, action.attempt.incarnation)
        if attempt is None or not self._limits.bounds_retries:
            return
        late_s = abs(self._clock() - created_s)
        self._asked[action.key] = Planned(created_s + action.delay_s, attempt, late_s)
        done = self._manager.effects
        counted = [planned for key, planned in self._asked.items() if key in done or key == action.key]
        self._check_budgets(counted)
        self._check_tries(action, [p.attempt.id for p in counted if p.attempt.state is AttemptState.FAILED])

    def _check_tries(self, action: Requeue, retried: list[Any]) -> None:
        """So many tries has a job; what nobody can tell, and what its log alone says of the site, is tried once.

        A job that has ended well since, and that a person put back, has its tries anew.
        """
        job_id, rules = action.attempt.job_id, self._rules
        whose = self._manager.whose(job_id, action.attempt.incarnation)
        good = (a.id.incarnation for a in whose.attempts if a.state is AttemptState.COMPLETED)
        last_good = max(good, default=whose.before)
        own = [a.incarnation for a in retried if a.job_id == job_id and a.incarnation > last_good]
        must(len(own) <= rules.max_user_retries, "a job has so many tries and no more", action.key, len(own))
        kinds = dict(self._db.execute(KINDS, (job_id,)).fetchall())
        for kind in PROBED:
            probes = [incarnation for incarnation in own if kinds[incarnation] == kind]
            must(len(probes) <= rules.max_probes, "a job is probed so often and no more", action.key, kind, probes)

    def _check_budgets(self, retries: list[Planned]) -> None:
        retries = [planned for planned in retries if planned.attempt.state is not AttemptState.PREEMPTED]
        for name, limit, charged in self._budgets(retries):
            must_fit([p.at_s for p in charged], limit, f"the budget of retries is kept: {name}", self.set_by_s)

    def _budgets(self, retries: Sequence[Planned]) -> Iterator[tuple[str, int, list[Planned]]]:
        """Each budget that any of these is charged to: its name, its limit, and what is charged to it."""
        charged = defaultdict(list)
        for planned in retries:
            for where in ("", *planned.attempt.nodes):
                charged[where, ""].append(planned)
                charged[where, planned.attempt.user].append(planned)
        for (node, user), some in charged.items():
            limit = self._limit(node)
            yield f"{node or 'cluster'} {user}", max(1, int(self._rules.user_share * limit)) if user else limit, some

    def _limit(self, node: str) -> int:
        rules = self._rules
        least = rules.per_node_per_hour if node else rules.cluster_floor_per_hour
        return max(least, int(rules.cluster_share_per_hour * len(self._manager.every)))

    def check_place(self, action: Requeue | Exclude) -> None:
        """A retry is kept off nodes that evidence names: those it failed on, or that failed for others, too."""
        attempt = self._attempt(action.attempt.job_id, action.attempt.incarnation)
        if attempt is None:
            return
        if attempt.state is AttemptState.PREEMPTED:
            must(not action.exclude, "a preempted job may start anywhere", action.key, action.exclude)
            return
        named = {*(attempt.failed_nodes or attempt.nodes), *self._suspects()}
        strange = [node for node in action.exclude if node not in named]
        must(not strange, "a retry is kept off nodes that evidence names", action.key, strange)

    def _suspects(self) -> set[str]:
        """Nodes that went down twice under jobs, and those on which jobs of two users failed for the site's causes."""
        down, users, failures = Counter(), defaultdict(set), Counter()
        for each in self._manager.every:
            is_broken = each.script.error.startswith(BROKEN.decode())
            for attempt in each.attempts:
                down.update(attempt.failed_nodes)
                of_site = attempt.nodes if is_broken and attempt.state is AttemptState.FAILED else attempt.failed_nodes
                failures.update(of_site)
                for node in of_site:
                    users[node].add(attempt.user)
        return {n for n in failures if down[n] > 1 or (failures[n] > 2 and len(users[n]) > 1)}

    # -- at the end

    def check_end(self) -> None:
        """What was said of each retry is so, and none came later than it had to."""
        rows = self._db.execute(PLANNED).fetchall()
        retries = [self._planned(row) for row in rows]
        reasons = {(job_id, n): _read(text)["reason"] for job_id, n, _, text, _ in self._decisions()}
        by_hand = self._db.execute(BY_HAND).fetchone()  # may have taken the place of one that was charged
        for row, planned in zip(rows if not by_hand else (), retries, strict=not by_hand):
            if planned is None:
                continue
            key, reason = row[0], reasons.get((row[1], row[2]), "")
            before = [other for other in retries if other is not None and other is not planned]
            is_preempted = row[3].endswith(":job.preempted")  # not so of one that was lost when it was decided on
            earlier = [other for other in before if other.late_s <= row[4]]
            self._check_wait(key, planned, planned.at_s - row[4], reason, earlier, is_preempted)
        for job_id, incarnation, owner, decided, payload in self._decisions():
            self._check_decision(job_id, incarnation, owner, _read(decided), EXCEPTION.decode(payload))

    def _decisions(self) -> list[Any]:
        return self._db.execute(DECIDED).fetchall()

    def _planned(self, row: tuple[Any, ...]) -> Planned | None:
        _, job_id, incarnation, _, created_s, payload = row
        attempt = self._attempt(job_id, incarnation)
        if attempt is None:
            return None
        return Planned(created_s + _read(payload).get("delay_s", 0.0), attempt, created_s)

    def _check_wait(
        self, key: str, planned: Planned, wait_s: float, reason: str, before: list[Planned], is_preempted: bool
    ) -> None:
        """Who waits for longer than after any failure, waits for a budget that is full; when it has room is told."""
        if PARKED in reason or not self._limits.bounds_retries:
            return
        told = LATER.search(reason)
        if told:
            must(
                at(planned.at_s, planned.at_s - wait_s) == told[1], "a later retry starts when it is told", key, reason
            )
        if is_preempted:
            must(not wait_s, "a preempted job waits for nothing", key, wait_s)
            return
        whose = self._manager.whose(planned.attempt.id.job_id, planned.attempt.id.incarnation)
        if self._reads_like_another(whose, planned.late_s):
            return
        earlier = sum(a.id < planned.attempt.id for a in whose.attempts)
        back_off_s = min(self._rules.back_off_cap_s, self._rules.back_off_s * 2.0**earlier)
        if wait_s > back_off_s and not self.set_by_s:
            must(told, "who is to wait is told for what", key, reason)
            sooner = planned._replace(at_s=planned.at_s - FEW_S)
            must(self._is_full(sooner, before), "a retry comes as soon as its budgets have room", key, reason)

    def _is_full(self, planned: Planned, before: list[Planned]) -> bool:
        before = [other for other in before if other.attempt.state is not AttemptState.PREEMPTED]
        try:
            self._check_budgets_with(planned, before)
        except AssertionError:
            return True
        return False

    def _check_budgets_with(self, planned: Planned, before: list[Planned]) -> None:
        for name, limit, charged in self._budgets([*before, planned]):
            if planned in charged:
                must_fit([p.at_s for p in charged], limit, name)

    def _check_decision(
        self, job_id: str, incarnation: int, owner: str, decision: Mapping[str, Any], record: ExceptionRecord
    ) -> None:
        """No budget that jobs share stops a job, nor does a preemption; a first failure that may pass is retried."""
        whose = self._manager.whose(job_id, incarnation)
        attempt, script = self._attempt(job_id, incarnation), whose.script
        is_ours = owner == "scheduler" and not any(v.handler for v in record.verdicts if v.kind is AnswerKind.HANDLED)
        if attempt is None or not is_ours or decision["kind"] != "stop" or not script.may_requeue:
            return
        reason = decision["reason"]
        must(OF_ALL not in reason, "a budget that jobs share makes a retry later, and stops none", record.id, reason)
        owning = record.owning
        if self._reads_like_another(whose, owning.time_s if owning else 0.0):
            return
        if "forbids" in reason or self._state_told(job_id, incarnation) is AttemptState.LOST:
            return  # of one that the manager forgot while nobody looked, how it ended is not known
        of_site = attempt.state in (AttemptState.PREEMPTED, AttemptState.NODE_FAIL)
        must(attempt.state is not AttemptState.PREEMPTED, "a preemption stops no job", record.id, reason)
        may_pass = of_site or not script.error.startswith("wrong")
        is_only = len(whose.attempts) == 1
        must(not (is_only and may_pass), "a first failure that may pass is retried", record.id, reason)

    def _reads_like_another(self, whose: SubmittedJob, decided_s: float) -> bool:
        """Nobody had seen it by then, or not before it was put back: it reads like the job that had the id before."""
        is_unclear = whose.job.restarts or not is_written(self._db, whose.job, decided_s)
        return whose in self._manager.later(whose.job.job_id) and bool(is_unclear)

    def _state_told(self, job_id: str, incarnation: int) -> AttemptState:
        query = "SELECT state FROM attempts WHERE job_id = ? AND incarnation = ?"
        return AttemptState(self._db.execute(query, (job_id, incarnation)).fetchone()[0])

    def _attempt(self, job_id: str, incarnation: int) -> Attempt | None:
        return next(
            (a for a in self._manager.whose(job_id, incarnation).attempts if a.id.incarnation == incarnation), None
        )


def _read(text: str) -> Any:
    return msgspec.json.decode(text)
