"""Which checkpoint is next: in time whenever any serial order is, and never more at once than there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from clearway.execution.checkpoint_order import Write, has_room, next_to_ask
from tests.builders import NOW, after


def write(job_id: str, seconds: float = 10.0, due_s: float = 60.0, rate_mib_s: float = 100.0) -> Write:
    return Write(job_id=job_id, seconds=seconds, latest=after(due_s), rate_mib_s=rate_mib_s)


def late(order: Sequence[Write]) -> int:
    """How many are late when they are written one after another in this order."""
    now, count = NOW, 0
    for each in order:
        now += timedelta(seconds=each.seconds)
        count += now > each.latest
    return count


def by_rule(waiting: Sequence[Write]) -> list[Write]:
    rest, order = list(waiting), []
    now: datetime = NOW
    while first := next_to_ask(rest, now):
        order.append(first)
        rest.remove(first)
        now += timedelta(seconds=first.seconds)
    return order


times = st.tuples(st.integers(1, 20), st.integers(1, 60))


@given(st.lists(times, max_size=6))
def test_all_are_in_time_whenever_some_serial_order_has_them_in_time(jobs: list[tuple[int, int]]) -> None:
    waiting = [write(str(number), seconds, due_s) for number, (seconds, due_s) in enumerate(jobs)]
    order = by_rule(waiting)
    assert sorted(each.job_id for each in order) == [each.job_id for each in waiting]
    if any(late(other) == 0 for other in permutations(waiting)):
        assert late(order) == 0


def test_least_slack_would_miss_what_the_earliest_deadline_meets() -> None:
    long, short = write("1", 10, 12), write("2", 1, 4)
    assert by_rule([long, short]) == [short, long]
    assert (late([short, long]), late([long, short])) == (0, 1)


def test_hopeless_ones_make_nobody_else_late() -> None:
    hopeless, fine = write("1", 50, 20), write("2", 10, 30)
    assert by_rule([hopeless, fine]) == [fine, hopeless]


def test_ties_end_on_the_job_id_and_nothing_waits_for_nothing() -> None:
    assert next_to_ask([write("2"), write("1")], NOW) == write("1")
    assert next_to_ask([], NOW) is None


def test_room_by_number_and_by_bandwidth() -> None:
    one, two = write("1", rate_mib_s=600), write("2", rate_mib_s=500)
    assert has_room(one, [], 1, 100.0)  # alone it may always begin: else it never could
    assert not has_room(one, [two], 1, 10_000.0)
    assert has_room(one, [two], 2, 1_100.0)
    assert not has_room(one, [two], 2, 1_099.0)
