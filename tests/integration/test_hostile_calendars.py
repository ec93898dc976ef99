"""Whatever a calendar of 1 MiB holds, its reader ends by its bounds, and neither daemon nor command waits for it.

What is measured is what the kernel counts of the real processes: processor time, and the most memory that each had.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from clearway.model.errors import ConfigError
from clearway.promise.calendar import MOST_PROMISES, CalendarContents
from clearway.promise.calendar_reader import (
    CPU_S,
    LARGEST_ANSWER,
    MEMORY_MIB,
    TOO_MUCH,
    WAITS_S,
    WALL_S,
    CalendarReader,
)
from tests.hostile_calendars import BEGIN, END, HOSTILE, LARGEST, event, season
from tests.integration.daemon import DaemonProcess, get, wait_for, write_config

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
YEAR_S = 366 * 86_400.0
CODE_MIB = 24  # of Python and its libraries, which RLIMIT_DATA does not count
LIMIT_MIB = 200  # by which the daemon and its reader may grow together
CHECK_S = 10.0
# Each at its bound: the memory, the time, and the most that can be read.
WORST = ("zone, 800 rules by day", "zone, rules by day", "zone, rules that never hold", "tiny properties")
TOO_COSTLY = {*WORST[:3], "zone, one rule by second"}


def most_mib(pid: int) -> int:
    """The most memory that a process has had; 0: there is none."""
    return _status_mib(pid, "VmHWM")


def _status_mib(pid: int, name: str) -> int:
    try:
        found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) // 1024 if found else 0


def children(pid: int) -> list[int]:
    """Those that read a calendar."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"calendar_reader" in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except (OSError, ValueError):
            continue
    return found


@contextmanager
def watched(look: Callable[[], object]) -> Iterator[None]:
    """``look`` is called again and again meanwhile."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def processor_s() -> float:
    """Of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_process(text: str, ahead_s: float = YEAR_S) -> CalendarContents:
    """As the daemon does, but without its cycles."""
    reader = CalendarReader()
    reader.begin(text, NOW, ahead_s)
    found: CalendarContents | None = wait_for(reader.answer, 2 * WALL_S)
    assert found is not None
    assert reader.pid is None
    return found


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.fault("A calendar file of 89 KB stopped the daemon for 113 s and took 684 MB.", found_by="trial")
def test_the_reader_ends_within_its_bounds(name: str) -> None:
    text = HOSTILE[name]()
    assert len(text.encode()) <= LARGEST
    reader, before_s, most = CalendarReader(), processor_s(), 0
    reader.begin(text, NOW, YEAR_S)
    pid = reader.pid
    assert pid is not None

    def look() -> None:
        nonlocal most
        most = max(most, most_mib(pid))

    contents, refused = None, ""
    with watched(look):
        try:
            contents = wait_for(reader.answer, 2 * WALL_S)
        except ConfigError as error:
            refused = str(error)
    assert processor_s() - before_s < CPU_S + 1
    assert 0 < most < MEMORY_MIB + CODE_MIB
    assert refused.isprintable()
    assert len(refused) < 300
    assert refused == TOO_MUCH or name not in TOO_COSTLY
    if contents is None:
        assert refused
        return
    assert len(contents.wanted) <= MOST_PROMISES
    assert len(contents.complaints) <= 101
    assert all(each.isprintable() and len(each) <= 400 for each in contents.complaints)


@pytest.mark.parametrize(
    "name", ["yearly rules with all places", "white space", "open tags", "rules with a huge count"]
)
@pytest.mark.fault(
    "One event with a costly repetition kept all events of its file from being followed.", found_by="trial"
)
def test_an_event_that_would_cost_too_much_spoils_itself_alone(name: str) -> None:
    text = HOSTILE[name]().replace(BEGIN, BEGIN + event(9_999))
    assert set(in_process(text).wanted) == {"9999"}


