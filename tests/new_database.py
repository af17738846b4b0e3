"""Thousands of tests open a new database each: its schema is made once by the migrations, and then copied.

What the migrations themselves do is tested with `perdure.service.store.database` as it is: they start from a database
that exists, or ask for `by_migrations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from sqlalchemy import Connection, create_engine

from perdure.service.store import database

_migrate = database._upgrade


def copy_schema() -> None:
    """From now on a new SQLite database gets its schema as a copy, in this process."""
    database._upgrade = _copied


@contextmanager
def by_migrations() -> Iterator[None]:
    """New databases are made as a user's are."""
    before, database._upgrade = database._upgrade, _migrate
    try:
        yield
    finally:
        database._upgrade = before


def _copied(db: Connection, where: str, version: str | None) -> None:
    if version is not None or db.dialect.name != "sqlite":
        _migrate(db, where, version)
        return
    for statement in _schema():
        db.exec_driver_sql(statement)


@cache
def _schema() -> tuple[str, ...]:
    """What the migrations made of an empty database, tables first, and the version they left."""
    with create_engine("sqlite://").connect() as db:
        _migrate(db, ":memory:", None)
        made = db.exec_driver_sql(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
            "ORDER BY type <> 'table', rowid"
        )
        statements = [sql for (sql,) in made]
    return (*statements, f"INSERT INTO {database.VERSION_TABLE} VALUES ('{database.SCHEMA}')")
