"""Exceptions of a rare type or state are looked for in narrow rows, and not in all that was said of each."""

from __future__ import annotations

from alembic import op

revision = "0006_kinds"
down_revision = "0005_suspects"


def upgrade() -> None:
    op.create_index("exceptions_by_kind", "exceptions", ["seq", "cluster", "type", "state"])
