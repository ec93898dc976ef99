"""The tables. Figures that one filters and sums by are columns; the rest of a decision is JSON text.

``evictions`` 1-n ``plans`` (one a revision), 1-n ``preemptions`` (in the eviction's order), 1-n ``steps``; a plan
has at most one row in ``explanations``.
Rows that belong to an eviction are deleted with it; ``checkpoint_history``, ``restart_history`` and
``run_history`` stand for themselves, as does ``leaders``.
Ids are never given out twice.
"""

from functools import partial
from typing import Any

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, MetaData, Table

from clearway.model.claims import Restart
from clearway.model.notice import Channel, NoticeKind
from clearway.model.operations import Answer, EvictionState, OperationKind, PreemptionState
from clearway.model.orders import RollingState
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, LeaderEnd
from clearway.model.requests import RequestResult
from clearway.store.database import ID_LENGTH, TABLE_OPTIONS, Figure, LongText, Name, UtcDateTime, word

# Every constraint has a name, so that a later migration can change it on all three databases.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_given = partial(Column, nullable=False)  # what is made by ``Column`` and is no key may be null
_of_eviction = partial(ForeignKey, "evictions.eviction_id", ondelete="CASCADE")


def _table(name: str, *columns_and_indices: Column[Any] | Index, **options: Any) -> Table:
    return Table(name, METADATA, *columns_and_indices, **TABLE_OPTIONS | options)


# Where an operation stands, and the sums of its preemptions.
EVICTIONS = _table(
    "evictions",
    Column("eviction_id", Integer, primary_key=True, autoincrement=True),
    _given("kind", word(OperationKind), server_default=OperationKind.EVICTION.value),
    _given("state", word(EvictionState), index=True),
    _given("state_since", UtcDateTime),
    _given("mode", Name(ID_LENGTH)),
    _given("revision", Integer),
    _given("version", Integer, server_default="0"),  # grows with every change of the row or its preemptions
    _given("preemptor_job_id", Name(ID_LENGTH), index=True),
    Column("preemptor_display_id", Name(ID_LENGTH), index=True),  # as users know it; NULL: from before it was kept
    _given("preemptor_user", Name()),
    _given("preemptor_account", Name()),
    Column("preemptor_submit_time", UtcDateTime),  # NULL: it serves no job of Slurm's
    Column("preemptor_restarts", Integer),
    Column("rule", Name()),  # that made the preemptor urgent; NULL: from before it was kept
    _given("deadline", UtcDateTime),
    _given("nodes_needed", Integer),
    _given("created_at", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime, index=True),
    _given("placement", LongText),
    Column("mark", Name(ID_LENGTH)),  # part of its names on the cluster; NULL: from before there were marks
    _given("approved_by", LongText),
    _given("outcome", LongText),
    Column("outcome_code", word(OutcomeCode)),  # NULL: none yet, or from before it was kept
    Column("why", LongText),  # the outcome without what its code says
    _given("late", Boolean),
    _given("predicted_lost_node_s", Figure),
    _given("actual_lost_node_s", Figure),
    sqlite_autoincrement=True,
)

