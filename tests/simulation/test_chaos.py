"""Random schedules of faults, users and operators, on a simulated cluster: Clearway does no harm in any of them.

What may happen stands in ``chaos`` and its parts, what must not in ``chaos_witness`` and ``chaos_verdicts``. All 10,000
schedules are played with ``tests/run --full``; a short run plays 200, others each time. A schedule that fails prints
its seed, and ``CLEARWAY_CHAOS_SEED`` plays that one alone.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.simulation.chaos import Schedule
from tests.simulation.chaos_mutations import MUTATIONS, Mutation
from tests.simulation.chaos_scene import KILL, KINDS, STOP, TWO, USERS
from tests.simulation.chaos_situations import REQUIRED
from tests.simulation.chaos_witness import Outcome, prepare
from tests.simulation.chaos_world import quick_and_alone

SCHEDULES, BLOCK = 10_000, 25
BLOCKS = SCHEDULES // BLOCK
BLOCKS_OF_A_SHORT_RUN = 8
AGAIN = os.environ.get("CLEARWAY_CHAOS_SEED")
SEEDS_PER_MUTATION = 500
ENOUGH_FOR_SITUATIONS = 1_000


def _base() -> int:
    """Where a short run's seeds begin: the same for all its processes, and another one each time."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    return random.Random(run).randrange(10**9) if run else random.SystemRandom().randrange(10**9)


BASE = 0 if os.environ.get("CLEARWAY_FULL") else _base()


def _blocks() -> list[int]:
    if AGAIN:
        return [0]
    return list(range(BLOCKS if os.environ.get("CLEARWAY_FULL") else BLOCKS_OF_A_SHORT_RUN))


def _seeds(block: int) -> range:
    first = int(AGAIN) if AGAIN else BASE + block * BLOCK
    return range(first, first + (1 if AGAIN else BLOCK))


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


@pytest.mark.parametrize("block", _blocks())
def test_no_schedule_does_harm(empty: Path, block: int) -> None:
    print(f"seeds {_seeds(block)}")
    outcomes = (play(seed, empty) for seed in _seeds(block))
    first = next((each for each in outcomes if each.violations or AGAIN), None)
    if first is not None and AGAIN:
        print(first.describe())
    assert first is None or not first.violations, first.describe()


def test_a_seed_gives_the_same_run_again(empty: Path) -> None:
    for seed in range(3):
        assert play(seed, empty).lines == play(seed, empty).lines


def test_schedules_do_what_they_are_for(empty: Path) -> None:
    """Jobs leave, daemons die and are stopped: quiet worlds would show nothing."""
    lines = [line for seed in range(100) for line in play(seed, empty).lines]
    what_happens = (
        ": requeue ", ": signal ", ": suspend ", ": killed", ": stopped", ": woken", "failed: ", " update job",
        " update partition", " update node", "dies",
    )  # fmt: skip
    for what in what_happens:
        assert sum(what in line for line in lines) >= 1, what


@pytest.mark.full
def test_a_thousand_schedules_come_by_every_rare_situation(empty: Path) -> None:
    found: Counter[str] = Counter()
    for seed in range(ENOUGH_FOR_SITUATIONS):
        found.update(play(seed, empty).situations)
    assert [each for each in REQUIRED if not found[each]] == []


@pytest.mark.full
@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_what_is_taken_back_is_found(empty: Path, monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    mutation.apply(monkeypatch)
    kinds = KINDS if mutation.found_by else (KILL, STOP, TWO, USERS)
    assert any(mutation.is_found(play(seed, empty, kinds)) for seed in range(SEEDS_PER_MUTATION))
