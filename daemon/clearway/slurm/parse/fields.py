"""Single values as Slurm prints them: times, durations, sizes, numbers, "none" in its many spellings."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from clearway.model.cluster import Skipped

R = TypeVar("R")
T = TypeVar("T")

# What Slurm prints where there is nothing. A job may be called "(null)"; then its name reads as empty.
NOTHING = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown"})

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_FAR_TIME = re.compile(r"\d{5,12}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)  # of --begin=now+99999999hours
_DURATION = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<clock>\d{1,9}(?::\d{1,2}){0,2})", re.ASCII)
# Users choose times and limits. What lies further ahead counts as this: sums of them stay dates.
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
LONGEST_S = 100 * 365 * 86_400
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)", re.ASCII)
_UNIT_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_TASKS = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
_MAX_DIGITS = 18
_KEY = re.compile(r"(?:^| )([A-Za-z][A-Za-z0-9_/:]*)=")


class FieldError(ValueError):
    """A value that does not read as what it should be; its text says which and why."""


# What one record tells: its key, what was read of it, and why it, or a part of it, could not be read.
Reading = tuple[str, T | None, Skipped | None]


def read_each(
    kind: str,
    records: Iterable[tuple[str, R]],
    read: Callable[[R], T],
    *,
    key: str = "name",
    may_hold_nodes: Callable[[R], bool] = lambda _: True,
    nodes_only: Callable[[R], T | None] = lambda _: None,
) -> tuple[list[T], list[Skipped]]:
    """As ``read_one``, of records with their keys; of two with one key neither can be trusted."""
    readings = [read_one(kind, ident, record, read, may_hold_nodes, nodes_only) for ident, record in records]
    return together(kind, readings, key)


def read_one(
    kind: str,
    ident: str,
    record: R,
    read: Callable[[R], T],
    may_hold_nodes: Callable[[R], bool] = lambda _: True,
    nodes_only: Callable[[R], T | None] = lambda _: None,
) -> Reading[T]:
    """What a record tells, or what ``nodes_only`` can salvage of it, so that its nodes stay occupied."""
    try:
        return ident, read(record), None
    except FieldError as error:
        rest = nodes_only(record)
        return ident, rest, Skipped(kind, ident[:80], str(error), may_hold_nodes(record), getattr(rest, "nodes", ()))


def together(kind: str, readings: Sequence[Reading[T]], key: str = "name") -> tuple[list[T], list[Skipped]]:
    """What was read; of two records with one key neither counts."""
    if len({ident for ident, _, _ in readings}) == len(readings):
        values = [value for _, value, _ in readings if value is not None]
        return values, [skipped for _, _, skipped in readings if skipped is not None]
    good: dict[str, T | None] = {}
    told: list[Skipped] = []
    for ident, value, skipped in readings:
        if ident in good:
            good[ident] = None
            told.append(Skipped(kind, ident[:80], f"two records have this {key}"))
            continue
        good[ident] = value
        if skipped is not None:
            told.append(skipped)
    return [value for value in good.values() if value is not None], told


def text(value: str) -> str:
    return "" if value in NOTHING else value


def number(value: str, what: str) -> int:
    """A whole number; Slurm also prints ranges ("2-4") and "4+", of which the first number counts."""
    found = re.match(r"\d+", value, re.ASCII)
    if found is None or len(found[0]) > _MAX_DIGITS:
        raise FieldError(f"{what} is {value[:40]!r}, not a number")
    return int(found[0])


def signed(value: str, what: str) -> int:
    return -number(value[1:], what) if value.startswith("-") else number(value, what)


def flag(value: str, what: str) -> bool:
    """0 or 1; some releases print No/Yes, and BatchFlag counts up with restarts."""
    if value in ("No", "NO", "no"):
        return False
    if value in ("Yes", "YES", "yes"):
        return True
    return number(value, what) != 0


def time(value: str, what: str) -> datetime | None:
    """``2026-11-21T09:47:28`` in UTC (commands run with TZ=UTC), at most ``LATEST``; None for N/A and the like."""
    if value in NOTHING:
        return None
    try:
        # fromisoformat is ten times as fast as strptime, but also takes "2026-W47-6" and the like.
        if _TIME.fullmatch(value):
            return min(datetime.fromisoformat(value).replace(tzinfo=UTC), LATEST)
    except ValueError:
        pass  # the 31st of November
    if _FAR_TIME.fullmatch(value):
        return LATEST
    raise FieldError(f"{what} is {value[:40]!r}, not a time")


def duration_s(value: str, what: str) -> int | None:
    """``[days-]hours:minutes:seconds``, ``minutes:seconds`` or minutes, in seconds; None where there is no limit."""
    if value in NOTHING or value in ("UNLIMITED", "NOT_SET", "Partition_Limit", "INVALID"):
        return None
    found = _DURATION.fullmatch(value)
    if found is None:
        raise FieldError(f"{what} is {value[:40]!r}, not a duration")
    parts = [int(part) for part in found["clock"].split(":")]
    days = int(found["days"] or 0)
    if found["days"] is not None and len(parts) < 3:
        parts += [0] * (3 - len(parts))  # after "days-" the first number is hours
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + part
    # A lone number is minutes, as everywhere in Slurm.
    return min(days * 86400 + (seconds * 60 if len(parts) == 1 else seconds), LONGEST_S)


def size_mib(value: str, what: str) -> float:
    """``1000M``, ``2G``, ``15.50G`` or a bare number of MiB in MiB."""
    found = _SIZE.fullmatch(value)
    if found is None:
        raise FieldError(f"{what} is {value[:40]!r}, not a size")
    return float(found[1]) * _UNIT_MIB[found[2]]


def tres(value: str) -> dict[str, str]:
    """``cpu=2,mem=2G,node=2,gres/gpu:a100=4`` as a dictionary; parts without "=" are left out."""
    pairs = (part.partition("=") for part in text(value).split(","))
    return {name: amount for name, equals, amount in pairs if equals}


def names(value: str, *, separator: str = ",") -> tuple[str, ...]:
    return tuple(part for part in text(value).split(separator) if part)


def count_tasks(value: str, what: str) -> int:
    count = 0
    for part in value.split(","):
        found = _TASKS.fullmatch(part)
        first, last, step = (int(found[1]), int(found[2] or found[1]), int(found[3] or 1)) if found else (0, 0, 0)
        if last < first or step < 1:
            raise FieldError(f"{what} is {value[:40]!r}")
        count += (last - first) // step + 1
    return count


def record(line: str) -> dict[str, str]:
    """Key to value of one line of ``scontrol -o``; the first occurrence of a key counts."""
    parts = _KEY.split(line.strip())
    return {key: value.strip() for key, value in reversed(list(zip(parts[1::2], parts[2::2], strict=True)))}


def setting(config: str, key: str) -> str:
    """One value of ``scontrol show config``, up to a blank; empty where it has none."""
    found = re.search(rf"^{key} *= *(\S*)", config, re.MULTILINE)
    return found[1] if found else ""