# A decision as it was made; a plan made anew is a row of its own, so older ones stay readable.
PLANS = _table(
    "plans",
    Column("eviction_id", Integer, _of_eviction(), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    _given("made_at", UtcDateTime),
    _given("deadline", UtcDateTime),
    _given("planner", Name()),
    _given("chosen_delay_s", Integer),
    Column("predicted_lost_node_s", Figure),
    Column("predicted_checkpoint_s", Figure),
    _given("document", LongText),  # the plan of its eviction's kind, but for what the columns below say
    Column("verdicts", LongText),  # NULL: they are in the document
    Column(
        "candidates", Name(ID_LENGTH), index=True
    ),  # a digest of ``plan_parts``; NULL: there are none, or in the document
    Column("nodes", Name(ID_LENGTH), index=True),  # likewise
)

# What many plans have in common, once: candidates or nodes of their problems. Deleted with the last of these plans.
PLAN_PARTS = _table(
    "plan_parts",
    Column("digest", Name(ID_LENGTH), primary_key=True),  # SHA-256 of the document
    _given("document", LongText),
)

# What else could have been decided, and at what cost; made after the plan, while the daemon has time.
EXPLANATIONS = _table(
    "explanations",
    Column("eviction_id", Integer, _of_eviction(), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    _given("complete", Boolean),
    _given("document", LongText),  # the whole ``model.plan.Explanation``
)

# One preemptee, by its position in the eviction (a job may be chosen, spared and chosen again).
PREEMPTIONS = _table(
    "preemptions",
    Column("eviction_id", Integer, _of_eviction(), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    _given("job_id", Name(ID_LENGTH), index=True),
    Column("display_id", Name(ID_LENGTH), index=True),  # as users know it; NULL: from before it was kept
    _given("user", Name()),
    _given("account", Name()),
    _given("submit_time", UtcDateTime),  # as Slurm said it when the job was chosen; with the restarts until then it
    _given("restarts", Integer),  # tells the job from others that have had its id
    _given("num_nodes", Integer),
    _given("action", word(Action)),
    _given("plan_order", Integer),
    Column("eternal", Boolean),  # NULL: from before there were eternal jobs
    _given("state", word(PreemptionState)),
    Column("state_since", UtcDateTime),
    Column("attempted_at", UtcDateTime),
    _given("attempts", Integer),
    Column("asked_at", UtcDateTime),
    Column("checkpointed_at", UtcDateTime),
    Column("requeued_at", UtcDateTime, index=True),
    Column("answer", word(Answer)),  # NULL: nothing was given to Slurm
    Column("waits_until", UtcDateTime),
    Column("nice_before", Integer),
    Column("nice_given", Integer),
    Column("vacated_at", UtcDateTime),
    Column("returned_at", UtcDateTime),
    _given("predicted_lost_node_s", Figure),
    _given("predicted_checkpoint_s", Figure),
    Column("actual_lost_node_s", Figure),
    Column("restart", word(Restart)),  # NULL: how its next run began is not known
    Column("restart_s", Figure),
    Column("actual_checkpoint_s", Figure),
    _given("reason", LongText),
    _given("note", LongText),
    _given("job", LongText),  # ``model.Job`` as seen when it was chosen
)

# The journal: what was intended, and the result.
STEPS = _table(
    "steps",
    Column("step_id", Integer, primary_key=True, autoincrement=True),
    _given("eviction_id", Integer, _of_eviction(), index=True),
    Column("job_id", Name(ID_LENGTH)),
    _given("kind", Name(ID_LENGTH)),
    _given("intended_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    _given("result", Name()),
    _given("detail", LongText),
    sqlite_autoincrement=True,
)

# What operators asked of the loop.
REQUESTS = _table(
    "requests",
    Column("request_id", Integer, primary_key=True, autoincrement=True),
    _given("kind", Name(ID_LENGTH)),
    Column("eviction_id", Integer, _of_eviction(), index=True),
    _given("actor", Name()),
    _given("created_at", UtcDateTime),
    Column("handled_at", UtcDateTime, index=True),
    Column("code", word(RequestResult)),  # NULL until it is handled
    _given("result", LongText),  # the sentence for people
    Column("document", LongText),  # what a drain or undrain is about, as JSON
    Column("rolling_id", Integer),  # the rolling drain that it is about or has led to
    Index(None, "actor", "created_at"),
    sqlite_autoincrement=True,
)

# Nodes that are emptied a few at a time; each drain of theirs is an eviction.
ROLLING_DRAINS = _table(
    "rolling_drains",
    Column("rolling_id", Integer, primary_key=True, autoincrement=True),
    _given("state", word(RollingState), index=True),
    _given("created_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    _given("document", LongText),  # the whole ``model.orders.RollingDrain``: each node's turn, why nodes were skipped
    sqlite_autoincrement=True,
)

# The outcome of a checkpoint, predicted and actual (``model.records.CheckpointRecord``).
CHECKPOINT_HISTORY = _table(
    "checkpoint_history",
    # No foreign key: the duration of a checkpoint stays true without its eviction.
    Column("eviction_id", Integer, primary_key=True, autoincrement=False),
    Column("job_id", Name(ID_LENGTH), primary_key=True),
    Column("asked_at", UtcDateTime, primary_key=True),
    _given("ended_at", UtcDateTime, index=True),
    _given("run", Integer),
    _given("user", Name()),
    _given("app", Name()),
    _given("checkpointer", Name(ID_LENGTH)),
    _given("action", word(Action)),
    _given("nodes", Integer),
    _given("outcome", word(CheckpointOutcome)),
    _given("predicted_s", Figure),
    Column("actual_s", Figure),
    Column("write_s", Figure),
    Column("predicted_size_mib", Figure),
    Column("size_mib", Figure),
)

# How a run of a job went on from a checkpoint (``model.records.RestartRecord``).
RESTART_HISTORY = _table(
    "restart_history",
    Column("job_id", Name(ID_LENGTH), primary_key=True),
    Column("started_at", UtcDateTime, primary_key=True, index=True),
    _given("run", Integer),
    _given("user", Name()),
    _given("app", Name()),
    _given("checkpointer", Name(ID_LENGTH)),
    _given("nodes", Integer),
    _given("restart", word(Restart)),
    Column("predicted_s", Figure),
    Column("restart_s", Figure),
)

# How long a run of a job lasted (``run_times.RunRecord``).
RUN_HISTORY = _table(
    "run_history",
    Column("job_id", Name(ID_LENGTH), primary_key=True),
    Column("started_at", UtcDateTime, primary_key=True),
    _given("ended_at", UtcDateTime, index=True),
    _given("user", Name()),
    _given("app", Name()),
    _given("nodes", Integer),
    Column("limit_s", Figure),
    _given("cut", Boolean),
    Index(None, "user", "app"),
)

# Who did what: a chain of entries (``model.audit``), of which nothing is ever deleted.
AUDIT = _table(
    "audit",
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    _given("entry", LongText),  # canonical JSON: number, time, actor, kind, content
    _given("previous", Name(ID_LENGTH)),  # hash of the entry before
    _given("hash", Name(ID_LENGTH)),
)

# Where the chain ends: one row, there from the migration on, which is locked to append.
AUDIT_HEAD = _table(
    "audit_head",
    Column("name", Name(ID_LENGTH), primary_key=True),
    _given("sequence", Integer),
    _given("hash", Name(ID_LENGTH)),
)

# What must be told, to whom and by which channel (``model.notice``). No foreign key: what was said stays known.
NOTICES = _table(
    "notices",
    Column("notice_id", Integer, primary_key=True, autoincrement=True),
    _given("key", Name()),  # nothing is told twice under one key and channel
    _given("channel", word(Channel)),
    _given("kind", word(NoticeKind)),
    _given("at", UtcDateTime),
    _given("user", Name()),  # who is told; empty: operators
    _given("job_id", Name(ID_LENGTH)),
    Column("eviction_id", Integer),
    _given("document", LongText),  # the facts that templates name, as JSON
    _given("created_at", UtcDateTime),
    _given("attempts", Integer),
    _given("next_attempt_at", UtcDateTime),
    _given("error", LongText),  # of the last attempt
    Column("said_at", UtcDateTime),
    Column("given_up_at", UtcDateTime),
    Column("bundle", Integer),  # the first notice in the message that it was said in
    Index(None, "key", "channel", unique=True),
    Index(None, "said_at", "given_up_at"),
    sqlite_autoincrement=True,
)

# Tests of whether a job saves itself (``model.records.SaveTest``), by the request that asked for it.
SAVE_TESTS = _table(
    "save_tests",
    # No foreign key: a request is forgotten sooner than what has come of it.
    Column("request_id", Integer, primary_key=True, autoincrement=False),
    _given("job_id", Name(ID_LENGTH), index=True),
    _given("display_id", Name(ID_LENGTH), index=True),
    _given("user", Name()),
    _given("asked_at", UtcDateTime, index=True),
    Column("ended_at", UtcDateTime, index=True),  # NULL: it waits for the job
    _given("document", LongText),  # the whole test
)

# What the report is made from (``model.records.Case``): one row for each urgent job that was planned for.
CASES = _table(
    "cases",
    Column("job_id", Name(ID_LENGTH), primary_key=True),
    Column("began_at", UtcDateTime, primary_key=True, index=True),
    Column("closed_at", UtcDateTime, index=True),  # NULL: it is still followed
    _given("document", LongText),  # the whole case; its jobs are bounded in number
)

# Small JSON values by key.
KEPT_VALUES = _table("kept_values", Column("name", Name(), primary_key=True), _given("document", LongText))

# The daemon that may act; see ``lease_rows``. The row is there from the first migration on.
LEASES = _table(
    "leases",
    Column("name", Name(ID_LENGTH), primary_key=True),
    _given("owner", Name()),
    _given("expires_at", UtcDateTime),
    _given("epoch", Integer, server_default="0"),
    Column("renewed_at", UtcDateTime),  # NULL: no daemon has had it yet
)

# Which daemon acted when. Never deleted: a row for each takeover is little.
LEADERS = _table(
    "leaders",
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    _given("owner", Name()),
    _given("began_at", UtcDateTime),
    Column("ended_at", UtcDateTime),  # NULL: nothing is known of its end
    Column("ended", word(LeaderEnd)),
    _given("ended_by", Name()),
)
