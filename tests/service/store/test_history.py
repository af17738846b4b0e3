"""The cluster's own past as a trace: every job that ran, with every attempt and how it ended."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.table import JobTable, TableEnding
from perdure.service.store.database import reading_engine
from perdure.service.store.queries.history import cluster_spec, extent, history
from perdure.service.store.queries.reader import Reader
from perdure.simulation.simulate import simulate
from tests.copying import replace
from tests.service.web_world import CLUSTER, HOUR, RESET, World, fill

NOW = 1_790_000_000.0


@pytest.fixture
def world(where: Path | str) -> Iterator[World]:
    world = World(where, NOW)
    yield world
    world.journal.close()


def reader_of(world: World) -> Reader:
    return Reader(world.journal.engine, CLUSTER)


def row(table: JobTable, job_id: str) -> int:
    return int(np.flatnonzero(table.job_id == job_id)[0])


def test_jobs_come_with_their_attempts_and_endings(world: World) -> None:
    fill(world)
    found = history(reader_of(world))
    table = found.table
    assert sorted(table.job_id.tolist()) == ["101", "102", "103", "105"]
    assert table.began_s == NOW
    assert (np.diff(table.submit_s) >= 0).all()
    at = row(table, "102")
    begin, end = table.attempts.first[at : at + 2]
    assert table.attempts.duration_s[begin:end].tolist() == [2 * HOUR, HOUR]
    assert table.attempts.passed[begin:end].tolist() == [False, True]
    assert table.duration_s[at] == 3 * HOUR
    assert (table.gpus[at], table.user[at], table.vc[at], table.ending[at]) == (8, "mira", "gpu", TableEnding.PASSED)
    assert table.walltime_s[at] == 12 * HOUR
    assert table.end_s[at] - table.start_s[at] == 3 * HOUR + 60
    assert table.ending[row(table, "105")] == TableEnding.FAILED
    assert found.left_out == {"not ended yet": 3}


def test_what_the_site_has_is_what_is_offered(world: World) -> None:
    assert (extent(reader_of(world)).jobs, extent(reader_of(world)).since_s) == (0, None)
    fill(world)
    world.nodes["big"] = Node("big", NodeState.DOWN, "", 16, 0, world.now)
    world.nodes["login"] = Node("login", NodeState.UP, "", 0, 0, world.now)
    world.look()
    assert cluster_spec(reader_of(world)) == "6x8+1x16"
    assert extent(reader_of(world)).jobs == len(history(reader_of(world)).table)
    assert extent(reader_of(world)).since_s == NOW


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        (AttemptState.COMPLETED, TableEnding.PASSED),
        (AttemptState.CANCELLED, TableEnding.KILLED),
        (AttemptState.TIMEOUT, TableEnding.FAILED),
        (AttemptState.OUT_OF_MEMORY, TableEnding.FAILED),
        (AttemptState.LOST, TableEnding.FAILED),
        (AttemptState.REQUEUED, TableEnding.KILLED),
    ],
)
def test_each_state_is_an_ending(tmp_path: Path, state: AttemptState, ending: TableEnding) -> None:
    world = World(tmp_path, NOW)
    world.submit("1")
    world.start("1")
    world.pass_time(60)
    world.end("1", RESET, state, to=JobState.FAILED)
    assert history(reader_of(world)).table.ending.tolist() == [ending]


def test_jobs_without_gpus_or_attempts_are_counted_and_left_out(tmp_path: Path) -> None:
    world = World(tmp_path, NOW)
    for job_id, gpus in (("cpu", 0), ("ran", 2), ("never", 2)):
        world.submit(job_id, gpus=gpus)
        if job_id != "never":
            world.start(job_id)
            world.pass_time(60)
            world.end(job_id, b"", AttemptState.COMPLETED)
    world.jobs["never"] = replace(world.jobs["never"], state=JobState.CANCELLED)
    world.look()
    found = history(reader_of(world))
    assert found.table.job_id.tolist() == ["ran"]
    assert found.left_out == {"no GPUs": 1, "never started": 1}
    assert history(reader_of(world), most_jobs=2).left_out == {"never started": 1}


def test_a_site_without_a_past_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no job with GPUs has ended yet"):
        history(reader_of(World(tmp_path, NOW)))


def test_the_past_replays_as_it_was_where_nobody_waited(tmp_path: Path) -> None:
    world = World(tmp_path, NOW)
    fill(world)
    table = history(reader_of(world)).table
    result = simulate(table, Cluster.parse("6x8"), "fifo")
    assert (result.end_s - result.start_s).tolist() == table.duration_s.tolist()


def test_another_process_reads_by_the_address_alone(where: Path | str) -> None:
    world = World(where, NOW)
    fill(world)
    url = world.journal.engine.url.render_as_string(hide_password=False)
    other = reading_engine(url)
    assert len(history(Reader(other, CLUSTER)).table) == 4
    other.dispose()
    world.journal.close()
