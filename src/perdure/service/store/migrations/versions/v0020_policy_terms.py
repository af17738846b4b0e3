"""Sizes that jobs asked for by themselves; since when a policy is in force, what it promised, and who took part."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020_policy_terms"
down_revision = "0019_packed_events"


def upgrade() -> None:
    op.create_table(
        "policy_sizes",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("user", sa.String, nullable=False),
        *(
            sa.Column(name, sa.Integer, nullable=False)
            for name in ("nodes", "most_nodes", "gpus_per_node", "tasks_per_node", "cpus_per_task")
        ),
        sa.Column("noted_s", sa.Float, nullable=False),
    )
    seq = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "policy_terms",
        sa.Column("seq", seq, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("policy", sa.String, nullable=False),
        sa.Column("since_s", sa.Float, nullable=False),
        sa.Column("until_s", sa.Float),
        sa.Column("promise", sa.String, nullable=False),
    )
    op.create_table(
        "policy_jobs",
        sa.Column("cluster", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("came_s", sa.Float, nullable=False),
    )
    op.create_index("ix_policy_jobs_came_s", "policy_jobs", ["came_s"])
