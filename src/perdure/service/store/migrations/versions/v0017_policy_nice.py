"""The nice that jobs had before a policy in force changed it, so that it can be restored."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017_policy_nice"
down_revision = "0016_changed_verdicts"


def upgrade() -> None:
    op.create_table(
        "policy_nice",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("nice", sa.BigInteger, nullable=False),
        sa.Column("noted_s", sa.Float, nullable=False),
    )
