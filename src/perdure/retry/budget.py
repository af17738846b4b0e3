"""The budgets that jobs share: how many retries may start in any hour, and when the next one has room.

What is charged is the instant for which a retry is planned, past or to come. A budget that is spent makes a retry come
later; it stops none.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from perdure.model.jobs import Attempt, Job
from perdure.retry.history import HOUR_S, Fleet, Spent
from perdure.retry.rules import RetryRules

_ROUNDING_S = 1e-3
_SOON_S = 12 * HOUR_S


class RetryBudget(NamedTuple):
    """At most `limit` starts in any hour; those that are planned or were, sorted."""

    name: str
    times: list[float]
    limit: int
    setting: str  # of `RetryRules`, that gives more
    of: str  # "cluster", "user" or "node": whose it is

    def standing(self, now: float) -> BudgetStanding:
        used = min(self.limit, len(self.times) - bisect_right(self.times, now - HOUR_S))
        return BudgetStanding(self.name, used, self.limit, earliest(self.times, self.limit, now), self.setting, self.of)


class BudgetStanding(NamedTuple):
    """How a budget is at one instant."""

    name: str  # "the cluster's retries", "the retries after failures on n3"
    used: int  # of the last hour, and planned for later
    limit: int  # in any hour
    room_s: float  # when the next retry may start; infinite where the budget is 0
    setting: str  # of `RetryRules`, that gives more
    of: str  # "cluster", "user" or "node": whose it is


class BudgetRoom(NamedTuple):
    """When a retry may start, and the words for what makes it wait; "" where nothing does."""

    instant_s: float  # infinite where a budget is 0
    waits_for: str


def room(job: Job, attempt: Attempt, fleet: Fleet, rules: RetryRules, start_s: float, now: float) -> BudgetRoom:
    """The first instant from `start_s` on at which every budget that this retry is charged to has room."""
    budgets = _budgets(job, attempt, fleet, rules)
    instant_s, full = start_s, None
    while True:
        before_s = instant_s
        for budget in budgets:
            later_s = earliest(budget.times, budget.limit, instant_s)
            if later_s > instant_s:
                instant_s, full = later_s, budget
        if instant_s in (before_s, math.inf):
            return BudgetRoom(instant_s, _spent(full, now) if full else "")


def earliest(times: Sequence[float], limit: int, start_s: float, window_s: float = HOUR_S) -> float:
    """The first instant from `start_s` on where one more leaves at most `limit` in every window; infinite if that is 0.

    `times` are sorted, and may lie ahead of `start_s`.

    >>> earliest([0.0, 10.0], 2, 20.0, 100.0), earliest([0.0, 10.0], 3, 20.0, 100.0)
    (100.0, 20.0)
    """
    if limit <= 0:
        return math.inf
    if _fits(times, start_s, limit, window_s):
        return start_s
    freed = (time_s + window_s for time_s in times[bisect_right(times, start_s - window_s) :])
    return next(at_s for at_s in freed if at_s > start_s and _fits(times, at_s, limit, window_s))


def at(instant_s: float, now: float) -> str:
    """An instant in words, by this machine's clock: ``08:04``, with its day where that is not near."""
    return datetime.fromtimestamp(instant_s).strftime("%H:%M" if instant_s - now < _SOON_S else "%Y-%m-%d %H:%M")


def cluster_limit(fleet: Fleet, rules: RetryRules) -> int:
    """Retries that may start in an hour on the whole cluster."""
    share = int(rules.cluster_share_per_hour * fleet.live_jobs)
    return min(rules.per_cluster_per_hour, max(rules.cluster_floor_per_hour, share))


def node_limit(fleet: Fleet, rules: RetryRules) -> int:
    """Retries that failures on one node may cause in an hour."""
    nodes = len(fleet.usable.get("", ()))
    return max(rules.per_node_per_hour, int(rules.cluster_share_per_hour * fleet.running_jobs / nodes) if nodes else 0)


