"""Calendars of at most 1 MiB that cost as much as can be: seconds, memory, or words about them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

LARGEST = 1024 * 1024
ASKS = r"DESCRIPTION:nodes: 1\npartition: batch\nusers: beam"
BEGIN, END = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n", "END:VCALENDAR\r\n"
_DAYS = ",".join(str(day) for day in range(1, 32))
_PLACES = ",".join(str(place) for place in range(1, 367))
_MONTHS = ",".join(str(month) for month in range(1, 13))


def _filled(each: Callable[[int], str], before: str = "", after: str = "", most: int = LARGEST) -> str:
    """As many of them as there is room for, in one calendar."""
    room = most - len(f"{BEGIN}{before}{after}{END}".encode())
    parts: list[str] = []
    while (room := room - len((part := each(len(parts))).encode())) >= 0:
        parts.append(part)
    return f"{BEGIN}{before}{''.join(parts)}{after}{END}"


def event(number: int, *lines: str, begin: str = "DTSTART:20270310T080000Z", asks: str = ASKS) -> str:
    return "\r\n".join(["BEGIN:VEVENT", f"UID:{number}", begin, "DURATION:PT1H", asks, *lines, "END:VEVENT", ""])


def _zone_rule(rule: str, since: str = "19700101T000000") -> str:
    offsets = "TZOFFSETFROM:+0100\r\nTZOFFSETTO:+0200"
    return f"BEGIN:STANDARD\r\nDTSTART:{since}\r\n{offsets}\r\nRRULE:{rule}\r\nEND:STANDARD\r\n"


def _in_zone(blocks: Callable[[int], str], most: int = LARGEST) -> str:
    mine = event(0, "RRULE:FREQ=DAILY", begin="DTSTART;TZID=Z:20270310T080000")
    return _filled(blocks, "BEGIN:VTIMEZONE\r\nTZID:Z\r\n", f"END:VTIMEZONE\r\n{mine}", most)


def _zones(number: int) -> str:
    return f"BEGIN:VTIMEZONE\r\nTZID:Z{number}\r\n{_zone_rule('FREQ=DAILY')}END:VTIMEZONE\r\n"


def _one_of(line: str, piece: str) -> str:
    """An event with one line that is as long as it can be."""
    whole = event(0, line + "{}", asks=ASKS)
    count = (LARGEST - len(f"{BEGIN}{whole}{END}".encode())) // len(piece.encode())
    return f"{BEGIN}{whole.replace('{}', piece * count)}{END}"


def _rules(rule: str, since: str = "20000101T000000Z") -> str:
    return BEGIN + "".join(event(n, f"RRULE:{rule}", begin=f"DTSTART:{since}") for n in range(100)) + END


def season(now: datetime, promises: int) -> str:
    """So many promises that do not get in each other's way, from tomorrow on."""
    first = now + timedelta(days=1)
    at = (f"DTSTART:{first + timedelta(hours=2 * n):%Y%m%dT%H%M%SZ}" for n in range(promises))
    return BEGIN + "".join(event(n, begin=each) for n, each in enumerate(at)) + END


def _asking(asks: str) -> str:
    return f"{BEGIN}{event(0, 'RRULE:FREQ=DAILY', asks=asks)}{END}"


