"""From a database URL to a SQLAlchemy engine that is set up for durability and for a daemon's patience.

Reading and writing transactions differ: on SQLite a writer takes the write lock at once (a reader that turns writer
fails, however long its busy timeout), on the servers a reader sees one moment through all its queries.

Also the column types, which behave alike on SQLite, PostgreSQL and MariaDB.
"""

import math
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    DateTime,
    Dialect,
    Double,
    Engine,
    Enum,
    QueuePool,
    String,
    Text,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NoSuchModuleError, SQLAlchemyError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import TypeDecorator

from clearway.config.plugins import how_to_install
from clearway.model.errors import ClearwayError, ConfigError, StoreError, UnstorableError

BUSY_TIMEOUT_S = 10
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 30  # a server that is silent for longer costs a cycle, not the daemon
_SERVER_FIRST_S = 2  # a server that works ends the query itself, and the connection stays good

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mariadb": "mariadb+pymysql",
    "mysql": "mariadb+pymysql",
}
_BEGIN = "clearway_begin"  # option of an engine: the statement that begins a transaction on SQLite; "" for none

# What the server drivers get unless the URL says otherwise.
_CONNECT_ARGS: dict[str, dict[str, Any]] = {
    "postgresql": {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": ANSWER_TIMEOUT_S * 1000,
    },
    "mariadb": {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": ANSWER_TIMEOUT_S,
        "write_timeout": ANSWER_TIMEOUT_S,
        "charset": "utf8mb4",
    },
}


@dataclass(frozen=True)
class Database:
    """One engine (and pool) with its two kinds of transaction; turns what the drivers raise into ``StoreError``."""

    shown_url: str  # without password and options
    engine: Engine = field(repr=False)
    reader: Engine = field(repr=False)  # the same pool, other transactions
    writer: Engine = field(repr=False)
    single: Engine = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.errors(), self.reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self.errors(), self.writer.begin() as connection:
            yield connection

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """For one writing statement, durable when it is done: SQLite needs no BEGIN around it."""
        with self.errors(), self.single.begin() as connection:
            yield connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except ClearwayError:
            raise
        except (DataError, LookupError, ValueError) as error:  # a value that no row can hold
            raise UnstorableError(f"database {self.shown_url}: {self._describe(error)}") from error
        except SQLAlchemyError as error:
            raise StoreError(f"database {self.shown_url}: {self._describe(error)}") from error

    def _describe(self, error: Exception) -> str:
        cause: BaseException = error
        if isinstance(error, StatementError) and error.orig is not None:  # its text alone, without the statement
            cause = error.orig
        number_and_text = cause.args if isinstance(error, DBAPIError) else ()
        text = str(number_and_text[1]) if len(number_and_text) == 2 else str(cause)  # pymysql's form
        line = " ".join(text.split()) or type(cause).__name__
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line


def open_database(url: str) -> Database:
    """Check the URL, create a SQLite file readable by its owner only, and set up the engine. Does not connect."""
    parsed = _parse(url)
    shown = parsed.set(query={}).render_as_string(hide_password=True)
    secrets = {parsed.password, *parsed.normalized_query.get("password", ())} - {None, ""}
    kind = parsed.get_backend_name()
    try:
        engine = _sqlite(parsed) if kind == "sqlite" else _server(parsed, kind)
    except ImportError as error:
        raise ConfigError(f"database {shown} needs a driver that is not installed: {how_to_install(kind)}") from error
    except (ArgumentError, NoSuchModuleError, TypeError, ValueError) as error:
        raise ConfigError(f"database {shown} cannot be used: {' '.join(str(error).split())}") from error
    reader = engine if kind == "sqlite" else engine.execution_options(isolation_level="REPEATABLE READ")
    writer = engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
    single = engine.execution_options(**{_BEGIN: ""})
    return Database(shown, engine, reader, writer, single, tuple(str(secret) for secret in secrets))


def _parse(url: str) -> URL:
    """The URL with the driver that Clearway comes with; errors never repeat the URL, it may hold a password."""
    hint = "expected sqlite:////var/lib/clearway/clearway.sqlite, postgresql://user@host/name or mariadb://..."
    try:
        parsed = make_url(url)
        kind = parsed.get_backend_name()
    except (ArgumentError, ValueError) as error:
        raise ConfigError(f"the database URL is malformed: {hint}") from error
    if kind not in _DRIVERS:
        raise ConfigError(f"the database URL names {kind!r}, which is not supported: {hint}")
    if kind != "sqlite" and not parsed.database:
        raise ConfigError(f"the database URL names no database: {hint}")
    return parsed.set(drivername=_DRIVERS[kind])


