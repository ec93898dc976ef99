"""Rolling drains, and the requests that are about them.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, LongText, UtcDateTime

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rolling_drains",
        sa.Column("rolling_id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("state", sa.String(length=ID_LENGTH), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("document", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("rolling_id", name="pk_rolling_drains"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("ix_rolling_drains_state", "rolling_drains", ["state"])
    op.add_column("requests", sa.Column("rolling_id", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("requests", "rolling_id")
    op.drop_table("rolling_drains")
