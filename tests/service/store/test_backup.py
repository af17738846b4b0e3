"""A backup that is made while the service writes has all that was acknowledged before; what is kept how long."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from sqlalchemy import select

from perdure.cli.options import load_settings
from perdure.errors import ConfigError
from perdure.model.actions import Requeue
from perdure.model.identity import AttemptId
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Act
from perdure.service.store.journal import Journal
from perdure.service.store.schema import actions
from perdure.service.workers.threads import threads
from tests.conftest import require_program
from tests.service import postgres


def by_sqlite3(source: str, target: str) -> None:
    subprocess.run([require_program("sqlite3"), source, f".backup '{target}'"], check=True, timeout=120)


def by_vacuum(source: str, target: str) -> None:
    with sqlite3.connect(source) as db:
        db.execute("VACUUM INTO ?", (str(target),))


def by_python(source: str, target: str) -> None:
    """As the guide has it, for machines without sqlite3."""
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", code, source, target], check=True, timeout=120)


def plan(journal: Journal, number: int) -> str:
    """Plan an action; what this returns of is on the disk."""
    action = Requeue(AttemptId("c", str(number), 1))
    journal.record([Act(action, "perdure", "why", 1e12)], ControllerState("c"), ControllerState("c"))
    return str(number)


class Writer:
    """Writes without a pause, and tells what was acknowledged."""

    def __init__(self, journal: Journal) -> None:
        self.acknowledged = []
        self._journal, self._stop = journal, threading.Event()
        self._some = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self._thread.start()
        assert self._some.wait(120)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            self.acknowledged.append(plan(self._journal, number))
            number += 1
            if number == 50:
                self._some.set()


def planned(journal: Journal) -> set[Any]:
    with journal.engine.connect() as db:
        return set(db.scalars(select(actions.c.job_id)))


@pytest.mark.parametrize("copy", [by_sqlite3, by_vacuum, by_python])
def test_a_copy_of_sqlite_has_all_that_was_acknowledged_before(
    copy: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    state, restored = tmp_path / "state", tmp_path / "restored"
    restored.mkdir(mode=0o700)
    journal = Journal.open(state, "c")
    try:
        with Writer(journal) as writer:
            before = list(writer.acknowledged)
            copy(state / "journal.db", restored / "journal.db")
            seen = len(writer.acknowledged)
    finally:
        journal.close()
    assert seen >= len(before) >= 50
    check_restored(restored, before)
    with sqlite3.connect(restored / "journal.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def check_restored(where: Path | str, before: list[Any]) -> None:
    """It opens as any journal does, goes on, and knows what was planned."""
    again = Journal.open(where, "c")
    try:
        assert set(before) <= planned(again)
        assert len(again.planned()) >= len(before)
        again.restore()
        plan(again, 10**6)
        assert str(10**6) in planned(again)
    finally:
        again.close()


def test_the_bare_file_is_no_backup_while_the_service_runs(tmp_path: Path) -> None:
    """What the guide warns of: the newest is in the log beside it."""
    state, restored = tmp_path / "state", tmp_path / "restored"
    restored.mkdir(mode=0o700)
    journal = Journal.open(state, "c")
    plan(journal, 1)
    shutil.copy(state / "journal.db", restored / "journal.db")
    journal.close()
    again = Journal.open(restored, "c")
    assert planned(again) == set()
    again.close()


@pytest.mark.postgres
def test_a_dump_of_postgresql_has_all_that_was_acknowledged_before(
    postgres_url: str, postgres_database: str, tmp_path: Path
) -> None:
    programs, dump = postgres.programs(), tmp_path / "dump"
    assert programs is not None
    journal = Journal.open(postgres_database, "c")
    try:
        with Writer(journal) as writer:
            before = list(writer.acknowledged)
            subprocess.run(
                [programs / "pg_dump", "--format=custom", f"--file={dump}", postgres_database], check=True, timeout=120
            )
    finally:
        journal.close()
    restored = postgres.new_database(postgres_url, "restored")
    subprocess.run([programs / "pg_restore", "--exit-on-error", f"--dbname={restored}", dump], check=True, timeout=120)
    check_restored(restored, before)


def test_the_service_prunes_all_that_is_older_than_it_is_told_to_keep_step_by_step() -> None:
    stop, asked, left = threading.Event(), [], [1000, 7, 0]

    def prune(now: float, keep_days: Any) -> int:
        asked.append((now, keep_days))
        gone = left.pop(0)
        if not left:
            stop.set()
        return gone

    engine = MagicMock()
    engine.journal.prune.side_effect = prune
    engine.clock.return_value = 5.0
    (thread,) = [each for each in threads(engine, stop, 1.0, keep_days=7.0) if each.name == "prune"]
    thread.start()
    thread.join(10)
    stop.set()
    assert asked == [(5.0, 7.0)] * 3


@pytest.mark.parametrize("days", ["0", "0.5", "-1", "nan"])
def test_a_journal_is_kept_for_a_day_at_least(days: str, tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text(f"[service]\nkeep_days = {days}\n")
    with pytest.raises(ConfigError, match="keep_days"):
        load_settings(tmp_path / "perdure.toml", {})
