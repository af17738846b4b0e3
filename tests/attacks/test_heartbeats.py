"""Heartbeats forged for another's job neither silence a living node nor keep a dead one alive."""

import os
import pwd
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.job.agent import Agent, Post
from perdure.job.files import JobFiles
from perdure.job.heartbeat import Heartbeat, HeartbeatSource, read, write
from perdure.job.identity import Task
from perdure.job.probes import Probing
from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import NodeState
from perdure.service.workers.heartbeat_monitor import MOST_RESTARTS, _is_current
from tests.copying import replace
from tests.service.workers.test_heartbeat_monitor import Monitored, actions, agent, live, monitored

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of two users")

MIRA, MALLORY = "nobody", "daemon"  # users that every machine knows


@pytest.fixture
def place(tmp_path: Path) -> Monitored:
    place = monitored(tmp_path)
    for job_id, user in (("200", MIRA), ("66", MALLORY)):
        place.world.submit(job_id, "train", user, 4)
        place.world.start(job_id, "gpu01" if user == MIRA else "gpu02")
    return place


def forge(
    place: Monitored,
    *,
    directory: str = "66",
    by: str = MALLORY,
    job_id: str = "200",
    node: str = "gpu01",
    pid: int = 7,
    **more: Any,
) -> None:
    tracks = JobFiles(place.fences / directory / "attempts" / "1" / f"{node}-{pid}")
    tracks.make()
    beat = Heartbeat(HeartbeatSource.JOB, node, node, pid, place.count, 0.0, 5.0, job_id=job_id, token=1)
    write(tracks.heartbeat, replace(beat, **more))
    os.chown(tracks.heartbeat, pwd.getpwnam(by).pw_uid, -1)


FORGED = {
    "in her own directory": {},
    "in the other's directory": {"directory": "200"},
    "of an earlier start": {"directory": "200", "by": MIRA, "incarnation": 1},
}


@pytest.mark.parametrize("how", FORGED.values(), ids=FORGED)
def test_nobody_makes_another_s_node_look_silent(place: Monitored, how: Mapping[str, Any]) -> None:
    """A second source beside the manager that has lost the node for a while."""
    restart(place, "200")
    for node in ("gpu02", "gpu04"):
        agent(place, node)
    forge(place, **how)
    live(place, 20, beating=("gpu02", "gpu04"))
    place.world.nodes["gpu01"] = replace(place.world.nodes["gpu01"], state=NodeState.UNKNOWN)
    place.world.look()
    live(place, 60, beating=("gpu02", "gpu04"))
    assert actions(place) == []


@pytest.mark.parametrize("how", FORGED.values(), ids=FORGED)
def test_nobody_keeps_a_dead_node_alive(place: Monitored, how: Mapping[str, Any]) -> None:
    restart(place, "200")
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    forge(place, directory="200", by=MIRA, incarnation=2)
    for _ in range(40):
        place.world.pass_time(2.0)
        place.count += 1
        for node in ("gpu02", "gpu04"):
            agent(place, node)
        forge(place, **how, pid=8)
        place.monitor.look()
    assert actions(place) == [("down", "gpu01")]


def restart(place: Monitored, job_id: str) -> None:
    """So that there is an earlier start."""
    place.world.end(job_id, b"", AttemptState.REQUEUED, to=JobState.PENDING)
    place.world.start(job_id, "gpu01")


def test_the_owner_s_own_heartbeat_counts(place: Monitored) -> None:
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    forge(place, directory="200", by=MIRA, incarnation=1)
    live(place, 60, beating=("gpu02", "gpu04"))
    assert actions(place) == [("down", "gpu01")]


def test_a_restart_count_is_not_taken_for_an_instant() -> None:
    beat = Heartbeat(HeartbeatSource.JOB, "n", "n", 1, 1, 0.0, 5.0, incarnation=2)
    assert not _is_current(beat, 3)
    assert _is_current(beat, 2)
    assert _is_current(replace(beat, incarnation=0), 3)  # of none in particular
    assert _is_current(beat, 1)  # the service has yet to see that start
    assert _is_current(beat, int(time.time()))
    assert not _is_current(replace(beat, incarnation=MOST_RESTARTS + 1), int(time.time()))


def test_a_heartbeat_that_stops_is_no_problem_of_its_node(tmp_path: Path) -> None:
    """A user who kills the launcher, or writes what looks like one's word, drains nothing."""
    share, fence = tmp_path / "agents", tmp_path / "fence"
    share.mkdir()
    tracks = JobFiles(fence / "attempts" / "1" / "n1-7")
    tracks.make()
    write(tracks.heartbeat, Heartbeat(HeartbeatSource.JOB, "n1", "n1", 7, 1, 0.0, 5.0, job_id="7", token=1))
    watcher = Agent(Post(share, Task("n1", "n1", 1), 1.0, (fence,)), Probing((), 60.0))
    for now in (0.0, 20.0, 40.0, 60.0):
        watcher.look(now)
    told = read(share / "n1.json")
    assert watcher.problems == told.problems == ()
    assert told.missing[0].startswith("job 7: no heartbeat of process 7 for ")
