"""Epochs of the lease with the history of leaders; versions of evictions, and marks for their names on the cluster.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, Name, UtcDateTime

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leaders",
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", Name(), nullable=False),
        sa.Column("began_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("ended", sa.String(length=ID_LENGTH), nullable=True),
        sa.Column("ended_by", Name(), nullable=False),
        sa.PrimaryKeyConstraint("epoch", name="pk_leaders"),
        **TABLE_OPTIONS,
    )
    op.add_column("leases", sa.Column("epoch", sa.Integer(), server_default="0", nullable=False))
    op.add_column("leases", sa.Column("renewed_at", UtcDateTime(), nullable=True))
    op.add_column("evictions", sa.Column("version", sa.Integer(), server_default="0", nullable=False))
    op.add_column("evictions", sa.Column("mark", Name(ID_LENGTH), nullable=True))
    op.execute("DELETE FROM kept_values WHERE name = 'heartbeat'")  # the lease's renewal is the sign of life


def downgrade() -> None:
    op.drop_column("evictions", "mark")
    op.drop_column("evictions", "version")
    op.drop_column("leases", "renewed_at")
    op.drop_column("leases", "epoch")
    op.drop_table("leaders")
