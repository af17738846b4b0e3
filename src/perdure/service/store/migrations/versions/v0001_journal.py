"""The journal's first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001_journal"
down_revision = None

SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _create_what_was_seen()
    _create_what_was_decided()
    _create_what_is_remembered()


def _create_what_was_seen() -> None:
    op.create_table(
        "events",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String, nullable=False, unique=True),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Index("events_by_job", "cluster", "job_id", "seq"),
    )
    op.create_table(
        "jobs",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("partition", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("node_count", sa.Integer, nullable=False),
        sa.Column("submit_s", sa.Float, nullable=False),
        sa.Column("changed_s", sa.Float, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.UniqueConstraint("cluster", "job_id"),
        sa.Index("jobs_by_state", "state", "seq"),
        sa.Index("jobs_by_user", "user", "seq"),
    )
    op.create_table(
        "attempts",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("start_s", sa.Float, nullable=False),
        sa.Column("end_s", sa.Float),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("verdict", sa.JSON),
        sa.UniqueConstraint("cluster", "job_id", "incarnation"),
        sa.Index("attempts_by_end", "end_s"),
    )
    op.create_table(
        "nodes",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("changed_s", sa.Float, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
    )


def _create_what_was_decided() -> None:
    op.create_table(
        "exceptions",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("decision", sa.String, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("wasted_gpu_h", sa.Float, nullable=False),
        sa.Column("saved_gpu_h", sa.Float, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("decided", sa.JSON),
        sa.Index("exceptions_by_job", "cluster", "job_id", "seq"),
        sa.Index("exceptions_by_time", "time_s"),
    )
    op.create_table(
        "actions",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String, nullable=False, unique=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("exception_id", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
        sa.Column("expires_s", sa.Float, nullable=False),
        sa.Column("started_s", sa.Float),
        sa.Column("ended_s", sa.Float),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Index("actions_by_state", "state", "seq"),
        sa.Index("actions_by_job", "cluster", "job_id", "seq"),
        sa.Index("actions_by_start", "started_s"),
    )


def _create_what_is_remembered() -> None:
    op.create_table(
        "cases",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("payload", sa.JSON, nullable=False),
    )
    op.create_table(
        "memory",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("payload", sa.JSON, nullable=False),
    )
