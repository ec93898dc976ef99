"""How long jobs ran.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, Figure, Name, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_history",
        sa.Column("job_id", Name(ID_LENGTH), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("user", Name(), nullable=False),
        sa.Column("app", Name(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("limit_s", Figure()),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "started_at", name="pk_run_history"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_run_history_ended_at", "run_history", ["ended_at"])
    op.create_index("ix_run_history_user_app", "run_history", ["user", "app"])


def downgrade() -> None:
    op.drop_table("run_history")
