"""What `clearway check-config` and `clearway doctor` say of a calendar: one clear line for each thing that is wrong."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clearway.config.configuration import load_config
from clearway.doctor import daemon_checks
from clearway.doctor.case import Asked, Case, DatabaseFacts
from clearway.promise.calendar_controller import CalendarMemory, read_file
from clearway.promise.calendar_reader import TOO_MUCH, WAITS_S
from clearway.slurm.site_facts import SiteFacts, SitePartition
from tests.hostile_calendars import HOSTILE
from tests.unit.cli.running import clearway, one_line

ASKS = "DESCRIPTION:nodes: 4\\nusers: beam\\npartition: batch"


@pytest.fixture
def calendar(tmp_path: Path) -> Path:
    """Good: one event, tomorrow; ``site.toml`` beside it names it."""
    file = tmp_path / "site" / "beam.ics"
    file.parent.mkdir(mode=0o755)
    write(file, event("good"))
    store = f'[store]\nurl = "sqlite:///{tmp_path}/new.sqlite"\n'
    text = f'[daemon]\nmode = "approve"\n{store}[promises]\ncalendar = "{file}"\n[[preemptors]]\nqos = ["urgent"]\n'
    (tmp_path / "site.toml").write_text(text)
    return file


def event(uid: str, asks: str = ASKS) -> str:
    at = datetime.now(tz=UTC) + timedelta(days=1)
    times = f"DTSTART:{at:%Y%m%dT%H%M%SZ}\r\nDURATION:PT1H"
    return f"BEGIN:VEVENT\r\nUID:{uid}\r\nSUMMARY:Beam\r\n{times}\r\n{asks}\r\nEND:VEVENT\r\n"


def write(file: Path, *events: str) -> None:
    file.write_text(f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{''.join(events)}END:VCALENDAR\r\n")


def settings(calendar: Path) -> Path:
    return calendar.parent.parent / "site.toml"


def checked(calendar: Path) -> list[str]:
    """The lines of `check-config`, which refuses."""
    result = clearway("check-config", settings(calendar))
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr.splitlines()


def examined(calendar: Path, followed: CalendarMemory | None = None) -> list[tuple[str, str, str]]:
    """What the doctor's check finds, at a site with ten nodes, as: state, what is so, what to do."""
    case = Case(load_config(settings(calendar)), Asked(), "root")
    partition = SitePartition(name="batch", nodes=10, up=True, tier=1)
    site = SiteFacts(
        settings={}, clock=None, partitions=(partition,), qos=None, qos_unknown="", nodes=(), preempts={},
        preempts_by_qos=False, grace_s=0.0,
    )  # fmt: skip
    known = DatabaseFacts(kind="SQLite", revision="1", calendar=followed)
    vars(case).update({"_once_site": (site, None), "_once_database": (known, None)})
    return [(each.state.value, each.what, each.remedy) for each in daemon_checks.calendar(case)]


def test_a_good_calendar(calendar: Path) -> None:
    result = clearway("check-config", settings(calendar))
    assert (result.exit_code, result.stderr) == (0, "")
    assert examined(calendar) == [("ok", "promises within 60d00h: 1", "")]


def missing(file: Path, _: pytest.MonkeyPatch) -> None:
    file.unlink()


def no_library(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icalendar", None)


def half(file: Path, _: pytest.MonkeyPatch) -> None:
    file.write_text(file.read_text()[:-20])


def open_file(file: Path, _: pytest.MonkeyPatch) -> None:
    file.chmod(0o666)


def open_folder(file: Path, _: pytest.MonkeyPatch) -> None:
    file.parent.chmod(0o777)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (missing, "cannot be read: No such file or directory"),
        (no_library, "promises.calendar needs icalendar: install 'icalendar>=6.1' 'python-dateutil>=2.8.2' into"),
        (half, "it is no iCalendar file, or not a whole one: its last line is not END:VCALENDAR"),
        (open_file, "mode 0666 lets others read or change the calendar; use 0644"),
        (open_folder, "mode 0777 lets others replace the calendar; use 0755"),
    ],
)
def test_a_file_that_cannot_be_followed_is_one_line(
    calendar: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path, pytest.MonkeyPatch], None], why: str
) -> None:
    spoil(calendar, monkeypatch)
    (line,) = checked(calendar)
    assert line.startswith(f"clearway: {settings(calendar)}: promises.calendar: {calendar.parent}")
    assert why in line
    ((state, what, remedy),) = examined(calendar)
    assert (state, remedy) == ("fault", "put it right: until then no promise is made, changed or withdrawn by it")
    assert why in what