def standing(fleet: Fleet, rules: RetryRules, now: float) -> list[BudgetStanding]:
    """The state of the cluster's budget, and of those that anything was charged to: users' shares of it, and of
    nodes.
    """
    by_user, by_node = defaultdict(list), defaultdict(list)
    for spent in fleet.spent:
        by_user[spent.user].append(spent.time_s)
        for node in spent.nodes:
            by_node[node].append(spent.time_s)
    budgets = (
        _of_cluster(_times(fleet.spent), fleet, rules),
        *(_of_user(user, times, fleet, rules) for user, times in sorted(by_user.items())),
        *(_of_node(node, times, fleet, rules) for node, times in sorted(by_node.items())),
    )
    return [budget.standing(now) for budget in budgets]


def _budgets(job: Job, attempt: Attempt, fleet: Fleet, rules: RetryRules) -> list[RetryBudget]:
    """Those of the cluster and of the nodes it ran on, and the user's share of each."""
    found = [
        _of_user(job.user, _times(fleet.spent, job.user), fleet, rules),
        _of_cluster(_times(fleet.spent), fleet, rules),
    ]
    nodes = set(attempt.nodes)
    where = [(s, nodes.intersection(s.nodes)) for s in fleet.spent]
    charged: set[str] = set().union(*(names for _, names in where))
    for node in sorted(charged if node_limit(fleet, rules) > 0 else nodes):  # others have all their room
        on_it = [s for s, names in where if node in names]
        budget = _of_node(node, _times(on_it), fleet, rules)
        share = min(budget.limit, _share(budget.limit, rules))
        of_user = RetryBudget(
            f"user {job.user}'s share of {budget.name}", _times(on_it, job.user), share, "user_share", "user"
        )
        found += [of_user, budget]
    return found


def _of_cluster(times: list[float], fleet: Fleet, rules: RetryRules) -> RetryBudget:
    limit = cluster_limit(fleet, rules)
    names = ("per_cluster_per_hour", "cluster_floor_per_hour")
    setting = next((name for name in names if limit == getattr(rules, name)), "cluster_share_per_hour")
    return RetryBudget("the cluster's retries", times, limit, setting, "cluster")


def _of_user(user: str, times: list[float], fleet: Fleet, rules: RetryRules) -> RetryBudget:
    share = _share(cluster_limit(fleet, rules), rules)
    setting = "user_share" if share <= rules.per_user_per_hour else "per_user_per_hour"
    limit = min(rules.per_user_per_hour, share)
    return RetryBudget(f"user {user}'s share of the cluster's retries", times, limit, setting, "user")


def _of_node(node: str, times: list[float], fleet: Fleet, rules: RetryRules) -> RetryBudget:
    limit = node_limit(fleet, rules)
    return RetryBudget(f"the retries after failures on {node}", times, limit, "per_node_per_hour", "node")


def _times(spent: Iterable[Spent], user: str | None = None) -> list[float]:
    return [s.time_s for s in spent if user in (None, s.user)]


def _share(limit: int, rules: RetryRules) -> int:
    return min(limit, max(1, int(rules.user_share * limit)))


def _spent(budget: RetryBudget, now: float) -> str:
    verb = "is" if budget.of == "user" else "are"  # a share; else retries
    return f"{budget.name} of an hour {verb} spent ({budget.standing(now).used} of {budget.limit})"


def _fits(times: Sequence[float], at_s: float, limit: int, window_s: float) -> bool:
    """Whether no window that holds `at_s` would hold more than `limit`."""
    near = times[bisect_right(times, at_s - window_s) : bisect_left(times, at_s + window_s)]
    if len(near) < limit:
        return True
    place = bisect_left(near, at_s)
    all_of_them = [*near[:place], at_s, *near[place:]]
    pairs = zip(all_of_them, all_of_them[limit:], strict=False)
    return all(last - first >= window_s - _ROUNDING_S for first, last in pairs)
