"""What a calendar file asks for: times, repetitions, descriptions, and a line for each thing that is not understood."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from clearway.model.errors import ConfigError
from clearway.promise.calendar import CalendarContents, read_calendar

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
DAY_S = 86_400.0
ASKS = r"DESCRIPTION:nodes: 16\npartition: batch\nusers: beam\, ann"


def event(*lines: str, uid: str = "a@site", times: bool = True, asks: bool = True) -> str:
    when = ("DTSTART:20270310T080000Z", "DTEND:20270310T160000Z") if times else ()
    said = (ASKS,) if asks else ()
    return "\r\n".join(["BEGIN:VEVENT", f"UID:{uid}", *when, *said, *lines, "END:VEVENT"])


def calendar(*events: str) -> str:
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//site//", *events, "END:VCALENDAR", ""])


def read(*events: str, ahead_days: float = 60) -> CalendarContents:
    return read_calendar(calendar(*events), NOW, ahead_days * DAY_S)


def times(found: CalendarContents) -> list[str]:
    assert found.complaints == ()
    return sorted(f"{wish.at:%m-%d %H:%M}+{wish.duration_s / 3_600:g}h" for wish in found.wanted.values())


def at(*lines: str, **more: bool) -> list[str]:
    return times(read(event(*lines, times=False, **more)))


def test_an_event_is_a_promise() -> None:
    ((key, wish),) = read(event("SUMMARY:Beam time 42")).wanted.items()
    assert key == "a@site"
    assert (wish.nodes, wish.partition, wish.users, wish.reason) == (16, "batch", ("beam", "ann"), "Beam time 42")
    assert (wish.at, wish.duration_s) == (datetime(2027, 3, 10, 8, tzinfo=UTC), 8 * 3_600)


@pytest.mark.parametrize(
    "description",
    [
        r"Ask Ann first.\nNodes = 16\n partition : batch \nUSERS: beam;ann\nhttp://site: x",
        "<html><body><p>nodes: 16</p>partition: batch<br>users: beam&#44; ann<br/></body></html>",
        "<div>nodes: <b>16</b></div><u>partition</u>:&nbsp;<i>ba</i>tch<p>users: <a href='x'>beam</a>&#44; ann",
    ],
)
def test_descriptions_as_programs_and_people_write_them(description: str) -> None:
    told = "DESCRIPTION:" + description.replace(";", r"\;") if "<" not in description else f"DESCRIPTION:{description}"
    ((_, wish),) = read(event(told, asks=False)).wanted.items()
    assert (wish.nodes, wish.partition, wish.users) == (16, "batch", ("beam", "ann"))


def test_a_zone_keeps_the_clock_on_the_wall_over_the_change_of_clocks() -> None:
    """Clocks in Berlin go forward on March 28th."""
    zone = ("DTSTART;TZID=Europe/Berlin:20270322T080000", "DTEND;TZID=Europe/Berlin:20270322T160000")
    assert at(*zone, "RRULE:FREQ=WEEKLY;COUNT=3") == ["03-22 07:00+8h", "03-29 06:00+8h", "04-05 06:00+8h"]
    night = ("DTSTART;TZID=Europe/Berlin:20270327T220000", "DTEND;TZID=Europe/Berlin:20270328T060000")
    assert at(*night) == ["03-27 21:00+7h"]
    assert at(night[0], "DURATION:PT8H") == ["03-27 21:00+8h"]


def test_zones_of_the_file_itself_and_of_outlook() -> None:
    outlook = ("DTSTART;TZID=W. Europe Standard Time:20270322T080000", "DURATION:PT1H")
    assert at(*outlook) == ["03-22 07:00+1h"]
    offsets = "DTSTART:19700101T000000\r\nTZOFFSETFROM:+0530\r\nTZOFFSETTO:+0530"
    zone = f"BEGIN:VTIMEZONE\r\nTZID:Site Time\r\nBEGIN:STANDARD\r\n{offsets}\r\nEND:STANDARD\r\nEND:VTIMEZONE"
    own = event("DTSTART;TZID=Site Time:20270322T080000", "DURATION:PT1H", times=False)
    for parts in ((zone, own), (own, zone)):
        assert times(read(*parts)) == ["03-22 02:30+1h"]


def test_whole_days_and_times_without_a_zone_are_those_of_this_machine() -> None:
    midnight, morning = (datetime(2027, 3, 10, hour).astimezone(UTC) for hour in (0, 8))
    assert at("DTSTART;VALUE=DATE:20270310") == [f"{midnight:%m-%d %H:%M}+24h"]
    assert at("DTSTART;VALUE=DATE:20270310", "DTEND;VALUE=DATE:20270312") == [f"{midnight:%m-%d %H:%M}+48h"]
    assert at("DTSTART:20270310T080000", "DURATION:PT2H") == [f"{morning:%m-%d %H:%M}+2h"]
    daily = [f"{midnight + timedelta(days=day):%m-%d %H:%M}+24h" for day in (0, 2)]
    days = "DTSTART;VALUE=DATE:20270310"
    assert at(days, "RRULE:FREQ=DAILY;UNTIL=20270312", "EXDATE;VALUE=DATE:20270311") == daily
    assert at(days, "RRULE:FREQ=DAILY;COUNT=3", "EXDATE;VALUE=DATE:20270311") == daily
    mornings = [f"{morning + timedelta(days=day):%m-%d %H:%M}+2h" for day in (0, 2)]
    floating = ("DTSTART:20270310T080000", "DURATION:PT2H", "EXDATE:20270311T080000")
    assert at(*floating, "RRULE:FREQ=DAILY;UNTIL=20270312T080000") == mornings


ZONE = """BEGIN:VTIMEZONE\r
TZID:{name}\r
BEGIN:STANDARD\r
DTSTART:20001029T030000\r
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10\r
TZOFFSETFROM:+0200\r
TZOFFSETTO:+0100\r
END:STANDARD\r
BEGIN:DAYLIGHT\r
DTSTART:20000326T020000\r
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3\r
TZOFFSETFROM:+0100\r
TZOFFSETTO:+0200\r
END:DAYLIGHT\r
END:VTIMEZONE"""


@pytest.mark.parametrize("name", ["Europe/Berlin", "W. Europe Standard Time"])
def test_a_file_that_defines_a_zone_as_it_is_known(name: str) -> None:
    weekly = ("DURATION:PT2H", "RRULE:FREQ=WEEKLY;COUNT=2")
    own = event(f"DTSTART;TZID={name}:20270326T102000", *weekly, times=False)
    assert times(read(ZONE.format(name=name), own)) == ["03-26 09:20+2h", "04-02 08:20+2h"]


@pytest.mark.fault("Times in a zone that the file itself defined were read an hour wrong.", found_by="hostile input")
@pytest.mark.parametrize("name", ["GMT", "Europe/London", "America/New_York"])
@pytest.mark.parametrize("end", ["DURATION:PT2H", "DTEND;TZID={name}:20270402T122000"])
def test_a_zone_that_a_file_defines_otherwise_is_named(name: str, end: str) -> None:
    """The times of the event were an hour or more wrong, and nothing was said."""
    own = event(f"DTSTART;TZID={name}:20270402T102000", end.format(name=name), times=False)
    found = read(ZONE.format(name=name), own)
    assert (found.wanted, found.unclear) == ({}, {"a@site"})
    assert f"the file defines time zone {name} otherwise than it is known by that name" in found.complaints[0]


@pytest.mark.parametrize("start", ["DTSTART:20270402T082000Z", "DTSTART;TZID=Europe/Berlin:20270402T102000"])
def test_a_zone_of_an_end_alone(start: str) -> None:
    own = event(start, "DTEND;TZID=GMT:20270402T122000", times=False)
    assert "time zone GMT" in read(ZONE.format(name="GMT"), own).complaints[0]


def test_a_byte_order_mark_before_the_file() -> None:
    found = read_calendar("\ufeff" + calendar(event()), NOW, 60 * DAY_S)
    assert times(found) == ["03-10 08:00+8h"]


@pytest.mark.fault(
    "Of a series of whole days a moved day was promised beside the one that it was moved to.", found_by="hostile input"
)
@pytest.mark.parametrize(
    "told", [";TZID=W. Europe Standard Time:20270312T000000", ":20270312T000000", ";VALUE=DATE:20270312"]
)
def test_a_moved_day_of_a_series_of_whole_days(told: str) -> None:
    """Exchange tells its midnight, in a zone: the day was promised beside the one that it had been moved to."""
    days = event("DTSTART;VALUE=DATE:20270305", "RRULE:FREQ=WEEKLY;COUNT=3", times=False)
    moved = event("DTSTART;VALUE=DATE:20270313", f"RECURRENCE-ID{told}", times=False)
    found = read(ZONE.format(name="W. Europe Standard Time"), days, moved)
    assert found.complaints == ()
    local = [f"{wish.at.astimezone():%m-%d %H:%M}" for wish in found.wanted.values()]
    assert sorted(local) == ["03-05 00:00", "03-13 00:00", "03-19 00:00"]


def test_an_event_that_replaces_a_time_which_its_series_does_not_have() -> None:
    weekly = event("RRULE:FREQ=WEEKLY;COUNT=3")
    moved = event("RECURRENCE-ID:20270317T070000Z", "DTSTART:20270318T080000Z", "DURATION:PT1H", times=False)
    found = read(weekly, moved)
    assert (found.wanted, found.unclear) == ({}, {"a@site"})
    assert "another event replaces its time 2027-03-17 07:00 UTC, which it does not have" in found.complaints[0]


def test_a_file_as_programs_export_it() -> None:
    """Folded lines, HTML, a zone with changes of clocks, alarms, attendees, and properties that mean nothing here."""
    text = calendar(
        "X-WR-CALNAME:Beam times", "X-WR-TIMEZONE:Europe/Berlin",
        "BEGIN:VTIMEZONE", "TZID:Europe/Berlin", "X-LIC-LOCATION:Europe/Berlin",
        "BEGIN:DAYLIGHT", "TZOFFSETFROM:+0100", "TZOFFSETTO:+0200", "TZNAME:CEST", "DTSTART:19700329T020000",
        "RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "END:DAYLIGHT",
        "BEGIN:STANDARD", "TZOFFSETFROM:+0200", "TZOFFSETTO:+0100", "TZNAME:CET", "DTSTART:19701025T030000",
        "RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU", "END:STANDARD", "END:VTIMEZONE",
        "BEGIN:VEVENT", "DTSTAMP:20270201T101010Z", "UID:0a1b2c3d@google.com", "CREATED:20270131T090000Z",
        "DTSTART;TZID=Europe/Berlin:20270329T080000", "DTEND;TZID=Europe/Berlin:20270329T160000",
        'ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;CN="Ann, B.":mailto:ann@site',
        "DESCRIPTION:<span>nodes: 16</span><br>partition: ba", " tch<br>users: beam&nbsp\\;",
        "LOCATION:", "SEQUENCE:2", "LAST-MODIFIED:20270201T100000Z", "STATUS:CONFIRMED",
        "SUMMARY:Beam time 42 \u2013 Mü",
        " ller", "TRANSP:OPAQUE", "BEGIN:VALARM", "ACTION:DISPLAY", "DESCRIPTION:nodes: 3", "TRIGGER:-P0DT0H30M0S",
        "END:VALARM", "END:VEVENT",
    )  # fmt: skip
    found = read_calendar(text, NOW, 60 * DAY_S)
    assert times(found) == ["03-29 06:00+8h"]
    ((key, wish),) = found.wanted.items()
    assert (wish.nodes, wish.partition, wish.users) == (16, "batch", ("beam",))
    assert wish.reason == "Beam time 42 \u2013 Müller"
    assert found.versions == {key: (2, "20270201T100000Z")}


def test_repetitions_with_exceptions_additions_and_a_moved_time() -> None:
    weekly = event("RRULE:FREQ=WEEKLY;UNTIL=20270401T080000Z", "EXDATE:20270317T080000Z", "RDATE:20270318T090000Z")
    assert times(read(weekly)) == ["03-10 08:00+8h", "03-18 09:00+8h", "03-24 08:00+8h", "03-31 08:00+8h"]
    moved = event("RECURRENCE-ID:20270324T080000Z", "DTSTART:20270325T100000Z", "DTEND:20270325T110000Z", times=False)
    for events in ((weekly, moved), (moved, weekly)):
        found = read(*events)
        assert times(found) == ["03-10 08:00+8h", "03-18 09:00+8h", "03-25 10:00+1h", "03-31 08:00+8h"]
        assert found.wanted["a@site 20270324T080000Z"].at == datetime(2027, 3, 25, 10, tzinfo=UTC)
    off = event("RECURRENCE-ID:20270324T080000Z", "STATUS:CANCELLED")
    assert times(read(weekly, off)) == ["03-10 08:00+8h", "03-18 09:00+8h", "03-31 08:00+8h"]


@pytest.mark.parametrize(
    ("rule", "days"),
    [
        ("FREQ=DAILY;COUNT=3", ["03-10", "03-11", "03-12"]),
        ("FREQ=WEEKLY;BYDAY=WE,FR;UNTIL=20270318", ["03-10", "03-12", "03-17"]),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=1", ["03-10", "03-31"]),
        ("FREQ=YEARLY;BYMONTH=3;BYMONTHDAY=10", ["03-10"]),
    ],
)
def test_rules(rule: str, days: list[str]) -> None:
    assert [each[:5] for each in times(read(event(f"RRULE:{rule}")))] == days


def test_what_is_past_or_far_ahead_is_left_out() -> None:
    past = event("DTSTART:20270201T080000Z", "DURATION:PT1H", times=False, asks=False)  # and asks for nothing
    assert read(past) == CalendarContents(wanted={}, uids=frozenset({"a@site"}))
    under_way = ("DTSTART:20270301T080000Z", "DTEND:20270301T160000Z")
    assert at(*under_way) == ["03-01 08:00+8h"]
    assert times(read(event("RRULE:FREQ=DAILY"), ahead_days=10)) == ["03-10 08:00+8h", "03-11 08:00+8h"]
    assert read(event(), ahead_days=5).wanted == {}
    assert read(event("STATUS:CANCELLED")).wanted == {}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("DTSTART:nonsense",), "nonsense"),
        (("DTSTART;TZID=Nowhere/Town:20270310T080000", "DURATION:PT1H"), "time zone Nowhere/Town is not known"),
        (("DTSTART:20270310T080000Z",), "it has no end"),
        (("DURATION:PT1H",), "no single DTSTART"),
        (("DTSTART:20270310T080000Z", "DTEND:20270310T070000Z"), "duration_s"),
        (("DTSTART:20270310T080000Z", "DURATION:P40D"), "duration_s"),
        (("DTSTART:20270310T080000Z", "DURATION:PT1H", "RRULE:FREQ=SECONDLY"), "it is SECONDLY"),
        (("DTSTART:20270310T080000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"), "is not read"),
        (("DTSTART:20270310T080000Z", "DURATION:PT1H", "RRULE:FREQ=NEVER"), "NEVER"),
        (("DTSTART:19000310T080000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY"), "since before 2000"),
        (("DTSTART:20270310T080000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY", "EXDATE;VALUE=DATE:20270311"), "EXDATE"),
        (("DTSTART:20270310T080000Z", "DURATION:PT1H", "RECURRENCE-ID;RANGE=THISANDFUTURE:20270310T080000Z"), "one t"),
    ],
)  # fmt: skip
def test_an_event_that_is_not_understood_is_one_line_and_leaves_the_others(lines: tuple[str, ...], why: str) -> None:
    found = read(event(*lines, "SUMMARY:Beam", times=False, uid="bad"), event())
    (told,) = found.complaints
    assert told.startswith("event Beam (UID bad): ")
    assert why in told
    assert "\n" not in told
    assert (set(found.wanted), found.unclear) == ({"a@site"}, {"bad"})


@pytest.mark.parametrize(
    ("description", "why"),
    [
        ("Maintenance", "no line such as nodes: 16"),
        (r"nodes: many\nusers: beam", "no line such as nodes: 16"),
        (r"nodes: 0\nusers: beam", "nodes"),
        (r"nodes: 4\nnodes: 5\nusers: beam", "nodes twice"),
        ("nodes: 4", "users"),
        (r"nodes: 4\nusers: be$am", "no name of a user"),
        (r"nodes: 4\nusers: beam\npartition: ba tch", "no name of a partition"),
    ],
)
def test_a_description_that_asks_wrongly(description: str, why: str) -> None:
    (told,) = read(event(f"DESCRIPTION:{description}", asks=False)).complaints
    assert why in told


def test_one_bad_time_of_an_event_makes_all_of_it_unclear() -> None:
    bad = event("RECURRENCE-ID:20270317T080000Z", "DTSTART:soon", times=False)
    found = read(event("RRULE:FREQ=WEEKLY;COUNT=3"), bad, event(uid="b@site"))
    assert (set(found.wanted), found.unclear, len(found.complaints)) == ({"b@site"}, {"a@site"}, 1)


def test_two_events_of_one_uid_and_one_without() -> None:
    found = read(event(), event(), event(uid=""), event(uid="a b"))
    assert found.wanted == {}
    assert len(found.complaints) == 3
    assert "another event of its UID" in found.complaints[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        calendar(event())[:-30],
        calendar(event()).replace("END:VCALENDAR", ""),
        calendar(event()) * 2,
        calendar("\x00\x01"),
        calendar(event()).replace("VERSION:2.0", "VERSION"),
    ],
)
def test_a_file_that_is_not_a_whole_calendar_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="iCalendar") as refused:
        read_calendar(text, NOW, DAY_S)
    assert "\n" not in str(refused.value)


def test_too_many_promises_are_refused_as_a_whole() -> None:
    events = [event("RRULE:FREQ=DAILY", uid=f"u{number}") for number in range(20)]
    with pytest.raises(ConfigError, match="more than 1,000 promises"):
        read(*events, ahead_days=100)
    assert len(read(*events, ahead_days=30).wanted) == 20 * 22


def test_versions_are_those_that_events_say() -> None:
    weekly = event("RRULE:FREQ=WEEKLY;COUNT=3", "SEQUENCE:4", "LAST-MODIFIED:20270201T100000Z")
    moved = event(
        "RECURRENCE-ID:20270317T080000Z", "DTSTART:20270318T080000Z", "DURATION:PT1H", "SEQUENCE:5", times=False
    )
    local = event("LAST-MODIFIED:20270201T100000", uid="b@site")
    found = read(weekly, moved, local, event(uid="c@site"))
    assert found.complaints == ()
    assert found.uids == {"a@site", "b@site", "c@site"}
    assert found.versions == {
        "a@site": (4, "20270201T100000Z"), "a@site 20270317T080000Z": (5, ""), "b@site": (0, ""),
    }  # fmt: skip


def test_rules_that_never_hold_take_little_time_whatever_their_number() -> None:
    never = ("DTSTART:20270310T080000Z", "DURATION:PT1H", "RRULE:FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6")
    found = read(*(event(*never, uid=f"u{number}", times=False) for number in range(99)), event(uid="single"))
    assert set(found.wanted) == {"single"}
    assert sum("its rule holds at no time" in told for told in found.complaints) == 4
    assert sum("the rules of 4 events before it hold at no time" in told for told in found.complaints) == 95


def test_a_rule_that_ends_before_it_holds_leaves_the_first_time() -> None:
    """So write programs that split what repeats."""
    assert at("DTSTART:20270310T080000Z", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;BYDAY=MO;UNTIL=20270312T000000Z") == [
        "03-10 08:00+1h"
    ]
    ended = ("DTSTART:20000101T080000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;UNTIL=20010101T000000Z")
    assert at(*ended) == []


def test_repetitions_from_long_ago_go_on() -> None:
    old = ("DTSTART:20000101T080000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY")
    found = read(event(*old, times=False), ahead_days=2)
    first = min(wish.at for wish in found.wanted.values())
    assert first == NOW.replace(hour=8) + timedelta(days=1)


def test_a_rule_with_too_many_values_spoils_its_event_alone() -> None:
    days = ",".join(map(str, range(1, 32)))
    many = f"RRULE:FREQ=YEARLY;BYMONTHDAY={days};BYSETPOS={','.join(map(str, range(1, 31)))}"
    found = read(event(many, uid="many"), event())
    assert (set(found.wanted), found.unclear) == ({"a@site"}, {"many"})
    assert found.complaints[0].endswith("the BY... parts of its rule have more than 60 values")
    months = ",".join(map(str, range(1, 13)))
    every = f"RRULE:FREQ=YEARLY;BYMONTH={months};BYMONTHDAY={days};BYDAY=MO,TU,WE,TH,FR,SA,SU"
    assert len(times(read(event(every), ahead_days=10))) == 2


def test_of_many_complaints_the_first_are_told_each_in_a_bounded_line() -> None:
    bad = [event("SUMMARY:" + "\u2028" * 1_000, uid=f"u{number:05}" * 30, asks=False) for number in range(250)]
    found = read(*bad, event())
    assert len(found.complaints) == 101
    assert found.complaints[-1] == "150 more events are not understood"
    assert max(map(len, found.complaints)) <= 400
    assert set(found.wanted) == {"a@site"}
    assert len(found.unclear) == 250


def test_words_of_a_description_may_have_white_space_around_and_within() -> None:
    ((_, wish),) = read(event(r"DESCRIPTION:  nodes   =  16  \n users:  beam \, ann  ", asks=False)).wanted.items()
    assert (wish.nodes, wish.users) == (16, ("beam", "ann"))
