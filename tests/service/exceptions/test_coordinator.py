"""The door to the chain: who may use it for what, and what it has looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import NotFound, NotPermitted
from perdure.service.access.auth import Identity, Role
from perdure.service.exceptions.coordinator import Answering, Coordinator, Enlisting
from tests.service.exceptions_world import JONAS, MIRA, ROOT
from tests.service.web_world import World, site

OTHER = Identity("ops", Role.OPERATOR)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = site(tmp_path).world
    world.submit("1", "train", "mira")
    world.start("1", "gpu01")
    return world


def coordinator_of(world: World, look: Callable[[], None] = lambda: None) -> Coordinator:
    return Coordinator(world.tell, world.view, world.journal.recall, look)


def test_who_raises_for_a_job_that_is_not_known_has_the_cluster_looked_at(world: World) -> None:
    """It may have started since the last look."""
    looks: list[str] = []
    coordinator = coordinator_of(world, lambda: looks.append("soon"))
    known, new = ({"type": "app.nan", "subject": {"job": job_id}} for job_id in ("1", "2"))
    coordinator.raise_exceptions([known], MIRA)
    (refused,) = coordinator.raise_exceptions([known], JONAS)
    assert isinstance(refused, NotPermitted)
    assert not looks
    _, unknown = coordinator.raise_exceptions([known, new], MIRA)
    assert isinstance(unknown, NotFound)
    assert looks == ["soon"]


def test_one_operator_takes_over_ends_and_answers_for_no_handler_of_another(world: World) -> None:
    coordinator = coordinator_of(world)
    coordinator.enlist("site", Enlisting("scheduler", ("app",)), ROOT)
    before = coordinator.chain().handlers
    for way in (
        lambda: coordinator.enlist("site", Enlisting("job", ("",), lease_s=3000.0), OTHER),
        lambda: coordinator.dismiss("site", OTHER),
        lambda: coordinator.answer("any", "site", Answering("handled"), OTHER),
    ):
        with pytest.raises(NotPermitted, match="registered by another user"):
            way()
    assert coordinator.chain().handlers == before
    renewed = coordinator.enlist("site", Enlisting("job", ("",), lease_s=3000.0), ROOT)
    assert coordinator.chain().handlers == {"site": renewed}
