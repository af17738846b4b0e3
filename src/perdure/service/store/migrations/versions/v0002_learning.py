"""What triage learns from: what was read of each failure, corrections by persons, and rounds of teaching."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_learning"
down_revision = "0001_journal"

SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "readings",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("category", sa.String, nullable=False),
        sa.Column("excerpt", sa.Text, nullable=False),
        sa.Column("causes", sa.JSON, nullable=False),
        sa.UniqueConstraint("cluster", "job_id", "incarnation"),
        sa.Index("readings_by_fingerprint", "cluster", "fingerprint", "seq"),
    )
    op.create_table(
        "corrections",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("transient", sa.Boolean, nullable=False),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("for_all", sa.Boolean, nullable=False),
        sa.UniqueConstraint("cluster", "job_id", "incarnation"),
        sa.Index("corrections_by_fingerprint", "cluster", "fingerprint", "seq"),
    )
    op.create_table(
        "terms",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("adopted", sa.Boolean, nullable=False),
        sa.Column("lessons", sa.String, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("model", sa.LargeBinary),
    )
