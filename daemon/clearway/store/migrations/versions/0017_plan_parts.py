"""Parts that plans have in common, each stored once.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, LongText, Name

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_PLANS = sa.table(
    "plans",
    sa.column("eviction_id", sa.Integer),
    sa.column("revision", sa.Integer),
    sa.column("document", LongText()),
    sa.column("verdicts", LongText()),
    sa.column("candidates", Name(ID_LENGTH)),
    sa.column("nodes", Name(ID_LENGTH)),
)
_PARTS = sa.table("plan_parts", sa.column("digest", Name(ID_LENGTH)), sa.column("document", LongText()))
_VERDICT = ("job_id", "choice", "code", "reason")


def upgrade() -> None:
    op.create_table(
        "plan_parts",
        sa.Column("digest", Name(ID_LENGTH), nullable=False),
        sa.Column("document", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_plan_parts"),
        **TABLE_OPTIONS,
    )
    op.add_column("plans", sa.Column("verdicts", LongText(), nullable=True))
    for column in ("candidates", "nodes"):
        op.add_column("plans", sa.Column(column, Name(ID_LENGTH), nullable=True))
        op.create_index(f"ix_plans_{column}", "plans", [column])


def downgrade() -> None:
    """Every plan is a document of its own again."""
    connection = op.get_bind()
    keys = connection.execute(sa.select(_PLANS.c.eviction_id, _PLANS.c.revision)).all()
    for eviction_id, number in keys:
        _put_together(connection, eviction_id, number)
    for column in ("nodes", "candidates"):
        op.drop_index(f"ix_plans_{column}", "plans")
        op.drop_column("plans", column)
    op.drop_column("plans", "verdicts")
    op.drop_table("plan_parts")


def _put_together(connection: sa.Connection, eviction_id: int, number: int) -> None:
    this = (_PLANS.c.eviction_id == eviction_id, _PLANS.c.revision == number)
    row = connection.execute(sa.select(_PLANS).where(*this)).one()
    plan = json.loads(row.document)
    for name in ("candidates", "nodes"):
        if (digest := getattr(row, name)) is not None:
            part = sa.select(_PARTS.c.document).where(_PARTS.c.digest == digest)
            plan["problem"][name] = json.loads(connection.execute(part).scalar_one())
    if row.verdicts is not None:
        told = json.loads(row.verdicts)
        verdicts = [(job_id, *told["reasons"][place]) for job_id, place in told["jobs"]]
        plan["verdicts"] = [dict(zip(_VERDICT, each, strict=True)) for each in verdicts]
    connection.execute(sa.update(_PLANS).where(*this).values(document=json.dumps(plan)))
