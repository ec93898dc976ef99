"""The calendar of promises on a simulated cluster: made, changed, withdrawn, and what happens when it is bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from clearway.model.cluster import JobState
from clearway.model.events import CalendarRead, Event, fan_out
from clearway.model.operations import EvictionState, Promise
from clearway.model.outcome import OutcomeCode
from clearway.promise.calendar_controller import AGAIN
from clearway.simulation.jobs import Program
from tests.simulation.promised import ask_to_cancel
from tests.simulation.world import SAVES, World, config


@dataclass
class Calendar:
    """A file that the daemon of ``world`` follows; its events are given by their UIDs."""

    world: World
    file: Path

    def __post_init__(self) -> None:
        self.start = self.world.clock.now()
        self.reads: list[CalendarRead] = []
        self.world.start_daemon(emit=fan_out(self.world.observer, self._hear))

    def _hear(self, event: Event) -> None:
        if isinstance(event, CalendarRead):
            self.reads.append(event)

    def write(self, **events: str) -> None:
        """``events``: when from the beginning on (s), and how many nodes, such as "3600 for 2"; and look at it."""
        self.put("".join(f"{self._event(uid, *each.split(' for '))}\r\n" for uid, each in events.items()))

    def put(self, events: str) -> None:
        """In the way of an editor: by another file."""
        new = self.file.with_suffix(".new")
        new.write_text(f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{events}END:VCALENDAR\r\n")
        new.rename(self.file)
        self.world.tick()

    def _event(self, uid: str, in_s: str, nodes: str) -> str:
        at = self.start + timedelta(seconds=float(in_s))
        return "\r\n".join([
            "BEGIN:VEVENT", f"UID:{uid}", f"DTSTART:{at.astimezone(UTC):%Y%m%dT%H%M%SZ}", "DURATION:PT10M",
            f"DESCRIPTION:nodes: {nodes}\\npartition: batch\\nusers: beam", "SUMMARY:Beam", "END:VEVENT",
        ])  # fmt: skip

    def promises(self) -> dict[str, Promise]:
        """The newest of each event."""
        found = self.world.store.evictions(limit=1_000)
        return {e.order.event: e for e in reversed(found) if isinstance(e, Promise)}

    def nodes(self) -> dict[str, int]:
        """Of those that have not ended."""
        return {uid: e.order.nodes for uid, e in self.promises().items() if not e.state.terminal}

    def told(self) -> str:
        """What was complained of at the last look."""
        return "; ".join(self.reads[-1].complaints)


@pytest.fixture
def calendar(make_world: Callable[..., World], tmp_path: Path) -> Calendar:
    file = tmp_path / "beam.ics"
    world = make_world(config=config(promises={"hold": "300s", "calendar": str(file), "calendar_ahead": "30d"}))
    return Calendar(world, file)


def test_events_become_promises_that_follow_them_and_are_kept(calendar: Calendar) -> None:
    calendar.write(a="3600 for 2", b="7200 for 3")
    assert calendar.nodes() == {"a": 2, "b": 3}
    assert all(e.order.actor == "clearway" and e.order.reason == "Beam" for e in calendar.promises().values())
    calendar.write(a="3600 for 4", c="9000 for 1")
    assert calendar.nodes() == {"a": 4, "c": 1}
    gone = calendar.promises()["b"]
    assert (gone.state, gone.outcome_code) == (EvictionState.CANCELLED, OutcomeCode.WITHDRAWN)
    calendar.write(a="1200 for 4", b="7200 for 3")
    assert calendar.nodes() == {"a": 4, "b": 3}, "what comes back is promised again"
    world = calendar.world
    world.run_until(lambda: calendar.promises()["a"].started_at is not None, 2_000, 5)
    assert calendar.promises()["a"].outcome_code is OutcomeCode.KEPT
    world.run_until(lambda: calendar.promises()["a"].state is EvictionState.COMPLETED, 2_000, 5)
    world.run_until(lambda: calendar.nodes() == {"b": 3}, int(2 * AGAIN.total_seconds()), 30)
    assert len([e for e in world.store.evictions() if isinstance(e, Promise) and e.order.event == "a"]) == 1


def test_what_is_held_already_does_not_change_and_that_is_said_once(calendar: Calendar) -> None:
    calendar.write(a="200 for 2")
    calendar.world.tick()
    assert calendar.promises()["a"].placement
    calendar.write(a="200 for 5")
    calendar.world.tick(AGAIN.total_seconds() / 9)
    calendar.write(a="200 for 5", b="9000 for 1")
    assert calendar.nodes() == {"a": 2, "b": 1}
    assert "has changed (5 nodes" in stays(calendar, "a")


def test_what_is_held_is_withdrawn_until_it_has_begun(calendar: Calendar) -> None:
    job = calendar.world.submit(Program(save_s=3, work_s=9_000), on=("n1",), ran_s=900, comment=SAVES)
    calendar.write(a="100 for 2", b="150 for 6")
    calendar.world.run_until(lambda: calendar.promises()["a"].started_at is not None, 200, 1)
    assert calendar.world.state(job) is JobState.PENDING, "it has left for b"
    assert len(calendar.world.cluster.reservations) == 2
    calendar.write()
    assert "but it has begun" in stays(calendar, "a")
    calendar.world.run_until(lambda: calendar.nodes() == {"a": 2}, 300, 1)
    assert calendar.promises()["b"].outcome_code is OutcomeCode.WITHDRAWN
    assert list(calendar.world.cluster.reservations) == [calendar.promises()["a"].placement]
    assert calendar.world.state(job) is JobState.RUNNING


def stays(calendar: Calendar, uid: str) -> str:
    """What is said of a promise that stays as it is."""
    steps = calendar.world.store.steps(calendar.promises()[uid].eviction_id)
    (said,) = [step.detail for step in steps if "it stays as it is" in step.detail]
    return said


def test_what_an_operator_cancels_stays_cancelled_until_the_event_changes(calendar: Calendar) -> None:
    calendar.write(a="3600 for 2")
    ask_to_cancel(calendar.world, calendar.promises()["a"])
    calendar.world.tick()
    calendar.write(a="3600 for 2", b="3600 for 1")
    assert calendar.nodes() == {"b": 1}
    calendar.world.start_daemon()
    calendar.world.tick()
    assert calendar.nodes() == {"b": 1}
    calendar.write(a="4000 for 2", b="3600 for 1")
    assert calendar.nodes() == {"a": 2, "b": 1}


def test_a_bad_file_or_event_changes_nothing_and_is_said(calendar: Calendar) -> None:
    calendar.write(a="3600 for 2", b="7200 for 3")
    for spoil in (
        lambda: calendar.file.write_text("BEGIN:VCALENDAR\r\n"),
        lambda: calendar.file.write_text(""),
        lambda: calendar.file.chmod(0o666),
        calendar.file.unlink,
    ):
        spoil()
        calendar.world.tick()
        assert calendar.nodes() == {"a": 2, "b": 3}
        assert str(calendar.file) in calendar.told()
        assert "promises stay as they are" in calendar.told()
    calendar.write(a="3600 for many", b="7200 for 4")
    assert calendar.nodes() == {"a": 2, "b": 4}
    assert "event Beam (UID a): its description has no line such as nodes: 16" in calendar.told()


def test_more_than_there_is_is_refused_until_there_is_room(calendar: Calendar) -> None:
    calendar.write(a="3600 for 6", b="3700 for 3", c="3600 for 9")
    assert calendar.nodes() == {"a": 6}
    assert "6 of the 8 nodes of partition batch are promised" in calendar.told()
    assert "partition batch has 8, not 9" in calendar.told()
    ask_to_cancel(calendar.world, calendar.promises()["a"])
    calendar.world.tick()
    calendar.world.tick(AGAIN.total_seconds())
    assert calendar.nodes() == {"b": 3}
    calendar.write(a="3600 for 6", b="3700 for 9")
    assert calendar.nodes() == {"b": 3}, "a change that is refused leaves the promise"


def test_nodes_of_a_promise_that_has_begun_are_not_promised_again(calendar: Calendar) -> None:
    calendar.write(a="100 for 6")
    calendar.world.run_until(lambda: calendar.promises()["a"].started_at is not None, 200, 1)
    calendar.write(a="100 for 6", b="400 for 3", c="800 for 3")
    assert calendar.nodes() == {"a": 6, "c": 3}


def test_past_events_are_ignored_and_far_ones_wait(calendar: Calendar) -> None:
    day = 86_400
    calendar.write(past="-3600 for 2", far=f"{30 * day + 1_000} for 2")
    assert (calendar.nodes(), calendar.told()) == ({}, "")
    calendar.world.tick(1_100)
    assert calendar.nodes() == {"far": 2}
    calendar.write(begun="900 for 1", far=f"{30 * day + 1_000} for 2")
    assert calendar.nodes() == {"far": 2}
    assert "has passed" in calendar.told()


def test_what_was_promised_stays_when_the_calendar_is_looked_at_less_far_ahead(calendar: Calendar) -> None:
    day = 86_400
    calendar.write(near=f"{day} for 2", far=f"{20 * day} for 3")
    world = calendar.world
    promises = world.config.promises.model_copy(update={"calendar_ahead": 10.0 * day})
    world.config = world.config.model_copy(update={"promises": promises})
    world.store.close()
    world.start_daemon()
    calendar.write(far=f"{20 * day} for 3")
    assert calendar.nodes() == {"far": 3}


def test_in_observe_mode_nothing_is_promised(make_world: Callable[..., World], tmp_path: Path) -> None:
    file = tmp_path / "beam.ics"
    watching = Calendar(make_world(config=config("observe", promises={"calendar": str(file)})), file)
    watching.write(a="3600 for 2")
    assert watching.nodes() == {}
