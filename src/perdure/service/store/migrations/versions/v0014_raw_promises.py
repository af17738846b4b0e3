"""What was promised to waiting jobs before any correction, so that later promises learn from it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014_raw_promises"
down_revision = "0013_chains"


def upgrade() -> None:
    op.add_column("wait_promises", sa.Column("raw_s", sa.JSON))
    op.add_column("wait_promises", sa.Column("kind", sa.String, nullable=False, server_default=""))
