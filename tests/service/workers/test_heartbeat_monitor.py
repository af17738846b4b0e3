"""Heartbeats of nodes and jobs: who falls silent by two sources is set down at once; one source proves nothing."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError
from perdure.job.files import JobFiles
from perdure.job.heartbeat import Heartbeat, HeartbeatSource, write
from perdure.model.nodes import NodeState
from perdure.service.runtime.assembly import heartbeats
from perdure.service.settings import CoordinationSettings
from perdure.service.workers.heartbeat_monitor import HeartbeatMonitor
from tests.copying import replace
from tests.service.web_world import Site, fill, site


@dataclass
class Monitored(Site):
    """A site whose agents and jobs write signs of life, the `count`th now."""

    share: Path
    fences: Path
    monitor: HeartbeatMonitor
    count: int = 0


def monitored(path: Path) -> Monitored:
    place, share, fences = site(path / "site"), path / "agents", path / "fences"
    fill(place.world)
    share.mkdir()
    monitor = HeartbeatMonitor(share, [fences], place.world.tell, place.world.view)
    return Monitored(**vars(place), share=share, fences=fences, monitor=monitor)


@pytest.fixture
def place(tmp_path: Path) -> Monitored:
    place = monitored(tmp_path)
    place.world.submit("200", "resnet", "mira", 8)
    place.world.start("200", "gpu01")
    return place


def agent(place: Monitored, node: str = "gpu01", problems: tuple[str, ...] = (), **more: Any) -> None:
    beat = Heartbeat(HeartbeatSource.AGENT, node, node, 1, place.count, 0.0, 3.0, problems=problems)
    write(place.share / f"{node}.json", replace(beat, **more))


def job(place: Monitored, job_id: str = "200", node: str = "gpu01", *, of: str = "") -> None:
    """A sign of life of a job, written in the directory of the job `of`, which is mostly its own."""
    tracks = JobFiles(place.fences / (of or job_id) / "attempts" / "1" / f"{node}-7")
    tracks.make()
    write(
        tracks.heartbeat, Heartbeat(HeartbeatSource.JOB, node, node, 7, place.count, 0.0, 5.0, job_id=job_id, token=1)
    )


def actions(place: Monitored) -> list[Any]:
    planned = [row.action for row in place.world.journal.planned()]
    return [(action.kind, action.node) for action in planned if action.kind in ("down", "drain")]


def live(place: Monitored, seconds: int, *, beating: tuple[str, ...] = (), step_s: float = 2.0) -> None:
    """Let time pass; the agents of `beating` beat."""
    for _ in range(int(seconds / step_s)):
        place.world.pass_time(step_s)
        place.count += 1
        for node in beating:
            agent(place, node)
        place.monitor.look()


def test_an_agent_alone_that_falls_silent_proves_nothing(place: Monitored) -> None:
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    live(place, 60, beating=("gpu02", "gpu04"))
    assert actions(place) == []


def test_an_agent_and_a_job_that_fall_silent_together_set_their_node_down_once(place: Monitored) -> None:
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    job(place)
    live(place, 14, beating=("gpu02", "gpu04"))
    assert actions(place) == []  # three heartbeats of the slower of the two are not missed yet
    live(place, 60, beating=("gpu02", "gpu04"))
    assert actions(place) == [("down", "gpu01")]
    (record,) = [r for r in place.world.state.chain.ended.values() if r.type == "node.unreachable"]
    assert set(record.evidence) == {"agent", "job 200"}


def lose_sight_of(place: Monitored, node: str, state: NodeState = NodeState.UNKNOWN) -> None:
    place.world.nodes[node] = replace(place.world.nodes[node], state=state)
    place.world.look()


def test_a_job_and_the_manager_that_lose_a_node_for_long_set_it_down(place: Monitored) -> None:
    for node in ("gpu02", "gpu04"):
        agent(place, node)
    job(place)
    live(place, 30, beating=("gpu02", "gpu04"))
    lose_sight_of(place, "gpu01")
    live(place, 10, beating=("gpu02", "gpu04"))
    assert actions(place) == []
    live(place, 20, beating=("gpu02", "gpu04"))
    assert actions(place) == [("down", "gpu01")]


def test_each_node_that_the_manager_loses_has_a_time_of_its_own(place: Monitored) -> None:
    place.world.submit("201", "resnet", "mira", 8)
    place.world.start("201", "gpu02")
    job(place)
    job(place, "201", "gpu02")
    live(place, 30)
    lose_sight_of(place, "gpu01")
    live(place, 6)
    lose_sight_of(place, "gpu02")
    live(place, 6)
    assert actions(place) == [("down", "gpu01")]
    live(place, 6)
    assert actions(place) == [("down", "gpu01"), ("down", "gpu02")]


def test_a_node_that_the_manager_loses_again_has_to_stay_lost_as_long(place: Monitored) -> None:
    job(place)
    live(place, 30)
    for _ in range(2):
        lose_sight_of(place, "gpu01")
        live(place, 6)
        lose_sight_of(place, "gpu01", NodeState.UP)
        live(place, 20)
    assert actions(place) == []
    lose_sight_of(place, "gpu01")
    live(place, 16)
    assert actions(place) == [("down", "gpu01")]


def test_a_file_in_the_directory_of_one_job_does_not_speak_for_another(place: Monitored) -> None:
    place.world.submit("201", "resnet", "mira", 8)
    place.world.start("201", "gpu02")
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    job(place, "201", "gpu02", of="200")
    live(place, 60, beating=("gpu01", "gpu04"))
    assert actions(place) == []
    job(place, "201", "gpu02")
    live(place, 60, beating=("gpu01", "gpu04"))
    assert actions(place) == [("down", "gpu02")]


@pytest.mark.parametrize("at", [0, 1])
def test_a_job_beats_in_any_of_the_directories_of_fences(place: Monitored, at: int) -> None:
    fences = [place.share.with_name("other"), place.share.with_name("third")]
    fences.insert(at, place.fences)
    place.monitor = HeartbeatMonitor(place.share, fences, place.world.tell, place.world.view)
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    job(place)
    live(place, 60, beating=("gpu02", "gpu04"))
    assert actions(place) == [("down", "gpu01")]


def test_a_manager_that_has_just_been_started_proves_nothing(place: Monitored) -> None:
    job(place)
    live(place, 30)
    lose_sight_of(place, "gpu01")
    live(place, 10)
    lose_sight_of(place, "gpu01", NodeState.UP)
    live(place, 60)
    assert actions(place) == []


def test_while_the_manager_is_away_silence_proves_nothing(place: Monitored) -> None:
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    job(place)
    place.world.unseen = {"controller": "no answer"}
    place.world.look()
    live(place, 60, beating=("gpu02", "gpu04"))
    assert actions(place) == []


def test_a_job_that_still_beats_contradicts(place: Monitored) -> None:
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    for _ in range(30):
        place.world.pass_time(2.0)
        place.count += 1
        job(place)
        place.monitor.look()
    assert actions(place) == []


def test_heartbeats_of_a_job_speak_only_for_where_it_runs(place: Monitored) -> None:
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
    job(place, node="gpu02")
    live(place, 80, beating=("gpu01", "gpu04"))
    assert actions(place) == []


def test_when_all_fall_silent_at_once_the_observer_is_blind(place: Monitored) -> None:
    for node in ("gpu01", "gpu02", "gpu04"):
        agent(place, node)
        job_id = f"9{node[-1]}"
        place.world.submit(job_id, "x", "mira", 1)
        place.world.start(job_id, node)
        job(place, job_id, node)
    live(place, 80)
    assert actions(place) == []


def test_that_heartbeats_are_not_believed_is_said_once_each_time(
    place: Monitored, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = ("gpu01", "gpu02", "gpu04")
    for node in nodes:
        agent(place, node)
        job_id = f"9{node[-1]}"
        place.world.submit(job_id, "x", "mira", 1)
        place.world.start(job_id, node)
        job(place, job_id, node)
    for _ in range(2):
        live(place, 80)
        live(place, 10, beating=nodes)
    assert [r.getMessage().partition(":")[0] for r in caplog.records].count("heartbeats are not believed") == 2


def test_what_an_agent_says_is_wrong_drains_its_node_once(place: Monitored) -> None:
    agent(place, "gpu02", ("/scratch cannot be read",))
    for _ in range(5):
        place.monitor.look()
    assert actions(place) == [("drain", "gpu02")]
    (record,) = [r for r in place.world.state.chain.ended.values() if r.type == "node.health"]
    assert (record.evidence, record.repeats) == (("/scratch cannot be read",), 0)


def test_each_agent_speaks_for_its_own_node(place: Monitored) -> None:
    agent(place, "gpu01")
    agent(place, "gpu02", ("/scratch cannot be read",))
    agent(place, "gpu03", ("ECC errors: 3",))
    agent(place, "gpu04", ("this one has ended",), is_over=True)
    place.monitor.look()
    assert sorted(actions(place)) == [("drain", "gpu02"), ("drain", "gpu03")]


def test_an_unknown_node_is_nobodys(place: Monitored) -> None:
    agent(place, "elsewhere", ("broken",))
    place.monitor.look()
    assert actions(place) == []


def test_a_directory_that_is_gone_is_an_error_and_no_silence(place: Monitored) -> None:
    agent(place, "gpu02")
    place.monitor.look()
    (place.share / "gpu02.json").unlink()
    place.share.rmdir()
    with pytest.raises(OSError, match="agents"):
        place.monitor.look()
    assert actions(place) == []


def test_a_directory_that_anybody_may_write_is_believed_by_nobody(place: Monitored) -> None:
    """Whoever may write there can forge an agent: checked where the words are read, not only where they are written."""
    agent(place, "gpu02", ("forged",))
    place.share.chmod(0o777)
    engine: Any = None  # it comes to none
    with pytest.raises(ConfigError, match="anybody may write"):
        heartbeats(CoordinationSettings(agents=place.share), engine, threading.Event())
    with pytest.raises(ConfigError, match="anybody may write"):
        place.monitor.look()
    assert actions(place) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
def test_a_strangers_word_in_the_agents_directory_drains_nothing(place: Monitored) -> None:
    agent(place, "gpu02", ("forged",))
    os.chown(place.share / "gpu02.json", 65534, 65534)
    place.monitor.look()
    assert actions(place) == []
