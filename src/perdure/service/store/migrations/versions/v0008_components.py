"""A heterogeneous job goes by its plain id: what was live under 12+0 and 12+1 is seen again as 12; the past stays."""

from __future__ import annotations

from alembic import op

revision = "0008_components"
down_revision = "0007_events"


def upgrade() -> None:
    op.execute("DELETE FROM jobs WHERE job_id LIKE '%+%' AND state NOT IN ('completed', 'failed', 'cancelled')")
    op.execute("DELETE FROM attempts WHERE job_id LIKE '%+%' AND state IN ('running', 'suspended')")
    op.execute("DELETE FROM cases WHERE job_id LIKE '%+%'")
