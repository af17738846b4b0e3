"""Suspects in the service: found in the journal's attempts, told of, shown, taken back."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from sqlalchemy import select

from perdure.blame.accuse import Accusation
from perdure.blame.builders.attempts import AttemptRow
from perdure.blame.builders.topology import NO_SWITCHES, Topology, read_topology
from perdure.blame.standing import Standing, WindowChange
from perdure.cli.job import explain_job
from perdure.coordination.messages import (
    Input,
)
from perdure.coordination.record import Scope
from perdure.errors import ConfigError
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.service.blame import suspect_store
from perdure.service.blame.announce import in_words, suspect_to_exception
from perdure.service.blame.settings import BlameSettings
from perdure.service.blame.suspect_store import SuspectStore
from perdure.service.blame.watch import Watch
from perdure.service.core.messages import ChainInput
from perdure.service.runtime.assembly import topology_of
from perdure.service.settings import Settings
from perdure.service.store import schema
from perdure.service.store.packed import unpack
from perdure.service.store.queries import suspects
from perdure.service.store.queries.reader import Reader
from perdure.service.store.schema import events
from perdure.service.web.pages.blame import picture_of
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace
from tests.service.web_world import CLUSTER, RESET, SHAPE, Site, World, site

SICK = "gpu03"


@pytest.fixture
def place(tmp_path: Path) -> Site:
    return site(tmp_path)


def run(world: World, number: int, user: str, node: str, good: bool, log: bytes = RESET, **more: Any) -> None:
    job_id = str(1000 + number)
    world.submit(job_id, f"train-{user}", user, look=False)
    world.start(job_id, node)
    if good:
        world.end(job_id, b"done\n", AttemptState.COMPLETED)
    else:
        world.end(job_id, log, **more)
    world.pass_time(5)


def an_hour(
    world: World,
    fails: Callable[[Any, Any], Any],
    users: tuple[str, ...] = ("mira", "jonas", "aiko", "tunde"),
    begin: int = 0,
    rounds: int = 3,
) -> int:
    number = begin
    for _ in range(rounds):
        for user in users:
            for node in world.nodes:
                run(world, number, user, node, not fails(user, node))
                number += 1
    return number


def watch_of(world: World, topology: Topology = NO_SWITCHES, mounts: tuple[str, ...] = (), **settings: Any) -> Watch:
    def tell(
        inputs: Iterable[Input],
    ) -> None:
        world.take(ChainInput(world.now, tuple(inputs)))

    return Watch(
        SuspectStore(world.journal.store, CLUSTER, topology, mounts), BlameSettings(**settings), lambda: world.now, tell
    )


def test_suspects_are_a_file_sorted_and_lead_to_their_node(place: Site) -> None:
    an_hour(place.world, lambda user, node: node == SICK)
    watch = watch_of(place.world)
    watch.turn()
    watch.turn()
    operator = place.client(place.operator)
    header, row = operator.get("/blame?format=csv&sort=-fails").text.splitlines()
    assert header.startswith("suspect,tier,or,how,failed,passed")
    assert row.startswith(f"{SICK},node,,")
    page = operator.get("/blame").text
    assert f'href="/nodes/{SICK}"' in page
    assert f"attempts on node {SICK} failed" in page
    assert "Suspect.</strong>" in operator.get(f"/nodes/{SICK}").text


def test_of_cleared_suspects_the_newest_of_each_cluster_are_kept(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspect_store, "MAX_CLEARED", 2)
    journal = place.world.journal
    with journal.store.writing() as db:
        for cluster in ("other", CLUSTER):
            for at_s in range(4):
                row = {
                    "cluster": cluster,
                    "id": f"{cluster}{at_s}",
                    "since_s": at_s,
                    "cleared_s": at_s,
                    "payload": "{}",
                }
                db.execute(schema.suspects.insert(), row)
    SuspectStore(journal.store, CLUSTER).note(WindowChange(()), 9.0)
    with journal.engine.connect() as db:
        kept = [row.id for row in db.execute(select(schema.suspects.c.id).order_by(schema.suspects.c.id))]
    assert kept == [f"{CLUSTER}2", f"{CLUSTER}3", *(f"other{at_s}" for at_s in range(4))]


def names(found: tuple[Standing, ...]) -> list[Any]:
    return [each.accusation.components[0] for each in found]


def told(world: World) -> list[Any]:
    """What the chain's events say of suspects."""
    query = select(events.c.payload).where(events.c.kind == "exception_changed").order_by(events.c.seq)
    with world.journal.engine.connect() as db:
        records = [json.loads(unpack(row.payload))["record"] for row in db.execute(query)]
    return [record for record in records if record["type"].startswith("suspect")]


