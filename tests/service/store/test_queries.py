"""What is read from the journal."""

import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from perdure.coordination.playbook import own_playbook
from perdure.errors import NotFound
from perdure.model.jobs import AttemptState
from perdure.service.store.queries import actions, events, jobs, nodes, summary, totals
from perdure.service.store.queries.reader import Reader
from tests.copying import replace
from tests.service.web_world import CLUSTER, HOUR, RESET, World, fill


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("queries"), 1_790_000_000.0)
    fill(world)
    return world


@pytest.fixture(scope="module")
def reader(world: World) -> Reader:
    return Reader(world.journal.engine, CLUSTER)


def test_the_load_counts_jobs_that_are_not_over(reader: Reader) -> None:
    load = summary.load(reader)
    standing = {state: (found.jobs, found.gpus) for state, found in load.items()}
    assert standing == {"held": (1, 1), "pending": (1, 1), "running": (1, 16)}


def test_causes_are_counted_since_an_instant(world: World, reader: Reader) -> None:
    causes = {cause.category: cause for cause in summary.causes(reader, world.now - 24 * HOUR)}
    assert (causes["net"].failures, causes["net"].recovered) == (2, 1)
    assert 1.9 < causes["shape"].saved_gpu_h < 2.0  # the chance that a retry fails, of the two hours that it burns
    assert summary.causes(reader, world.now + 1) == ()


def test_spells_add_up_to_the_causes(world: World, reader: Reader) -> None:
    since = world.now - 24 * HOUR
    spells = summary.spells(reader, since, world.now, HOUR)
    causes = summary.causes(reader, since)
    assert len(spells) == 25
    assert sum(spell.wasted_gpu_h for spell in spells) == pytest.approx(sum(c.wasted_gpu_h for c in causes))
    assert sum(spell.failures for spell in spells) == sum(cause.failures for cause in causes)


def test_decisions_come_with_their_verdict_and_numbers(reader: Reader) -> None:
    latest = summary.latest_decisions(reader, 10)
    assert [row.exception.record.subject.job_id for row in latest][-2:] == ["102", "101"]
    assert all(row.exception.decided is not None and row.verdict is not None for row in latest)


def test_gpus_in_use_are_those_of_running_attempts(reader: Reader) -> None:
    assert nodes.gpus_in_use(reader) == {"gpu05": 8, "gpu06": 8}
    assert summary.gpus(reader) == 48


def test_failures_are_put_down_to_the_nodes_that_failed(world: World, reader: Reader) -> None:
    failures = nodes.recent_failures(reader, world.now - 24 * HOUR)
    assert [f.category for f in failures["gpu03"]] == ["node_loss"]
    assert [f.job_id for f in failures["gpu02"]] == ["102"]


def test_failures_of_infrastructure_are_told_from_those_of_jobs(reader: Reader) -> None:
    failures = nodes.recent_failures(reader, 0.0)
    told = {failure.category: failure.infrastructure for found in failures.values() for failure in found}
    assert (told["node_loss"], told["shape"]) == (True, False)


def test_another_clusters_rows_are_not_seen(world: World) -> None:
    other = Reader(world.journal.engine, "borealis")
    assert jobs.find_jobs(other).items == ()
    assert nodes.find_nodes(other).items == ()
    assert actions.find_actions(other).items == ()
    assert events.events_after(other, 0, 10).items == ()
    assert summary.latest_decisions(other, 10) == ()
    found = totals.totals(other, own_playbook())
    assert not any(getattr(found, f.name) for f in fields(found) if f.name not in ("gpu_h", "journal_bytes"))
    assert set(found.gpu_h.values()) == {0}
    with pytest.raises(NotFound):
        jobs.job_detail(other, "101")


