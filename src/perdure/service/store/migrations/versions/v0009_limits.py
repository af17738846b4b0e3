"""What limits and budgets cost is next to what was saved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009_limits"
down_revision = "0008_components"


def upgrade() -> None:
    op.add_column("exceptions", sa.Column("limit_gpu_h", sa.Float, nullable=False, server_default="0"))
    op.add_column("exceptions", sa.Column("limited", sa.Boolean, nullable=False, server_default=sa.false()))
