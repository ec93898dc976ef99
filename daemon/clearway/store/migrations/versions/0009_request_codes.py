"""What has become of a request as a code, beside the sentence for people.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("requests", sa.Column("code", sa.String(length=ID_LENGTH)))
    op.execute(
        "UPDATE requests SET code = CASE WHEN result LIKE 'refused%' THEN 'refused' ELSE 'done' END "
        "WHERE handled_at IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_column("requests", "code")
