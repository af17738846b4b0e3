"""The migrations lead to the schema that the code uses, from everywhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.command import upgrade
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from perdure.model.events import NodeGone
from perdure.model.identity import AttemptId
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Journalled
from perdure.service.learning.outcome_store import OutcomeStore
from perdure.service.store import codec, migrations
from perdure.service.store import database as store
from perdure.service.store.database import SCHEMA, VERSION_TABLE, Store
from perdure.service.store.journal import Journal
from perdure.service.store.queries.events import events_after
from perdure.service.store.queries.reader import Reader
from perdure.service.store.schema import metadata
from tests.new_database import by_migrations


@pytest.fixture(autouse=True)
def _as_a_user_opens_it() -> Iterator[None]:
    with by_migrations():
        yield


def config() -> Config:
    made = Config()
    made.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return made


def revisions() -> list[str]:
    """All released schemas, the oldest first."""
    return [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()][::-1]


def test_the_newest_migration_is_the_one_that_the_store_asks_for() -> None:
    assert ScriptDirectory.from_config(config()).get_heads() == [SCHEMA]


def test_the_migrated_schema_is_the_schema(where: Path | str) -> None:
    opened = Store.open(where, "c")
    with opened.writing() as db:
        context = MigrationContext.configure(db, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, metadata) == []
        catalogue = "SELECT indexname, indexdef FROM pg_indexes"
        if opened.dialect == "sqlite":
            catalogue = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        partial = {name for name, definition in db.execute(text(catalogue)) if " WHERE " in definition}
    opened.close()
    every = [index for table in metadata.tables.values() for index in table.indexes]  # alembic does not compare WHERE
    assert partial == {each.name for each in every if each.dialect_options["sqlite"]["where"] is not None}


@pytest.mark.parametrize("revision", revisions())
def test_every_released_schema_is_brought_up_to_date(
    where: Path | str, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_that_revision(db: Any, *_: object) -> None:
        made = config()
        made.attributes["connection"] = db
        upgrade(made, revision)

    with monkeypatch.context() as then:
        then.setattr(store, "_bring_up_to_date", to_that_revision)
        Store.open(where, "c").close()
    journal = Journal.open(where, "c")
    with journal.engine.connect() as db:
        assert db.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == SCHEMA
    assert journal.planned() == []
    journal.close()


def test_what_was_set_aside_before_reasons_were_kept_has_none(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(db: Any, *_: object) -> None:
        made = config()
        made.attributes["connection"] = db
        upgrade(made, "0015_outcomes")
        columns, row = 'cluster, kind, value, time_s, "by"', "'c', 'user', 'eve', 0.0, 'root'"
        db.execute(text(f"INSERT INTO set_aside ({columns}) VALUES ({row})"))

    with monkeypatch.context() as then:
        then.setattr(store, "_bring_up_to_date", before)
        Store.open(where, "c").close()
    journal = Journal.open(where, "c")
    (held,) = OutcomeStore(journal.store, "c").set_aside()
    journal.close()
    assert (held.value, held.by, held.is_automatic) == ("eve", "root", False)


def test_who_counted_again_before_rows_were_named_does_from_the_outcomes_since(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(db: Any, *_: object) -> None:
        made = config()
        made.attributes["connection"] = db
        upgrade(made, "0017_policy_nice")
        for n, time_s in enumerate((1.0, 2.0, 9.0)):
            row = f"'c', 'j{n}', '~f', {time_s}, 'eve', true, ''"
            columns = 'cluster, job_id, fingerprint, time_s, "user", passed, message'
            db.execute(text(f"INSERT INTO outcomes ({columns}) VALUES ({row})"))
        for kind in ("trusted", "day"):
            columns, row = 'cluster, kind, value, time_s, "by"', f"'c', '{kind}', 'eve', 5.0, 'root'"
            db.execute(text(f"INSERT INTO set_aside ({columns}) VALUES ({row})"))

    with monkeypatch.context() as then:
        then.setattr(store, "_bring_up_to_date", before)
        Store.open(where, "c").close()
    journal = Journal.open(where, "c")
    held = OutcomeStore(journal.store, "c").set_aside()
    journal.close()
    assert {one.kind.value: one.since_seq for one in held} == {"trusted": 2, "day": 0}


FIRST_FORM = """{"id": "c/1#2:job.failed", "type": "job.oom", "severity": 0, "scope": "local", "time_s": 5.0,
    "subject": {"cluster": "c", "job_id": "1", "incarnation": 2}, "note": "", "state": "recovered",
    "answers": [{"component": "scheduler", "kind": "handled", "time_s": 6.0, "note": "again", "action_keys": ["k"]}]}"""


def test_exceptions_of_the_first_form_are_read_in_the_new_one(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_the_first_form(db: Any, *_: object) -> None:
        made = config()
        made.attributes["connection"] = db
        upgrade(made, "0003_good_runs")

    with monkeypatch.context() as then:
        then.setattr(store, "_bring_up_to_date", to_the_first_form)
        opened = Store.open(where, "c")
        with opened.writing() as db:
            values = {"id": "c/1#2:job.failed", "payload": FIRST_FORM}
            insert = (
                "INSERT INTO exceptions (id, cluster, job_id, incarnation, time_s, type, state, owner,"
                " decision, reason, wasted_gpu_h, saved_gpu_h, payload)"
                " VALUES (:id, 'c', '1', 2, 5.0, 'job.oom', 'recovered', '', '', '', 0, 0, :payload)"
            )
            db.execute(text(insert), values)
        opened.close()
    journal = Journal.open(where, "c")
    with journal.engine.connect() as db:
        record = codec.EXCEPTION.decode(db.scalar(text("SELECT CAST(payload AS TEXT) FROM exceptions")))
    journal.close()
    assert (record.attempt, record.state, record.outcome) == (AttemptId("c", "1", 2), "handled", "recovered")
    assert [(a.kind, a.action_keys) for a in record.verdicts] == [("handled", ("k",))]


def test_events_that_were_not_packed_are_read_beside_those_that_are(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_plain_events(db: Any, *_: object) -> None:
        made = config()
        made.attributes["connection"] = db
        upgrade(made, "0018_trusted_since")

    with monkeypatch.context() as then:
        then.setattr(store, "_bring_up_to_date", to_plain_events)
        opened = Store.open(where, "c")
        with opened.writing() as db:
            insert = (
                "INSERT INTO events (key, time_s, cluster, kind, job_id, payload)"
                " VALUES ('k', 5.0, 'c', 'node_gone', '', :payload)"
            )
            db.execute(text(insert), {"payload": '{"kind":"node_gone","node":"größe"}'})
        opened.close()
    journal = Journal.open(where, "c")
    journal.record([Journalled(NodeGone(6.0, "c", "n2"))], ControllerState("c"), ControllerState("c"))
    page = events_after(Reader(journal.engine, "c"), 0, 10)
    journal.close()
    assert [row.payload["node"] for row in page.items] == ["größe", "n2"]


def test_components_that_were_live_are_seen_anew_under_the_plain_id(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(db: Any, *_: object) -> None:
        made = config()
        made.attributes["connection"] = db
        upgrade(made, "0007_events")

    with monkeypatch.context() as then:
        then.setattr(store, "_bring_up_to_date", before)
        opened = Store.open(where, "c")
        insert = (
            'INSERT INTO jobs (cluster, job_id, name, "user", partition, state, gpus, node_count, submit_s, changed_s,'
            " payload) VALUES ('c', :id, '', '', '', :state, 0, 1, 1.0, 1.0, '{}')"
        )
        with opened.writing() as db:
            for job_id, state in (("12+0", "running"), ("12+1", "running"), ("9+0", "failed"), ("7", "running")):
                db.execute(text(insert), {"id": job_id, "state": state})
        opened.close()
    opened = Store.open(where, "c")
    with opened.engine.connect() as db:
        assert sorted(db.scalars(text("SELECT job_id FROM jobs"))) == ["7", "9+0"]
    opened.close()
