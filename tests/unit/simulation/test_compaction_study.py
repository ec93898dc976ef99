"""Shared nodes with moved jobs: the replay, the Slurm+DMTCP paper's days and their targets, the report."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.model.orders import JobMove
from clearway.relocation.moves import Host, Limits, MovePlan, Resident, plan_compaction, plan_promotion
from clearway_lab.simulator.shared_nodes import STILL, Moving, Planning, SharedReplay, SubmittedJob, replay_shared
from clearway_lab.studies.compaction import (
    COMPACTION,
    LOADS,
    MEAN_RUN_H,
    NODES,
    NONE,
    PAPER_PARTLY,
    PAPER_PROMOTION,
    PROMOTION,
    PROMOTION_LOADS,
    CompactionStudy,
    day,
    move_s,
    random_jobs,
)

SEEDS = 4
PAIR = (Host("n0", 4), Host("n1", 4))


def spent(course: SharedReplay) -> list[tuple[float, float, float]]:
    return [(usage.empty_s, usage.partly_s, usage.full_s) for usage in course.usage.values()]


def test_jobs_are_placed_where_least_is_left_over_and_wait_in_their_order() -> None:
    requests = [
        SubmittedJob("1", 0, 2, 100),  # n0
        SubmittedJob("2", 10, 2, 40),  # n0 again, though n1 is empty
        SubmittedJob("3", 20, 6, 50),  # waits until both nodes have six together, at 50: all of n1, two of n0
        SubmittedJob("4", 30, 1, 10),  # could start at once, but overtakes nobody
    ]
    course = replay_shared(requests, [PAIR], 200)
    assert course.waited_s == (0, 0, 30, 70)
    assert course.finished == 4
    assert spent(course) == [(90, 20, 90), (150, 0, 50)]
    assert course.usage["n0"].held_processor_s == 200 + 80 + 100 + 10


def test_a_job_tries_the_first_partition_first() -> None:
    requests = [SubmittedJob("1", 0, 4, 100), SubmittedJob("2", 0, 2, 100)]
    course = replay_shared(requests, [PAIR[1:], PAIR[:1]], 100)
    assert spent(course) == [(0, 0, 100), (0, 100, 0)]  # in the order of the partitions: n1, n0


def always(*moves: JobMove) -> Planning:
    """A planning whose every plan is this, for as long as its jobs are where it says."""

    def plan(_: Sequence[Host], residents: Sequence[Resident], limits: Limits) -> MovePlan:
        there = {(job.job_id, part.node) for job in residents for part in job.parts}
        return MovePlan(moves) if all((m.job_id, m.source) in there for m in moves) and limits.jobs else MovePlan()

    return plan


def test_a_moved_job_stands_still_holds_both_places_and_ends_later() -> None:
    moving = Moving(always(JobMove("1", "n0", "n1", 2)), lambda _: 30, lambda true_s: true_s, period_s=50)
    course = replay_shared([SubmittedJob("1", 0, 2, 100)], [PAIR], 200, moving)
    assert (course.moved_jobs, course.stalled_processor_s, course.finished) == (1, 60, 1)
    # On n0 from 0 to 80, on n1 from 50 to its end at 130.
    assert spent(course) == [(120, 80, 0), (120, 80, 0)]


def test_jobs_are_moved_one_after_another_and_not_those_that_end_before_their_turn() -> None:
    plan = always(JobMove("1", "n0", "n1", 1), JobMove("2", "n0", "n1", 1))
    moving = Moving(plan, lambda _: 30, lambda true_s: true_s, period_s=50)
    requests = [SubmittedJob("1", 0, 1, 100), SubmittedJob("2", 0, 1, 70)]
    course = replay_shared(requests, [PAIR], 200, moving)
    # The second ends at 70, its turn would come at 80.
    assert course.moved_jobs == 1
    assert spent(course) == [(120, 80, 0), (120, 80, 0)]
    later = replay_shared([requests[0], SubmittedJob("2", 0, 1, 90)], [PAIR], 200, moving)
    assert later.moved_jobs == 2
    assert later.usage["n0"].partly_s == 110
    assert later.usage["n1"].partly_s == 80


def test_nothing_is_moved_while_somebody_waits_or_beyond_the_limit_of_an_hour() -> None:
    plan = always(JobMove("1", "n0", "n1", 1))
    crowd = [SubmittedJob("1", 0, 1, 500), SubmittedJob("2", 0, 8, 10)]
    assert replay_shared(crowd, [PAIR], 200, Moving(plan, lambda _: 1, lambda true_s: true_s)).moved_jobs == 0

    def there_and_back(_: Sequence[Host], residents: Sequence[Resident], limits: Limits) -> MovePlan:
        node = min(residents[0].nodes)
        return MovePlan((JobMove("1", node, "n1" if node == "n0" else "n0", 1),) if limits.jobs else ())

    moving = Moving(there_and_back, lambda _: 1, lambda true_s: true_s, period_s=10, jobs_per_hour=5)
    assert replay_shared([SubmittedJob("1", 0, 1, 9_000)], [PAIR], 3_500, moving).moved_jobs == 5
    assert replay_shared([SubmittedJob("1", 0, 1, 9_000)], [PAIR], 7_100, moving).moved_jobs == 10


@pytest.mark.parametrize("plan", [plan_compaction, plan_promotion], ids=["compaction", "promotion"])
def test_no_work_is_lost(plan: Planning) -> None:
    """What the nodes gave is what the jobs asked for, what stood still, and places kept for those on their way."""
    moved = 0
    for seed in range(10):
        rng = random.Random(seed)
        requests = [
            SubmittedJob(str(number), rng.uniform(0, 50_000), rng.randint(1, 6), rng.uniform(10, 9_000))
            for number in range(50)
        ]
        hosts = [Host(f"n{number}", rng.randint(3, 8), rank=number % 3) for number in range(6)]
        work = sum(request.processors * request.run_s for request in requests)
        still, course = (
            replay_shared(requests, [hosts], 100_000, moving)
            for moving in (STILL, Moving(plan, move_s, lambda true_s: true_s))
        )
        moved += course.moved_jobs
        held = []
        for each in (still, course):
            assert each.finished == len(requests)
            assert all(usage.total_s == pytest.approx(100_000) for usage in each.usage.values())
            held.append(sum(usage.held_processor_s for usage in each.usage.values()))
        assert held[0] == pytest.approx(work)
        assert held[1] >= work + course.stalled_processor_s - 1e-3
    assert moved > 0


def test_the_day_has_the_load_that_it_is_to_have() -> None:
    for load in LOADS:
        jobs = random_jobs(load, 3_600, seed=1)
        work = sum(job.processors * job.run_s for job in jobs)
        last = max(job.processors * job.run_s for job in jobs)
        wanted = load / 100 * 8 * 16 * 86_400
        assert wanted <= work < wanted + last
        assert all(1 <= job.processors <= 128 for job in jobs)
    assert jobs == random_jobs(90, 3_600, seed=1) != random_jobs(90, 3_600, seed=2)
    many = [job for seed in range(20) for job in random_jobs(90, 3_600, seed)]
    assert sum(job.processors for job in many) / len(many) == pytest.approx(4, rel=0.05)
    assert sum(job.run_s for job in many) / len(many) == pytest.approx(3_600, rel=0.05)


def test_a_move_takes_what_the_paper_measured() -> None:
    assert [move_s(count) for count in (1, 3, 16, 128, 200)] == [89, 106, 202, 608, 608]


@pytest.fixture(scope="module")
def days() -> CompactionStudy:
    """The cells that the targets are about."""
    cells = [
        day(1, moves, load, MEAN_RUN_H, seed) for load in LOADS for moves in (NONE, COMPACTION) for seed in range(SEEDS)
    ]
    cells += [
        day(2, moves, load, MEAN_RUN_H, seed)
        for load in PROMOTION_LOADS
        for moves in (NONE, PROMOTION)
        for seed in range(SEEDS)
    ]
    return CompactionStudy(tuple(cells), SEEDS)


@pytest.mark.parametrize("load", LOADS)
def test_partly_used_nodes_fall_at_least_as_much_as_the_papers(days: CompactionStudy, load: int) -> None:
    before, after = PAPER_PARTLY[load]
    ours = days.shares(1, NONE, load)[1]
    assert days.fall(load) >= before - after  # percentage points
    assert days.fall(load) / ours >= (before - after) / before  # and as a share
    for still, moved in zip(days.of(1, NONE, load), days.of(1, COMPACTION, load), strict=True):
        assert moved.shares["all"][1] < still.shares["all"][1]


@pytest.mark.parametrize("load", LOADS)
def test_compaction_gives_back_ten_times_what_it_costs(days: CompactionStudy, load: int) -> None:
    more_empty = days.shares(1, COMPACTION, load)[0] - days.shares(1, NONE, load)[0]
    cost_node_h = mean(cell.stalled_node_h for cell in days.of(1, COMPACTION, load))
    assert mean(cell.moved for cell in days.of(1, COMPACTION, load)) > 0
    assert more_empty / 100 * NODES * 24 > 10 * cost_node_h > 0
    finished = [mean(cell.finished for cell in days.of(1, moves, load)) for moves in (NONE, COMPACTION)]
    assert finished[1] >= 0.98 * finished[0]


@pytest.mark.parametrize("load", PROMOTION_LOADS)
def test_better_nodes_are_full_for_longer_by_at_least_what_the_paper_gained(days: CompactionStudy, load: int) -> None:
    paper_before, paper_after = PAPER_PROMOTION[load, "high"]
    before, after = (days.shares(2, moves, load, "high") for moves in (NONE, PROMOTION))
    assert after[2] - before[2] >= max(0, paper_after[2] - paper_before[2])
    assert after[1] < before[1]
    # The lesser nodes are empty for longer.
    assert days.shares(2, PROMOTION, load, "low")[0] > days.shares(2, NONE, load, "low")[0]


def test_shares_are_of_the_whole(days: CompactionStudy) -> None:
    assert days.cells
    for cell in days.cells:
        assert all(sum(shares) == pytest.approx(100) for shares in cell.shares.values())
        assert cell.held < 100
        assert (cell.moved > 0) == (cell.moves != NONE) == (cell.stalled_node_h > 0)


def test_the_command_writes_a_report_that_needs_nothing_else(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["lab", "experiment", "compaction", "--out", str(tmp_path / "out"), "--seeds", "1"]
    )
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out/report.html").read_text()
    assert "On a cluster <code>clearway compact</code> and <code>clearway promote</code> plan by the same rule" in page
    assert page.index("the left bar of each pair") < page.index("<svg"), "the figure is explained before it comes"
    assert "53.5 to 41.7 %" in page
    assert "http" not in page
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out/compaction.csv").read_text())))
    assert len(rows) == 3 * 4 * 2 + 2 * 2 * 3
    assert {row["moves"] for row in rows} == {NONE, COMPACTION, PROMOTION}
