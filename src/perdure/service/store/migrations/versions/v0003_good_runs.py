"""What the logs of good runs said, to compare failures of the same job with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_good_runs"
down_revision = "0002_learning"

SEQ = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "good_runs",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("job", sa.String, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("cluster", "job"),
        sa.Index("good_runs_by_time", "cluster", "time_s"),
    )
