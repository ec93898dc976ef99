"""Nodes that are free at a promised time: worked figures on a small machine, and the report."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from clearway_lab.errors import SimulationError, TraceError
from clearway_lab.schedulers.easy import Easy
from clearway_lab.schedulers.promised import Leaving, Promised
from clearway_lab.simulator.checkpoint_models import Storage
from clearway_lab.simulator.engine import Outcome, replay
from clearway_lab.studies import promises as promise_study
from clearway_lab.studies.promises import PROMISE, REACTING, RESERVATION, WAYS, PromiseStudy, Workload, found
from clearway_lab.traces.trace import TraceJob

STORAGE = Storage(unit_nodes=1, node_gib=10, nodes_per_io_node=1, io_node_gib_s=1, file_system_gib_s=1)  # 10 s a node
AT_S = 1_000
NODES = 4


def job(job_id: int, size: int, run_s: int, submit_s: int = 0, limit_s: int = 0) -> TraceJob:
    return TraceJob(job_id=job_id, submit_s=submit_s, run_s=run_s, size=size, requested_s=limit_s or run_s)


PROMISED = TraceJob(99, AT_S, 100, 2, 100, urgent=True)


def played(jobs: list[TraceJob], leaving: Leaving, hold_s: int) -> dict[int, Outcome]:
    scheduler = Promised([PROMISED], hold_s=hold_s, leaving=leaving, storage=STORAGE)
    return {each.job.job_id: each for each in replay([*jobs, PROMISED], NODES, scheduler).outcomes}


def test_no_job_starts_that_would_have_to_leave_but_shorter_ones_and_those_beside_do() -> None:
    jobs = [job(1, 2, 2_000), job(2, 2, 700, 500), job(3, 2, 400, 510), job(4, 1, 200, 910)]
    seen = played(jobs, Leaving.SAVE_IN_TIME, 600)
    assert seen[99].start_s == AT_S
    assert seen[3].start_s == 510, "it ends in time"
    assert seen[2].start_s == 1_100, "it waits until the promise is over"
    assert seen[4].start_s > AT_S, "only two nodes are not promised, and job 1 has them"
    assert not any(each.preemptions for each in seen.values())
    beside = played([job(1, 1, 2_000), job(2, 1, 700, 500)], Leaving.SAVE_IN_TIME, 600)
    assert beside[2].start_s == 500, "the other two nodes are not promised"


def test_jobs_in_the_way_are_saved_as_late_as_possible() -> None:
    seen = played([job(1, 4, 5_000)], Leaving.SAVE_IN_TIME, 600)
    assert seen[99].start_s == AT_S
    assert seen[1].lost_s == 0
    assert seen[1].preemptions == 1
    # It is asked 50 s before: 40 s for its image, and 10 s for that of the last node. It reads for 40 s.
    assert seen[1].overhead_s == 40 + 40
    assert seen[1].end_s == AT_S + 100 + 40 + 5_000 - (AT_S - 50)


def test_a_job_that_ends_in_time_is_let_end_although_another_would_lose_nothing_either() -> None:
    seen = played([job(1, 2, 990), job(2, 2, 5_000)], Leaving.SAVE_IN_TIME, 600)
    assert seen[99].start_s == AT_S
    assert not seen[1].preemptions
    assert not seen[2].preemptions


def test_a_job_that_ends_before_its_limit_while_there_is_time_spares_the_others() -> None:
    seen = played([job(1, 2, 940, limit_s=3_000), job(2, 2, 5_000)], Leaving.SAVE_IN_TIME, 600)
    assert seen[99].start_s == AT_S
    assert not any(each.preemptions for each in seen.values())


def test_of_jobs_that_cannot_be_saved_those_leave_that_lose_least() -> None:
    seen = played([job(1, 2, 5_000), job(2, 2, 5_000, 300)], Leaving.REQUEUE, 600)
    assert seen[99].start_s == AT_S
    assert (seen[1].lost_s, seen[2].lost_s) == (0, 700)


def test_reacting_by_saving_is_late_and_a_reservation_waits() -> None:
    assert played([job(1, 4, 5_000)], Leaving.SAVE_THEN, 0)[99].start_s == AT_S + 40
    assert played([job(1, 4, 5_000)], Leaving.STAY, 600)[99].start_s == 5_000
    seen = played([job(1, 4, 600), job(2, 4, 2_000, 10)], Leaving.STAY, 1_000)
    assert seen[99].start_s == AT_S
    assert seen[2].start_s == 1_100


def test_what_stands_in_the_way_unforeseen_is_saved_after_the_promised_time() -> None:
    """Nothing is held, so a job starts while another is being saved."""
    seen = played([job(1, 4, 5_000), job(2, 4, 3_000, 100)], Leaving.SAVE_IN_TIME, 0)
    assert seen[99].start_s > AT_S
    assert seen[99].start_s <= AT_S + 100


@pytest.mark.parametrize("leaving", list(Leaving))
def test_without_a_promise_it_is_easy(leaving: Leaving) -> None:
    jobs = [job(n, 1 + n * 7 % 4, 50 + n * 31 % 200, n * 20, 300 + n % 3 * 100) for n in range(1, 80)]
    plain = replay(jobs, NODES, Easy()).outcomes
    assert replay(jobs, NODES, Promised([], hold_s=600, leaving=leaving, storage=STORAGE)).outcomes == plain


def test_held_nodes_are_scheduled_as_by_easy_where_the_promise_takes_nothing() -> None:
    """A promise of no length stands for the long way through the plan of free nodes."""
    jobs = [job(n, 1 + n * 7 % 4, 50 + n * 31 % 200, n * 20) for n in range(1, 60)]
    last = TraceJob(99, 100_000, 1, 1, 1, urgent=True)
    around = Promised([last], hold_s=100_000, leaving=Leaving.STAY, storage=STORAGE)
    starts = [each.start_s for each in replay([*jobs, last], NODES, around).outcomes if not each.job.urgent]
    assert starts == [each.start_s for each in replay(jobs, NODES, Easy()).outcomes]


SMALL = Workload("small", "small.swf", NODES, STORAGE, every_s=86_400)


def busy() -> list[TraceJob]:
    """Three days on which the four nodes are never free for long."""
    return [job(n, 1 + n * 7 % 3, 3_000 + n * 131 % 9_000, n * 2_400, 14_400) for n in range(1, 160)]


def test_the_study_compares_all_ways_with_the_same_promises() -> None:
    samples = [sample for seed in (0, 1) for sample in promise_study.compared(busy(), SMALL, seed)]
    study = PromiseStudy(tuple(samples), 2, ())
    reacting, promise = study.mean("small", REACTING), study.mean("small", PROMISE)
    assert reacting.promises == promise.promises > 0
    assert reacting.in_time == reacting.promises
    assert promise.in_time == promise.promises
    assert reacting.lost_node_h > 0 == promise.lost_node_h
    assert study.mean("small", RESERVATION).preemptions == 0
    table = promise_study.table(study)
    assert [row[:2] for row in table] == [("small", way.name) for way in WAYS]
    rows = list(csv.DictReader(io.StringIO(promise_study.as_csv(study))))
    assert len(rows) == 2 * len(WAYS)
    page = promise_study.as_html(study)
    HTMLParser().feed(page)
    assert not re.search(r"(src|href)=|@import|url\(", page)
    assert "small: promised nodes are free in time in 100.0% of cases" in found(study)[0]


def test_idle_nodes_are_counted_between_the_first_period_and_the_last_submission() -> None:
    jobs = [job(1, 4, 3_600), job(2, 4, 3_600, 100_000)]
    promises = [TraceJob(9, 50_000, 3_600, 1, 3_600, urgent=True)]
    course = promise_study.course(jobs, promises, SMALL, REACTING, 0)
    assert course.idle_node_h == pytest.approx((4 * (100_000 - 3_600) - 3_600) / 3_600)
    assert course.capacity_node_h == pytest.approx(4 * 100_000 / 3_600)
    later = promise_study.course(jobs, promises, SMALL, REACTING, 40_000)
    assert later.idle_node_h == pytest.approx((4 * 60_000 - 3_600) / 3_600)


def test_what_is_too_short_or_absent_is_said(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="shorter than 86400 s"):
        promise_study.compared([job(1, 1, 10), job(2, 1, 10, 10)], SMALL, 0)
    with pytest.raises(TraceError, match="none of "):
        promise_study.study(tmp_path, 1, lambda *_: [])
