"""Values of slurmrestd's JSON, and of pyslurm, as squeue and scontrol print them: one place decides what a job is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from clearway.model.cluster import Job
from clearway.slurm.parse.fields import LATEST, FieldError

Record = Mapping[str, Any]
Read = Callable[[Record, str], str]
Table = dict[str, tuple[Read, str]]  # Slurm's name of a field to how it is read, and of which key

UNSET = "N/A"


def by(read: Read, keys: Mapping[str, str]) -> Table:
    return {name: (read, key) for name, key in keys.items()}


def told(record: Record, table: Table) -> dict[str, str]:
    return {name: read(record, key) for name, (read, key) in table.items()}


def named(key: str, records: Sequence[object]) -> list[tuple[str, Record]]:
    """Records with their keys; what is no record has none, and cannot be read."""
    found = [record if isinstance(record, dict) else {} for record in records]
    return [(str(record.get(key, "")), record) for record in found]


def or_else(nothing: str, read: Read) -> Read:
    """``read``, for a source that says None where there is nothing."""
    return lambda record, key: nothing if record.get(key) is None else read(record, key)


class Unchanged:
    """Jobs of the last answer, by all that is looked at in their records: while that is the same, so is the job."""

    def __init__(self, looked_at: Callable[[Record], Iterable[object]]) -> None:
        self._looked_at = looked_at
        self._known: dict[tuple[object, ...], Job] = {}

    def reader(self, read: Callable[[Record], Job]) -> Callable[[Record], Job]:
        before, self._known = self._known, {}

        def read_changed(record: Record) -> Job:
            seen = tuple(repr(each) if isinstance(each, dict | list) else each for each in self._looked_at(record))
            found = self._known[seen] = before.get(seen) or read(record)
            return found

        return read_changed


def text(record: Record, key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise _other(value, key, "not a text")
    return value


def whole(record: Record, key: str) -> str:
    """A number that may be below 0; 0 where the source does not tell."""
    value = record.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise _other(value, key, "not a number")
    return str(value or 0)


def words(record: Record, key: str) -> list[str]:
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _other(value, key, "not a list of words")
    return value


def listed(record: Record, key: str) -> str:
    return ",".join(words(record, key))


def number(record: Record, key: str) -> str:
    """The number, or Slurm's word where there is none: slurmrestd's ``{"set": .., "infinite": .., "number": ..}``."""
    value = record.get(key)
    if isinstance(value, dict):
        if value.get("infinite") is True:
            return "UNLIMITED"
        if value.get("set") is False:
            return UNSET
        value = value.get("number")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise _other(record.get(key), key, "not a number")
    return str(value)


def time(record: Record, key: str) -> str:
    """Of seconds since 1970; 0 is none."""
    seconds = number(record, key)
    if not seconds.isdecimal() or seconds == "0":
        return UNSET
    return datetime.fromtimestamp(min(int(seconds), LATEST.timestamp()), UTC).isoformat()[:19]


def switch(record: Record, key: str) -> str:
    value = record.get(key)
    if not isinstance(value, bool):
        raise _other(value, key, "neither true nor false")
    return str(int(value))


def _other(value: object, key: str, what: str) -> FieldError:
    return FieldError(f"{key} is {value!r:.40}, {what}")
