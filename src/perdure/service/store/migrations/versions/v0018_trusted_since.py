"""Up to which outcome a user's are not held against them, by the order of rows: clocks are set back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018_trusted_since"
down_revision = "0017_policy_nice"


def upgrade() -> None:
    op.add_column("set_aside", sa.Column("since_seq", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE set_aside SET since_seq = (SELECT coalesce(max(outcomes.seq), 0) FROM outcomes WHERE"
        " outcomes.cluster = set_aside.cluster AND outcomes.time_s <= set_aside.time_s) WHERE kind = 'trusted'"
    )
