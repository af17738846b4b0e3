"""Readings keep which verdict learning changed, and through what; what the service sets aside has a reason."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016_changed_verdicts"
down_revision = "0015_outcomes"


def upgrade() -> None:
    for name in ("was", "became", "changed_by"):
        op.add_column("readings", sa.Column(name, sa.String))
    changed = sa.text("was IS NOT NULL")
    op.create_index(
        "readings_changed",
        "readings",
        ["cluster", "fingerprint", "was", "became", "changed_by", "user", "job_id", "time_s"],
        sqlite_where=changed,
        postgresql_where=changed,
    )
    op.add_column("set_aside", sa.Column("reason", sa.Text, nullable=False, server_default=""))
