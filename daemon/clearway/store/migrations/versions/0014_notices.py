"""What owners and operators must be told, until it was said.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, NAME_LENGTH, TABLE_OPTIONS, LongText, UtcDateTime

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notices",
        sa.Column("notice_id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=NAME_LENGTH), nullable=False),
        sa.Column("channel", sa.String(length=ID_LENGTH), nullable=False),
        sa.Column("kind", sa.String(length=ID_LENGTH), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("user", sa.String(length=NAME_LENGTH), nullable=False),
        sa.Column("job_id", sa.String(length=ID_LENGTH), nullable=False),
        sa.Column("eviction_id", sa.Integer(), nullable=True),
        sa.Column("document", LongText(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", UtcDateTime(), nullable=False),
        sa.Column("error", LongText(), nullable=False),
        sa.Column("said_at", UtcDateTime(), nullable=True),
        sa.Column("given_up_at", UtcDateTime(), nullable=True),
        sa.Column("bundle", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("notice_id", name=op.f("pk_notices")),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index(op.f("ix_notices_key_channel"), "notices", ["key", "channel"], unique=True)
    op.create_index(op.f("ix_notices_said_at_given_up_at"), "notices", ["said_at", "given_up_at"])


def downgrade() -> None:
    op.drop_table("notices")
