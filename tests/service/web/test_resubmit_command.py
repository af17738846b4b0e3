"""The command that starts a failed job on other nodes: for whom, and in which cluster's words."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.cli.job import explain_job
from perdure.model.jobs import AttemptState, JobState
from perdure.service.store.journal import ActionState
from tests.copying import replace
from tests.service.web_world import SHAPE, Site, World, site


@pytest.fixture
def place(tmp_path: Path) -> Site:
    """A node failed under a job, whose retry the resource manager refused."""
    place = site(tmp_path)
    place.commands.backend = "slurm"
    return place


def lose(world: World, job_id: str = "7", **job: Any) -> None:
    world.submit(job_id, **job)
    world.start(job_id, "gpu01")
    world.pass_time(600)
    world.end(job_id, state=AttemptState.NODE_FAIL, failed_nodes=("gpu01",))


def refuse(world: World) -> None:
    world.carry_out(ActionState.REFUSED, "no")


def command(place: Site, job_id: str = "7", token: None = None) -> Any:
    return place.client(token or place.operator).get(f"/api/v1/jobs/{job_id}").json()["elsewhere"]


def test_a_job_that_is_over_is_submitted_away_from_the_node_that_failed(place: Site) -> None:
    lose(place.world)
    refuse(place.world)
    assert command(place) == "sbatch --exclude=gpu01 SCRIPT"
    assert "<code>sbatch --exclude=gpu01 SCRIPT</code>" in place.client(place.operator).get("/jobs/7").text


def test_a_job_that_waits_is_told_so_in_the_queue_beside_the_nodes_that_it_avoids(place: Site) -> None:
    lose(place.world, excluded=("gpu05",))
    refuse(place.world)
    waiting = replace(place.world.jobs["7"], state=JobState.PENDING)
    place.world.jobs["7"] = waiting
    place.world.look()
    assert command(place) == "scontrol update JobId=7 ExcNodeList=gpu05,gpu01"
    place.world.jobs["7"] = replace(waiting, excluded=("gpu01",))
    place.world.look()
    assert command(place) == ""


def test_on_the_embedded_cluster_it_is_submitted_with_perdure(place: Site) -> None:
    place.commands.backend = "local"
    lose(place.world)
    refuse(place.world)
    assert command(place).endswith("submit --exclude gpu01 -- PROGRAM")


def test_why_prints_it(place: Site, capsys: pytest.CaptureFixture[str]) -> None:
    lose(place.world)
    refuse(place.world)
    found = place.client(place.operator).get("/api/v1/jobs/7").json()
    told: Any = SimpleNamespace(get=lambda _: found)
    explain_job("7", told, as_json=False)
    printed = capsys.readouterr().out
    assert "RUN    sbatch --exclude=gpu01 SCRIPT" in printed
    assert re.search(r"^RETRY +decided at [-0-9A-Za-z: ]+: (?!retry)", printed, re.M)  # times in it count from then


@pytest.mark.parametrize("state", [None, ActionState.DONE])
def test_what_perdure_does_by_itself_needs_no_command(place: Site, state: ActionState | None) -> None:
    lose(place.world)
    if state is not None:
        place.world.carry_out(state)
    assert command(place) == ""


def test_what_would_fail_anywhere_has_none(place: Site) -> None:
    place.world.submit("7")
    place.world.start("7", "gpu01")
    place.world.end("7", SHAPE)
    refuse(place.world)
    assert command(place) == ""


def test_nor_has_a_job_that_runs_again(place: Site) -> None:
    lose(place.world)
    refuse(place.world)
    place.world.start("7", "gpu02")
    assert command(place) == ""


@pytest.mark.parametrize("job_id", ["7_3", "x;y"])
def test_only_an_id_that_a_manager_gives_gets_into_a_command(place: Site, job_id: str) -> None:
    lose(place.world, job_id)
    refuse(place.world)
    assert ("sbatch" in command(place, job_id)) is (job_id == "7_3")
