"""What a request to drain nodes is about.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import LongText

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("requests", sa.Column("document", LongText()))


def downgrade() -> None:
    op.drop_column("requests", "document")
