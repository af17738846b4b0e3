"""A resource manager that lost its state gives ids out again: where the story of the job that has one now begins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011_stories"
down_revision = "0010_notices"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("story_s", sa.Float, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("story_known_s", sa.Float, nullable=False, server_default="0"))
