"""Which preemptees are eternal jobs: they are there to be preempted, and no budget counts them.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("preemptions", sa.Column("eternal", sa.Boolean()))


def downgrade() -> None:
    op.drop_column("preemptions", "eternal")
