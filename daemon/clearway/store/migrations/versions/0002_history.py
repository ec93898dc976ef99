"""What checkpoints and restarts took, and what came of them.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, Figure, Name, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "checkpoint_history",
        sa.Column("eviction_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", Name(ID_LENGTH), nullable=False),
        sa.Column("asked_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("user", Name(), nullable=False),
        sa.Column("app", Name(), nullable=False),
        sa.Column("checkpointer", Name(ID_LENGTH), nullable=False),
        sa.Column("action", sa.String(ID_LENGTH), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(ID_LENGTH), nullable=False),
        sa.Column("predicted_s", Figure(), nullable=False),
        sa.Column("actual_s", Figure()),
        sa.Column("write_s", Figure()),
        sa.Column("predicted_size_mib", Figure()),
        sa.Column("size_mib", Figure()),
        sa.PrimaryKeyConstraint("eviction_id", "job_id", "asked_at", name="pk_checkpoint_history"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_checkpoint_history_ended_at", "checkpoint_history", ["ended_at"])
    op.create_table(
        "restart_history",
        sa.Column("job_id", Name(ID_LENGTH), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("user", Name(), nullable=False),
        sa.Column("app", Name(), nullable=False),
        sa.Column("checkpointer", Name(ID_LENGTH), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("restart", sa.String(ID_LENGTH), nullable=False),
        sa.Column("predicted_s", Figure()),
        sa.Column("restart_s", Figure()),
        sa.PrimaryKeyConstraint("job_id", "started_at", name="pk_restart_history"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_restart_history_started_at", "restart_history", ["started_at"])


def downgrade() -> None:
    op.drop_table("restart_history")
    op.drop_table("checkpoint_history")
