"""Batches become smaller where answers are slow, larger where they are quick, and none begins once a cycle is long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from clearway.execution.pace import BATCH_S, CYCLE_S, FIRST_SIZE, LEAST_SIZE, MOST_SIZE, Pace

NOW = datetime(2026, 11, 21, tzinfo=UTC)


class Watch:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_size_follows_the_answers() -> None:
    watch = Watch()
    pace = Pace(watch)

    def batch(seconds: float) -> int:
        pace.measured(pace.size, lambda: setattr(watch, "now", watch.now + seconds))
        return pace.size

    assert batch(0.01) == 2 * FIRST_SIZE
    assert batch(BATCH_S * 0.7) == 2 * FIRST_SIZE
    assert batch(BATCH_S * 2) == FIRST_SIZE
    assert [batch(BATCH_S * 2) for _ in range(9)][-1] == LEAST_SIZE
    assert [batch(0.01) for _ in range(9)][-1] == MOST_SIZE


def test_a_batch_that_was_not_full_does_not_make_the_next_larger() -> None:
    pace = Pace(Watch())
    pace.measured(3, lambda: None)
    assert pace.size == FIRST_SIZE


def test_a_cycle_has_an_end() -> None:
    watch = Watch()
    pace = Pace(watch)
    assert pace.open(NOW)
    pace.measured(5, lambda: setattr(watch, "now", CYCLE_S))
    assert not pace.open(NOW)
    assert pace.open(NOW + timedelta(seconds=1))