def _sqlite(url: URL) -> Engine:
    in_memory = not url.database or url.database == ":memory:"
    if not in_memory:
        _create_private(Path(str(url.database)))
    engine = create_engine(
        url,
        hide_parameters=True,
        poolclass=QueuePool,
        # A database in memory lives and dies with its one connection.
        pool_size=1 if in_memory else 5,
        max_overflow=0 if in_memory else 10,
        # isolation_level None: the driver begins nothing by itself, the listener below does.
        connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        _use_wal(cursor)
        cursor.execute("PRAGMA synchronous = FULL")  # a commit survives a power loss: intent comes before the act
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if begin := connection.get_execution_options().get(_BEGIN, "BEGIN"):
            connection.exec_driver_sql(begin)

    return engine


def _use_wal(cursor: DBAPICursor) -> None:
    """The first connection to a new file switches it for good; others that do so just then are turned away.

    SQLite does not wait for locks here, in spite of its busy timeout.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _create_private(path: Path) -> None:
    """An empty file is a valid SQLite database; its journal files take over its mode.

    A file that is there is not opened: closing it would drop the locks of this process's other connections to it, and
    another process could then remove the log that they write to.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(f"database {path}: {error.strerror or error}") from error


def _server(url: URL, kind: str) -> Engine:
    args = {name: value for name, value in _CONNECT_ARGS[kind].items() if name not in url.query}
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_pre_ping=True,  # a restarted server costs nothing but the transaction it interrupted
        pool_recycle=1800,
        isolation_level="READ COMMITTED",
        connect_args=args,
    )

    if kind == "postgresql":
        _with_patience(engine)

    @event.listens_for(engine, "connect")
    def _set_up(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        if kind == "postgresql":
            cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute(f"SET statement_timeout = {ANSWER_TIMEOUT_S * 1000}")
        else:
            # Never cut a text or change a value silently, whatever the server's configuration says.
            cursor.execute("SET SESSION sql_mode = 'TRADITIONAL'")
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {ANSWER_TIMEOUT_S // 2}")
        cursor.close()
        connection.commit()

    return engine


def _with_patience(engine: Engine) -> None:
    from clearway.store.postgresql import PatientConnection  # noqa: PLC0415 - the driver is an optional dependency

    @event.listens_for(engine, "do_connect")
    def _connect(_: Dialect, __: ConnectionPoolEntry, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        connection = PatientConnection.connect(*args, **named)
        connection.patience_s = ANSWER_TIMEOUT_S + _SERVER_FIRST_S
        return connection


MARIADB = ("mariadb", "mysql")  # SQLAlchemy knows MariaDB's types by either name

ID_LENGTH = 64  # Slurm job ids, states, actions, kinds
NAME_LENGTH = 255  # users, accounts, reservations, keys

# Slurm's names differ by case and MariaDB's default collation does not; nor may it drop trailing spaces.
TABLE_OPTIONS: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC in and out, to the microsecond. SQLite and MariaDB store no zone: what they hold is UTC."""

    impl = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MARIADB)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone cannot be stored: {value.isoformat()}")
        value = value.astimezone(UTC)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if dialect.name == "postgresql" else value.replace(tzinfo=UTC)


class Figure(TypeDecorator[float]):
    """A finite double: SQLite would turn NaN into NULL, MariaDB takes neither NaN nor infinity."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:  # noqa: ARG002
        if value is None:
            return None
        if not math.isfinite(value):
            raise ValueError(f"a figure must be finite, not {value}")
        return float(value)


class LongText(TypeDecorator[str]):
    """Text of any length (MariaDB's TEXT ends at 64 KiB)."""

    impl = Text().with_variant(mysql.LONGTEXT(), *MARIADB)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else _storable(value)


class Name(TypeDecorator[str]):
    """A short text that can be indexed; longer ones are cut, for they are only there to be searched by."""

    impl = String
    cache_ok = True

    def __init__(self, length: int = NAME_LENGTH) -> None:
        super().__init__(length)
        self.length = length

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else _storable(value)[: self.length]


def _storable(value: str) -> str:
    """PostgreSQL refuses NUL and every driver refuses lone surrogates.

    Both come from programs' output and job names, and neither may keep an event from being recorded.
    """
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def word(kind: type[StrEnum]) -> Enum:
    """A StrEnum kept by its value in a plain VARCHAR: new words need no migration."""
    return Enum(
        kind,
        native_enum=False,
        create_constraint=False,
        length=ID_LENGTH,
        values_callable=lambda members: [member.value for member in members],
    )
