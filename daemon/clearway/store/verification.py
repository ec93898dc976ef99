"""Whether a database is whole: its file, its schema, what its rows refer to, its documents, and the audit trail."""

from collections.abc import Iterator

from sqlalchemy import Connection, func, inspect, select, text

from clearway.model.errors import StoreError
from clearway.store import migrate, preemption_rows, request_rows, rows
from clearway.store.database import Database
from clearway.store.plan_rows import COLUMNS, PRESENT, parts_of, plan_from
from clearway.store.tables import EVICTIONS, METADATA, PLANS

_MOST = 20  # findings of one kind that are told one by one


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
            rows.eviction_from(row, plan, preemption_rows.read(connection, [row.eviction_id])[row.eviction_id])
        except (StoreError, ValueError, LookupError) as error:
            told += 1
            if told <= _MOST:
                yield f"Eviction {row.eviction_id} cannot be read: {' '.join(str(error).split())}"