def test_a_node_that_fails_everybody_is_named_and_cleared(place: Site) -> None:
    world = place.world
    watch = watch_of(world)
    end = an_hour(world, lambda user, node: node == SICK)
    assert names(watch.turn()) == [("node", SICK)]
    an_hour(world, lambda user, node: False, begin=end)
    world.pass_time(3600)
    for _ in range(3):
        world.pass_time(300)
        left = watch.turn()
    assert left == ()
    first, *_, last = told(world)
    assert first["id"] == last["id"]
    assert first["subject"]["nodes"] == [SICK]
    assert (first["scope"], first.get("outcome", ""), last["outcome"]) == ("local", "", "withdrawn")
    assert {row.action.kind for row in world.journal.planned()} <= {"requeue"}  # suspicion alone drains nothing
    assert suspects.standing(Reader(world.journal.engine, CLUSTER)) == ()
    assert len(suspects.cleared(Reader(world.journal.engine, CLUSTER))) == 1


def test_an_attempt_that_is_judged_after_a_look_speaks_at_the_next() -> None:
    """It ended before that look: what is read begins so much earlier as judging may take."""
    rows = {}
    for number, user in enumerate(("mira", "jonas", "aiko", "tunde") * 10):
        for node in ("n1", "n2", "n3"):
            rows[f"{number}.{node}"] = AttemptRow(3000.0 + number, user, "train", (node,), failed=node == "n3")
    store: Any = SimpleNamespace(cluster=CLUSTER, standing=lambda: (), note=lambda turn, now: None)
    clock = iter((3600.0, 3900.0))
    judged = [{key: row for key, row in rows.items() if not row.failed}, rows]
    store.ended_since = lambda since_s: [(key, row) for key, row in judged.pop(0).items() if row.end_s > since_s]
    watch = Watch(store, BlameSettings(), lambda: next(clock), lambda inputs: None)
    assert names(watch.turn()) == []
    assert names(watch.turn()) == [("node", "n3")]


def test_a_restart_neither_names_it_again_nor_forgets_it(place: Site) -> None:
    world = place.world
    an_hour(world, lambda user, node: node == SICK)
    watch_of(world).turn()
    world.pass_time(300)
    assert names(watch_of(world).turn()) == [("node", SICK)]
    assert len({record["id"] for record in told(world)}) == 1


def test_what_triage_calls_deterministic_accuses_no_node(place: Site) -> None:
    world = place.world
    end = an_hour(world, lambda user, node: False, rounds=1)
    for number in range(30):
        run(world, end + number, ("mira", "jonas", "aiko")[number % 3], SICK, False, SHAPE)
    assert not [one for one in names(watch_of(world).turn()) if one[0] == "node"]


def test_nor_do_a_thousand_failures_of_one_user(place: Site) -> None:
    world = place.world
    end = an_hour(world, lambda user, node: False, rounds=2)
    for number in range(60):
        run(world, end + number, "eve", SICK, False)
    found = {one for each in watch_of(world).turn() for one in each.accusation.components}
    assert {tier for tier, _ in found} <= {"code", "user"}


def test_preempted_and_cancelled_attempts_tell_nothing(place: Site) -> None:
    world = place.world
    for number, state in enumerate((AttemptState.PREEMPTED, AttemptState.CANCELLED, AttemptState.LOST)):
        run(world, number, "mira", SICK, False, b"", state=state)
    assert suspects.ended_since(Reader(world.journal.engine, CLUSTER), 0.0) == []


def test_what_the_resource_manager_saw_go_down_is_read_with_it(place: Site) -> None:
    run(place.world, 1, "mira", SICK, False, b"", state=AttemptState.NODE_FAIL, failed_nodes=(SICK,))
    ((_, row),) = suspects.ended_since(Reader(place.world.journal.engine, CLUSTER), 0.0)
    assert (row.failed, row.down, row.deterministic) == (True, (SICK,), False)


def standing(*components: tuple[str, str], kind: Literal["hard", "gray", "partial"] = "hard") -> Standing:
    return Standing(components[0], Accusation(components, kind, 0.9, 0.7, 1.0, 9, 1, 3, 30.0), 100.0, 400.0)


