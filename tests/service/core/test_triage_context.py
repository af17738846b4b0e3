"""Surroundings count other users, near in time, each once; nobody's own failures speak for him."""

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.retry.history import NEARBY_S, Fleet, NodeTrouble
from perdure.service.core.triage_context import context_of
from perdure.triage.evidence.likeness import Likeness

MINE = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 5000.0, user="ada")
NOW = 6000.0


def _fleet(*troubles: tuple[str, str, float, str]) -> Fleet:
    fleet = Fleet()
    for node, user, age_s, category in troubles:
        fleet = fleet.with_trouble((node,), NodeTrouble(NOW - age_s, "9", user, category, False), 1e9)
    return fleet


def test_other_users_on_the_node_are_counted_once_each() -> None:
    fleet = _fleet(
        ("n1", "bob", 60, "gpu_hw"), ("n1", "bob", 30, "net"), ("n1", "eve", 5, "net"), ("n1", "ada", 1, "net")
    )
    assert context_of(MINE, None, fleet, None, NOW).others_on_node == 2


def test_others_elsewhere_are_told_by_what_befell_them() -> None:
    fleet = _fleet(("n2", "bob", 60, "fs"), ("n3", "eve", 60, "fs"), ("n3", "eve", 60, "net"), ("n2", "ada", 1, "fs"))
    context = context_of(MINE, None, fleet, 7, NOW)
    told = {("bob", Likeness("fs")), ("eve", Likeness("fs")), ("eve", Likeness("net"))}
    assert (set(context.others_elsewhere), context.others_on_node, context.free_bytes) == (told, 0, 7)


def test_what_is_long_past_is_no_surroundings() -> None:
    context = context_of(
        MINE, None, _fleet(("n1", "bob", NEARBY_S + 1, "fs"), ("n2", "bob", NEARBY_S + 1, "fs")), None, NOW
    )
    assert (context.others_on_node, context.others_elsewhere, context.ran_s) == (0, (), 5000.0)


def test_of_a_gang_only_the_nodes_that_went_down_are_the_place_of_its_failure() -> None:
    gang = Attempt(MINE.id, AttemptState.NODE_FAIL, ("n1", "n2"), 0.0, 5000.0, user="ada", failed_nodes=("n2",))
    context = context_of(gang, None, _fleet(("n1", "bob", 60, "fs"), ("n2", "eve", 60, "net")), None, NOW)
    assert (context.others_on_node, context.others_elsewhere) == (1, (("bob", Likeness("fs")),))
