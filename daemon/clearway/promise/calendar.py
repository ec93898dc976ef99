"""Promises that a calendar asks for (iCalendar, RFC 5545). Text and times in, wishes and complaints out.

An event asks for nodes by lines of its description, which every calendar program can write: ``nodes: 16``,
``partition: batch``, ``users: beam, ann``. Its times are those of the promise, its summary is the reason. Each time of
an event that repeats is a promise of its own. The key of a promise is the event's UID, with its time where it repeats.

What is not understood is told, and never guessed: a promise whose event has become unclear stays as it is.

Cost: dateutil steps through all times of a rule from its beginning on. Only rules whose steps are days or longer are
read, from the year 2000 on (``_RULE_PARTS``): 0.03 s for one each day since then. For a rule that never holds it steps
on to the year 9999, up to half a second; after a few of them no more rules are read. What an ordinary file costs is
bounded by that, and not what a hostile one does, in its time zones above all: see ``calendar_reader``.
"""

import html
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from clearway.config.fields import printable
from clearway.drain.request import new_request
from clearway.model.errors import ConfigError, DrainError
from clearway.promise.request import LONGEST_S, PromiseRequest

_Event = Any  # icalendar's
Version = tuple[int, str]  # SEQUENCE (0: none), and LAST-MODIFIED in UTC as iCalendar writes it (empty: none)

