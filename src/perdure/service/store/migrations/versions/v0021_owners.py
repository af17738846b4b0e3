"""Who has which cluster, and how often it has changed hands."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021_owners"
down_revision = "0020_policy_terms"


def upgrade() -> None:
    op.create_table(
        "owners",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("looked_s", sa.Float),
        sa.Column("standing", sa.JSON),
    )
