"""When waiting jobs were said to start, and when they did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012_wait_promises"
down_revision = "0011_stories"


def upgrade() -> None:
    op.create_table(
        "wait_promises",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("asked_s", sa.Float, nullable=False),
        sa.Column("start_s", sa.Float),
        sa.Column("wait_s", sa.JSON, nullable=False),
    )
    op.create_index("wait_promises_by_job", "wait_promises", ["cluster", "job_id", "asked_s"])
    op.create_index("wait_promises_by_start", "wait_promises", ["cluster", "start_s"])
    op.create_index("wait_promises_by_time", "wait_promises", ["cluster", "asked_s"])
