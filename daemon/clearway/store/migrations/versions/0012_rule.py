"""The rule that made an urgent job urgent, so that what was taken for it can be limited.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import NAME_LENGTH

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evictions", sa.Column("rule", sa.String(length=NAME_LENGTH)))


def downgrade() -> None:
    op.drop_column("evictions", "rule")
