"""Jobs that are links of a chain say so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013_chains"
down_revision = "0012_wait_promises"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("chain", sa.String, nullable=False, server_default=""))
    op.create_index("jobs_by_chain", "jobs", ["chain", "user", "seq"])
