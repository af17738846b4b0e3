"""Perdure's own handlers at their levels, as the playbook has them, with the budgets that bound them."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.coordination.chain_state import Chain
from perdure.coordination.handlers.registry import HANDLERS
from perdure.coordination.playbook import Plan, Playbook
from perdure.coordination.record import AnswerKind, Budget, Component, ExceptionRecord, Scope
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.coordination.site import SiteFacts
from perdure.model.actions import NodeAction

ALL_LEVELS = tuple(Component)
NOT_PLANNED = Plan()


class PlaybookHandlers(Struct, frozen=True):
    """What the chain asks (`chain.HandlerSet`), answered from a playbook and a view of the site."""

    playbook: Playbook
    site: SiteFacts
    now: float
    _plans: dict[str, Plan] = field(default_factory=dict)  # those looked up already

    def levels(self, record: ExceptionRecord) -> Collection[Component]:
        """On a failed attempt, and on an all-clear, all of them rule."""
        if record.is_all_clear or self.site.is_of_attempt(record):
            return ALL_LEVELS
        return self._plan(record).levels

    def rule(self, record: ExceptionRecord, component: Component, chain: Chain) -> Ruling:
        """The answer at a level; that on a failed attempt is the retry decision's."""
        recovery = self.site.recovery(record)
        if recovery is not None:
            owner, ruling = recovery
            if component is not owner:
                return declined("no recovery seen")
            self.site.settle_on(record)
            return ruling
        if record.is_all_clear:
            return handled("written down: it is over")
        plan = self._plan(record)
        if plan.lasts_s and self.now < record.time_s + plan.lasts_s:
            note = f"soft: it is acted on if it lasts {plan.lasts_s:g} s"
            return Ruling(AnswerKind.DEFERRED, note, until_s=record.time_s + plan.lasts_s)
        return self._within_budget(record, self._asked(plan.levels[component], record, chain), plan, chain)

    def fall_back(self, record: ExceptionRecord, chain: Chain) -> Ruling:
        """The answer of the default handler."""
        recovery = self.site.recovery(record)
        if recovery is not None:
            self.site.settle_on(record)
            return recovery[1]
        plan = self._plan(record)
        ruling = self._asked(plan.fall_back, record, chain)
        if ruling.until_s is not None:  # it would still wait, and there is no time left
            ruling = declined(ruling.note)
        return self._within_budget(record, ruling, plan, chain)

    def _asked(self, handler: str, record: ExceptionRecord, chain: Chain) -> Ruling:
        """What a handler says. On what jobs share, other exceptions of the same instant matter."""
        site = self.site.seeing(chain) if record.scope is Scope.GLOBAL else self.site
        return HANDLERS[handler](record, site, self.now)

    def _within_budget(self, record: ExceptionRecord, ruling: Ruling, plan: Plan, chain: Chain) -> Ruling:
        """The ruling, with what is spent written next to it; a person is asked where nothing is left."""
        allowance = plan.allowance
        if allowance is None or not ruling.actions or self._only_confirms(ruling):
            return ruling
        charges, since_s = _charged(record, allowance.per), self.now - allowance.window_s
        used = {key: sum(at_s > since_s for at_s in chain.spent.get(key, ())) for key in charges}
        key = max(used, key=used.__getitem__)
        budget = Budget(key, used[key], allowance.limit)
        if budget.is_spent:
            hours = allowance.window_s / 3600
            return declined(f"{budget.used} of {budget.limit} recoveries of {key} in {hours:g} h are spent")
        return replace(ruling, budget=budget, charges=charges)

    def _only_confirms(self, ruling: Ruling) -> bool:
        """Whether all that it acts on was out of service at the last look: then most likely nothing is done."""
        nodes = [
            self.site.node(action.node)
            for action in ruling.actions
            if isinstance(action, NodeAction) and action.takes_node_out
        ]
        return len(nodes) == len(ruling.actions) and all(node is not None and not node.is_usable for node in nodes)

    def deadline_s(self, record: ExceptionRecord) -> float:
        return self._plan(record).deadline_s

    def window_s(self, record: ExceptionRecord) -> float:
        return self._plan(record).window_s

    def is_stale(self, record: ExceptionRecord) -> bool:
        """A failed attempt that a newer one has replaced is its manager's recovery, and not stale."""
        if self._is_replaced(record):
            return True
        return self.is_past(record) and not (record.attempt and self.site.failure_of(record.attempt))

    def is_past(self, record: ExceptionRecord) -> bool:
        """Whether the job that it is about is over or has started again; its own failure, if any, does not count."""
        if self._outlives(record):
            return False
        job = self.site.job(record.subject.job_id)
        return self._is_replaced(record) or (job is not None and job.state.is_over)

    def _outlives(self, record: ExceptionRecord) -> bool:
        return not record.subject.job_id or self._plan(record).outlives_job or self.site.is_of_attempt(record)

    def _is_replaced(self, record: ExceptionRecord) -> bool:
        newest = self.site.latest(record.subject.job_id) if record.incarnation and not self._outlives(record) else 0
        return newest > record.incarnation

    def owner_of(self, record: ExceptionRecord) -> str:
        return self.site.owner_of(record)

    def _plan(self, record: ExceptionRecord) -> Plan:
        plan = self._plans.get(record.type)
        if plan is None:
            plan = self._plans[record.type] = self.playbook.plan_for(record.type) or NOT_PLANNED
        return plan


def _charged(record: ExceptionRecord, per: str) -> tuple[str, ...]:
    """Whose budgets it goes to: that of the job or the resource, or those of all its nodes."""
    subject = record.subject
    named = {"job": (subject.job_id,), "node": subject.nodes or ("",), "resource": (subject.resource,)}
    return tuple([f"{per}:{name}" for name in named[per]])
