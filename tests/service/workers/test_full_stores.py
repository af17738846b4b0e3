"""Full file systems are looked at until they have room again, each for itself."""

import os
from pathlib import Path

import pytest

from perdure.coordination.messages import ExceptionRaised, Input
from perdure.coordination.playbook import own_playbook
from perdure.service.core.full_store import ENOUGH
from perdure.service.workers.full_stores import FullStores
from tests.service.core.test_full_store import Run


def test_a_file_system_that_cannot_be_looked_at_hides_no_other_that_has_room(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    if disk.f_bavail < ENOUGH * disk.f_blocks:
        pytest.skip("the disk of this machine is full")
    run = Run()
    run.fails("1", 10.0, str(tmp_path / "gone"))
    run.fails("2", 12.0, str(tmp_path))
    told: list[Input] = []
    FullStores(lambda: run.state.chain, own_playbook(), told.extend, lambda: 30.0).look()
    raised = [each.record for each in told if isinstance(each, ExceptionRaised)]
    assert [(record.type, record.subject.resource) for record in raised] == [("storage.restored", str(tmp_path))]