def test_a_partition_narrows_to_jobs_that_may_run_there(tmp_path: Path) -> None:
    """Slurm writes several as "a,b" while a job waits; names are told apart by their case."""
    world = World(tmp_path, 1000.0)
    for number, partition in enumerate(("a", "b,a", "ab", "A", "c,a,b", "", "a_b", "a%")):
        world.submit(str(number), look=False)
        world.jobs[str(number)] = replace(world.jobs[str(number)], partition=partition)
    world.look()
    reader = Reader(world.journal.engine, CLUSTER)

    def found(partition: str) -> set[Any]:
        return {row.job.job_id for row in jobs.find_jobs(reader, partition=partition).items}

    assert found("a") == {"0", "1", "4"}
    assert (found("b"), found("A"), found("_"), found("a%"), found("b,a")) == ({"1", "4"}, {"3"}, set(), {"7"}, {"1"})
    world.start("1", "gpu01")
    world.end("1", RESET)
    assert [row.job_id for row in actions.find_actions(reader, partition="a").items] == ["1"]
    assert actions.find_actions(reader, partition="c").items == ()


def test_text_that_no_database_takes_is_looked_for_without_harm(reader: Reader) -> None:
    for text in ("\0", "\ud800", "%", "_", "\\", "'", '"; drop table jobs; --'):
        assert jobs.find_jobs(reader, text=text, user="").items == ()
        assert jobs.find_jobs(reader, user=text).items == ()


def test_reading_never_writes(world: World, reader: Reader) -> None:
    statements = []
    engine = world.journal.engine
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    jobs.job_detail(reader, "101")
    summary.latest_decisions(reader, 5)
    totals.totals(reader, own_playbook())
    assert statements
    assert all(statement.lstrip().startswith(("SELECT", "BEGIN")) for statement in statements)


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: jobs.find_jobs(reader, states=["running"]),
        lambda reader: jobs.find_jobs(reader, user="mira"),
        lambda reader: jobs.job_detail(reader, "101"),
        lambda reader: actions.actions_of(reader, "101"),
        lambda reader: summary.load(reader),
        lambda reader: summary.causes(reader, time.time()),
        lambda reader: summary.spells(reader, 0.0, 10.0, 1.0),
        lambda reader: summary.latest_decisions(reader, 10),
        lambda reader: nodes.recent_failures(reader, 0.0),
        lambda reader: nodes.gpus_in_use(reader),
        lambda reader: events.events_after(reader, 5, 10),
    ],
)
def test_questions_that_pages_ask_all_the_time_go_by_an_index(
    world: World, reader: Reader, ask: Callable[[Any], object]
) -> None:
    plans = []
    engine = world.journal.engine

    def explain(connection: Connection, cursor: str, statement: str, parameters: Any, *_: object) -> None:
        if not statement.startswith("EXPLAIN"):
            found = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in found)

    event.listen(engine, "before_cursor_execute", explain)
    try:
        ask(reader)
    finally:
        event.remove(engine, "before_cursor_execute", explain)
    assert plans
    sorts = any("ORDER BY" in plan for plan in plans)
    scans = [plan for plan in plans if plan.startswith("SCAN") and "USING" not in plan and "SUBQUERY" not in plan]
    assert not (sorts and scans)  # reading backwards by the key until there is enough needs no sorting
    assert not any(plan.endswith("(cluster=?)") for plan in plans)  # the whole cluster


def test_a_verdict_that_is_not_there_yet_is_none(tmp_path: Path) -> None:
    world = World(tmp_path, 1000.0)
    world.submit("1")
    world.start("1", "gpu01")
    detail = jobs.job_detail(Reader(world.journal.engine, CLUSTER), "1")
    assert detail.attempts[0].verdict is None
    world.end("1", RESET)
    detail = jobs.job_detail(Reader(world.journal.engine, CLUSTER), "1")
    assert detail.attempts[0].verdict.category == "net"


def test_a_node_that_stayed_up_is_not_told_of_anothers_failure(tmp_path: Path) -> None:
    world = World(tmp_path, 1_790_000_000.0)
    world.submit("900", "wide", "mira", 16)
    world.start("900", "gpu01", "gpu02")
    world.end("900", b"", AttemptState.NODE_FAIL, failed_nodes=("gpu02",))
    found = nodes.recent_failures(Reader(world.journal.engine, CLUSTER), 0.0)
    assert [failure.job_id for failure in found["gpu02"]] == ["900"]
    assert not found.get("gpu01")
