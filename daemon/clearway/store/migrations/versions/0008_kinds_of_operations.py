"""Evictions, drains and relocations are told apart by a column, and each has a plan document of its own.

Before, a drain's plan had a preemptor that no cluster knows, and a relocation was an order within a drain's.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from clearway.store.types import ID_LENGTH, LongText, UtcDateTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_NOT_DRAINED = "Not drained: "
_OF_DRAINS = ("deadline", "begin_at", "parallel", "force", "rolling_id")
_OF_PREEMPTORS = ("preemptor", "together", "staying", "ordinary", "note")

_EVICTIONS = sa.table(
    "evictions",
    sa.column("eviction_id", sa.Integer),
    sa.column("revision", sa.Integer),
    sa.column("kind", sa.String),
    sa.column("outcome", LongText),
    sa.column("outcome_code", sa.String),
    sa.column("why", LongText),
)
_PLANS = sa.table(
    "plans",
    sa.column("eviction_id", sa.Integer),
    sa.column("revision", sa.Integer),
    sa.column("made_at", UtcDateTime),
    sa.column("document", LongText),
)


def upgrade() -> None:
    op.add_column("evictions", sa.Column("kind", sa.String(ID_LENGTH), nullable=False, server_default="eviction"))
    op.add_column("evictions", sa.Column("outcome_code", sa.String(ID_LENGTH)))
    op.add_column("evictions", sa.Column("why", LongText()))
    connection = op.get_bind()
    kinds: dict[int, str] = {}
    for eviction_id, number, document in _documents(connection):
        kinds[eviction_id], text = _with_its_order(document)
        if kinds[eviction_id] != "eviction":
            _write(connection, eviction_id, number, text)
    for eviction_id, kind in kinds.items():
        if kind != "eviction":
            connection.execute(sa.update(_EVICTIONS).where(_EVICTIONS.c.eviction_id == eviction_id).values(kind=kind))
    for eviction_id, outcome in connection.execute(
        sa.select(_EVICTIONS.c.eviction_id, _EVICTIONS.c.outcome).where(_EVICTIONS.c.outcome != "")
    ).all():
        told = {"why": outcome.removeprefix(_NOT_DRAINED).removesuffix(".")}
        if outcome.startswith(_NOT_DRAINED):
            told["outcome_code"] = "not_possible"
        connection.execute(sa.update(_EVICTIONS).where(_EVICTIONS.c.eviction_id == eviction_id).values(told))


def downgrade() -> None:
    connection = op.get_bind()
    for eviction_id, number, document in _documents(connection):
        if "order" in (plan := json.loads(document)):
            _write(connection, eviction_id, number, _with_a_preemptor(plan))
    for name in ("why", "outcome_code", "kind"):
        op.drop_column("evictions", name)


def _documents(connection: sa.Connection) -> Iterator[tuple[int, int, str]]:
    keys = connection.execute(
        sa.select(_PLANS.c.eviction_id, _PLANS.c.revision).order_by(_PLANS.c.eviction_id, _PLANS.c.revision)
    ).all()
    for eviction_id, number in keys:
        query = sa.select(_PLANS.c.document).where(*_is(eviction_id, number))
        yield eviction_id, number, connection.execute(query).scalar_one()


def _is(eviction_id: int, number: int) -> tuple[Any, ...]:
    return (_PLANS.c.eviction_id == eviction_id, _PLANS.c.revision == number)


def _write(connection: sa.Connection, eviction_id: int, number: int, document: str) -> None:
    connection.execute(sa.update(_PLANS).where(*_is(eviction_id, number)).values(document=document))


def _with_its_order(document: str) -> tuple[str, str]:
    """The kind of the operation, and its plan with an order in place of a preemptor."""
    plan: dict[str, Any] = json.loads(document)
    drain = plan.pop("drain", None)
    if drain is None:
        return "eviction", document
    for name in _OF_PREEMPTORS:
        plan.pop(name, None)
    move = drain.pop("move", None)
    if move is None:
        return "drain", json.dumps(plan | {"order": drain})
    order = {name: value for name, value in drain.items() if name not in _OF_DRAINS}
    return "relocation", json.dumps(plan | {"order": order | move})


def _with_a_preemptor(plan: dict[str, Any]) -> str:
    order = plan.pop("order")
    move = None
    if "moves" in order:
        of_moves = ("kind", "moves", "gain_node_s", "cost_node_s", "power_down")
        move = {name: order.pop(name) for name in of_moves if name in order}
    preemptor = {
        "job_id": "drain",
        "user": order["actor"],
        "name": "drain" if move is None else move["kind"],
        "state": "pending",
        "raw_state": "PENDING",
        "partitions": [],
        "num_nodes": len(order["nodes"]),
        "submit_time": plan["made_at"],
    }
    return json.dumps(plan | {"preemptor": preemptor, "drain": order | {"move": move}})
