"""The rows of ``audit``, a chain, and of ``audit_head``, which says where it ends.

The head is one row, locked by whoever appends until the transaction ends: of two writers the second sees what the first
wrote, so the chain cannot fork. On SQLite a writing transaction is such a lock already. What is recorded and the record
of it are one transaction. Nothing deletes from here.
"""

import json
from collections.abc import Iterator

from sqlalchemy import Connection, insert, select, update

from clearway.model.audit import BEFORE_THE_FIRST, AuditCheck, Audited, AuditRow, hash_of
from clearway.model.errors import StoreError
from clearway.store.rows import record_from
from clearway.store.tables import AUDIT as TABLE
from clearway.store.tables import AUDIT_HEAD as HEAD
from clearway.store.tables import KEPT_VALUES

_AT_ONCE = 1_000  # entries in memory


def append(connection: Connection, audited: Audited) -> AuditRow:
    """The last statements of a transaction, so that others do not wait for long."""
    head = connection.execute(select(HEAD).with_for_update()).one_or_none()
    if head is None:
        raise StoreError("the audit trail has lost its head (clearway audit --verify)")
    sequence = head.sequence + 1
    entry = audited.text(sequence)
    row = AuditRow(sequence=sequence, entry=entry, previous=head.hash, hash=hash_of(head.hash, entry))
    values = {"sequence": sequence, "entry": entry, "previous": row.previous, "hash": row.hash}
    connection.execute(insert(TABLE).values(values))
    connection.execute(update(HEAD).values(sequence=sequence, hash=row.hash))
    return row


def append_keeping(connection: Connection, audited: Audited, name: str, value: object) -> AuditRow:
    """Append, and keep a small value of this name, so that the next entry can tell what is new."""
    document = json.dumps(value, allow_nan=False)
    query = update(KEPT_VALUES).where(KEPT_VALUES.c.name == name)
    if connection.execute(query.values(document=document)).rowcount == 0:
        connection.execute(insert(KEPT_VALUES).values(name=name, document=document))
    return append(connection, audited)


def newest(connection: Connection, *, limit: int = 50, before: int | None = None) -> tuple[AuditRow, ...]:
    """Newest first; ``before``: those of lower numbers alone."""
    query = select(TABLE).order_by(TABLE.c.sequence.desc()).limit(limit)
    if before is not None:
        query = query.where(TABLE.c.sequence < before)
    return tuple(record_from(AuditRow, row) for row in connection.execute(query))


def check(connection: Connection) -> AuditCheck:
    """Follow the chain from the first entry to the head."""
    entries, hash_ = 0, BEFORE_THE_FIRST
    for row in _all(connection):
        if fault := row.fault(entries + 1, hash_):
            return AuditCheck(entries=entries, head=hash_, fault=fault)
        entries, hash_ = row.sequence, row.hash
    head = connection.execute(select(HEAD)).one_or_none()
    if head is None or (head.sequence, head.hash) != (entries, hash_):
        return AuditCheck(entries=entries, head=hash_, fault=f"entries after {entries} are missing")
    return AuditCheck(entries=entries, head=hash_)


def _all(connection: Connection) -> Iterator[AuditRow]:
    last = -(2**31)
    while True:
        query = select(TABLE).where(TABLE.c.sequence > last).order_by(TABLE.c.sequence).limit(_AT_ONCE)
        found = connection.execute(query).all()
        yield from (record_from(AuditRow, row) for row in found)
        if len(found) < _AT_ONCE:
            return
        last = found[-1].sequence
