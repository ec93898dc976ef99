"""Tests of whether a job saves itself.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, LongText, Name, UtcDateTime

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "save_tests",
        sa.Column("request_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", Name(ID_LENGTH), nullable=False),
        sa.Column("display_id", Name(ID_LENGTH), nullable=False),
        sa.Column("user", Name(), nullable=False),
        sa.Column("asked_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("document", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_save_tests"),
        **TABLE_OPTIONS,
    )
    for column in ("job_id", "display_id", "asked_at", "ended_at"):
        op.create_index(f"ix_save_tests_{column}", "save_tests", [column])


def downgrade() -> None:
    op.drop_table("save_tests")
