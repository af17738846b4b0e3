"""Exception records in full: what they are about, who raised them, all that was said; and who may be asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004_exceptions"
down_revision = "0003_good_runs"

OUTCOMES = ("recovered", "stopped", "withdrawn")


def upgrade() -> None:
    op.add_column("exceptions", sa.Column("of_attempt", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("exceptions", sa.Column("is_open", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("exceptions", sa.Column("said", sa.Integer, nullable=False, server_default="0"))
    op.create_index("exceptions_by_open", "exceptions", ["cluster", "is_open"])
    op.create_table(
        "handlers",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("payload", sa.JSON, nullable=False),
    )
    _rewrite("exceptions", ("id",), _record)
    _rewrite("cases", ("cluster", "job_id"), _case)


def _rewrite(name: str, key: tuple[str, ...], change: Callable[[dict[str, Any]], None]) -> None:
    """Put every payload into its new form."""
    table = sa.table(name, *map(sa.column, key), sa.column("payload", sa.JSON))
    db = op.get_bind()
    for row in db.execute(sa.select(table)).all():
        at = [table.c[column] == getattr(row, column) for column in key]
        change(row.payload)
        db.execute(
            sa.update(table).where(*at).values(payload=json.dumps(row.payload))
        )  # the store hands JSON on as text


def _record(record: dict[str, Any]) -> None:
    """The subject was an attempt, verdicts were called answers, and state and outcome were one."""
    of = record["subject"]
    record["subject"] = {"cluster": of["cluster"], "job_id": of["job_id"]}
    record["incarnation"] = of["incarnation"]
    record["verdicts"] = record.pop("answers")
    if record["state"] in OUTCOMES:
        record["outcome"] = record["state"]
        record["state"] = "handled" if record["verdicts"] else "raised"


def _case(case: dict[str, Any]) -> None:
    if case.get("failure"):
        _record(case["failure"]["record"])
