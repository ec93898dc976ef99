"""A file that job_submit.lua writes to ends the pause between two cycles."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clearway.service.loop import WakeFile
from tests.builders import NOW, ManualClock
from tests.simulation.world import World, config

WAIT_S = 120.0


class RealClock(ManualClock):
    def monotonic(self) -> float:
        return time.monotonic()


class Cycles:
    """Counts them; ``after`` is called after each with its number."""

    def __init__(self, after: Callable[[int], None] = lambda _: None) -> None:
        self._after = after
        self._changed = threading.Condition()
        self.count = 0

    def beat(self) -> None:
        self._after(self.count + 1)
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, WAIT_S), f"{self.count} cycles, not {count}"


@contextmanager
def running(world: World, cycles: Cycles) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=world.loop.run, args=(stop, cycles.beat))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        world.loop.wake()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def world_with(make_world: Callable[..., World], wake_file: Path | None) -> World:
    daemon = {"mode": "automatic", "poll_interval": 36_000, "active_interval": 0.2, "wake_file": wake_file}
    return make_world(config=config(daemon=daemon), clock=RealClock(NOW))


def test_a_change_ends_the_pause(make_world: Callable[..., World], tmp_path: Path) -> None:
    wake_file = tmp_path / "wake"
    cycles = Cycles()
    with running(world_with(make_world, wake_file), cycles):
        cycles.wait_for(1)
        wake_file.write_text("1\n")
        cycles.wait_for(3)  # and once more: the job may not have been there yet
        wake_file.write_text("2\n")
        cycles.wait_for(5)


@pytest.mark.fault("An urgent job waited for the daemon's pause of two seconds before it was seen.", found_by="load")
def test_a_change_within_a_cycle_is_not_lost(make_world: Callable[..., World], tmp_path: Path) -> None:
    wake_file = tmp_path / "wake"
    cycles = Cycles(lambda number: wake_file.write_text("now\n") if number == 1 else None)
    with running(world_with(make_world, wake_file), cycles):
        cycles.wait_for(3)


def test_another_file_after_a_reload(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = world_with(make_world, None)
    cycles = Cycles()
    with running(world, cycles):
        cycles.wait_for(1)
        daemon = world.config.daemon.model_copy(update={"wake_file": tmp_path / "wake"})
        world.loop.reconfigure(world.config.model_copy(update={"daemon": daemon}))
        cycles.wait_for(2)
        (tmp_path / "wake").write_text("1\n")
        cycles.wait_for(4)


def test_each_change_is_told_of_once(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    file = WakeFile(path)
    assert not file.changed()
    path.write_text("1\n")
    assert file.changed()
    assert not file.changed()
    os.utime(path, (1, 1))
    assert file.changed()
    path.unlink()
    assert not file.changed()


def test_without_a_file_or_a_way_to_it_there_are_none(tmp_path: Path) -> None:
    assert not WakeFile(None).changed()
    (tmp_path / "plain").write_text("")
    assert not WakeFile(tmp_path / "plain" / "wake").changed()
