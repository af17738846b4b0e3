"""Giving out GPUs as a policy says: a pass after each event, or a plan for each round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

from perdure.errors import PerdureError
from perdure.scheduling.placement.resources import Stock
from perdure.scheduling.protocol import ExplainingRanking, PlanningPolicy, Policy, RankingPolicy, SettlingPlanner
from perdure.simulation.world import World


class PolicyError(PerdureError):
    """A scheduling policy asked for what cannot be done."""


class Giver(Protocol):
    """Gives out GPUs after the events of an instant."""

    def give(self) -> None: ...

    def next_change(self) -> int | None: ...

    def reason(self, row: int) -> str | None:
        """Why a job waits, where the policy knows it."""


def giver_of(world: World, policy: Policy) -> Giver:
    """The way of giving that the policy's kind asks for."""
    return Rounds(world, policy) if isinstance(policy, PlanningPolicy) else Passes(world, policy)


class Passes:
    """Goes through a ranking policy's order after each event."""

    def __init__(self, world: World, policy: RankingPolicy) -> None:
        self.world, self.policy = world, policy
        self.ranking = policy.ranking(world.view)
        world.on_arrival, world.on_end = self.ranking.arrive, self.ranking.leave
        self.next_change = self.ranking.next_change

    def reason(self, row: int) -> str | None:
        return self.ranking.reason(row) if isinstance(self.ranking, ExplainingRanking) else None

    def give(self) -> None:
        if self.policy.preemptive:
            self._give_anew()
        else:
            self._give_free()

    def _give_free(self) -> None:
        for row in self._order():
            self._must_be_there(row)
            if not self.world.start(row) and self.policy.blocks:
                return

    def _give_anew(self) -> None:
        """Choose who runs by counting; who is not chosen yields, and takes what then is left in its place."""
        world, view = self.world, self.world.view
        waiting, running, gpus = view.waiting, view.running, view.gpus
        order = list(self._order())
        chosen, free, others = set(), view.total_gpus, Stock.counted(view.resources)
        for row in order:
            if row not in running and row not in waiting:
                self._must_be_there(row)
            if gpus[row] <= free and (not others.resources or others.take(row, gpus[row])):
                free -= gpus[row]
                chosen.add(row)
            elif self.policy.blocks:
                break
        lifted = {row: world.lift(row) for row in order if row in running and row not in chosen}
        for row in order:
            if row in lifted:
                if not world.put_back(row, lifted[row]):
                    world.preempt(row, lifted[row])
            elif row in waiting and gpus[row] <= view.free_gpus:
                world.start(row)

    def _order(self) -> Iterable[int]:
        return _rows(self.policy, "order", self.ranking.order())

    def _must_be_there(self, row: int) -> None:
        view = self.world.view
        if row not in view.waiting and (row not in view.running or not self.policy.preemptive):
            state = "neither waits nor runs" if self.policy.preemptive else "does not wait"
            what = f"its order names {self.world.jobs.name(row)}, which {state}"
            raise PolicyError(f"policy {self.policy.name}", what, "Let it name waiting jobs, each once")


class Rounds:
    """Carries out a planning policy's plan at the beginning of each round.

    A job that has not worked since its restart is left alone, whatever the plan says: else, where restarts take as long
    as rounds or longer, jobs could take turns for ever and none of them would work.
    """

    def __init__(self, world: World, policy: PlanningPolicy) -> None:
        self.world, self.policy = world, policy
        self.planner = policy.planner(world.view)
        world.on_arrival, world.on_end = self._arrive, self._leave
        self.length = max(1, round(policy.round_s * world.view.ticks_per_s))
        self.due = -1
        self.settles = isinstance(self.planner, SettlingPlanner)
        self.settled = False  # rounds pass without a plan until a job comes or ends

    def _arrive(self, row: int) -> None:
        self._wake()
        self.planner.arrive(row)

    def _leave(self, row: int) -> None:
        self._wake()
        self.planner.leave(row)

    def _wake(self) -> None:
        """Go on with the rounds: the first one that does not begin before now is next."""
        if self.settled:
            self.settled = False
            self.due += max(0, -(-(self.world.view.now - self.due) // self.length)) * self.length

    def next_change(self) -> int | None:
        """The next round; rounds go on while there are jobs."""
        view = self.world.view
        return self.due if not self.settled and (view.waiting or view.running) else None

    def reason(self, row: int) -> str | None:  # noqa: ARG002
        return None

    def give(self) -> None:
        view = self.world.view
        if view.now < self.due:
            return
        self.due = view.now + self.length
        plan = list(_rows(self.policy, "plan", self.planner.plan()))
        self._check(plan)
        planned = set(plan)
        for row in [row for row in view.running if row not in planned and view.works_from(row) < view.now]:
            self.world.preempt(row, self.world.lift(row))
        for row in plan:
            if row in view.waiting:
                self.world.start(row)  # GPUs enough, but perhaps not where it could use them: then it waits on
        self.settled = bool(view.running) and self.settles and cast("SettlingPlanner", self.planner).is_settled()

    def _check(self, plan: list[int]) -> None:
        view, free, seen = self.world.view, self.world.view.total_gpus, set()
        if self._is_possible(plan):
            return
        for row in plan:  # which is to blame?
            if row in seen or not (row in view.waiting or row in view.running):
                raise self._refused(row, "is not there, or is named twice")
            seen.add(row)
            free -= view.gpus[row]
            if free < 0:
                raise self._refused(row, f"needs {-free} GPUs more than there are")

    def _is_possible(self, plan: list[int]) -> bool:
        view, named = self.world.view, set(plan)
        there = len(named) == len(plan) and not named.difference(view.running, view.waiting)
        return there and sum(map(view.gpus.__getitem__, plan)) <= view.total_gpus

    def _refused(self, row: int, what: str) -> PolicyError:
        return PolicyError(
            f"policy {self.policy.name}", f"{self.world.jobs.name(row)} of its plan {what}", "Fix the policy"
        )


def _rows(policy: Policy, word: str, given: object) -> Iterable[int]:
    """What a policy gave as a list of rows; whatever a user's own policy may have given instead."""
    if not isinstance(given, Iterable):
        raise PolicyError(f"policy {policy.name}", f"its {word} is not a list of rows but {given!r}", "Fix the policy")
    return given
