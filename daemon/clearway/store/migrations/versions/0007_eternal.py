"""Which preemptees are eternal jobs: they are there to be preempted, and no budget counts them.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("preemptions", sa.Column("eternal", sa.Boolean()))


def downgrade() -> None:
    op.drop_column("preemptions", "eternal")
