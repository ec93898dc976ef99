"""What else could have been decided for an eviction, and at what cost.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import TABLE_OPTIONS, LongText

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "explanations",
        sa.Column("eviction_id", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("document", LongText(), nullable=False),
        sa.ForeignKeyConstraint(
            ["eviction_id"], ["evictions.eviction_id"], name="fk_explanations_evictions", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("eviction_id", "revision", name="pk_explanations"),
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    op.drop_table("explanations")
