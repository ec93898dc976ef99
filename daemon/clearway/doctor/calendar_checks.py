"""The calendar of promises: whether it can be followed, and whether Slurm has what it asks for."""

import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from clearway.config.configuration import Config, Mode
from clearway.doctor.case import Case
from clearway.doctor.finding import Result, advice, fault, ok
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError
from clearway.promise.calendar import CalendarContents
from clearway.promise.calendar_file import CalendarFile, read_file

_MOST = 5  # findings of one sort
_FORM = "docs/howto/promises.md says how an event asks for nodes"


def complaints(config: Config, now: datetime) -> tuple[str, ...]:
    """What files alone tell: why the calendar cannot be followed, one line each."""
    file = config.promises.calendar
    if file is None:
        return ()
    try:
        return read_file(file, config.promises, now).contents.complaints
    except ConfigError as error:
        return (str(error),)


def calendar(case: Case) -> Iterator[Result]:
    """Nothing where there is none."""
    promises, now = case.config.promises, case.now()
    if promises.calendar is None:
        return
    try:
        read = read_file(promises.calendar, promises, now)
    except ConfigError as error:
        yield fault(str(error), "put it right: until then no promise is made, changed or withdrawn by it")
        return
    yield from _events(case, promises.calendar, read.contents)
    yield from _host(case, promises.calendar, read)


def _events(case: Case, file: Path, found: CalendarContents) -> Iterator[Result]:
    for each in found.complaints[:_MOST]:
        yield fault(f"{file}: {each}", _FORM)
    if len(found.complaints) > _MOST:
        yield fault(f"{file}: {len(found.complaints) - _MOST} more events are not understood", _FORM)
    if case.config.daemon.mode is Mode.OBSERVE:
        yield advice("in observe mode nothing is promised by the calendar", 'mode = "approve" or "automatic"')
    elif not found.complaints:
        ahead = format_duration(case.config.promises.calendar_ahead)
        yield ok(f"promises within {ahead}: {len(found.wanted)}")
    sizes = {each.name: each.nodes for each in case.site.partitions}
    for key, wish in sorted(found.wanted.items()):
        name = wish.partition or (next(iter(sizes)) if len(sizes) == 1 else "")
        if wish.nodes > sizes.get(name, 0):
            there = f"has {sizes[name]} nodes" if name in sizes else "is not there" if name else "is not named"
            yield fault(f"event {key} asks for {wish.nodes} nodes: partition {name} {there}".replace("  ", " "), _FORM)


def _host(case: Case, file: Path, read: CalendarFile) -> Iterator[Result]:
    """Whether the daemon, here or on another host, has followed another file."""
    followed = case.database.calendar if case.database else None
    if followed is None or followed.digest in ("", read.digest):
        return
    same = "have the same file on every host where the daemon may run"
    if older := followed.why_older(read):
        yield fault(f"{file} {older}", f"{same}; where it is meant: touch {file}")
    elif followed.host != socket.gethostname():
        yield advice(f"{file} is not the file that is followed on {followed.host}", same)