def test_the_largest_ordinary_calendar_is_read() -> None:
    """With a zone, and all that programs write into an event."""
    extra = "DTSTAMP:20270101T000000Z\r\nCREATED:20270101T000000Z\r\nSEQUENCE:1\r\nTRANSP:OPAQUE\r\nSUMMARY:Beam time"
    text, number = BEGIN, 0
    while len(text) + 400 < LARGEST:
        at = datetime(2027 - number % 20, 3, 2, tzinfo=UTC) + timedelta(hours=number // 20)
        text += event(number, extra, begin=f"DTSTART;TZID=Europe/Berlin:{at:%Y%m%dT%H%M%S}")
        number += 1
    found = in_process(text + END)
    assert number > 3_000
    assert len(found.wanted) == len([n for n in range(number) if n % 20 == 0])
    assert len(found.uids) == number
    assert found.complaints == ()


# -- the process ---------------------------------------------------------------------------------------------------

BEGINS = """
import ctypes, os, sys, time
from datetime import UTC, datetime
from clearway.promise.calendar_reader import CalendarReader
from tests.hostile_calendars import HOSTILE
reader = CalendarReader({waits_s})
"""


def program(text: str, waits_s: float = 0.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGINS.format(waits_s=waits_s) + text],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_reader_dies_with_the_daemon() -> None:
    """By SIGKILL, which no daemon can answer."""
    text = 'HOSTILE["zone, rules that never hold"]()'
    daemon = program(f"reader.begin({text}, datetime.now(UTC), 1e6)\nprint(reader.pid, flush=True)\ntime.sleep(600)")
    with daemon:
        assert daemon.stdout is not None
        reader = int(daemon.stdout.readline())
        wait_for(lambda: b"calendar_reader" in Path(f"/proc/{reader}/cmdline").read_bytes())
        wait_for(lambda: _status_mib(reader, "VmRSS") > 45)  # it is about its work
        daemon.kill()
        daemon.wait()
        killed = time.monotonic()
        wait_for(lambda: not alive(reader))
        assert time.monotonic() - killed < CPU_S, "it must not have come to its other bounds"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_reader_is_told_nothing_that_is_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARWAY_SECRET", "x")
    reader = CalendarReader()
    with (tmp_path / "database").open("w") as database:
        os.set_inheritable(database.fileno(), True)
        reader.begin(HOSTILE["zone, rules that never hold"](), NOW, YEAR_S)
        folder = Path(f"/proc/{reader.pid}")
        wait_for(lambda: b"calendar_reader" in (folder / "cmdline").read_bytes())
        opened = [str(each.readlink()) for each in (folder / "fd").iterdir() if each.is_symlink()]
        environment = (folder / "environ").read_bytes()
        reader.close()
    assert len(opened) >= 3
    assert not any(each.startswith("socket:") or str(tmp_path) in each for each in opened)
    assert b"CLEARWAY_SECRET" not in environment
    assert not folder.exists(), "who closes it leaves nothing behind"


def test_another_text_ends_what_is_read() -> None:
    reader = CalendarReader()
    reader.begin(HOSTILE["zone, rules that never hold"](), NOW, YEAR_S)
    first = reader.pid
    assert first is not None
    reader.begin(BEGIN + event(1) + END, NOW, YEAR_S)
    assert not alive(first)
    found = wait_for(reader.answer)
    assert set(found.wanted) == {"1"}


def test_it_can_be_started_where_memory_is_never_writable_and_executable() -> None:
    """As systemd's MemoryDenyWriteExecute= and NoNewPrivileges= have it for the daemon."""
    hardened = program(
        "if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) or ctypes.CDLL(None).prctl(38, 1, 0, 0, 0): sys.exit(77)\n"
        'reader.begin("BEGIN:VCALENDAR\\nEND:VCALENDAR\\n", datetime.now(UTC), 1e6)\nprint(reader.answer().wanted)',
        waits_s=60.0,
    )
    said, _ = hardened.communicate()
    if hardened.returncode == 77:
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert (hardened.returncode, said) == (0, "{}\n")


def test_a_process_that_cannot_be_started_or_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, text = CalendarReader(), BEGIN + END
    monkeypatch.setattr("clearway.promise.calendar_reader.COMMAND", ("/nowhere/python",))
    with pytest.raises(ConfigError, match="no process can be started to read it: No such file"):
        reader.begin(text, NOW, YEAR_S)
    assert reader.pid is None
    monkeypatch.setattr("clearway.promise.calendar_reader.COMMAND", ("/bin/sh", "-c", "exit 7"))
    reader.begin(text, NOW, YEAR_S)
    with pytest.raises(ConfigError, match=r"ended without an answer \(exit status 7\)"):
        wait_for(reader.answer)
    monkeypatch.setattr("clearway.promise.calendar_reader.COMMAND", ("/bin/sh", "-c", "kill -TERM $$"))
    reader.begin(text, NOW, YEAR_S)
    with pytest.raises(ConfigError, match=r"ended without an answer \(signal 15\)"):
        wait_for(reader.answer)


def test_an_answer_without_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("/bin/sh", "-c", f"head -c {LARGEST_ANSWER + 1} /dev/zero")
    monkeypatch.setattr("clearway.promise.calendar_reader.COMMAND", command)
    reader = CalendarReader()
    reader.begin(BEGIN + END, NOW, YEAR_S)
    with pytest.raises(ConfigError, match="without an answer"):
        wait_for(reader.answer)


# -- the daemon, and the command line ------------------------------------------------------------------------------


def configured(folder: Path, text: str) -> Path:
    config = write_config(folder)
    calendar = folder / "beam.ics"
    calendar.write_text(text, newline="")
    keys = f'[promises]\ncalendar = "{calendar}"\ncalendar_ahead = "360d"\nhold = "5m"\n'
    config.write_text(config.read_text() + keys)
    return config


def replace(folder: Path, text: str) -> None:
    """As one rename."""
    new = folder / "beam.ics.new"
    new.write_text(text, newline="")
    new.replace(folder / "beam.ics")


def cycles(daemon: DaemonProcess, within_s: str = "+Inf") -> float:
    """How many there were, or how many of them took no longer: a bound of the metric's."""
    line = f'clearway_cycle_duration_seconds_bucket{{le="{within_s}"}} '
    (found,) = (each for each in get(f"{daemon.address}/metrics").text.splitlines() if each.startswith(line))
    return float(found.removeprefix(line))


def has_said(daemon: DaemonProcess, since: int, *words: str) -> bool:
    """Any of them, after so many lines."""
    return any(each in line for line in daemon.lines[since:] for each in words)


def test_cycles_go_on_while_the_worst_files_are_read(tmp_path: Path) -> None:
    config = configured(tmp_path, BEGIN + END)
    with DaemonProcess(config, URGENT_FILE=str(tmp_path / "never")) as daemon:
        assert daemon.address
        wait_for(lambda: cycles(daemon) > 5)
        pid, most = daemon.pid, 0
        before = _status_mib(pid, "VmRSS")

        def look() -> None:
            nonlocal most
            most = max(most, *map(most_mib, children(pid)), 0)

        with watched(look):
            for number, name in enumerate(WORST):
                # Another complaint in between: one that is said again without a pause has no line.
                replace(tmp_path, f"{BEGIN}BEGIN:VEVENT\r\nUID:between-{number}\r\nEND:VEVENT\r\n{END}")
                daemon.expect(f"UID between-{number}")
                seen = len(daemon.lines)
                replace(tmp_path, HOSTILE[name]())
                told = f"{tmp_path}/beam.ics: {TOO_MUCH}; promises stay as they are"
                said = (told, "(UID 0): it has no single DTSTART")  # on a quick machine the last one is just read
                since = cycles(daemon)
                wait_for(partial(has_said, daemon, seen, *said), 2 * WALL_S, name)
                assert cycles(daemon) > since + 5, "cycles wait for the reader"
            replace(tmp_path, season(datetime.now(UTC), 1_000))
            daemon.expect("open_evictions=1000", 4 * WALL_S)
        # One in a hundred may wait for a machine that does other work.
        assert cycles(daemon, "1.0") >= 0.99 * cycles(daemon), "some took longer than a second"
        assert most > 40
        assert most + most_mib(pid) - before < LIMIT_MIB
        daemon.signal(15)
        assert daemon.wait() == 0


def test_a_daemon_that_stops_takes_its_reader_along(tmp_path: Path) -> None:
    config = configured(tmp_path, HOSTILE["zone, rules that never hold"]())
    with DaemonProcess(config, URGENT_FILE=str(tmp_path / "never")) as daemon:
        assert daemon.address, "a daemon with such a calendar is ready all the same"
        (reader,) = wait_for(lambda: children(daemon.pid))
        daemon.signal(15)
        assert daemon.wait() == 0
        assert not alive(reader)


@pytest.mark.parametrize("name", ["zone, 800 rules by day", "zone, rules that never hold"])
def test_check_config_ends_soon_and_names_the_file(name: str, tmp_path: Path) -> None:
    def check(text: str) -> tuple[int, str, float]:
        config = configured(tmp_path, text)
        command = [Path(sys.executable).parent / "clearway", "check-config", str(config)]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr, time.monotonic() - began

    status, said, usual_s = check(BEGIN + END)
    assert (status, said) == (0, "")
    status, said, took_s = check(HOSTILE[name]())
    assert status == 2
    assert said.count("\n") == 1
    assert f"promises.calendar: {tmp_path}/beam.ics: reading it takes more than " in said
    assert took_s < max(CHECK_S, WAITS_S + 3 * usual_s), "the second is for a machine that has much else to do"
