"""Limits beside limits: whatever is set, as much is let through as the strictest of them allows, and not one more.

What each allows is said here a second time, in one line each; how many are let through is tried one by one.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import takewhile
from types import SimpleNamespace

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.model.actions import Down, Drain, Hold, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.budget import room
from perdure.retry.history import Fleet, Spent
from perdure.retry.rules import RetryRules
from perdure.service.core.settings import Caps
from perdure.service.store.journal import ActionRow, ActionState, Charge
from perdure.service.workers.executor import GateRuling, Used, rule

NOW = 1_000_000.0
MOST = 60  # of anything that is tried
FEW = st.integers(0, 9)
SHARES = st.sampled_from((0.0, 0.1, 0.25, 0.5, 0.9, 1.0))

OF_CAPS = {
    "actions_per_hour": FEW, "jobs_share_per_hour": SHARES, "floor_per_hour": FEW, "drains_per_hour": FEW,
    "nodes_share_per_hour": SHARES, "drains_floor_per_hour": FEW, "nodes_out_share": SHARES,
}  # fmt: skip
OF_RETRIES = {
    "cluster_share_per_hour": SHARES, "cluster_floor_per_hour": FEW, "per_cluster_per_hour": FEW,
    "per_node_per_hour": FEW, "user_share": SHARES, "per_user_per_hour": FEW,
}  # fmt: skip
OF_A_JOB = {  # tried in `tests.retry` and `tests.service.test_every_setting`: they bound what one job may
    "person_delay_h", "nuisance_h", "max_infrastructure_retries", "max_user_retries", "max_probes", "back_off_s",
    "back_off_cap_s", "repeat_odds", "same_place_odds", "requeue_at_timeout", "give_back_after_s", "node_memory_s",
}  # fmt: skip


def test_no_limit_is_left_out() -> None:
    assert {each.name for each in fields(Caps)} == OF_CAPS.keys()
    assert {each.name for each in fields(RetryRules)} == OF_RETRIES.keys() | OF_A_JOB


# -- caps


def row(action: Hold | Drain | Down | Requeue) -> ActionRow:
    return ActionRow(action.key, action, "perdure", "", ActionState.PLANNED, "", NOW, NOW + 900.0)


HOLD = row(Hold(AttemptId("c", "1", 1)))
TAKE_OUT = (row(Drain("n1", "r", "e")), row(Down("n1", "r", "e")))


def let_through(one: ActionRow, caps: Caps, used: Used, user: str) -> int:
    """How many are begun, of as many as are asked for, where each that was begun counts."""

    def may_go(number: int) -> bool:
        charges = used.charges + (Charge(NOW, one.action.kind, user),) * number
        out = used.nodes_out + (number if one.action.takes_node_out else 0)
        now = msgspec.structs.replace(used, charges=charges, nodes_out=out)
        return rule(one, NOW, True, False, caps, now, user).ruling is GateRuling.GO

    return sum(1 for _ in takewhile(may_go, range(MOST)))


@given(
    st.fixed_dictionaries(OF_CAPS), FEW, st.integers(1, 20), st.integers(0, 20), st.integers(0, 5), st.integers(0, 5)
)
@example(dict.fromkeys(OF_CAPS, 9) | {"nodes_share_per_hour": 1.0, "nodes_out_share": 1.0}, 9, 20, 0, 0, 0)
def test_as_many_actions_as_the_strictest_cap_allows(
    set_: dict[str, float], live: int, nodes: int, out: int, drained: int, held: int
) -> None:
    caps, said = Caps(**set_), SimpleNamespace(**set_)  # type: ignore[arg-type]
    before = (Charge(NOW - 1.0, "drain"),) * drained + (Charge(NOW - 2.0, "hold", "bob"),) * held
    used = Used(before, live_jobs=live, nodes=nodes, nodes_out=out)
    most = min(said.actions_per_hour, max(said.floor_per_hour, int(said.jobs_share_per_hour * live)))
    left = max(0, most - drained - held)
    assert let_through(HOLD, caps, used, "") == left
    assert let_through(HOLD, caps, used, "ada") == min(left, (most + 1) // 2)
    assert let_through(HOLD, caps, used, "bob") == max(0, min(left, (most + 1) // 2 - held))
    of_nodes = max(said.drains_floor_per_hour, int(said.nodes_share_per_hour * nodes))
    drains = min(said.drains_per_hour, of_nodes) - drained
    may_be_out = int(said.nodes_out_share * nodes) - out
    for one in TAKE_OUT:
        assert let_through(one, caps, used, "") == max(0, min(left, drains, may_be_out))


# -- budgets of retries


JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0)


def retried(rules: RetryRules, fleet: Fleet, nodes: tuple[str, ...]) -> int:
    """How many of ada's retries may start now, each of which is charged to these nodes."""
    attempt = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, nodes, 0.0, 60.0, user="ada")

    def may_start(number: int) -> bool:
        spent = (*fleet.spent, *(Spent(NOW, "1", "ada", nodes) for _ in range(number)))
        return room(JOB, attempt, msgspec.structs.replace(fleet, spent=spent), rules, NOW, NOW).instant_s == NOW

    return sum(1 for _ in takewhile(may_start, range(MOST)))


@given(
    st.fixed_dictionaries(OF_RETRIES),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(1, 3),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_as_many_retries_as_the_strictest_budget_allows(
    set_: dict[str, float], live: int, running: int, usable: int, of_bob: int, of_ada: int
) -> None:
    rules, said = RetryRules(**set_), SimpleNamespace(**set_)  # type: ignore[arg-type]
    names = ("n1", "n2", "n3")
    spent = (Spent(NOW - 9.0, "8", "bob", ("n2",)),) * of_bob + (Spent(NOW - 8.0, "9", "ada", ("n3",)),) * of_ada
    fleet = Fleet({"": frozenset(names[:usable])}, live_jobs=live, running_jobs=running, spent=spent)
    by_jobs = max(said.cluster_floor_per_hour, int(said.cluster_share_per_hour * live))
    cluster = min(said.per_cluster_per_hour, by_jobs)
    node = max(said.per_node_per_hour, int(said.cluster_share_per_hour * running / usable))

    def share(of: int) -> int:
        return min(of, max(1, int(said.user_share * of)))

    user = min(said.per_user_per_hour, share(cluster)) - of_ada
    left = min(user, cluster - of_ada - of_bob)
    assert retried(rules, fleet, ("n1",)) == max(0, min(left, node, share(node)))
    assert retried(rules, fleet, ("n1", "n2")) == max(0, min(left, node - of_bob, share(node)))
    assert retried(rules, fleet, ("n3",)) == max(0, min(left, node - of_ada, share(node) - of_ada))