@pytest.mark.parametrize(
    ("component", "scope", "nodes", "resource"),
    [
        (("node", "n1"), Scope.LOCAL, ("n1",), ""),
        (("code", "ann/x"), Scope.LOCAL, (), "code:ann/x"),
        (("storage", "pfs"), Scope.GLOBAL, (), "storage:pfs"),
        (("leaf", "l1"), Scope.GLOBAL, (), "leaf:l1"),
    ],
)
def test_a_nodes_exception_is_local_and_a_shared_parts_is_global(
    component: tuple[str, str], scope: Scope, nodes: tuple[str, ...], resource: str
) -> None:
    record = suspect_to_exception(standing(component), "c")
    assert (record.scope, record.subject.nodes, record.subject.resource) == (scope, nodes, resource)
    assert record.type == f"suspect.{component[0]}"
    assert record.evidence == (in_words(standing(component)),)


def test_its_id_stays_as_its_class_changes() -> None:
    one = suspect_to_exception(standing(("node", "n1")), "c")
    other = suspect_to_exception(standing(("node", "n1"), ("leaf", "l1")), "c")
    assert one.id == other.id
    assert "nothing tells it from leaf l1" in other.note


def test_its_id_stays_when_another_of_its_class_comes_to_stand_for_it() -> None:
    """By that id it is cleared: under another the exception that named it would stay open for ever."""
    named = standing(("node", "n1"))
    later = replace(named, accusation=standing(("leaf", "l1"), ("node", "n1")).accusation)
    assert suspect_to_exception(later, "c").id == suspect_to_exception(named, "c").id


def test_a_gray_suspect_is_less_severe_than_one_that_is_down() -> None:
    down, gray = (suspect_to_exception(standing(("node", "n1"), kind=kind), "c") for kind in ("hard", "gray"))
    assert down.severity < gray.severity


def test_the_api_tells_who_stands_accused(place: Site) -> None:
    an_hour(place.world, lambda user, node: node == SICK)
    watch_of(place.world).turn()
    for token in (place.operator, place.mira):
        said = place.client(token).get("/api/v1/suspects").json()
        (one,) = said["suspects"]
        assert (one["tier"], one["component"], one["kind"], one["units"], one["users"]) == ("node", SICK, "hard", 12, 4)
        assert one["rate_low"] < one["rate"] <= one["rate_high"]
        assert said["cleared"] == []
    assert place.client().get("/api/v1/suspects").status_code == 401


def test_the_page_shows_suspects_in_words_and_as_a_picture(place: Site) -> None:
    an_hour(place.world, lambda user, node: node == SICK)
    watch_of(place.world).turn()
    text = place.client(place.mira).get("/blame").text
    assert "12 of 12 attempts on node gpu03 failed" in text
    assert text.count('class="heat-frame"') == 1
    assert f"{SICK}, mira: 3 of 3 attempts failed" in text


def test_an_empty_cluster_accuses_nobody(place: Site) -> None:
    assert watch_of(place.world).turn() == ()
    text = place.client(place.mira).get("/blame").text
    assert "No node, user or job stands out" in text
    assert "the failures of the last hour have in common" in text
    assert picture_of([], ()) is None


def test_hostile_names_stay_text(place: Site) -> None:
    world = place.world
    user = "<script>alert(1)</script>\u202e"
    an_hour(world, lambda who, node: node == SICK, users=("mira", "jonas", user))
    watch_of(world).turn()
    text = place.client(place.mira).get("/blame").text
    assert "<script>alert(1)" not in text
    json.dumps(place.client(place.mira).get("/api/v1/suspects").json())


def test_why_tells_what_befell_others_on_the_node(place: Site, capsys: pytest.CaptureFixture[str]) -> None:
    world = place.world
    for number, user in enumerate(("mira", "jonas", "mira")):
        run(world, number, user, SICK, False, b"", state=AttemptState.NODE_FAIL, failed_nodes=(SICK,))
    run(world, 3, "aiko", SICK, False, SHAPE)
    run(world, 9, "tunde", SICK, False, RESET)
    client = place.client(place.mira)
    found = client.get("/api/v1/jobs/1009").json()
    assert found["places"] == [{"node": SICK, "failures": 4, "infrastructure": 3, "users": 2}]
    line = f"3 of the last 4 failures of other jobs on {SICK} were failures of infrastructure, of 2 users"
    assert line in client.get("/jobs/1009").text
    told: Any = SimpleNamespace(get=lambda _: found)
    explain_job("1009", told, as_json=False)
    assert line in capsys.readouterr().out


