"""Suspects: what failures were found to have in common, since when, and until when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005_suspects"
down_revision = "0004_exceptions"

SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "suspects",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("since_s", sa.Float, nullable=False),
        sa.Column("cleared_s", sa.Float),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Index("suspects_by_end", "cluster", "cleared_s"),
    )
