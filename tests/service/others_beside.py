"""To a cluster's journal the same once more, of users, nodes, jobs, exceptions and programs with other names."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from perdure.service.store.schema import metadata
from tests.laws.beside import MARK
from tests.laws.moved import Moved
from tests.service.full_world import USERS

_OTHERS_JOB = 50_000
_NAME = re.compile(r"gpu\d\d|odd|mine|again|scratch|kept|trainer|tonight|llm|unet")
_JOB = re.compile(r"\d{3,4}")
OF_ALL = re.compile(r"\n.*Seen \d+ times this week.*")  # failures alike, whose ever job it was


def _as_other(word: str) -> str:
    if word in USERS or _NAME.fullmatch(word):
        return f"{word}{MARK}"
    return str(int(word) + _OTHERS_JOB) if _JOB.fullmatch(word) else word


def is_of_others(text: str) -> bool:
    return MARK in text or re.search(r"\b5[01]\d{3}\b", text) is not None


def add_others(database: Path) -> None:
    """Each row of each table once more, with the names of others."""
    moved = Moved(_as_other)
    with sqlite3.connect(database) as db:
        for table in metadata.sorted_tables:
            names = [column.name for column in table.columns if column.name != "seq"]
            rows = db.execute(f"SELECT {', '.join(names)} FROM {table.name}").fetchall()
            into = f"INSERT OR IGNORE INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            db.executemany(into, [[moved(value) for value in row] for row in rows])