def test_a_node_without_a_past_is_no_evidence(place: Site) -> None:
    run(place.world, 1, "mira", SICK, False, RESET)
    assert place.client(place.mira).get("/api/v1/jobs/1001").json()["places"] == []


def test_a_switch_that_fails_what_runs_over_it_is_named_and_is_global(place: Site) -> None:
    """Three leaves of two nodes; what runs below the second fails."""
    world = place.world
    lines = [f"SwitchName=l{k} Nodes=gpu0{2 * k - 1},gpu0{2 * k}" for k in (1, 2, 3)]
    an_hour(world, lambda user, node: node in ("gpu03", "gpu04"))
    watch = watch_of(world, topology=read_topology([*lines, "SwitchName=s Switches=l[1-3]"]))
    watch.turn()
    world.pass_time(300)
    assert names(watch.turn()) == [("leaf", "l2")]
    assert {record["scope"] for record in told(world)} == {"global"}


MOUNTS = ("/home", "/scratch", "/scratch/fast")


def writes_below(world: World, where_of: Callable[[Any], str]) -> None:
    """Every job's output lies where `where_of` says of its user."""
    begin = world.start

    def start(job_id: str, *nodes: str) -> None:
        begin(job_id, *nodes)
        path = f"{where_of(world.jobs[job_id].user)}/{job_id}.out"
        world.attempts[job_id] = replace(world.attempts[job_id], stdout=path)

    setattr(world, "start", start)  # noqa: B010


def test_a_file_system_that_fails_who_writes_to_it_is_named_and_is_global(tmp_path: Path) -> None:
    place = site(tmp_path, blame=BlameSettings(storage=MOUNTS))
    world = place.world
    writes_below(world, lambda user: "/scratch/fast/runs" if user in ("mira", "aiko") else "/home/x")
    an_hour(world, lambda user, node: user in ("mira", "aiko"))
    watch = watch_of(world, mounts=MOUNTS)
    watch.turn()
    world.pass_time(300)
    assert names(watch.turn()) == [("storage", "/scratch/fast")]
    assert {(r["scope"], r["subject"]["resource"]) for r in told(world)} == {("global", "storage:/scratch/fast")}
    text = place.client(place.operator).get("/blame").text
    assert "File systems by nodes" in text
    assert "/scratch/fast" in text


@pytest.mark.parametrize(
    ("path", "mounts"),
    [("/scratch/fast/a", ("/scratch/fast",)), ("/scratch/fastest/a", ("/scratch",)), ("/elsewhere/a", ()), ("", ())],
)
def test_an_output_lies_on_the_deepest_mount_above_it(path: str, mounts: tuple[str, ...]) -> None:
    attempt = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, stdout=path)
    assert suspects.storage_of(attempt, MOUNTS) == mounts


def test_a_file_of_switches_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    assert topology_of(Settings()) is NO_SWITCHES
    with pytest.raises(ConfigError, match="cannot be read"):
        topology_of(Settings(blame=BlameSettings(switches=tmp_path / "none")))
    (tmp_path / "topology.conf").write_text("SwitchName=l1 Nodes=n[1-2]\n")
    found = topology_of(Settings(blame=BlameSettings(switches=tmp_path / "topology.conf")))
    assert found.crossed(["n2"]) == (("leaf", "l1"),)


@pytest.mark.parametrize(
    ("verdict", "down", "nodes"),
    [
        (Verdict(Label.TRANSIENT, 0.7, "hang", "", node="n2"), (), ("n2",)),
        (Verdict(Label.TRANSIENT, 0.7, "hang", "", node="n9"), (), ("n1", "n2")),  # it did not run there
        (Verdict(Label.TRANSIENT, 0.7, "hang", ""), (), ("n1", "n2")),
        (Verdict(Label.TRANSIENT, 0.7, "hang", "", node="n2"), ("n1",), ("n1", "n2")),
        (Verdict(Label.TRANSIENT, 0.7, "nccl", "", node="n2"), (), ("n1", "n2")),
    ],
)
def test_a_hang_speaks_of_the_node_of_the_rank_that_stopped_first_alone(
    verdict: Verdict, down: tuple[str, ...], nodes: tuple[str, ...]
) -> None:
    attempt = Attempt(AttemptId("c", "7", 1), AttemptState.FAILED, ("n1", "n2"), 0.0, 90.0, failed_nodes=down)
    found = suspects.row_of(attempt, "train", "ada", verdict)
    assert found is not None
    assert found.nodes == nodes
