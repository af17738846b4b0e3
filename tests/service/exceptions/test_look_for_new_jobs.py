"""A job that nobody knows may have started since the last look: who raises for it has the cluster looked at soon."""

from __future__ import annotations

from pathlib import Path

from perdure.errors import NotFound, NotPermitted
from perdure.service.exceptions.coordinator import Coordinator
from tests.service.exceptions_world import JONAS, MIRA
from tests.service.web_world import site


def test_who_raises_for_a_job_that_is_not_known_has_the_cluster_looked_at(tmp_path: Path) -> None:
    world, looks = site(tmp_path).world, list[str]()
    world.submit("1", "train", "mira")
    world.start("1", "gpu01")
    coordinator = Coordinator(world.tell, world.view, world.journal.recall, lambda: looks.append("soon"))
    known, new = ({"type": "app.nan", "subject": {"job": job_id}} for job_id in ("1", "2"))
    coordinator.raise_exceptions([known], MIRA)
    (refused,) = coordinator.raise_exceptions([known], JONAS)
    assert isinstance(refused, NotPermitted)
    assert not looks
    _, unknown = coordinator.raise_exceptions([known, new], MIRA)
    assert isinstance(unknown, NotFound)
    assert looks == ["soon"]
