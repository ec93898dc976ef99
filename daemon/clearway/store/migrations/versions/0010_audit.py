"""The audit trail, and the row that says where it ends.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, LongText

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("entry", LongText(), nullable=False),
        sa.Column("previous", sa.String(length=ID_LENGTH), nullable=False),
        sa.Column("hash", sa.String(length=ID_LENGTH), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_audit")),
        **TABLE_OPTIONS,
    )
    head = op.create_table(
        "audit_head",
        sa.Column("name", sa.String(length=ID_LENGTH), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=ID_LENGTH), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_audit_head")),
        **TABLE_OPTIONS,
    )
    op.bulk_insert(head, [{"name": "audit", "sequence": 0, "hash": "0" * ID_LENGTH}])


def downgrade() -> None:
    op.drop_table("audit_head")
    op.drop_table("audit")