MOST_PROMISES = 1_000
MOST_REPEATED = 100  # events with a rule
_MOST_COMPLAINTS = 100
_LONGEST_COMPLAINT = 400
_MOST_VALUES = 60  # of the BY... parts of a rule: all days of a month, all months and all days of the week are 50
_MOST_EMPTY = 4  # rules that hold at no time
_LONGEST_UID = 200
_EARLIEST_YEAR = 2_000
_LINE = re.compile(r"(nodes|partition|users)\s*[:=]\s*(.*)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")  # some programs write descriptions in HTML
_NEW_LINE = re.compile(r"</?(?:br|p|div|li|ul|ol|tr|td|th|table|h[1-6]|hr|pre|blockquote)\b[^<>]*>", re.IGNORECASE)
_ALWAYS = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST"}
_RULE_PARTS = {
    "DAILY": _ALWAYS,
    "WEEKLY": _ALWAYS | {"BYDAY"},
    "MONTHLY": _ALWAYS | {"BYDAY", "BYMONTHDAY", "BYSETPOS"},
    "YEARLY": _ALWAYS | {"BYDAY", "BYMONTHDAY", "BYSETPOS", "BYMONTH"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarContents:
    wanted: Mapping[str, PromiseRequest]  # what is asked for, by key
    unclear: frozenset[str] = frozenset()  # UIDs of events that could not be read, in part or at all
    uids: frozenset[str] = frozenset()  # of all events, past ones and cancelled ones included
    versions: Mapping[str, Version] = field(default_factory=dict)  # of events that say one, by key
    complaints: tuple[str, ...] = ()  # one line each


def uid_of(key: str) -> str:
    return key.partition(" ")[0]


def read_calendar(text: str, now: datetime, ahead_s: float) -> CalendarContents:
    """What is not over yet and begins within ``ahead_s``. Raises ``ConfigError`` where the whole cannot be used."""
    events, zones = _parsed(text)
    days = {str(each.get("UID")) for each in events if each.get("RECURRENCE-ID") is None and _has_days(each)}
    reader = _Reader(now=now, until=now + timedelta(seconds=ahead_s), zones=zones, days=frozenset(days))
    for event in events:
        reader.take(event)
    untold = [f"{reader.untold:,} more events are not understood"] if reader.untold else []
    return CalendarContents(
        wanted={key: wish for key, wish in reader.wanted.items() if uid_of(key) not in reader.unclear},
        unclear=frozenset(reader.unclear),
        uids=frozenset(map(uid_of, reader.seen)) | reader.unclear,
        versions=reader.versions,
        complaints=(*reader.complaints, *untold),
    )


def _parsed(text: str) -> tuple[list[_Event], dict[str, _Event]]:
    """First the overrides of single times, then the events that they belong to; the file's time zones, by name."""
    from icalendar import Calendar, Event, Timezone  # noqa: PLC0415 - an optional dependency

    text = text.removeprefix("\ufeff")  # which some programs begin a file with
    if not text.rstrip().upper().endswith("END:VCALENDAR"):
        raise ConfigError("it is no iCalendar file, or not a whole one: its last line is not END:VCALENDAR")
    try:
        calendar = Calendar.from_ical(text)
        events = [each for each in calendar.walk("VEVENT") if isinstance(each, Event)]
        zones = {str(each.get("TZID")): each for each in calendar.walk("VTIMEZONE") if isinstance(each, Timezone)}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        first = printable(str(error).strip().partition("\n")[0])
        raise ConfigError(f"it is no iCalendar file that can be read: {first[:200]}") from None
    return sorted(events, key=lambda each: each.get("RECURRENCE-ID") is None), zones


class _Unclear(Exception):  # noqa: N818 - half a sentence on an event, and no failure
    """Why an event is not understood."""


@dataclass
class _Reader:
    now: datetime
    until: datetime
    zones: Mapping[str, Any]  # as the file itself defines them
    days: frozenset[str]  # UIDs of events that last whole days
    wanted: dict[str, PromiseRequest] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    untold: int = 0  # complaints beyond the most that are told
    seen: set[str] = field(default_factory=set)  # keys that an event of its own stands for
    versions: dict[str, Version] = field(default_factory=dict)
    repeated: int = 0
    empty: int = 0  # rules that hold at no time
    replaced: dict[str, set[datetime]] = field(default_factory=dict)  # by UID: times that another event is for
    _of_file: dict[str, tzinfo] = field(default_factory=dict)

    def take(self, event: _Event) -> None:
        uid = str(event.get("UID") or "")
        named = bool(uid) and len(uid) <= _LONGEST_UID and uid.isprintable() and " " not in uid
        try:
            self._take(event, uid if named else "")
        except (_Unclear, DrainError) as error:
            if named:
                self.unclear.add(uid)
            if len(self.complaints) < _MOST_COMPLAINTS:
                name = printable(f"{event.get('SUMMARY') or ''}"[:60]) or "without a summary"
                self.complaints.append(f"event {name} (UID {printable(uid[:60])}): {error}"[:_LONGEST_COMPLAINT])
            else:
                self.untold += 1

    def _take(self, event: _Event, uid: str) -> None:
        if not uid:
            raise _Unclear("it has no UID of at most 200 characters without spaces")
        if event.errors:
            what, why = event.errors[0]
            raise _Unclear(printable(f"{what}: {why}".replace("\n", " "))[:200])
        begin = _start(event)
        override = _replaced(event, begin, whole_days=uid in self.days)
        own = self._named(uid, override)
        if "SEQUENCE" in event or "LAST-MODIFIED" in event:
            self.versions[own] = _version(event)
        if str(event.get("STATUS") or "").upper() == "CANCELLED":
            return
        if event.get("RRULE") is None and event.get("RDATE") is None:
            self._want(event, begin, [(own, begin)])
            return
        if override:
            raise _Unclear("it replaces one time of another event, and repeats itself")
        keys = ((_key(uid, each), each) for each in self._repeated(event, begin, self.replaced.get(uid, set())))
        self._want(event, begin, [(key, each) for key, each in keys if key not in self.seen])

    def _named(self, uid: str, override: datetime | None) -> str:
        """The key of an event that has not been seen before."""
        own = _key(uid, override) if override else uid
        if own in self.seen:
            raise _Unclear("there is another event of its UID")
        self.seen.add(own)
        if override:
            self.replaced.setdefault(uid, set()).add(override.astimezone(UTC))
        return own

    def _want(self, event: _Event, begin: datetime, times: list[tuple[str, datetime]]) -> None:
        """A promise for each of these times that is looked at."""
        said: dict[str, str] = {}
        for key, start in times:
            end = _end(event, begin, start)
            if end <= self.now or start > self.until:
                continue
            self._look_at_zone(event["DTSTART"], start)
            if "DTEND" in event:
                self._look_at_zone(event["DTEND"], _zoned(event["DTEND"]))
            said = said or _said(str(event.get("DESCRIPTION") or ""))
            self.wanted[key] = _wish(event, said, start, end)
            if len(self.wanted) > MOST_PROMISES:
                raise ConfigError(
                    f"it asks for more than {MOST_PROMISES:,} promises: look less far ahead, or have fewer events"
                )

    def _look_at_zone(self, given: Any, when: datetime) -> None:
        """A file may define a zone otherwise than the world does: GMT with summer time."""
        name = str(given.params.get("TZID"))
        if name not in self.zones or not isinstance(when.tzinfo, ZoneInfo):
            return
        try:
            if name not in self._of_file:
                self._of_file[name] = self.zones[name].to_tz(lookup_tzid=False)
            offset = when.replace(tzinfo=self._of_file[name]).utcoffset()
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise _Unclear(f"its time zone {printable(name[:60])} cannot be read: {printable(str(error))}") from None
        if offset != when.utcoffset():
            raise _Unclear(f"the file defines time zone {printable(name[:60])} otherwise than it is known by that name")

    def _repeated(self, event: _Event, begin: datetime, replaced: AbstractSet[datetime]) -> list[datetime]:
        """The times within what is looked at, and a promise's longest duration before."""
        self.repeated += event.get("RRULE") is not None
        if self.repeated > MOST_REPEATED:
            raise _Unclear(f"more than {MOST_REPEATED} events repeat")
        earliest = self.now - timedelta(seconds=LONGEST_S)
        found = {begin} | {_aware(each, begin) for each in _listed(event, "RDATE")}
        if event.get("RRULE") is not None:
            found |= self._ruled(event["RRULE"], begin, earliest)
        left_out = {_aware(each, begin).astimezone(UTC) for each in _listed(event, "EXDATE")}
        in_time = [each for each in sorted(found) if earliest <= each <= self.until]
        strange = sorted(each for each in replaced - set(in_time) if earliest <= each <= self.until)
        if strange:
            raise _Unclear(f"another event replaces its time {strange[0]:%Y-%m-%d %H:%M} UTC, which it does not have")
        return [each for each in in_time if each.astimezone(UTC) not in left_out]

    def _ruled(self, rule: Any, begin: datetime, earliest: datetime) -> set[datetime]:
        if isinstance(rule, list):
            raise _Unclear("it repeats by more than one rule")
        if self.empty >= _MOST_EMPTY:
            raise _Unclear(f"the rules of {_MOST_EMPTY} events before it hold at no time")
        found = _by_rule(rule, begin, earliest, self.until)
        self.empty += found is None
        if found is None and "UNTIL" not in rule:
            raise _Unclear("its rule holds at no time")
        return found or set()


def _by_rule(rule: Any, begin: datetime, earliest: datetime, until: datetime) -> set[datetime] | None:
    """None: it holds at no time; where it ends early, only the event's own beginning may be meant."""
    from dateutil.rrule import rrulestr  # noqa: PLC0415 - comes with icalendar

    frequency = str(rule["FREQ"][0])
    parts = {str(name).upper() for name in rule}
    odd = sorted(parts - _RULE_PARTS.get(frequency, set()))
    if odd:
        raise _Unclear(f"{frequency} with {', '.join(odd)} is not read" if odd != ["FREQ"] else f"it is {frequency}")
    if sum(len(rule[name]) for name in rule if str(name).upper().startswith("BY")) > _MOST_VALUES:
        raise _Unclear(f"the BY... parts of its rule have more than {_MOST_VALUES} values")
    if begin.year < _EARLIEST_YEAR:
        raise _Unclear(f"it repeats since before {_EARLIEST_YEAR}")
    rule = rule.copy()
    if "UNTIL" in rule:
        last = rule["UNTIL"][0]
        whole_day = not isinstance(last, datetime)
        last = _aware(last, begin) + timedelta(days=1, seconds=-1) if whole_day else _aware(last, begin)
        if last < earliest:
            return set()
        rule["UNTIL"] = [last.astimezone(UTC)]
    try:
        times = rrulestr(rule.to_ical().decode(), dtstart=begin)
        return None if next(iter(times), None) is None else set(times.between(earliest, until, inc=True))
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise _Unclear(f"its rule cannot be read: {printable(str(error))}") from None


def _version(event: _Event) -> Version:
    sequence, modified = event.get("SEQUENCE", 0), event.get("LAST-MODIFIED")
    if isinstance(sequence, list) or isinstance(modified, list):
        raise _Unclear("it has more than one SEQUENCE or LAST-MODIFIED")
    when = None if modified is None else modified.dt
    if not isinstance(when, datetime) or when.tzinfo is None:
        return int(sequence), ""  # it is always in UTC; what is not cannot be compared
    return int(sequence), f"{when.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _start(event: _Event) -> datetime:
    given = event.get("DTSTART")
    if given is None or isinstance(given, list):
        raise _Unclear("it has no single DTSTART")
    if given.params.get("RANGE"):
        raise _Unclear("RANGE is not read")
    return _zoned(given)


def _has_days(event: _Event) -> bool:
    when = None if event.errors else getattr(event.get("DTSTART"), "dt", None)
    return isinstance(when, date) and not isinstance(when, datetime)


def _replaced(event: _Event, begin: datetime, *, whole_days: bool) -> datetime | None:
    """The time of another event that this one is for. Of one that lasts whole days some programs tell its midnight."""
    given = event.get("RECURRENCE-ID")
    if given is None:
        return None
    if isinstance(given, list) or given.params.get("RANGE"):
        raise _Unclear("its RECURRENCE-ID is for more than one time")
    if whole_days:
        when = _zoned(given)
        return _aware((when.astimezone() if when.tzinfo is UTC else when).date(), None)
    return _zoned(given) if isinstance(given.dt, datetime) and given.dt.tzinfo else _aware(given.dt, begin)


def _end(event: _Event, begin: datetime, start: datetime) -> datetime:
    """As long after ``start``, by the clock on the wall, as the event's own end is after ``begin``."""
    duration, end = event.get("DURATION"), event.get("DTEND")
    if isinstance(duration, list) or isinstance(end, list) or (duration and end):
        raise _Unclear("it has more than one end")
    if end is not None:
        return start + (_zoned(end).astimezone(begin.tzinfo) - begin)
    if duration is not None:
        length: timedelta = duration.dt
        days = timedelta(days=length.days)
        return (start + days).astimezone(UTC) + (length - days)
    if isinstance(event["DTSTART"].dt, datetime):
        raise _Unclear("it has no end")
    return start + timedelta(days=1)


def _zoned(given: Any) -> datetime:
    """A time of the file; a zone that nobody knows would otherwise count as this machine's."""
    when = given.dt
    if not isinstance(when, date):
        raise _Unclear("a period stands in the place of a time")
    if given.params.get("TZID") and isinstance(when, datetime) and when.tzinfo is None:
        raise _Unclear(f"its time zone {printable(str(given.params['TZID'])[:60])} is not known")
    return _aware(when, None)


def _aware(when: date, like: datetime | None) -> datetime:
    """A day begins at midnight; without a zone a time is one of ``like``'s zone, or of this machine's."""
    from dateutil.tz import tzlocal  # noqa: PLC0415 - comes with icalendar

    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day)  # noqa: DTZ001 - its zone comes below
    if when.tzinfo is not None:
        return when
    return when.replace(tzinfo=tzlocal() if like is None else like.tzinfo)


def _listed(event: _Event, name: str) -> Iterator[date]:
    """The times of EXDATE or RDATE, which may stand in several lines."""
    given = event.get(name)
    days = not isinstance(event["DTSTART"].dt, datetime)
    for line in given if isinstance(given, list) else [] if given is None else [given]:
        for each in line.dts:
            if not isinstance(each.dt, date) or isinstance(each.dt, datetime) is days:
                raise _Unclear(f"{name} is of another kind than DTSTART")
            yield _zoned(each) if each.params.get("TZID") else each.dt


def _key(uid: str, start: datetime) -> str:
    return f"{uid} {start.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _wish(event: _Event, said: Mapping[str, str], start: datetime, end: datetime) -> PromiseRequest:
    """Raises ``DrainError`` and ``_Unclear``."""
    if not said.get("nodes", "").isdecimal() or len(said["nodes"]) > len("100000"):
        raise _Unclear("its description has no line such as nodes: 16")
    at, until = start.astimezone(UTC), end.astimezone(UTC)
    reason = " ".join(str(event.get("SUMMARY") or "").split())
    return new_request(
        PromiseRequest,
        nodes=int(said["nodes"]),
        partition=said.get("partition", ""),
        at=at,
        duration_s=(until - at).total_seconds(),
        users=tuple(name for name in re.split(r"[\s,;]+", said.get("users", "")) if name),
        reason=(reason if reason.isprintable() else ascii(reason))[:120],
    )


def _said(description: str) -> dict[str, str]:
    if _TAG.search(description):
        description = html.unescape(_TAG.sub("", _NEW_LINE.sub("\n", description)))
    said: dict[str, str] = {}
    for line in description.splitlines():
        if found := _LINE.fullmatch(line.strip()):
            name = found[1].lower()
            if name in said:
                raise _Unclear(f"its description says {name} twice")
            said[name] = found[2]
    return said
