"""Which checkpoint is next: in time whenever any serial order is, and never more at once than there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from clearway.estimates.checkpoint_load import CheckpointLoad, CheckpointWrite, may_begin, next_to_ask, overdue
from tests.builders import NOW, after


def write(job_id: str, seconds: float = 10.0, due_s: float = 60.0, rate_mib_s: float = 100.0) -> CheckpointWrite:
    return CheckpointWrite(job_id=job_id, seconds=seconds, latest=after(due_s), rate_mib_s=rate_mib_s)


def has_room(one: CheckpointWrite, running: Sequence[CheckpointWrite], limit: int, bandwidth_mib_s: float) -> bool:
    return may_begin(one, CheckpointLoad((one,), tuple(running), (), first=one), limit, bandwidth_mib_s)


def may_join(one: CheckpointWrite, first: CheckpointWrite, begun: Sequence[CheckpointWrite]) -> bool:
    running = tuple(each for each in begun if each.done is None)
    complete = tuple(each for each in begun if each.done is not None)
    return may_begin(one, CheckpointLoad((one,), running, complete, first=first), 9, 1e9)


def late(order: Sequence[CheckpointWrite]) -> int:
    """How many are late when they are written one after another in this order."""
    now, count = NOW, 0
    for each in order:
        now += timedelta(seconds=each.seconds)
        count += now > each.latest
    return count


def by_rule(waiting: Sequence[CheckpointWrite]) -> list[CheckpointWrite]:
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


def test_of_one_plan_what_failed_before_comes_last_and_quick_ones_first() -> None:
    failed, slow, quick = replace(write("1", 5), failures=1), write("2", 10), write("3", 7)
    assert by_rule([failed, slow, quick]) == [quick, slow, failed]
    sooner = replace(failed, latest=after(50))
    assert by_rule([slow, sooner]) == [sooner, slow], "what is due earlier goes first all the same"


def test_one_takes_longer_than_expected_by_its_own_time_or_by_the_time_of_all_that_share() -> None:
    alone = replace(write("1", 10), begun=NOW)
    assert not overdue(alone, [alone], after(10))
    assert overdue(alone, [alone], after(10.1))
    assert not overdue(replace(alone, done=after(10)), [alone], after(99))
    assert not overdue(write("1", 10), [], after(99)), "it waits"
    one, two = (shared(name, 1, 12, 10, after(60), begun=NOW) for name in ("1", "2"))
    assert not overdue(one, [one, two], after(22))
    assert overdue(one, [one, two], after(22.1))


def test_room_by_number_and_by_bandwidth() -> None:
    one, two = write("1", rate_mib_s=600), write("2", rate_mib_s=500)
    assert has_room(one, [], 1, 100.0)  # alone it may always begin: else it never could
    assert not has_room(one, [two], 1, 10_000.0)
    assert has_room(one, [two], 2, 1_100.0)
    assert not has_room(one, [two], 2, 1_099.0)


def shared(
    job_id: str, plan: int, seconds: float, file_system_s: float | None, latest: datetime, **times: datetime
) -> CheckpointWrite:
    return CheckpointWrite(
        job_id=job_id, seconds=seconds, latest=latest, file_system_s=file_system_s, plan=plan, **times
    )


def test_who_shares_the_file_system_joins_its_own_plan_at_once() -> None:
    running = shared("1", 1, 30, 10, after(40), begun=NOW)
    own, other = shared("2", 1, 30, 15, after(40)), shared("3", 2, 30, 10, after(400))
    assert may_join(own, own, [running])
    assert may_join(other, other, [running]), "20 s of its own and 10 + 10 s of both: complete by then"
    assert not may_join(replace(other, file_system_s=10.5), other, [running])
    assert not may_join(replace(other, file_system_s=None), other, [running]), "it would take all for 30 s"


def test_nobody_joins_before_another_plan_that_is_more_urgent() -> None:
    own, urgent = shared("2", 1, 30, 15, after(400)), shared("3", 2, 30, 10, after(40))
    assert not may_join(own, urgent, [])
    assert may_join(urgent, urgent, [])


def test_what_was_written_beside_counts_as_well() -> None:
    begun = shared("1", 1, 30, 10, after(42), begun=NOW)
    before = shared("2", 2, 5, 5, after(90), begun=after(-5), done=after(-1))
    beside = shared("3", 2, 5, 5, after(90), begun=after(1), done=after(8))
    late = shared("4", 3, 8, 8, after(400))
    assert may_join(late, late, [begun, before])
    assert not may_join(late, late, [begun, before, beside]), "20 + 10 + 5 + 8 s, of 42 s"


@given(st.randoms(use_true_random=False))
def test_no_plan_is_late_whoever_joins_and_however_they_share(rng: Random) -> None:
    """Writes join when they may; a file system serves them in any order of preference, at one MiB for each second."""
    writes = {
        str(number): shared(str(number), number, seconds, seconds * rng.choice((0.2, 0.5, 1.0)), NOW)
        for number, seconds in enumerate(rng.choices((5, 10, 20, 40), k=6))
    }
    left = {job_id: _whole(write) for job_id, write in writes.items()}
    waiting, now = sorted(writes), NOW
    preferred = rng.sample(waiting, len(waiting))
    while waiting or any(write.done is None for write in writes.values()):
        for job_id in list(waiting):
            begun = [write for write in writes.values() if write.begun is not None]
            slack_s = rng.choice((0, 10, 60))
            candidate = replace(writes[job_id], latest=now + timedelta(seconds=writes[job_id].seconds + slack_s))
            alone = not any(write.done is None for write in begun)
            if may_join(candidate, candidate, begun) and (alone or rng.random() < 0.5):
                mine = replace(candidate, begun=now)
                beside_s = sum(_whole(each) for each in begun if each.done is None)
                writes[job_id] = replace(
                    mine, latest=max(mine.latest, now + timedelta(seconds=beside_s + mine.seconds))
                )
                waiting.remove(job_id)
        room = 1.0
        for job_id in preferred:
            write = writes[job_id]
            if write.begun is not None and write.done is None:
                rate = min(room, _whole(write) / write.seconds)
                room -= rate
                left[job_id] -= rate
                if left[job_id] <= 1e-9:
                    writes[job_id] = replace(write, done=now + timedelta(seconds=1))
                    # it may have been complete within this second
                    assert now <= write.latest
        now += timedelta(seconds=1)


def _whole(write: CheckpointWrite) -> float:
    return write.seconds if write.file_system_s is None else write.file_system_s
