"""The schema of the first release: the tables as ``store.tables`` has them, while no revision follows.

The second revision begins here: these tables as they are, copied into this file, then stay those of the first one, and
``store.tables`` may change. A test has the statements of this revision, and refuses every other change.

Revision ID: s001
Revises: nothing
"""

from __future__ import annotations

from datetime import UTC, datetime

from alembic import op

from clearway.model.audit import BEFORE_THE_FIRST
from clearway.store.tables import AUDIT_HEAD, LEASES, METADATA

revision = "s001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    METADATA.create_all(op.get_bind(), checkfirst=False)
    op.bulk_insert(AUDIT_HEAD, [{"name": "audit", "sequence": 0, "hash": BEFORE_THE_FIRST}])
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    op.bulk_insert(LEASES, [{"name": "daemon", "owner": "", "expires_at": long_ago, "epoch": 0}])
