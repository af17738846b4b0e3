"""The migrations lead to the schema that the code uses, from everywhere."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.command import upgrade
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from perdure.service import migrations, store
from perdure.service.journal import Journal
from perdure.service.schema import metadata
from perdure.service.store import SCHEMA, VERSION_TABLE, Store


def config():
    made = Config()
    made.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return made


def revisions():
    """All released schemas, the oldest first."""
    return [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()][::-1]


def test_the_newest_migration_is_the_one_that_the_store_asks_for():
    assert ScriptDirectory.from_config(config()).get_heads() == [SCHEMA]


def test_the_migrated_schema_is_the_schema(where):
    opened = Store.open(where, "c")
    with opened.writing() as db:
        context = MigrationContext.configure(db, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, metadata) == []
    opened.close()


@pytest.mark.parametrize("revision", revisions())
def test_every_released_schema_is_brought_up_to_date(where, revision, monkeypatch):
    def to_that_revision(db, *_):
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
