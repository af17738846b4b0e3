"""Events are read in their order alone: an index by job, which every one of them paid for, goes."""

from __future__ import annotations

from alembic import op

revision = "0007_events"
down_revision = "0006_kinds"


def upgrade() -> None:
    op.drop_index("events_by_job", "events")
