"""A whole database in one file, which any of the three kinds of database can be made from again.

The file is gzipped text, a JSON object a line: first the heading (format, revision of the schema, time), then every row
with its table, in an order in which no row refers to a later one, and last the number of rows and the SHA-256 of all
lines before. It is read in one transaction, so it shows one moment, while a daemon may go on writing.

Restoring makes the tables anew at the file's revision, fills them, and migrates them to the newest one. What was there
before is written to a file first. Afterwards nothing is begun until an operator resumes it: the cluster has gone on
since the backup. New numbers begin well above the old ones, so that nothing made after the backup shares a number. On
SQLite and PostgreSQL all of it is one transaction.

And whether a database is whole: its file, its schema, what its rows refer to, its documents, and the audit trail.
"""

import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Boolean,
    Connection,
    DateTime,
    Double,
    MetaData,
    Table,
    delete,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

from clearway.model.audit import Audited, AuditKind
from clearway.model.errors import StoreError
from clearway.model.operations import EvictionState
from clearway.model.requests import RequestResult
from clearway.store import eviction_rows, migrate, request_rows, rows
from clearway.store.database import Database
from clearway.store.plan_rows import COLUMNS, PRESENT, parts_of, plan_from
from clearway.store.tables import EVICTIONS, KEPT_VALUES, LEASES, METADATA, PLANS, REQUESTS

GAP = 100_000  # numbers that are left out after a restore
_FORMAT = 1
_AT_ONCE = 500  # rows in memory
_VERSION = "alembic_version"
_OPEN = [state.value for state in EvictionState if not state.terminal]
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_MOST = 20  # findings of one kind that are told one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    revision: str
    made_at: datetime
    rows: Mapping[str, int]  # by table
    sha256: str


def write(database: Database, file: Path, now: datetime) -> Backup:
    """Write the database to a new file, which its owner alone may read.

    Raises ``StoreError``: the database cannot be read, no Clearway could restore the file, or the file is there already
    or cannot be written.
    """
    if (revision := migrate.current_revision(database)) is not None:
        migrate.check_known(revision, f"database {database.shown_url}")
    return _write(database, file, now)


