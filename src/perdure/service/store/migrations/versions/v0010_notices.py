"""Notices, and the outbox of the messages that carry them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010_notices"
down_revision = "0009_limits"


def upgrade() -> None:
    seq = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "notices",
        sa.Column("seq", seq, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("subject", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
    )
    op.create_index("notices_by_subject", "notices", ["cluster", "subject", "seq"])
    op.create_table(
        "messages",
        sa.Column("seq", seq, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String, nullable=False, unique=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("whose", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("due_s", sa.Float, nullable=False),
        sa.Column("begun_s", sa.Float),
        sa.Column("ended_s", sa.Float),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
    )
    op.create_index("messages_by_state", "messages", ["cluster", "state", "target"])
    op.create_index("messages_by_begin", "messages", ["cluster", "target", "begun_s"])
    op.create_table(
        "notices_read",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
