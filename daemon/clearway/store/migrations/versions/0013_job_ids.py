"""What is found by a job's id: the id as users know it, and indices.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, Name

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evictions", sa.Column("preemptor_display_id", Name(ID_LENGTH), nullable=True))
    op.add_column("preemptions", sa.Column("display_id", Name(ID_LENGTH), nullable=True))
    op.create_index("ix_evictions_preemptor_job_id", "evictions", ["preemptor_job_id"])
    op.create_index("ix_evictions_preemptor_display_id", "evictions", ["preemptor_display_id"])
    op.create_index("ix_preemptions_display_id", "preemptions", ["display_id"])


def downgrade() -> None:
    op.drop_index("ix_preemptions_display_id", "preemptions")
    op.drop_index("ix_evictions_preemptor_display_id", "evictions")
    op.drop_index("ix_evictions_preemptor_job_id", "evictions")
    op.drop_column("preemptions", "display_id")
    op.drop_column("evictions", "preemptor_display_id")
