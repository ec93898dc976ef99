"""The calendar of promises: whether it can be followed, and whether Slurm has what it asks for."""

from collections.abc import Iterator
from datetime import datetime

from clearway.config.configuration import Config, Mode
from clearway.doctor.case import Case
from clearway.doctor.finding import Result, advice, fault, ok
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError
from clearway.promise.calendar_file import read_file

_MOST = 5  # findings of one sort
_FORM = "docs/howto/promises.md says how an event asks for nodes"


def complaints(config: Config, now: datetime) -> tuple[str, ...]:
    """What files alone tell: why the calendar cannot be followed, one line each."""
    file = config.promises.calendar
    if file is None:
        return ()
    try:
        return read_file(file, config.promises, now).complaints
    except ConfigError as error:
        return (str(error),)


def calendar(case: Case) -> Iterator[Result]:
    """Nothing where there is none."""
    promises, now = case.config.promises, case.now()
    if promises.calendar is None:
        return
    try:
        found = read_file(promises.calendar, promises, now)
    except ConfigError as error:
        yield fault(str(error), "put it right: until then no promise is made, changed or withdrawn by it")
        return
    for each in found.complaints[:_MOST]:
        yield fault(f"{promises.calendar}: {each}", _FORM)
    if len(found.complaints) > _MOST:
        yield fault(f"{promises.calendar}: {len(found.complaints) - _MOST} more events are not understood", _FORM)
    if case.config.daemon.mode is Mode.OBSERVE:
        yield advice("in observe mode nothing is promised by the calendar", 'mode = "approve" or "automatic"')
    elif not found.complaints:
        yield ok(f"{len(found.wanted)} promises within {format_duration(promises.calendar_ahead)}")
    sizes = {each.name: each.nodes for each in case.site.partitions}
    for key, wish in sorted(found.wanted.items()):
        name = wish.partition or (next(iter(sizes)) if len(sizes) == 1 else "")
        if wish.nodes > sizes.get(name, 0):
            there = f"has {sizes[name]} nodes" if name in sizes else "is not there" if name else "is not named"
            yield fault(f"event {key} asks for {wish.nodes} nodes: partition {name} {there}".replace("  ", " "), _FORM)
