"""A cycle's commands take a bounded time, whatever a job takes, and slow answers make the next batches small."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from clearway.execution.job_batch import CYCLE_S, FIRST_SIZE, Pace

NOW = datetime(2026, 11, 21, tzinfo=UTC)


class Slurm:
    """A call takes ``call_s``, and ``job_s`` for each job of its list; storing a batch takes ``store_s``."""

    def __init__(self, job_s: float, call_s: float = 0.0, store_s: float = 0.0) -> None:
        self.job_s, self.call_s, self.store_s, self.now, self.cycles = job_s, call_s, store_s, 0.0, 0
        self.pace = Pace(lambda: self.now)

    @property
    def in_arrears(self) -> bool:
        return self.pace.in_arrears(NOW + timedelta(seconds=self.cycles))

    def give(self, jobs: int) -> None:
        self.pace.batch(lambda: self._carry_out(jobs))

    def _carry_out(self, jobs: int) -> None:
        self.take(self.store_s / 2)
        self.pace.asking(jobs, lambda: self.take(self.call_s + jobs * self.job_s))
        self.take(self.store_s / 2)

    def take(self, seconds: float) -> None:
        self.now += seconds

    def cycle(self, jobs: int) -> Iterator[int]:
        """The sizes of the batches of one cycle with so many jobs."""
        self.cycles += 1
        while jobs and self.pace.open(NOW + timedelta(seconds=self.cycles)):
            size = min(self.pace.size, jobs)
            yield size
            self.give(size)
            jobs -= size


def test_cycles_grow_while_answers_are_quick() -> None:
    slurm = Slurm(job_s=0.0)
    cycles = [list(slurm.cycle(1_000)) for _ in range(5)]
    assert cycles == [[FIRST_SIZE], [30], [45], [67], [100]]
    assert slurm.in_arrears


def test_one_quick_answer_says_little() -> None:
    slurm = Slurm(job_s=0.03)
    assert list(slurm.cycle(100)) == [FIRST_SIZE]
    slurm.job_s = 0.0
    assert [list(slurm.cycle(200)) for _ in range(3)] == [[16, 14], [37, 8], [67]]


@pytest.mark.parametrize("job_s", [0.001, 0.01, 0.02])
@pytest.mark.parametrize("call_s", [0.0, 0.05])
@pytest.mark.parametrize("store_s", [0.0, 0.02, 0.15])
def test_no_cycle_is_longer_than_its_time(job_s: float, call_s: float, store_s: float) -> None:
    slurm = Slurm(job_s, call_s, store_s)
    left, cycles = 400, 0
    while left:
        began = slurm.now
        left -= sum(slurm.cycle(left))
        cycles += 1
        # A batch may cost one call more than the estimate, as that divides the call among the jobs of the last batch.
        # Of the first batch it is not known what a batch takes to store.
        assert slurm.now - began <= CYCLE_S + call_s + (store_s if cycles == 1 else 0.0) + 1e-9
        assert slurm.in_arrears is (left > 0)
    assert cycles <= 400 * job_s / 0.15 + 6  # the first cycles are small


def test_a_slow_database_leaves_time_for_commands() -> None:
    """A batch in each cycle, as large as fits into its own time."""
    slurm = Slurm(job_s=0.01, store_s=2.0)
    assert [list(slurm.cycle(100)) for _ in range(3)] == [[20], [30], [30]]
    assert slurm.in_arrears


def test_slow_answers_make_batches_small_and_leave_slurm_its_pause() -> None:
    slurm = Slurm(job_s=0.1)
    assert list(slurm.cycle(100)) == [FIRST_SIZE]
    assert not slurm.in_arrears  # 2 s: slower than what was expected
    assert list(slurm.cycle(100)) == [5]
    assert slurm.in_arrears
    slurm.job_s = 30.0
    assert list(slurm.cycle(100)) == [5]
    for _ in range(3):  # one by one, but never none
        assert list(slurm.cycle(100)) == [1]
        assert not slurm.in_arrears
    slurm.job_s = 0.001
    sizes = [sum(slurm.cycle(100)) for _ in range(20)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, 100)


def test_a_cycle_that_gives_no_command_is_not_in_arrears() -> None:
    """Such as one in which the stop switch was thrown: the next would begin at once, and the one after that."""
    slurm = Slurm(job_s=0.01)
    list(slurm.cycle(100))
    assert slurm.in_arrears
    slurm.cycles += 1
    assert not slurm.in_arrears


def test_a_small_batch_does_not_make_the_next_small() -> None:
    """Most of what it takes is the call."""
    slurm = Slurm(job_s=0.0, call_s=0.05)
    assert list(slurm.cycle(1)) == [1]
    assert list(slurm.cycle(100)) == [FIRST_SIZE]


def test_commands_for_operations_leave_the_rest_to_the_next_cycle() -> None:
    slurm = Slurm(job_s=0.02)
    given: list[int] = []
    for _ in range(3):
        slurm.cycles += 1
        given.append(0)
        while given[-1] < 100 and slurm.pace.open_for_whole(NOW + timedelta(seconds=slurm.cycles), given[-1]):
            slurm.pace.whole(lambda: slurm.take(0.1))
            given[-1] += 1
        assert slurm.in_arrears
    assert given == [4, 4, 4]
    now = NOW + timedelta(seconds=slurm.cycles)
    assert slurm.pace.open(now)  # a batch of jobs has its turn all the same
    slurm.give(slurm.pace.size)
    assert not slurm.pace.open(now)


def test_what_is_put_off_makes_the_next_cycle_begin_at_once() -> None:
    slurm = Slurm(job_s=0.0)
    assert not slurm.in_arrears
    slurm.pace.put_off(NOW)
    assert slurm.in_arrears
    slurm.cycles += 1
    assert not slurm.in_arrears


def test_work_that_fails_counts_as_well() -> None:
    slurm = Slurm(job_s=0.0)

    def fail() -> None:
        slurm.now += CYCLE_S
        raise OSError

    assert slurm.pace.open(NOW)
    with pytest.raises(OSError):
        slurm.pace.batch(lambda: slurm.pace.asking(20, fail))
    assert not slurm.pace.open(NOW)
