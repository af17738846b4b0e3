"""A gang whose owner allows it goes on with the nodes that are left: what the controller orders, and pages show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.model.actions import Action, Exclude, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import Observation
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Act, Judged, Looked, Noted
from perdure.service.core.settings import ControllerSettings
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace
from tests.service.web.test_pages import browser_of
from tests.service.web_world import site

ONE = AttemptId("c", "1", 1)
GANG = Job("c", "1", "train", "ada", JobState.FAILED, 0.0, gpus=24, node_count=3, restart_nodes=(2, 3))
DIED = Attempt(ONE, AttemptState.NODE_FAIL, ("n1", "n2", "n3"), 10.0, 3610.0, gpus=24, failed_nodes=("n2",))
TRANSIENT = Verdict(Label.TRANSIENT, 0.9, "node", "a node failed", infrastructure=True, fingerprint="f")
TWO_LEFT = (Node("n1", NodeState.UP), Node("n2", NodeState.DOWN), Node("n3", NodeState.UP))


def ordered(job: Job, nodes: tuple[Node, ...] = TWO_LEFT) -> tuple[list[Action], str | Any]:
    """The actions that follow on the judged failure, and the words for the decision."""
    state, _ = step(
        ControllerState("c"), Looked(Observation("c", 3611.0, (job,), (DIED,), nodes)), ControllerSettings()
    )
    _, effects = step(state, Judged(4000.0, ONE, TRANSIENT), ControllerSettings())
    (noted,) = [effect for effect in effects if isinstance(effect, Noted)]
    return [effect.action for effect in effects if isinstance(effect, Act)], noted.failure.decision.reason


@pytest.mark.parametrize(
    ("job", "actions"),
    [
        (replace(GANG, state=JobState.PENDING), [Exclude(ONE, ("n2",), 2, user="ada")]),
        (replace(GANG, state=JobState.PENDING, excluded=("n2",)), [Exclude(ONE, (), 2, user="ada")]),
        (replace(GANG, state=JobState.PENDING, excluded=("n2",), node_count=2), []),
        (GANG, [Requeue(ONE, ("n2",), 10.0, 2, user="ada")]),
    ],
    ids=["put back by its manager", "kept off the node already", "all is done already", "not put back"],
)
def test_it_is_told_to_start_on_two(job: Job, actions: Sequence[Exclude | Requeue]) -> None:
    found, reason = ordered(job)
    assert found == actions
    assert "on 2 nodes, since 3 cannot be had" in reason


def test_with_a_spare_node_it_stays_as_large_as_it_was() -> None:
    found, reason = ordered(GANG, (*TWO_LEFT, Node("n4", NodeState.UP)))
    assert found == [Requeue(ONE, ("n2",), 10.0, 3, user="ada")]
    assert "cannot be had" not in reason


def test_without_its_owners_word_it_waits_for_a_third() -> None:
    found, _ = ordered(replace(GANG, state=JobState.PENDING, restart_nodes=None))
    assert found == []


def test_the_page_of_actions_tells_on_how_many_nodes(tmp_path: Path) -> None:
    place = site(tmp_path)
    world = place.world
    world.submit("7", node_count=6, restart_nodes=(4, 6))
    world.start("7", *world.nodes)
    world.pass_time(600)
    world.nodes["gpu03"] = replace(world.nodes["gpu03"], state=NodeState.DOWN, reason="Not responding")
    world.end("7", b"epoch 1\n", AttemptState.NODE_FAIL, to=JobState.PENDING, failed_nodes=("gpu03",))
    shown = browser_of(place).get("/actions").text
    assert "off gpu03</span>" in shown
    assert "on 5 nodes</span>" in shown
