"""What `perdure why JOB` says of a job that others put back again and again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.cli.job import explain_job
from perdure.model.jobs import AttemptState, JobState
from perdure.retry.rules import RetryRules
from tests.copying import replace
from tests.service.web_world import Site, site

SAID = "job.requeue-loop, open: put back 9 times, and not by Perdure"


def printed(place: Site, capsys: pytest.CaptureFixture[str]) -> str:
    found = place.client(place.operator).get("/api/v1/jobs/7").json()
    told: Any = SimpleNamespace(get=lambda _: found)
    explain_job("7", told, as_json=False)
    return capsys.readouterr().out


def test_why_says_so_with_the_commands_until_it_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = site(tmp_path)
    world = place.world
    world.submit("7")
    for _ in range(RetryRules().max_infrastructure_retries + 1):
        world.start("7", "gpu01")
        world.pass_time(60)
        world.attempts["7"] = replace(world.attempts["7"], state=AttemptState.REQUEUED, end_s=world.now)
        world.jobs["7"] = replace(world.jobs["7"], state=JobState.PENDING, restarts=world.jobs["7"].restarts + 1)
        world.look()
    said = printed(place, capsys)
    assert SAID in said
    assert "scontrol hold 7" in said
    world.jobs["7"] = replace(world.jobs["7"], state=JobState.CANCELLED)
    world.look()
    assert SAID not in printed(place, capsys)
