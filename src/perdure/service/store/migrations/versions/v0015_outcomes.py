"""What retries proved of each message is counted, the messages can be shown, and what was taught can be set aside."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015_outcomes"
down_revision = "0014_raw_promises"


def upgrade() -> None:
    op.add_column("readings", sa.Column("message", sa.Text, nullable=False, server_default=""))
    op.add_column("readings", sa.Column("packed", sa.LargeBinary))
    op.add_column("corrections", sa.Column("confirmed_by", sa.String, nullable=False, server_default=""))
    op.create_table(
        "outcomes",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.UniqueConstraint("cluster", "job_id", "fingerprint"),
        sa.Index("outcomes_by_fingerprint", "cluster", "fingerprint", "seq"),
    )
    op.create_table(
        "set_aside",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("value", sa.String, primary_key=True),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("by", sa.String, nullable=False),
    )