HOSTILE: dict[str, Callable[[], str]] = {
    "zone, 800 rules by day": lambda: _in_zone(lambda _: _zone_rule("FREQ=DAILY"), 89_000),
    "zone, rules by day": lambda: _in_zone(lambda _: _zone_rule("FREQ=DAILY")),
    "zone, one rule by second": lambda: _in_zone(lambda _: _zone_rule("FREQ=SECONDLY", "00010101T000000"), 700),
    "zone, rules that never hold": lambda: _in_zone(lambda _: _zone_rule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31")),
    "zone, times one by one": lambda: _in_zone(
        lambda n: f"BEGIN:STANDARD\r\nDTSTART:19700101T{n % 24:02}0000\r\nTZOFFSETFROM:+0100\r\nTZOFFSETTO:+0200\r\n"
        "RDATE:20270301T000000\r\nEND:STANDARD\r\n"
    ),
    "many zones": lambda: _filled(_zones),
    "yearly rules with all places": lambda: _rules(f"FREQ=YEARLY;BYMONTHDAY={_DAYS};BYSETPOS={_PLACES}"),
    "yearly rules with all parts": lambda: _rules(
        f"FREQ=YEARLY;BYMONTH={_MONTHS};BYMONTHDAY={_DAYS};BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=1,-1"
    ),
    "monthly rules with a place": lambda: _filled(
        lambda n: event(
            n, f"RRULE:FREQ=MONTHLY;BYMONTHDAY={_DAYS};BYSETPOS=-1", begin="DTSTART:20000101T000000Z"
        )
    ),
    "rules that never hold": lambda: _rules("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31"),
    "rules by day for ever": lambda: _rules("FREQ=DAILY;UNTIL=99991231T235959Z"),
    "rules with a huge count": lambda: _rules(f"FREQ=DAILY;COUNT={'9' * 4_000}"),
    "rules with a huge interval": lambda: _rules(f"FREQ=DAILY;INTERVAL={'9' * 4_000}"),
    "rules by second": lambda: _rules("FREQ=SECONDLY"),
    "places without end": lambda: _one_of("RRULE:FREQ=YEARLY;BYSETPOS=1", ",1"),
    "times one by one": lambda: _one_of("RDATE:20270311T080000Z", ",20270312T080000Z"),
    "times left out": lambda: _one_of("RRULE:FREQ=DAILY\r\nEXDATE:20270311T080000Z", ",20270312T080000Z"),
    "lines of times left out": lambda: _filled(
        lambda _: "EXDATE:20270311T080000Z\r\n",
        "BEGIN:VEVENT\r\nUID:0\r\nDTSTART:20270310T080000Z\r\n",
        "END:VEVENT\r\n",
    ),
    "nested": lambda: _filled(lambda _: "BEGIN:VEVENT\r\n", after="END:VEVENT\r\n"),
    "nested and closed": lambda: BEGIN + "BEGIN:X\r\n" * 50_000 + "END:X\r\n" * 50_000 + END,
    "tiny properties": lambda: _filled(lambda _: "X:\r\n", "BEGIN:VEVENT\r\nUID:0\r\n", "END:VEVENT\r\n"),
    "tiny events": lambda: _filled(lambda _: "BEGIN:VEVENT\r\nEND:VEVENT\r\n"),
    "events without a word": lambda: _filled(lambda n: event(n, asks="DESCRIPTION:")),
    "long names": lambda: _filled(
        lambda n: event(n, "SUMMARY:" + "\u2028" * 100, asks="DESCRIPTION:users: " + "ö" * 500)
    ),
    "UIDs": lambda: _filled(
        lambda n: f"BEGIN:VEVENT\r\nUID:{n}{'ü' * 190}\r\nSEQUENCE:1\r\nDTSTART:20270310T080000Z\r\nEND:VEVENT\r\n"
    ),
    "a line": lambda: _one_of("X-LONG:", "x"),
    "a folded line": lambda: _one_of("X-LONG:", "x\r\n "),
    "quoted parameters": lambda: _one_of('ATTENDEE;CN="', 'a";CN="'),
    "an open quote": lambda: _one_of('ATTENDEE;CN="', ";="),
    "parameters": lambda: _one_of("ATTENDEE", ";A=1"),
    "backslashes": lambda: _one_of("DESCRIPTION:nodes: 1", r"\n"),
    "open tags": lambda: _one_of("COMMENT:x\r\nDESCRIPTION:nodes: 1", "<"),
    "tags": lambda: _one_of("COMMENT:x\r\nDESCRIPTION:nodes: 1", "<b>&lt;"),
    "white space": lambda: _asking("DESCRIPTION:nodes: a" + " " * 500_000 + "b" + " " * 500_000 + "c"),
    "a description that is read often": lambda: _asking(ASKS + r"\n" + "<p>&nbsp;" * 100_000),
    "a sequence": lambda: _one_of("SEQUENCE:1", "0"),
    "promises for a season": lambda: _rules("FREQ=DAILY"),
    "promises that fit": lambda: season(datetime(2027, 3, 1, 12, tzinfo=UTC), 1_000),
    "no text": lambda: BEGIN + "\0" * 900_000 + END,
    "line ends": lambda: BEGIN + "\r\n" * 500_000 + END,
}  # fmt: skip