def _write(database: Database, file: Path, now: datetime) -> Backup:
    """Whatever the database's revision is."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        with suppress(FileNotFoundError):
            partial.unlink()
        if file.exists():
            raise StoreError(f"{file}: is there already")
        descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as raw:
            with (
                gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed,
                database.reading() as connection,
            ):
                made = _write_lines(connection, packed, now)
            raw.flush()
            os.fsync(raw.fileno())
        partial.rename(file)
    except OSError as error:
        raise StoreError(f"{file}: cannot be written: {error.strerror or error}") from None
    return made


def read(file: Path) -> Backup:
    """What the file holds, after all of it was read and its sum compared.

    Raises ``StoreError``: it cannot be read, is no backup, or was cut off or changed.
    """
    lines, rows, digest = _lines(file), Counter[str](), hashlib.sha256()
    heading: dict[str, Any] | None = None
    for line in lines:
        entry = _parsed(line, file)
        if heading is None:
            heading = entry
            if entry.get("clearway_backup") != _FORMAT or not isinstance(entry.get("revision"), str):
                raise StoreError(f"{file}: is no backup that this Clearway can read")
        elif "sha256" in entry:
            if (
                entry["sha256"] != digest.hexdigest()
                or entry.get("rows") != dict(rows)
                or next(lines, None) is not None
            ):
                raise StoreError(f"{file}: was changed since it was written: its sum does not agree")
            made_at = datetime.fromisoformat(heading["made_at"])
            return Backup(revision=heading["revision"], made_at=made_at, rows=rows, sha256=entry["sha256"])
        else:
            rows[entry["table"]] += 1
        digest.update(line)
    raise StoreError(f"{file}: is not whole: its end is missing")


def restore(database: Database, file: Path, now: datetime, *, actor: str, force: bool = False) -> Path | None:
    """Make the database from the file; returns the file with what was there before, None where nothing was.

    ``force``: also over a database with operations that have not ended. ``now`` judges the lease.
    Raises ``StoreError``: the file is no good, a daemon leads, operations are open, or the database cannot be written.
    """
    backup = read(file)
    migrate.check_known(backup.revision, str(file))
    replaced = None
    if migrate.current_revision(database) is not None:
        with database.reading() as connection:
            refuse(connection, now, force=force)
        replaced = file.with_name(f"{file.name}.replaced-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}")
        _write(database, replaced, now)
    with migrate.alone(database) as connection:
        before: dict[str, Any] = {}
        if migrate.revision_of(connection) is not None:
            refuse(connection, now, force=force)
            before = _remains(connection)
        if inspect(connection).has_table(_VERSION):  # without a revision: a restore that failed, on MariaDB
            _reflected(connection, (*METADATA.tables, _VERSION)).drop_all(connection)
        migrate.move(connection, backup.revision)
        _fill(connection, file)
        migrate.move(connection, migrate.HEAD)
        _settle(connection, before, now)
        about = {"file": file.name, "sha256": backup.sha256, "made_at": backup.made_at.isoformat(), "forced": force}
        replaced_audit = {key: before[key] for key in ("audit_entries", "audit_head") if key in before}
        audited = Audited(at=now, actor=actor, kind=AuditKind.RESTORE, about=about | replaced_audit)
        request_rows.audit(connection, audited)
    return replaced


def _write_lines(connection: Connection, packed: gzip.GzipFile, now: datetime) -> Backup:
    revision = migrate.revision_of(connection)
    if revision is None:
        raise StoreError("the database has no tables yet: the daemon makes them at its start")
    digest, rows = hashlib.sha256(), Counter[str]()

    def write_line(entry: dict[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":"), default=_as_text).encode() + b"\n"
        digest.update(line)
        packed.write(line)

    write_line({"clearway_backup": _FORMAT, "revision": revision, "made_at": now.astimezone(UTC).isoformat()})
    for table in _reflected(connection, METADATA.tables).sorted_tables:
        found = connection.execution_options(yield_per=_AT_ONCE).execute(select(table).order_by(*table.primary_key))
        for row in found.mappings():
            write_line({"table": table.name, "row": dict(row)})
            rows[table.name] += 1
    made = Backup(revision=revision, made_at=now, rows=rows, sha256=digest.hexdigest())
    packed.write(json.dumps({"sha256": made.sha256, "rows": dict(rows)}).encode() + b"\n")
    return made


def _as_text(value: object) -> str:
    """Times are UTC; SQLite and MariaDB keep no zone."""
    if not isinstance(value, datetime):
        raise StoreError(f"a value of {type(value).__name__} cannot be written to a backup")
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with gzip.open(file, "rb") as opened:
            yield from opened
    except (OSError, EOFError) as error:
        raise StoreError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parsed(line: bytes, file: Path) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        raise StoreError(f"{file}: is no backup that this Clearway can read") from None
    if not isinstance(entry, dict):
        raise StoreError(f"{file}: is no backup that this Clearway can read")
    return entry


def _reflected(connection: Connection, names: Iterable[str]) -> MetaData:
    """The tables as they are, whatever revision they have."""
    there = set(inspect(connection).get_table_names())
    found = MetaData()
    found.reflect(connection, only=[name for name in names if name in there])
    for column in (column for table in found.tables.values() for column in table.columns):
        if isinstance(column.type, Double):
            column.type = Double()  # MariaDB's own would be rounded to ten places
    return found


def refuse(connection: Connection, now: datetime, *, force: bool) -> None:
    for lease in connection.execute(select(LEASES.c.owner, LEASES.c.expires_at)):
        if lease.owner and lease.expires_at > now:
            raise StoreError(f"{lease.owner} leads with this database until {lease.expires_at:%H:%M:%S} UTC: stop it")
    count = select(func.count()).select_from(EVICTIONS)
    of_state = text("state IN (" + ",".join(f"'{state}'" for state in _OPEN) + ")")  # older revisions lack columns
    if not force and (open_ones := connection.execute(count.where(of_state)).scalar_one()):
        raise StoreError(f"{open_ones} operation(s) of this database have not ended; --force goes on all the same")


def _remains(connection: Connection) -> dict[str, Any]:
    """What the restored database has to know of the one that it replaces."""
    tables = _reflected(connection, METADATA.tables).tables
    found: dict[str, Any] = {}
    if "epoch" in tables["leases"].c:
        found["epoch"] = connection.execute(select(func.max(tables["leases"].c.epoch))).scalar()
    if "audit_head" in tables:
        head = connection.execute(select(tables["audit_head"])).mappings().first()
        if head is not None:
            found |= {"audit_entries": head["sequence"], "audit_head": head["hash"]}
    found["numbers"] = {table.name: _top(connection, table) for table in _numbered() if table.name in tables}
    return found


def _fill(connection: Connection, file: Path) -> None:
    tables = _reflected(connection, METADATA.tables)
    for table in reversed(tables.sorted_tables):
        connection.execute(delete(table))  # rows that a migration has made
    entries = (entry for line in _lines(file) if "table" in (entry := _parsed(line, file)))
    for name, group in groupby(entries, key=lambda entry: entry["table"]):
        table = tables.tables.get(name)
        if table is None:
            raise StoreError(f"{file}: has rows of a table {name!r:.40}, which its revision does not know")
        rows = (entry["row"].items() for entry in group)
        while some := [{n: _value(table, n, value) for n, value in row} for row in islice(rows, _AT_ONCE)]:
            connection.execute(insert(table), some)


def _value(table: Table, name: str, value: Any) -> Any:
    kind = table.c[name].type
    if value is None:
        return None
    if isinstance(kind, DateTime):
        at = datetime.fromisoformat(value)
        return at if kind.timezone else at.astimezone(UTC).replace(tzinfo=None)
    return bool(value) if isinstance(kind, Boolean) else value


def _settle(connection: Connection, before: Mapping[str, Any], now: datetime) -> None:
    """Nobody leads, nothing is begun, no request is carried out again, and no number is given out twice."""
    waiting = update(REQUESTS).where(REQUESTS.c.handled_at.is_(None))
    told = {"code": RequestResult.REFUSED, "result": "the database was restored from a backup; ask again"}
    connection.execute(waiting.values(handled_at=now, **told))
    lease = _reflected(connection, ["leases"]).tables["leases"]
    connection.execute(update(LEASES).values(owner="", expires_at=_LONG_AGO))
    if "epoch" in lease.c and (epoch := before.get("epoch")):
        connection.execute(update(lease).where(lease.c.epoch < epoch).values(epoch=epoch))
    connection.execute(delete(KEPT_VALUES).where(KEPT_VALUES.c.name == "paused"))
    connection.execute(insert(KEPT_VALUES).values(name="paused", document="true"))
    numbers = before.get("numbers", {})
    for table in _numbered():
        top = max(_top(connection, table), numbers.get(table.name, 0)) + GAP
        _begin_after(connection, table, top)


def _numbered() -> list[Table]:
    return [table for table in METADATA.sorted_tables if table.autoincrement_column is not None]


def _top(connection: Connection, table: Table) -> int:
    found: Any = connection.execute(select(func.max(table.autoincrement_column))).scalar()
    return int(found or 0)


def _begin_after(connection: Connection, table: Table, number: int) -> None:
    kind, values = connection.dialect.name, {"name": table.name, "number": number}
    if kind == "sqlite":
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)"), values)
    elif kind == "postgresql":
        values["column"] = table.autoincrement_column.name if table.autoincrement_column is not None else ""
        connection.execute(text("SELECT setval(pg_get_serial_sequence(:name, :column), :number)"), values)
    else:
        connection.execute(text(f"ALTER TABLE {table.name} AUTO_INCREMENT = {number + 1}"))


def faults(database: Database) -> list[str]:
    """What is wrong, a sentence each; empty: nothing. Of one moment, while others may write.

    Raises ``StoreError``: the database cannot be read at all.
    """
    with database.reading() as connection:
        revision = migrate.revision_of(connection)
        if revision is None:
            return ["The database has no tables: the daemon makes them at its start"]
        if revision != migrate.HEAD:
            migrate.check_known(revision, f"database {database.shown_url}")
            return [f"The schema has revision {revision}; this Clearway needs {migrate.HEAD}: its daemon migrates it"]
        found = [*_damage(connection), *_schema(connection)]
        if not found:
            found = [*_references(connection), *_documents(connection)]
            if fault := request_rows.check_audit(connection).fault:
                found.append(f"The audit trail is broken: {fault}")
        return found


def _damage(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for (said,) in connection.execute(text(f"PRAGMA integrity_check({_MOST})")):
            if said != "ok":
                yield f"SQLite finds damage: {said}"


def _schema(connection: Connection) -> Iterator[str]:
    there = inspect(connection)
    names = set(there.get_table_names())
    for table in METADATA.sorted_tables:
        if table.name not in names:
            yield f"The table {table.name} is missing"
            continue
        missing = {column.name for column in table.columns} - {each["name"] for each in there.get_columns(table.name)}
        for name in sorted(missing):
            yield f"The table {table.name} has no column {name}"


def _references(connection: Connection) -> Iterator[str]:
    for table in METADATA.sorted_tables:
        for key in table.foreign_keys:
            query = select(func.count()).select_from(table.outerjoin(key.column.table, key.parent == key.column))
            lost = connection.execute(query.where(key.column.is_(None), key.parent.is_not(None))).scalar_one()
            if lost:
                yield f"{lost} row(s) of {table.name} refer to {key.column.table.name} that are not there"
    query = select(EVICTIONS.c.eviction_id, EVICTIONS.c.revision).outerjoin(PLANS, PRESENT)
    for row in connection.execute(query.where(PLANS.c.eviction_id.is_(None)).limit(_MOST)):
        yield f"Eviction {row.eviction_id} has no plan of its revision {row.revision}"


def _documents(connection: Connection) -> Iterator[str]:
    """Every operation can be read as the daemon would read it."""
    told = 0
    query = select(EVICTIONS, *COLUMNS).join(PLANS, PRESENT).order_by(EVICTIONS.c.eviction_id)
    for row in connection.execute(query).all():
        try:
            plan = plan_from(row.kind, row, parts_of(connection, [row]))
            rows.eviction_from(row, plan, eviction_rows.preemptions(connection, [row.eviction_id])[row.eviction_id])
        except (StoreError, ValueError, LookupError) as error:
            told += 1
            if told <= _MOST:
                yield f"Eviction {row.eviction_id} cannot be read: {' '.join(str(error).split())}"
