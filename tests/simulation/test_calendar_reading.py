"""A calendar whose reader takes some cycles: what its answer may still do by then, and when it is asked again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from clearway.model.errors import ConfigError, StoreError
from clearway.model.events import CalendarRead, Event, fan_out
from clearway.model.operations import Promise
from clearway.promise.calendar import CalendarContents, read_calendar
from clearway.promise.calendar_controller import AGAIN
from tests.simulation.world import World, config

LONG = AGAIN.total_seconds()


@dataclass
class Slow:
    """Answers when it is told to: what the text says, or why there is no answer."""

    asked: list[tuple[str, datetime, float]] = field(default_factory=list)
    done: bool = False
    fails: str = ""

    def begin(self, text: str, now: datetime, ahead_s: float) -> None:
        self.asked.append((text, now, ahead_s))

    def answer(self) -> CalendarContents | None:
        if not self.done:
            return None
        if self.fails:
            raise ConfigError(self.fails)
        return read_calendar(*self.asked[-1])

    def close(self) -> None:
        pass


@dataclass
class Site:
    world: World
    file: Path
    reader: Slow = field(default_factory=Slow)

    def __post_init__(self) -> None:
        self.start = self.world.clock.now()
        self.reads: list[CalendarRead] = []
        self.restart()

    def restart(self) -> None:
        self.world.store.close()
        emit = fan_out(self.world.observer, self._hear)
        self.world.start_daemon(emit=emit, calendar_reader=self.reader)

    def _hear(self, event: Event) -> None:
        if isinstance(event, CalendarRead):
            self.reads.append(event)

    def write(self, **events: str) -> None:
        """``events``: when from the beginning on (s), and how many nodes, such as "3600 for 2"."""
        new = self.file.with_suffix(".new")
        text = "".join(self._event(uid, *each.split(" for ")) for uid, each in events.items())
        new.write_text(f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{text}END:VCALENDAR\r\n", newline="")
        new.rename(self.file)

    def _event(self, uid: str, in_s: str, nodes: str) -> str:
        at = self.start + timedelta(seconds=float(in_s))
        return (
            f"BEGIN:VEVENT\r\nUID:{uid}\r\nDTSTART:{at.astimezone(UTC):%Y%m%dT%H%M%SZ}\r\nDURATION:PT10M\r\n"
            f"DESCRIPTION:nodes: {nodes}\\npartition: batch\\nusers: beam\r\nEND:VEVENT\r\n"
        )

    def nodes(self) -> dict[str, int]:
        return {e.order.event: e.order.nodes for e in self.world.store.open_evictions() if isinstance(e, Promise)}

    def tick(self, seconds: float = 1.0, *, cycles: int = 1) -> None:
        for _ in range(cycles):
            self.world.tick(seconds)


@pytest.fixture
def site(make_world: Callable[..., World], tmp_path: Path) -> Site:
    file = tmp_path / "beam.ics"
    world = make_world(config=config(promises={"hold": "300s", "calendar": str(file), "calendar_ahead": "30d"}))
    return Site(world, file)


def test_an_answer_that_comes_later_is_followed_then_and_one_is_asked_for_at_a_time(site: Site) -> None:
    site.write(a="3600 for 2")
    site.tick(cycles=5)
    assert (len(site.reader.asked), site.nodes(), site.reads) == (1, {}, [])
    site.reader.done = True
    site.tick()
    assert (site.nodes(), [each.complaints for each in site.reads]) == ({"a": 2}, [()])
    site.tick(cycles=5)
    assert len(site.reader.asked) == 1
    site.tick(LONG)
    assert len(site.reader.asked) == 2


def test_an_answer_for_another_text_is_not_followed(site: Site) -> None:
    site.write(a="3600 for 2")
    site.tick()
    site.write(b="3600 for 3")
    site.tick()
    assert [text.count("UID:b") for text, *_ in site.reader.asked] == [0, 1]
    site.write(c="3600 for 4")
    site.reader.done = True
    site.tick()
    assert site.nodes() == {"c": 4}
    assert len(site.reader.asked) == 3


def test_an_answer_for_a_file_that_was_only_touched_is_followed_and_the_file_looked_at_again(site: Site) -> None:
    """Else a file that a program writes every second would never be followed."""
    site.write(a="3600 for 2")
    site.tick()
    site.write(a="3600 for 2")
    site.reader.done = True
    site.tick()
    assert (site.nodes(), len(site.reader.asked)) == ({"a": 2}, 1)
    site.tick()
    assert len(site.reader.asked) == 2


def test_an_answer_for_a_file_that_others_may_write_by_now_is_not_followed(site: Site) -> None:
    site.write(a="3600 for 2")
    site.tick()
    site.file.chmod(0o666)
    site.reader.done = True
    site.tick()
    assert site.nodes() == {}
    assert "mode 0666" in site.reads[-1].complaints[0]
    site.file.chmod(0o644)
    site.tick()
    assert site.nodes() == {"a": 2}


def test_an_answer_of_long_ago_is_asked_for_again(site: Site) -> None:
    """As when another daemon has led meanwhile."""
    site.write(a="3600 for 2")
    site.tick()
    site.reader.done = True
    site.tick(LONG + 1)
    assert [now for _, now, _ in site.reader.asked][1] == site.world.clock.now()
    assert site.nodes() == {"a": 2}


def test_what_lay_too_far_ahead_when_the_file_was_read_is_not_withdrawn_by_a_late_answer(site: Site) -> None:
    month_s = 30 * 86_400
    site.reader.done = True
    site.write(a="3600 for 2", far=f"{month_s + 5} for 3")
    site.tick(10)
    assert site.nodes() == {"a": 2, "far": 3}
    far = timedelta(seconds=month_s - 60)
    promises = site.world.config.promises.model_copy(update={"calendar_ahead": far.total_seconds()})
    site.world.config = site.world.config.model_copy(update={"promises": promises})
    site.restart()
    site.reader.done = False
    site.world.run_until(lambda: len(site.reader.asked) > 1, 60, 5)
    site.tick(100)  # by now it is near enough to be asked for
    site.reader.done = True
    site.tick()
    assert site.nodes() == {"a": 2, "far": 3}


def test_a_reader_that_fails_is_asked_again_when_the_file_changes_or_after_ten_minutes(site: Site) -> None:
    site.reader.done = True
    site.write(a="3600 for 2")
    site.tick()
    site.reader.fails = "reading it takes too long"
    site.write(b="3600 for 2")
    site.tick(cycles=20)
    assert len(site.reader.asked) == 2
    assert site.reads[-1].complaints == (f"{site.file}: reading it takes too long; promises stay as they are",)
    assert site.nodes() == {"a": 2}
    site.write(b="3700 for 2")
    site.tick(cycles=3)
    assert len(site.reader.asked) == 3
    site.reader.fails = ""
    site.tick(LONG)
    assert site.nodes() == {"b": 2}


def test_an_answer_is_kept_while_the_database_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.reader.done = True
    site.write(a="3600 for 2")
    calendar = site.world.loop._cycle.calendar

    def fails(_: str) -> None:
        raise StoreError("the database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(calendar.store, "get_value", fails)
        with pytest.raises(StoreError):
            site.tick()
    assert site.nodes() == {}
    site.tick()
    assert (site.nodes(), len(site.reader.asked)) == ({"a": 2}, 1)


def test_many_changes_are_done_in_parts_and_the_reader_is_asked_once(site: Site) -> None:
    site.reader.done = True
    ticking = count()
    site.world.loop._cycle.calendar.monotonic = lambda: next(ticking) / 20  # so long takes each change
    site.write(**{f"u{number}": f"{4_000 + 700 * number} for 1" for number in range(20)}, bad="4000 for many")
    made = []
    while not site.reads:
        site.tick()
        made.append(len(site.nodes()))
        assert len(made) < 20
    assert made == sorted(set(made)), "each cycle comes further"
    assert len(made) > 1
    assert made[-1] == 20
    assert len(site.reader.asked) == 1
    assert len(site.reads[0].complaints) == 1, "what is not understood is told once, at the end"
    site.write(u3="9000 for 1")
    site.reads.clear()
    while not site.reads:
        site.tick()
    assert site.nodes() == {"u3": 1}


def test_a_change_in_the_middle_of_the_parts_is_read_anew(site: Site) -> None:
    site.reader.done = True
    ticking = count()
    site.world.loop._cycle.calendar.monotonic = lambda: next(ticking) / 20
    site.write(**{f"u{number}": f"{4_000 + 700 * number} for 1" for number in range(20)})
    site.tick()
    assert 0 < len(site.nodes()) < 20
    site.write(other="4000 for 2")
    while not site.reads:
        site.tick()
    assert site.nodes() == {"other": 2}
