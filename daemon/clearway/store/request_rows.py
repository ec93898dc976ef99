"""The rows of ``requests``, of the audit trail, and of ``kept_values``.

What is asked, and what comes of it, is part of the audit trail in the same transaction. The trail is a chain; the one
row of ``audit_head`` says where it ends. Whoever appends locks that row until the transaction ends: of two writers the
second sees what the first wrote, so the chain cannot fork. On SQLite a writing transaction is such a lock already.
Nothing is deleted from the trail.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from clearway.model.audit import BEFORE_THE_FIRST, AuditCheck, Audited, AuditKind, AuditRow, hash_of
from clearway.model.errors import StoreError, TooManyRequestsError, UnknownEvictionError
from clearway.model.records import HALTED
from clearway.model.requests import (
    OF_OPERATORS,
    OF_SWITCHES,
    RECENT,
    SWITCHES,
    Allowance,
    Answer,
    OperatorRequest,
    RequestKind,
)
from clearway.store.rows import new_id, put, record_from
from clearway.store.tables import AUDIT, AUDIT_HEAD, EVICTIONS, KEPT_VALUES, REQUESTS

_AT_ONCE = 1_000  # entries of the audit trail in memory
_LONGEST_DOCUMENT = 4_096  # characters of it in the audit trail; the request itself has it whole


def kept_value(connection: Connection, name: str) -> Any:
    """A small JSON value that outlives restarts (paused, the last cycle's summary); None when absent."""
    document = connection.execute(select(KEPT_VALUES.c.document).where(KEPT_VALUES.c.name == name)).scalar_one_or_none()
    return None if document is None else json.loads(document)


def keep_value(connection: Connection, name: str, value: object) -> None:
    put(connection, KEPT_VALUES, {"name": name, "document": json.dumps(value, allow_nan=False)})


def audit(connection: Connection, audited: Audited) -> AuditRow:
    """The last statements of a transaction, so that others do not wait for long."""
    head = connection.execute(select(AUDIT_HEAD).with_for_update()).one_or_none()
    if head is None:
        raise StoreError("the audit trail has lost its head (clearway audit --verify)")
    sequence = head.sequence + 1
    entry = audited.text(sequence)
    row = AuditRow(sequence=sequence, entry=entry, previous=head.hash, hash=hash_of(head.hash, entry))
    connection.execute(insert(AUDIT).values(asdict(row)))
    connection.execute(update(AUDIT_HEAD).values(sequence=sequence, hash=row.hash))
    return row


def audit_keeping(connection: Connection, audited: Audited, name: str, value: object) -> AuditRow:
    """Append, and keep a small value of this name, so that the next entry can tell what is new."""
    keep_value(connection, name, value)
    return audit(connection, audited)


def audit_trail(connection: Connection, *, limit: int = 50, before: int | None = None) -> tuple[AuditRow, ...]:
    """Newest first; ``before``: of lower numbers alone."""
    query = select(AUDIT).order_by(AUDIT.c.sequence.desc()).limit(limit)
    if before is not None:
        query = query.where(AUDIT.c.sequence < before)
    return tuple(record_from(AuditRow, row) for row in connection.execute(query))


def check_audit(connection: Connection) -> AuditCheck:
    """Whether the trail is whole, from its first entry to its last."""
    entries, hash_ = 0, BEFORE_THE_FIRST
    for row in _whole_trail(connection):
        if fault := row.fault(entries + 1, hash_):
            return AuditCheck(entries=entries, head=hash_, fault=fault)
        entries, hash_ = row.sequence, row.hash
    head = connection.execute(select(AUDIT_HEAD)).one_or_none()
    if head is None or (head.sequence, head.hash) != (entries, hash_):
        return AuditCheck(entries=entries, head=hash_, fault=f"entries after {entries} are missing")
    return AuditCheck(entries=entries, head=hash_)


def _whole_trail(connection: Connection) -> Iterator[AuditRow]:
    last = -(2**31)
    while True:
        query = select(AUDIT).where(AUDIT.c.sequence > last).order_by(AUDIT.c.sequence).limit(_AT_ONCE)
        found = connection.execute(query).all()
        yield from (record_from(AuditRow, row) for row in found)
        if len(found) < _AT_ONCE:
            return
        last = found[-1].sequence


def _request(row: Row[Any]) -> OperatorRequest:
    return record_from(OperatorRequest, row, document=row.document or "")


def pending_requests(connection: Connection) -> tuple[OperatorRequest, ...]:
    """Those that are not handled yet, by id."""
    query = select(REQUESTS).where(REQUESTS.c.handled_at.is_(None)).order_by(REQUESTS.c.request_id)
    return tuple(_request(row) for row in connection.execute(query))


def halted_by(connection: Connection) -> str:
    """The actor of a halt: one that holds, or that waits to be handled; empty where there is none."""
    holds = select(KEPT_VALUES.c.document).where(KEPT_VALUES.c.name == HALTED).scalar_subquery()
    asked = select(func.min(REQUESTS.c.actor)).where(
        REQUESTS.c.handled_at.is_(None), REQUESTS.c.kind == RequestKind.HALT
    )
    document, actor = connection.execute(select(holds, asked.scalar_subquery())).one()
    return str((document is not None and json.loads(document)) or actor or "")


def request(connection: Connection, request_id: int) -> OperatorRequest | None:
    row = connection.execute(select(REQUESTS).where(REQUESTS.c.request_id == request_id)).first()
    return None if row is None else _request(row)


def add_request(
    connection: Connection,
    kind: RequestKind,
    eviction_id: int | None,
    actor: str,
    at: datetime,
    document: str = "",
    rolling_id: int | None = None,
) -> int:
    """Raises ``TooManyRequestsError`` where the actor has asked for as much as any actor may."""
    switch = kind in SWITCHES
    check_number(connection, actor, at, OF_SWITCHES if switch else OF_OPERATORS, switch=switch)
    known = select(EVICTIONS.c.eviction_id).where(EVICTIONS.c.eviction_id == eviction_id)
    if eviction_id is not None and connection.execute(known).first() is None:
        raise UnknownEvictionError(f"no eviction {eviction_id}")
    asked = {"kind": str(kind), "eviction_id": eviction_id, "rolling_id": rolling_id, "document": document}
    values = asked | {"actor": actor, "created_at": at, "result": ""}
    request_id = new_id(connection.execute(insert(REQUESTS).values(values)))
    about = asked | {"request_id": request_id, "document": document[:_LONGEST_DOCUMENT]}
    audit(connection, Audited(at=at, actor=actor, kind=AuditKind.REQUEST, about=_given(about)))
    return request_id


def check_number(connection: Connection, actor: str, at: datetime, allowed: Allowance, *, switch: bool = False) -> None:
    """Raises ``TooManyRequestsError`` where the actor has asked for as much as is ``allowed``."""
    alike = REQUESTS.c.kind.in_(SWITCHES) if switch else REQUESTS.c.kind.not_in(SWITCHES)
    own = select(func.count()).where(REQUESTS.c.actor == actor, alike)
    waiting, recent = own.where(REQUESTS.c.handled_at.is_(None)), own.where(REQUESTS.c.created_at > at - RECENT)
    found = connection.execute(select(waiting.scalar_subquery(), recent.scalar_subquery())).one()
    if found[0] >= allowed.waiting:
        raise TooManyRequestsError(f"{found[0]} requests of {actor} wait to be handled; ask again when they are")
    if found[1] >= allowed.recent:
        minutes = RECENT.total_seconds() / 60
        raise TooManyRequestsError(f"{actor} has made {found[1]} requests within {minutes:g} min; ask again later")


def finish_request(connection: Connection, request_id: int, at: datetime, answer: Answer) -> None:
    """What has become of it, with the operation that it has led to."""
    values: dict[str, Any] = {"handled_at": at, "code": answer.code, "result": answer.text}
    led_to = {"eviction_id": answer.eviction_id, "rolling_id": answer.rolling_id}
    values |= {name: number for name, number in led_to.items() if number is not None}
    if connection.execute(update(REQUESTS).where(REQUESTS.c.request_id == request_id).values(values)).rowcount != 1:
        raise StoreError(f"no request {request_id}")
    about = {"request_id": request_id, "code": answer.code.value, "result": answer.text, **led_to}
    audit(connection, Audited(at=at, actor="clearway", kind=AuditKind.ANSWER, about=_given(about)))


def _given(about: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in about.items() if value not in (None, "")}
