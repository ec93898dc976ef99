"""The schema of the first release.

Revision ID: s001
Revises: nothing
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, Figure, LongText, Name, UtcDateTime

revision = "s001"
down_revision = None
branch_labels = None
depends_on = None

_given = partial(sa.Column, nullable=False)


def _of_eviction(table: str) -> sa.ForeignKey:
    return sa.ForeignKey("evictions.eviction_id", name=f"fk_{table}_evictions", ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "evictions",
        _given("eviction_id", sa.Integer, autoincrement=True),
        _given("kind", sa.String(ID_LENGTH), server_default="eviction"),
        _given("state", sa.String(ID_LENGTH)),
        _given("state_since", UtcDateTime),
        _given("mode", Name(ID_LENGTH)),
        _given("revision", sa.Integer),
        _given("version", sa.Integer, server_default="0"),
        _given("preemptor_job_id", Name(ID_LENGTH)),
        sa.Column("preemptor_display_id", Name(ID_LENGTH)),
        _given("preemptor_user", Name()),
        _given("preemptor_account", Name()),
        sa.Column("rule", Name()),
        _given("deadline", UtcDateTime),
        _given("nodes_needed", sa.Integer),
        _given("created_at", UtcDateTime),
        sa.Column("started_at", UtcDateTime),
        sa.Column("finished_at", UtcDateTime),
        _given("placement", LongText),
        sa.Column("mark", Name(ID_LENGTH)),
        _given("approved_by", LongText),
        _given("outcome", LongText),
        sa.Column("outcome_code", sa.String(ID_LENGTH)),
        sa.Column("why", LongText),
        _given("late", sa.Boolean),
        _given("predicted_lost_node_s", Figure),
        _given("actual_lost_node_s", Figure),
        sa.PrimaryKeyConstraint("eviction_id", name="pk_evictions"),
        sa.Index("ix_evictions_finished_at", "finished_at"),
        sa.Index("ix_evictions_preemptor_display_id", "preemptor_display_id"),
        sa.Index("ix_evictions_preemptor_job_id", "preemptor_job_id"),
        sa.Index("ix_evictions_state", "state"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "plans",
        _given("eviction_id", sa.Integer, _of_eviction("plans"), autoincrement=False),
        _given("revision", sa.Integer, autoincrement=False),
        _given("made_at", UtcDateTime),
        _given("deadline", UtcDateTime),
        _given("planner", Name()),
        _given("chosen_delay_s", sa.Integer),
        sa.Column("predicted_lost_node_s", Figure),
        sa.Column("predicted_checkpoint_s", Figure),
        _given("document", LongText),
        sa.Column("verdicts", LongText),
        sa.Column("candidates", Name(ID_LENGTH)),
        sa.Column("nodes", Name(ID_LENGTH)),
        sa.PrimaryKeyConstraint("eviction_id", "revision", name="pk_plans"),
        sa.Index("ix_plans_candidates", "candidates"),
        sa.Index("ix_plans_nodes", "nodes"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "plan_parts",
        _given("digest", Name(ID_LENGTH)),
        _given("document", LongText),
        sa.PrimaryKeyConstraint("digest", name="pk_plan_parts"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "explanations",
        _given("eviction_id", sa.Integer, _of_eviction("explanations"), autoincrement=False),
        _given("revision", sa.Integer, autoincrement=False),
        _given("complete", sa.Boolean),
        _given("document", LongText),
        sa.PrimaryKeyConstraint("eviction_id", "revision", name="pk_explanations"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "preemptions",
        _given("eviction_id", sa.Integer, _of_eviction("preemptions"), autoincrement=False),
        _given("position", sa.Integer, autoincrement=False),
        _given("job_id", Name(ID_LENGTH)),
        sa.Column("display_id", Name(ID_LENGTH)),
        _given("user", Name()),
        _given("account", Name()),
        _given("num_nodes", sa.Integer),
        _given("action", sa.String(ID_LENGTH)),
        _given("plan_order", sa.Integer),
        sa.Column("eternal", sa.Boolean),
        _given("state", sa.String(ID_LENGTH)),
        sa.Column("state_since", UtcDateTime),
        sa.Column("attempted_at", UtcDateTime),
        _given("attempts", sa.Integer),
        sa.Column("asked_at", UtcDateTime),
        sa.Column("checkpointed_at", UtcDateTime),
        sa.Column("requeued_at", UtcDateTime),
        sa.Column("vacated_at", UtcDateTime),
        sa.Column("returned_at", UtcDateTime),
        _given("predicted_lost_node_s", Figure),
        _given("predicted_checkpoint_s", Figure),
        sa.Column("actual_lost_node_s", Figure),
        sa.Column("actual_checkpoint_s", Figure),
        _given("reason", LongText),
        _given("note", LongText),
        _given("job", LongText),
        sa.PrimaryKeyConstraint("eviction_id", "position", name="pk_preemptions"),
        sa.Index("ix_preemptions_display_id", "display_id"),
        sa.Index("ix_preemptions_job_id", "job_id"),
        sa.Index("ix_preemptions_requeued_at", "requeued_at"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "steps",
        _given("step_id", sa.Integer, autoincrement=True),
        _given("eviction_id", sa.Integer, _of_eviction("steps")),
        sa.Column("job_id", Name(ID_LENGTH)),
        _given("kind", Name(ID_LENGTH)),
        _given("intended_at", UtcDateTime),
        sa.Column("finished_at", UtcDateTime),
        _given("result", Name()),
        _given("detail", LongText),
        sa.PrimaryKeyConstraint("step_id", name="pk_steps"),
        sa.Index("ix_steps_eviction_id", "eviction_id"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "requests",
        _given("request_id", sa.Integer, autoincrement=True),
        _given("kind", Name(ID_LENGTH)),
        sa.Column("eviction_id", sa.Integer, _of_eviction("requests")),
        _given("actor", Name()),
        _given("created_at", UtcDateTime),
        sa.Column("handled_at", UtcDateTime),
        sa.Column("code", sa.String(ID_LENGTH)),
        _given("result", LongText),
        sa.Column("document", LongText),
        sa.Column("rolling_id", sa.Integer),
        sa.PrimaryKeyConstraint("request_id", name="pk_requests"),
        sa.Index("ix_requests_eviction_id", "eviction_id"),
        sa.Index("ix_requests_handled_at", "handled_at"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "rolling_drains",
        _given("rolling_id", sa.Integer, autoincrement=True),
        _given("state", sa.String(ID_LENGTH)),
        _given("created_at", UtcDateTime),
        sa.Column("finished_at", UtcDateTime),
        _given("document", LongText),
        sa.PrimaryKeyConstraint("rolling_id", name="pk_rolling_drains"),
        sa.Index("ix_rolling_drains_state", "state"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "checkpoint_history",
        _given("eviction_id", sa.Integer, autoincrement=False),
        _given("job_id", Name(ID_LENGTH)),
        _given("asked_at", UtcDateTime),
        _given("ended_at", UtcDateTime),
        _given("run", sa.Integer),
        _given("user", Name()),
        _given("app", Name()),
        _given("checkpointer", Name(ID_LENGTH)),
        _given("action", sa.String(ID_LENGTH)),
        _given("nodes", sa.Integer),
        _given("outcome", sa.String(ID_LENGTH)),
        _given("predicted_s", Figure),
        sa.Column("actual_s", Figure),
        sa.Column("write_s", Figure),
        sa.Column("predicted_size_mib", Figure),
        sa.Column("size_mib", Figure),
        sa.PrimaryKeyConstraint("eviction_id", "job_id", "asked_at", name="pk_checkpoint_history"),
        sa.Index("ix_checkpoint_history_ended_at", "ended_at"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "restart_history",
        _given("job_id", Name(ID_LENGTH)),
        _given("started_at", UtcDateTime),
        _given("run", sa.Integer),
        _given("user", Name()),
        _given("app", Name()),
        _given("checkpointer", Name(ID_LENGTH)),
        _given("nodes", sa.Integer),
        _given("restart", sa.String(ID_LENGTH)),
        sa.Column("predicted_s", Figure),
        sa.Column("restart_s", Figure),
        sa.PrimaryKeyConstraint("job_id", "started_at", name="pk_restart_history"),
        sa.Index("ix_restart_history_started_at", "started_at"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "run_history",
        _given("job_id", Name(ID_LENGTH)),
        _given("started_at", UtcDateTime),
        _given("ended_at", UtcDateTime),
        _given("user", Name()),
        _given("app", Name()),
        _given("nodes", sa.Integer),
        sa.Column("limit_s", Figure),
        _given("cut", sa.Boolean),
        sa.PrimaryKeyConstraint("job_id", "started_at", name="pk_run_history"),
        sa.Index("ix_run_history_ended_at", "ended_at"),
        sa.Index("ix_run_history_user_app", "user", "app"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "audit",
        _given("sequence", sa.Integer, autoincrement=False),
        _given("entry", LongText),
        _given("previous", Name(ID_LENGTH)),
        _given("hash", Name(ID_LENGTH)),
        sa.PrimaryKeyConstraint("sequence", name="pk_audit"),
        **TABLE_OPTIONS,
    )
    head = op.create_table(
        "audit_head",
        _given("name", Name(ID_LENGTH)),
        _given("sequence", sa.Integer),
        _given("hash", Name(ID_LENGTH)),
        sa.PrimaryKeyConstraint("name", name="pk_audit_head"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "notices",
        _given("notice_id", sa.Integer, autoincrement=True),
        _given("key", Name()),
        _given("channel", sa.String(ID_LENGTH)),
        _given("kind", sa.String(ID_LENGTH)),
        _given("at", UtcDateTime),
        _given("user", Name()),
        _given("job_id", Name(ID_LENGTH)),
        sa.Column("eviction_id", sa.Integer),
        _given("document", LongText),
        _given("created_at", UtcDateTime),
        _given("attempts", sa.Integer),
        _given("next_attempt_at", UtcDateTime),
        _given("error", LongText),
        sa.Column("said_at", UtcDateTime),
        sa.Column("given_up_at", UtcDateTime),
        sa.Column("bundle", sa.Integer),
        sa.PrimaryKeyConstraint("notice_id", name="pk_notices"),
        sa.Index("ix_notices_key_channel", "key", "channel", unique=True),
        sa.Index("ix_notices_said_at_given_up_at", "said_at", "given_up_at"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
    )
    op.create_table(
        "save_tests",
        _given("request_id", sa.Integer, autoincrement=False),
        _given("job_id", Name(ID_LENGTH)),
        _given("display_id", Name(ID_LENGTH)),
        _given("user", Name()),
        _given("asked_at", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        _given("document", LongText),
        sa.PrimaryKeyConstraint("request_id", name="pk_save_tests"),
        sa.Index("ix_save_tests_asked_at", "asked_at"),
        sa.Index("ix_save_tests_display_id", "display_id"),
        sa.Index("ix_save_tests_ended_at", "ended_at"),
        sa.Index("ix_save_tests_job_id", "job_id"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "cases",
        _given("job_id", Name(ID_LENGTH)),
        _given("began_at", UtcDateTime),
        sa.Column("closed_at", UtcDateTime),
        _given("document", LongText),
        sa.PrimaryKeyConstraint("job_id", "began_at", name="pk_cases"),
        sa.Index("ix_cases_began_at", "began_at"),
        sa.Index("ix_cases_closed_at", "closed_at"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "kept_values",
        _given("name", Name()),
        _given("document", LongText),
        sa.PrimaryKeyConstraint("name", name="pk_kept_values"),
        **TABLE_OPTIONS,
    )
    leases = op.create_table(
        "leases",
        _given("name", Name(ID_LENGTH)),
        _given("owner", Name()),
        _given("expires_at", UtcDateTime),
        _given("epoch", sa.Integer, server_default="0"),
        sa.Column("renewed_at", UtcDateTime),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
        **TABLE_OPTIONS,
    )
    op.create_table(
        "leaders",
        _given("epoch", sa.Integer, autoincrement=False),
        _given("owner", Name()),
        _given("began_at", UtcDateTime),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("ended", sa.String(ID_LENGTH)),
        _given("ended_by", Name()),
        sa.PrimaryKeyConstraint("epoch", name="pk_leaders"),
        **TABLE_OPTIONS,
    )
    op.bulk_insert(head, [{"name": "audit", "sequence": 0, "hash": "0" * ID_LENGTH}])
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    op.bulk_insert(leases, [{"name": "daemon", "owner": "", "expires_at": long_ago, "epoch": 0}])
