"""Random schedules of faults, users and operators, on a simulated cluster: Clearway does no harm in any of them.

What may happen stands in ``chaos``, what must not in ``chaos_witness``. All 10,000 schedules are played with
``tests/run --full``; a short run plays 200, which the commit chooses. A schedule that fails prints its seed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from clearway.service.leadership import Leadership
from clearway.store import lease_rows
from tests.simulation.chaos import Schedule
from tests.simulation.chaos_scene import KILL, KINDS, STOP, TWO, USERS
from tests.simulation.chaos_witness import Outcome, prepare
from tests.simulation.chaos_world import quick_and_alone

SCHEDULES, BLOCK = 10_000, 25
BLOCKS = SCHEDULES // BLOCK
BLOCKS_OF_A_SHORT_RUN = 8
AGAIN = os.environ.get("CLEARWAY_CHAOS_SEED")


def _blocks() -> list[range]:
    if AGAIN:
        return [range(int(AGAIN), int(AGAIN) + 1)]
    blocks = BLOCKS if os.environ.get("CLEARWAY_FULL") else BLOCKS_OF_A_SHORT_RUN
    return [range(number * BLOCK, (number + 1) * BLOCK) for number in range(blocks)]


@pytest.fixture
def empty(tmp_path: Path, empty_database: Path) -> Iterator[Path]:
    """A database with its tables, and with what the witness asks for."""
    path = tmp_path / "empty.sqlite"
    shutil.copyfile(empty_database, path)
    prepare(path)
    with quick_and_alone():
        yield path


def play(seed: int, empty: Path, kinds: Collection[str] = KINDS) -> Outcome:
    return Schedule(seed, empty.parent, empty, kinds).play()


@pytest.mark.parametrize("seeds", _blocks(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_no_schedule_does_harm(empty: Path, seeds: range) -> None:
    for seed in seeds:
        outcome = play(seed, empty)
        if AGAIN:
            print(outcome.describe())
        if outcome.violations:
            raise AssertionError(outcome.describe()) from outcome.first_error


def test_a_seed_gives_the_same_run_again(empty: Path) -> None:
    for seed in range(3):
        assert play(seed, empty).lines == play(seed, empty).lines


def test_schedules_do_what_they_are_for(empty: Path) -> None:
    """Jobs leave, daemons die and are stopped: quiet worlds would show nothing."""
    lines = [line for seed in range(40) for line in play(seed, empty).lines]
    for what in (": requeue ", ": signal ", ": suspend ", ": drain ", ": killed", ": stopped", ": woken", "failed: "):
        assert sum(what in line for line in lines) > 2, what


@pytest.mark.full
def test_without_the_fence_schedules_do_harm(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch is asked neither before a write nor before a command, and the suite sees it within 500 schedules."""
    monkeypatch.setattr(lease_rows, "require", lambda _connection, _epoch: None)
    monkeypatch.setattr(Leadership, "command_limit_s", lambda _: 7.5)
    stops = (KILL, STOP, TWO, USERS)
    assert any(play(seed, empty, stops).violations for seed in range(500))
