"""What the database says, asked once: it is opened and read, never made or migrated."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import make_url, text

from clearway.config.configuration import Config
from clearway.execution.breaker import BREAKER
from clearway.model.errors import StoreError
from clearway.promise.calendar_memory import CALENDAR, CalendarMemory
from clearway.store import lease_rows, migrate, request_rows
from clearway.store.base import PAUSED
from clearway.store.database import open_database


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """``revision`` None: it has no tables yet. ``clock`` None: it has none of its own, as SQLite."""

    kind: str  # with its version, where it is a server
    revision: str | None
    clock: datetime | None = None
    halted_by: str = ""  # as requests say; empty: nobody, or the tables are not this version's
    paused: bool = False
    stopped: str = ""  # why no job is made to leave any more; empty: jobs may be, or as above
    calendar: CalendarMemory | None = None  # None: no calendar has been followed, or as above


def sqlite_file(config: Config) -> Path | None:
    """None for a database server."""
    url = make_url(config.store.url)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def read_database(config: Config) -> DatabaseFacts | None:
    """None: SQLite's file is not there yet. Raises ``StoreError``."""
    file = sqlite_file(config)
    try:
        if file is not None:
            file.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}") from error
    opened = open_database(config.store.url)
    try:
        with opened.reading() as connection:
            kind = "SQLite" if file is not None else _server_version(connection, opened.engine.dialect.name)
            revision = migrate.revision_of(connection)
            clock = lease_rows.server_time(connection)
            if revision != migrate.HEAD:
                return DatabaseFacts(kind=kind, revision=revision, clock=clock)
            return DatabaseFacts(
                kind=kind,
                revision=revision,
                clock=clock,
                halted_by=request_rows.halted_by(connection),
                paused=bool(request_rows.kept_value(connection, PAUSED)),
                stopped=(request_rows.kept_value(connection, BREAKER) or {}).get("stopped", ""),
                calendar=CalendarMemory.of(request_rows.kept_value(connection, CALENDAR)),
            )
    finally:
        opened.engine.dispose()


def _server_version(connection: Any, kind: str) -> str:
    said = str(connection.execute(text("SELECT version()")).scalar()).split()
    return f"PostgreSQL {said[1]}" if kind == "postgresql" and len(said) > 1 else f"MariaDB {said[0]}"