def test_the_mark_of_its_encoding_that_some_programs_begin_with_is_no_fault(calendar: Path) -> None:
    calendar.write_bytes(b"\xef\xbb\xbf" + calendar.read_bytes())
    assert examined(calendar) == [("ok", "promises within 60d00h: 1", "")]


def test_a_file_that_would_take_too_long_is_one_line(calendar: Path) -> None:
    """What it costs to find that out is measured in ``tests/integration/test_hostile_calendars.py``."""
    calendar.write_text(HOSTILE["zone, 800 rules by day"](), newline="")
    whys = {f"{calendar}: {TOO_MUCH}", f"{calendar}: reading it takes more than {WAITS_S:g} s"}  # on a busy machine
    (line,) = checked(calendar)
    assert line in {f"clearway: {settings(calendar)}: promises.calendar: {why}" for why in whys}
    ((state, what, _),) = examined(calendar)
    assert (state, what in whys) == ("fault", True)


def test_a_file_that_is_too_large_is_not_read(calendar: Path) -> None:
    calendar.write_bytes(calendar.read_bytes() + b"\r\n" * 2**19)
    (line,) = checked(calendar)
    assert line.endswith(f"{calendar}: larger than 1048576 bytes")


def test_each_bad_event_is_one_line(calendar: Path) -> None:
    write(calendar, event("good"), event("typo", "DESCRIPTION:node: 4"), event("nobody", "DESCRIPTION:nodes: 4"))
    typo, nobody = checked(calendar)
    assert "event Beam (UID typo): its description has no line such as nodes: 16" in typo
    assert "event Beam (UID nobody): users" in nobody
    found = examined(calendar)
    assert [state for state, _, _ in found] == ["fault", "fault"]
    assert all("docs/howto/promises.md" in remedy for _, _, remedy in found)
    write(calendar, *(event(f"bad{number}", "DESCRIPTION:node: 4") for number in range(9)))
    assert "4 more events are not understood" in examined(calendar)[-1][1]


def test_an_event_for_more_than_slurm_has(calendar: Path) -> None:
    write(calendar, event("large", ASKS.replace("4", "40")), event("nowhere", ASKS.replace("batch", "none")))
    large, nowhere = (what for state, what, _ in examined(calendar) if state == "fault")
    assert large == "event large asks for 40 nodes: partition batch has 10 nodes"
    assert nowhere == "event nowhere asks for 4 nodes: partition none is not there"


def test_observe_mode_is_told(calendar: Path) -> None:
    file = settings(calendar)
    file.write_text(file.read_text().replace("approve", "observe"))
    assert ("advice", "in observe mode nothing is promised by the calendar") in [
        each[:2] for each in examined(calendar)
    ]


def test_a_file_that_is_not_the_one_that_is_followed(calendar: Path) -> None:
    """Two hosts must have the same file."""
    config, now = load_config(settings(calendar)), datetime.now(tz=UTC)
    here = CalendarMemory().after(read_file(calendar, config.promises, now), "other", ())
    assert [state for state, _, _ in examined(calendar, here)] == ["ok"]
    write(calendar, event("good"), event("more"))
    os.utime(calendar, (now.timestamp() + 1, now.timestamp() + 1))
    (_, (state, what, remedy)) = examined(calendar, here)
    assert (state, what) == ("advice", f"{calendar} is not the file that is followed on other")
    assert remedy == "have the same file on every host where the daemon may run"
    os.utime(calendar, (now.timestamp() - 100, now.timestamp() - 100))
    (_, (state, what, remedy)) = examined(calendar, here)
    assert state == "fault"
    assert what.startswith(f"{calendar} is older than the one that was followed on other (")
    assert f"touch {calendar}" in remedy
    own = CalendarMemory().after(read_file(calendar, config.promises, now), socket.gethostname(), ())
    write(calendar, event("good"))
    assert [state for state, _, _ in examined(calendar, own)] == ["ok"], "the daemon here has not looked yet"


def test_a_wrong_file_is_one_line_for_people(calendar: Path) -> None:
    calendar.write_bytes(b"BEGIN:VCALENDAR\r\nX:\x1b[31m\r\nFOO\r\nEND:VCALENDAR\r\n")
    assert one_line(clearway("check-config", settings(calendar)).stderr).isprintable()
    calendar.write_bytes(b"\xff\xfe")
    assert "holds something other than UTF-8" in checked(calendar)[0]
