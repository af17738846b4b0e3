"""A journal is opened, created or upgraded, and never overwritten."""

import os
import re
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from perdure.errors import MissingExtra, StateError, TakenOver
from perdure.installation import to_install
from perdure.service.store.database import FILE_NAME, ROOM_BYTES, VERSION_TABLE, Store
from tests.attacks.test_full_disk import fill, give_back, needs_mount, small_disk
from tests.new_database import by_migrations


def refused(where: Path | str) -> str:
    """The one line with which a journal is refused."""
    with pytest.raises(StateError) as error:
        Store.open(where, "c")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "new" / "state", "c")
    for path in (tmp_path / "new" / "state").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((tmp_path / "new" / "state").stat().st_mode) == 0o700
    store.close()


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    Store.open(tmp_path, "c").close()
    (tmp_path / FILE_NAME).chmod(0o644)
    Store.open(tmp_path, "c").close()
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_sqlite_commits_reach_the_disk(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "c")
    with store.writing() as db:
        found = {name: db.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")}
    assert found == {"journal_mode": "wal", "synchronous": 2}
    store.close()


def test_whether_one_can_write_is_known_before_it_matters(tmp_path: Path) -> None:
    """Where nothing was written for a while something is; and again and again once that failed."""
    store = Store.open(tmp_path, "c")
    store.wrote_s = just_now = time.monotonic() - 5
    store.probe(60.0)
    assert store.wrote_s == just_now
    store.probe(1.0)
    assert store.wrote_s > just_now
    with store.writing() as db:
        db.exec_driver_sql("ALTER TABLE owners RENAME TO gone")
    for every_s in (0.0, 60.0):
        with pytest.raises(StateError):
            store.probe(every_s)
        assert store.trouble
    store.close()


@pytest.mark.parametrize("content", [b"this is not a database, but it is somebody's\n" * 99, b"\0" * 5000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(content)
    assert "not a readable SQLite database" in refused(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE alembic_version (version_num TEXT)")
    db.close()
    before = path.read_bytes()
    assert "another program's database (it has alembic_version)" in refused(path)
    assert path.read_bytes()[100:] == before[100:]  # the header tells of WAL now


def test_a_newer_journal_is_refused_and_left_alone(tmp_path: Path) -> None:
    Store.open(tmp_path, "c").close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999_future'")
    db.close()
    assert "newer Perdure (schema '9999_future'). Upgrade Perdure" in refused(tmp_path)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be opened for writing" in refused(tmp_path / "file" / "state")
    assert "--state DIR" in refused(tmp_path / "file" / "state")


def test_a_directory_in_the_files_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    assert "cannot be opened for writing" in refused(tmp_path)


def test_a_journal_in_use_names_who_uses_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "c")
    assert f"in use by another service, process {os.getpid()}" in refused(tmp_path)
    store.close()


def test_a_creation_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import alembic.op

    def fail(*_: object, **__: Any) -> None:
        raise sqlite3.OperationalError("disk full")

    real = alembic.op.create_table
    monkeypatch.setattr(alembic.op, "create_table", lambda name, *a, **k: (fail if name == "cases" else real)(name, *a))
    with pytest.raises(sqlite3.OperationalError), by_migrations():
        Store.open(tmp_path, "c")
    monkeypatch.undo()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == []
    db.close()
    Store.open(tmp_path, "c").close()


def test_most_starts_need_no_alembic(tmp_path: Path) -> None:
    Store.open(tmp_path, "c").close()
    program = (
        "import sys; from perdure.service.store.database import Store; "
        "Store.open(sys.argv[1], 'c').close(); print([m for m in sys.modules if m.startswith('alembic')])"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("url", ["mysql://u@h/d", "oracle://u@h/d", "://", "postgres ql://"])
def test_other_urls_are_refused(url: str) -> None:
    assert "postgresql://USER@HOST/NAME" in refused(url)


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    words = refused(f"postgresql://ada:secret@/name?host={tmp_path}")
    assert "secret" not in words
    assert "does not work" in words


def test_without_its_driver_postgresql_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m == "psycopg" or m.startswith("psycopg.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=re.escape(to_install("postgres"))):
        Store.open("postgresql://ada@/name", "c")


@pytest.mark.postgres
def test_another_programs_postgresql_is_refused(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as db:
        db.execute("CREATE TABLE invoices (n int)")
    assert "another program's database (it has invoices)" in refused(postgres_database)


@needs_mount
def test_a_journal_on_a_full_disk_can_be_written_again_only_once_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        store = Store.open(disk, "c")
        try:
            _write(store, "CREATE TABLE t (x)")
            fill(disk)
            with pytest.raises(StateError, match="full"):
                _write(store, "INSERT INTO t VALUES (randomblob(4000000))")
            os.truncate(disk / "full", (disk / "full").stat().st_size - ROOM_BYTES // 2)
            store.probe(0.0)  # one page finds room, and a day's events do not
            assert "full" in store.trouble
            give_back(disk)
            store.probe(0.0)
            assert store.trouble == ""
        finally:
            store.close()
    assert [record.message for record in caplog.records] == [f"{store.where}: can be written again"]


def _write(store: Store, statement: str) -> None:
    with store.writing() as db:
        db.execute(text(statement))


@pytest.mark.postgres
def test_who_was_taken_over_meanwhile_writes_nothing_any_more(postgres_database: str) -> None:
    """Its connection breaks, another service has the cluster for a while, and dies: what the first remembers is old."""
    first = Store.open(postgres_database, "c")
    other_cluster = Store.open(postgres_database, "d")
    with psycopg.connect(postgres_database, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    Store.open(postgres_database, "c").close()
    for _ in range(2):
        with pytest.raises(StateError):  # the first time it finds its connection broken
            first.probe(0.0)
    with pytest.raises(TakenOver):
        first.probe(0.0)
    with pytest.raises(StateError, match="does not work"):
        other_cluster.probe(0.0)
    other_cluster.probe(0.0)  # nobody else had this one: it goes on
    first.close()
    other_cluster.close()
