"""The rows of ``requests``. What is asked, and what comes of it, is part of the audit trail in the same transaction."""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from clearway.model.audit import Audited, AuditKind
from clearway.model.errors import StoreError, UnknownEvictionError
from clearway.model.requests import Answer, OperatorRequest, RequestKind
from clearway.store import audit_rows, rows
from clearway.store.base import HALTED
from clearway.store.tables import EVICTIONS, KEPT_VALUES
from clearway.store.tables import REQUESTS as TABLE

_LONGEST_DOCUMENT = 4_096  # characters of it in the audit trail; the request itself has it whole


def _request(row: Row[Any]) -> OperatorRequest:
    return rows.record_from(OperatorRequest, row, document=row.document or "")


def pending(connection: Connection) -> tuple[OperatorRequest, ...]:
    query = select(TABLE).where(TABLE.c.handled_at.is_(None)).order_by(TABLE.c.request_id)
    return tuple(_request(row) for row in connection.execute(query))


def halted_by(connection: Connection) -> str:
    """The actor of a halt: one that holds, or that waits to be handled; empty where there is none."""
    holds = select(KEPT_VALUES.c.document).where(KEPT_VALUES.c.name == HALTED).scalar_subquery()
    asked = select(func.min(TABLE.c.actor)).where(TABLE.c.handled_at.is_(None), TABLE.c.kind == RequestKind.HALT)
    document, actor = connection.execute(select(holds, asked.scalar_subquery())).one()
    return str((document is not None and json.loads(document)) or actor or "")


def find(connection: Connection, request_id: int) -> OperatorRequest | None:
    row = connection.execute(select(TABLE).where(TABLE.c.request_id == request_id)).first()
    return None if row is None else _request(row)


def add(
    connection: Connection,
    kind: RequestKind,
    eviction_id: int | None,
    actor: str,
    at: datetime,
    document: str = "",
    rolling_id: int | None = None,
) -> int:
    """Raises ``UnknownEvictionError`` when it is about an eviction that does not exist."""
    values = {"kind": str(kind), "eviction_id": eviction_id, "actor": actor, "created_at": at, "result": ""}
    values |= {"document": document, "rolling_id": rolling_id}
    known = select(EVICTIONS.c.eviction_id).where(EVICTIONS.c.eviction_id == eviction_id)
    if eviction_id is not None and connection.execute(known).first() is None:
        raise UnknownEvictionError(f"no eviction {eviction_id}")
    request_id = rows.new_id(connection.execute(insert(TABLE).values(values)))
    about = {"request_id": request_id, "kind": str(kind), "eviction_id": eviction_id, "rolling_id": rolling_id}
    about |= {"document": document[:_LONGEST_DOCUMENT]}
    audit_rows.append(connection, Audited(at=at, actor=actor, kind=AuditKind.REQUEST, about=_given(about)))
    return request_id


def finish(connection: Connection, request_id: int, at: datetime, answer: Answer) -> None:
    values: dict[str, Any] = {"handled_at": at, "code": answer.code, "result": answer.text}
    led_to = {"eviction_id": answer.eviction_id, "rolling_id": answer.rolling_id}
    values |= {name: number for name, number in led_to.items() if number is not None}
    if connection.execute(update(TABLE).where(TABLE.c.request_id == request_id).values(values)).rowcount != 1:
        raise StoreError(f"no request {request_id}")
    about = {"request_id": request_id, "code": answer.code.value, "result": answer.text, **led_to}
    audit_rows.append(connection, Audited(at=at, actor="clearway", kind=AuditKind.ANSWER, about=_given(about)))


def _given(about: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in about.items() if value not in (None, "")}
