"""Column types that behave alike on SQLite, PostgreSQL and MariaDB."""

import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import DateTime, Dialect, Double, Enum, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeDecorator

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
