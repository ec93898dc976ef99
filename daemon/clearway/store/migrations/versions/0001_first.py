"""The first schema: evictions, plans, preemptions, steps, requests, kept values and the lease.

Revision ID: 0001
Revises: nothing
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, Figure, LongText, Name, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "evictions",
        sa.Column("eviction_id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("state", sa.String(ID_LENGTH), nullable=False),
        sa.Column("state_since", UtcDateTime(), nullable=False),
        sa.Column("mode", Name(ID_LENGTH), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("preemptor_job_id", Name(ID_LENGTH), nullable=False),
        sa.Column("preemptor_user", Name(), nullable=False),
        sa.Column("preemptor_account", Name(), nullable=False),
        sa.Column("deadline", UtcDateTime(), nullable=False),
        sa.Column("nodes_needed", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime()),
        sa.Column("finished_at", UtcDateTime()),
        sa.Column("placement", LongText(), nullable=False),
        sa.Column("approved_by", LongText(), nullable=False),
        sa.Column("outcome", LongText(), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("predicted_lost_node_s", Figure(), nullable=False),
        sa.Column("actual_lost_node_s", Figure(), nullable=False),
        sa.PrimaryKeyConstraint("eviction_id", name="pk_evictions"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("ix_evictions_state", "evictions", ["state"])
    op.create_index("ix_evictions_finished_at", "evictions", ["finished_at"])
    op.create_table(
        "plans",
        _eviction_id("plans"),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("made_at", UtcDateTime(), nullable=False),
        sa.Column("deadline", UtcDateTime(), nullable=False),
        sa.Column("planner", Name(), nullable=False),
        sa.Column("chosen_delay_s", sa.Integer(), nullable=False),
        sa.Column("predicted_lost_node_s", Figure()),
        sa.Column("predicted_checkpoint_s", Figure()),
        sa.Column("document", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("eviction_id", "revision", name="pk_plans"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "preemptions",
        _eviction_id("preemptions"),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", Name(ID_LENGTH), nullable=False),
        sa.Column("user", Name(), nullable=False),
        sa.Column("account", Name(), nullable=False),
        sa.Column("num_nodes", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(ID_LENGTH), nullable=False),
        sa.Column("plan_order", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(ID_LENGTH), nullable=False),
        sa.Column("state_since", UtcDateTime()),
        sa.Column("attempted_at", UtcDateTime()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("asked_at", UtcDateTime()),
        sa.Column("checkpointed_at", UtcDateTime()),
        sa.Column("requeued_at", UtcDateTime()),
        sa.Column("vacated_at", UtcDateTime()),
        sa.Column("returned_at", UtcDateTime()),
        sa.Column("predicted_lost_node_s", Figure(), nullable=False),
        sa.Column("predicted_checkpoint_s", Figure(), nullable=False),
        sa.Column("actual_lost_node_s", Figure()),
        sa.Column("actual_checkpoint_s", Figure()),
        sa.Column("reason", LongText(), nullable=False),
        sa.Column("note", LongText(), nullable=False),
        sa.Column("job", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("eviction_id", "position", name="pk_preemptions"),
        **TABLE_OPTIONS,
    )
    op.create_index("ix_preemptions_job_id", "preemptions", ["job_id"])
    op.create_index("ix_preemptions_requeued_at", "preemptions", ["requeued_at"])
    op.create_table(
        "steps",
        sa.Column("step_id", sa.Integer(), autoincrement=True, nullable=False),
        _eviction_id("steps"),
        sa.Column("job_id", Name(ID_LENGTH)),
        sa.Column("kind", Name(ID_LENGTH), nullable=False),
        sa.Column("intended_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime()),
        sa.Column("result", Name(), nullable=False),
        sa.Column("detail", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("step_id", name="pk_steps"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("ix_steps_eviction_id", "steps", ["eviction_id"])
    op.create_table(
        "requests",
        sa.Column("request_id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("kind", Name(ID_LENGTH), nullable=False),
        _eviction_id("requests", nullable=True),
        sa.Column("actor", Name(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("handled_at", UtcDateTime()),
        sa.Column("result", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_requests"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_index("ix_requests_eviction_id", "requests", ["eviction_id"])
    op.create_index("ix_requests_handled_at", "requests", ["handled_at"])
    op.create_table(
        "kept_values",
        sa.Column("name", Name(), nullable=False),
        sa.Column("document", LongText(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_kept_values"),
        **TABLE_OPTIONS,
    )
    leases = op.create_table(
        "leases",
        sa.Column("name", Name(ID_LENGTH), nullable=False),
        sa.Column("owner", Name(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
        **TABLE_OPTIONS,
    )
    op.bulk_insert(leases, [{"name": "daemon", "owner": "", "expires_at": datetime(2000, 1, 1, tzinfo=UTC)}])


def downgrade() -> None:
    for table in ("leases", "kept_values", "requests", "steps", "preemptions", "plans", "evictions"):
        op.drop_table(table)


def _eviction_id(table: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(
        "eviction_id",
        sa.Integer(),
        sa.ForeignKey("evictions.eviction_id", name=f"fk_{table}_evictions", ondelete="CASCADE"),
        nullable=nullable,
    )
