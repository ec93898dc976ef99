"""Urgent jobs, what was planned for them, and what happened: what the report is made from.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, LongText, Name, UtcDateTime

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cases",
        sa.Column("job_id", Name(ID_LENGTH), nullable=False),
        sa.Column("began_at", UtcDateTime(), nullable=False),
        sa.Column("closed_at", UtcDateTime(), nullable=True),
        sa.Column("document", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "began_at", name="pk_cases"),
        **TABLE_OPTIONS,
    )
    for column in ("began_at", "closed_at"):
        op.create_index(f"ix_cases_{column}", "cases", [column])


def downgrade() -> None:
    op.drop_table("cases")
