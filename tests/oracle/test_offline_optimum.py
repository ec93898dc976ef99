"""The offline optimum of the WCJS paper: valid schedules, and as good as those of an independent solver."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from clearway_lab.studies.offline_optimum import (
    LEAST_SHARE,
    OfflineJob,
    OfflineOptimum,
    Part,
    mean_slowdown,
    offline_optimum,
)

cp_model = pytest.importorskip("ortools.sat.python.cp_model")

WEIGHT = 120


def random_jobs(seed: int, *, batch: int, urgent: int, sizes: tuple[int, ...]) -> list[OfflineJob]:
    """Run times divide 120, so that slowdowns are whole numbers of 120ths for CP-SAT."""
    draw = random.Random(seed)
    return [
        OfflineJob(
            job_id=number,
            blocks=draw.choice(sizes),
            submit_s=10 * draw.randrange(12),
            run_s=draw.choice((20, 30, 40, 60, 120)),
            urgent=number > batch,
            overhead_s=draw.choice((0, 1, 5)),
        )
        for number in range(1, batch + urgent + 1)
    ]


def check(jobs: list[OfflineJob], blocks: int, found: OfflineOptimum) -> None:
    """What the paper demands of a schedule, looked at part by part."""
    by_id = {job.job_id: job for job in jobs}
    assert found.bound <= found.batch_slowdown + 1e-6
    for job in jobs:
        mine = [part for part in found.parts if part.job_id == job.job_id]
        assert 1 <= len(mine) <= (1 if job.urgent else 2)
        assert len({part.first_block for part in mine}) == 1
        assert mine[0].first_block % job.blocks == 0
        assert mine[0].first_block + job.blocks <= blocks
        assert mine[0].start_s >= job.submit_s - 1e-4
        overhead = job.overhead_s if len(mine) == 2 else 0.0
        works = [part.end_s - part.start_s - overhead for part in mine]
        assert sum(works) == pytest.approx(job.run_s, abs=1e-3)
        assert min(works) >= LEAST_SHARE * job.run_s - 1e-3
        assert all(one.end_s <= other.start_s + 1e-3 for one, other in combinations(mine, 2))
    for one, other in combinations(found.parts, 2):
        if one.job_id != other.job_id and overlap(one, by_id[one.job_id].blocks, other, by_id[other.job_id].blocks):
            assert one.end_s <= other.start_s + 1e-3 or other.end_s <= one.start_s + 1e-3
    ends = {part.job_id: part.end_s for part in found.parts}
    assert found.batch_slowdown == pytest.approx(mean_slowdown(jobs, ends, urgent=False))
    assert found.urgent_slowdown == pytest.approx(mean_slowdown(jobs, ends, urgent=True))
    assert found.urgent_slowdown <= found.threshold + 1e-6


def overlap(one: Part, its_blocks: int, other: Part, other_blocks: int) -> bool:
    return one.first_block < other.first_block + other_blocks and other.first_block < one.first_block + its_blocks


def by_cp_sat(jobs: list[OfflineJob], blocks: int, threshold: float) -> float | None:
    """The same question as rectangles that must not overlap, in whole seconds; None where there is no schedule."""
    model = cp_model.CpModel()
    horizon = int(max(job.submit_s for job in jobs) + sum(job.run_s + 2 * job.overhead_s for job in jobs))
    times, places, ends = [], [], {}
    for job in jobs:
        place = model.new_int_var(0, blocks // job.blocks - 1, "")
        first_block = model.new_int_var(0, blocks - job.blocks, "")
        model.add(first_block == place * job.blocks)
        interrupted = model.new_bool_var("")
        early = model.new_int_var(0, int(job.run_s), "")
        run, overhead = int(job.run_s), int(job.overhead_s)
        if job.urgent:
            model.add(interrupted == 0)
        model.add(early == run).only_enforce_if(~interrupted)
        model.add(10 * early >= run).only_enforce_if(interrupted)
        model.add(10 * early <= 9 * run).only_enforce_if(interrupted)
        before = int(job.submit_s)
        for number, work in enumerate((early, run - early)):
            start = model.new_int_var(int(job.submit_s), horizon, "")
            end = model.new_int_var(0, horizon, "")
            length = model.new_int_var(0, run + overhead, "")
            model.add(length == work + overhead * interrupted)
            there = interrupted if number else model.new_constant(1)
            times.append(model.new_optional_interval_var(start, length, end, there, ""))
            places.append(
                model.new_optional_interval_var(first_block, job.blocks, model.new_int_var(0, blocks, ""), there, "")
            )
            model.add(start >= before)
            before = end
            if number:
                model.add(end == ends[job.job_id]).only_enforce_if(~interrupted)
                last = model.new_int_var(0, horizon, "")
                model.add(last == end).only_enforce_if(interrupted)
                model.add(last == ends[job.job_id]).only_enforce_if(~interrupted)
                ends[job.job_id] = last
            else:
                ends[job.job_id] = end
    model.add_no_overlap_2d(times, places)
    urgent = [job for job in jobs if job.urgent]
    batch = [job for job in jobs if not job.urgent]
    weights = {job.job_id: WEIGHT // int(job.run_s) for job in jobs}  # all run times divide it
    waits = {job.job_id: weights[job.job_id] * (ends[job.job_id] - int(job.submit_s)) for job in jobs}
    model.add(sum(waits[job.job_id] for job in urgent) <= round(threshold * WEIGHT * len(urgent)))
    model.minimize(sum(waits[job.job_id] for job in batch))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    return float(solver.objective_value) / WEIGHT / len(batch)


@pytest.mark.parametrize("seed", range(8))
def test_schedules_of_the_papers_size_keep_every_constraint(seed: int) -> None:
    jobs = random_jobs(seed, batch=5, urgent=2, sizes=(1, 2, 4, 8, 16))
    found = offline_optimum(jobs, 16, time_limit_s=3) or offline_optimum(jobs, 16)  # a busy machine needs longer
    assert found is not None
    check(jobs, 16, found)


@pytest.mark.parametrize("seed", range(24))
def test_no_schedule_is_better_says_an_independent_solver(seed: int) -> None:
    jobs = random_jobs(seed, batch=3, urgent=1, sizes=(1, 2, 4))
    found = offline_optimum(jobs, 4, threshold=1.1)
    assert found is not None
    check(jobs, 4, found)
    assert found.batch_slowdown == pytest.approx(found.bound, abs=1e-4)
    theirs = by_cp_sat(jobs, 4, found.threshold)
    assert theirs is not None
    assert found.batch_slowdown <= theirs + 1e-6
    assert theirs <= found.batch_slowdown + 0.05  # CP-SAT interrupts at whole seconds only
    if found.threshold > 1.1:
        assert by_cp_sat(jobs, 4, found.threshold - 0.1) is None


def test_a_short_urgent_job_interrupts_a_long_one() -> None:
    jobs = [
        OfflineJob(1, blocks=4, submit_s=0, run_s=1_000, urgent=False, overhead_s=5),
        OfflineJob(2, blocks=1, submit_s=500, run_s=100, urgent=True),
    ]
    found = offline_optimum(jobs, 4, threshold=1.0)
    assert found is not None
    assert [part.job_id for part in found.parts] == [1, 2, 1]
    assert found.batch_slowdown == pytest.approx((1_000 + 100 + 5 + 5) / 1_000)


def test_a_threshold_that_cannot_be_kept_is_loosened() -> None:
    together = [OfflineJob(number, blocks=2, submit_s=0, run_s=100, urgent=True) for number in (1, 2)]
    found = offline_optimum(together, 2, threshold=1.2)
    assert found is not None
    assert (found.threshold, found.urgent_slowdown) == (1.5, 1.5)
    assert offline_optimum(together, 2, threshold=1.2, loosest=1.4) is None


def test_a_job_larger_than_the_machine_is_named() -> None:
    with pytest.raises(ValueError, match="job 7 needs 8 blocks, the machine has 4"):
        offline_optimum([OfflineJob(7, blocks=8, submit_s=0, run_s=1, urgent=False)], 4)
    with pytest.raises(ValueError, match="job 7: 3 blocks"):
        OfflineJob(7, blocks=3, submit_s=0, run_s=1, urgent=False)
