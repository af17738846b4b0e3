"""The text of events is packed; what is there is kept as it is, in bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019_packed_events"
down_revision = "0018_trusted_since"


def upgrade() -> None:
    with op.batch_alter_table("events") as table:
        table.alter_column("payload", type_=sa.LargeBinary, postgresql_using="convert_to(payload::text, 'UTF8')")
