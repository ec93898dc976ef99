"""The schema's version: brought up to date when a store is opened, under a lock, so that two may open at once.

Alembic is imported only when there is something to do: it would double the start time of the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from clearway.model.errors import SchemaError, StoreError
from clearway.store.database import Database

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "s001"  # the newest file in migrations/versions
_OF_DEVELOPMENT = re.compile(r"00\d\d")  # revisions that no release had
_LOCK_TIMEOUT_S = 60
_ADVISORY_LOCK = 0x636C7277  # "clrw", PostgreSQL's advisory locks are numbers


def current_revision(database: Database) -> str | None:
    """The schema's revision, None for a database that has none yet."""
    with database.reading() as connection:
        return revision_of(connection)


def upgrade(database: Database) -> None:
    """Bring the schema to ``HEAD``.

    Raises:
        SchemaError: this Clearway cannot migrate from the database's revision.
    """
    if current_revision(database) == HEAD:
        return
    with alone(database) as connection:
        found = revision_of(connection)
        if found == HEAD:
            return  # another process was quicker
        if found is not None:
            check_known(found, f"database {database.shown_url}")
        move(connection, HEAD)


def check_known(revision: str, holder: str) -> None:
    """Raise ``SchemaError`` for a revision that this Clearway cannot migrate from; ``holder``: what has it."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see the module's docstring

    if revision in {each.revision for each in ScriptDirectory.from_config(config()).walk_revisions()}:
        return
    if _OF_DEVELOPMENT.fullmatch(revision):
        raise SchemaError(
            f"{holder}: its schema has revision {revision}, of a state before the first release, and is not migrated",
            "put it aside, and begin with an empty database",
        )
    raise SchemaError(
        f"{holder}: its schema has revision {revision}, this Clearway knows none after {HEAD}",
        "was it used by a newer version? Install that, or restore an older backup (clearway restore)",
    )


def revision_of(connection: Connection) -> str | None:
    """As ``current_revision``, within a transaction."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration; there is no alembic.ini, the scripts are part of the package."""
    from alembic.config import Config  # noqa: PLC0415 - see the module's docstring

    made = Config()
    made.set_main_option("script_location", "clearway.store:migrations")
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def move(connection: Connection, revision: str) -> None:
    """Up to this revision; within ``alone``."""
    from alembic import command  # noqa: PLC0415 - see the module's docstring

    command.upgrade(config(connection), revision)


@contextmanager
def alone(database: Database) -> Iterator[Connection]:
    """A transaction in which one process at a time may migrate."""
    kind = database.engine.dialect.name
    if kind in ("postgresql", "sqlite"):
        with database.writing() as connection:  # on SQLite such a transaction is the lock already
            if kind == "postgresql":
                # Held until the transaction ends, which takes the whole migration back on an error.
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ADVISORY_LOCK})
            yield connection
        return
    # MariaDB commits at every CREATE TABLE, so its lock must not belong to the transaction. It must outlast it as
    # well: the new revision is seen by others when the transaction has ended, and not before.
    name = "CONCAT('clearway.', MD5(DATABASE()))"
    with database.reading() as holder:
        if holder.execute(text(f"SELECT GET_LOCK({name}, {_LOCK_TIMEOUT_S})")).scalar() != 1:
            raise StoreError("another process has been migrating the database for too long")
        try:
            with database.writing() as connection:
                yield connection
        finally:
            holder.execute(text(f"SELECT RELEASE_LOCK({name})"))
