"""The WCJS paper's schedulers and checkpoint models in a replay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from clearway_lab.schedulers.clearway import Clearway, site_with_short_jobs
from clearway_lab.schedulers.easy import Easy
from clearway_lab.schedulers.realtime import MAX_AGE_S, HighPriority, WeightedCost, Wfp
from clearway_lab.simulator.checkpoint_models import (
    ApplicationCheckpoints,
    CheckpointModel,
    JustInTime,
    NoCheckpoints,
    Storage,
    SystemCheckpoints,
)
from clearway_lab.simulator.cluster_view import BATCH, SHORT, URGENT, names_of
from clearway_lab.simulator.engine import Scheduler, replay
from clearway_lab.traces.trace import TraceJob
from tests.oracle import slow_realtime
from tests.simulation.test_schedulers import NODES, conserved, job, workloads


def seconds(transfer_s: int) -> Storage:
    """A file system that takes so long for every image."""
    return Storage(unit_nodes=1, node_gib=transfer_s, nodes_per_io_node=1, io_node_gib_s=1, file_system_gib_s=1e9)


@pytest.mark.parametrize(
    ("rule", "scheduler"),
    [
        ("wfp", Wfp),
        ("high-priority", HighPriority),
        ("weighted-cost", lambda: WeightedCost(JustInTime(seconds(2)), unit_nodes=1)),
    ],
)
@settings(max_examples=300, deadline=None)
@given(jobs=workloads(most_urgent=4))
def test_jobs_start_and_end_when_the_slow_rule_says(
    rule: str, scheduler: type[Scheduler], jobs: tuple[TraceJob, ...]
) -> None:
    done = replay(jobs, NODES, scheduler(), observe=conserved)
    assert {o.job.job_id: (o.start_s, o.end_s) for o in done.outcomes} == slow_realtime.replayed(jobs, NODES, rule, 2)


def test_transfer_times_are_those_of_equation_34() -> None:
    mira = Storage()
    assert mira.transfer_s(1) == mira.transfer_s(13) == 16 * 128 / 4
    assert mira.transfer_s(96) == 3_641  # 16 GiB x 49,152 nodes at 216 GiB/s


def test_the_papers_example_of_application_checkpoints() -> None:
    """A limit of 120 minutes, 5 minutes a checkpoint, 10 %: two of them, one each 40 minutes (section 7.1.4)."""
    model = ApplicationCheckpoints(10, seconds(300))
    given_job = job(1, 0, 7_200, 1)
    assert model.interval_s(given_job) == 2_400
    whole = model.lengthened(TraceJob(1, 0, 5_000, 1, requested_s=7_200))
    assert whole.run_s == 5_000 + 2 * 300


class PreemptsAt(Easy):
    def __init__(self, model: CheckpointModel, at_s: int) -> None:
        super().__init__()
        self.model = model
        self.at_s = at_s
        self.done = False

    def schedule(self) -> None:
        if self.machine.now_s == self.at_s and not self.done:
            self.done = True
            _, _, running = self.machine.running[0]
            leaves = self.model.departure(running, self.at_s)
            self.machine.preempt(running, leave_s=leaves.leave_s, saved_s=leaves.saved_s, return_s=leaves.return_s)
        super().schedule()


@pytest.mark.parametrize(
    ("model", "lost_s", "held_s"),
    [
        (NoCheckpoints(), 50, 50 + 100),
        (JustInTime(seconds(3)), 0, 50 + 3 + 3 + 50),
        # Each 20 s, but not at the end: 112 s. The second was ready at 46 s.
        (SystemCheckpoints(20, seconds(3)), 4, 50 + 3 + (112 - 46)),
        # Two in 100 s make 106 s. The first was ready after 33.3 s and 3 s.
        (ApplicationCheckpoints(6, seconds(3)), 50 - 36.333333, 50 + 3 + (106 - 36.333333)),
    ],
)
def test_what_a_preempted_job_loses(model: CheckpointModel, lost_s: float, held_s: float) -> None:
    jobs = [model.lengthened(job(1, 0, 100, 1)), job(2, 50, 1, NODES)]
    first, _ = replay(jobs, NODES, PreemptsAt(model, 50), observe=conserved).outcomes
    assert first.lost_s == pytest.approx(lost_s)
    assert first.job.run_s + first.lost_s + first.overhead_s == pytest.approx(held_s)


def clearway(*, saves: bool = True, within_s: float = 600) -> Clearway:
    """On nodes that write their memory in 10 s, all six at a time."""
    storage = Storage(unit_nodes=1, node_gib=10, nodes_per_io_node=1, io_node_gib_s=1, file_system_gib_s=10)
    model = JustInTime(storage) if saves else NoCheckpoints()
    return Clearway(model, storage=storage, max_delay_s=lambda _: within_s)


def test_clearway_waits_for_a_job_that_ends_in_time_and_saves_no_other() -> None:
    jobs = (job(1, 0, 200, 3), job(2, 0, 900, 3), job(3, 100, 50, 3, urgent=True))
    short, long, urgent = replay(jobs, NODES, clearway(), observe=conserved).outcomes
    assert (short.preemptions, long.preemptions) == (0, 0)
    assert urgent.start_s == short.end_s == 200


def test_clearway_saves_the_job_with_the_smaller_image_when_no_end_comes_in_time() -> None:
    jobs = (job(1, 0, 900, 4), job(2, 0, 900, 2), job(3, 100, 50, 2, urgent=True))
    large, small, urgent = replay(jobs, NODES, clearway(within_s=60), observe=conserved).outcomes
    assert (large.preemptions, small.preemptions, small.lost_s) == (0, 1, 0)
    assert urgent.start_s == 110
    assert small.end_s == 110 + 50 + 10 + 800


def test_clearway_kills_the_job_that_loses_least_where_none_can_be_saved() -> None:
    jobs = (job(1, 0, 900, 3), job(2, 50, 900, 3), job(3, 100, 50, 2, urgent=True))
    first, second, urgent = replay(jobs, NODES, clearway(saves=False, within_s=60), observe=conserved).outcomes
    assert (first.preemptions, second.preemptions, second.lost_s) == (0, 1, 50)
    assert urgent.start_s == 100


def test_nodes_of_a_plan_are_kept_from_others() -> None:
    """Job 1's nodes come free at 150; job 4, which would fit, may not have them: the urgent job waits for job 2 too."""
    jobs = (job(1, 0, 150, 3), job(2, 0, 160, 3), job(3, 100, 50, 6, urgent=True), job(4, 120, 5, 3))
    *_, urgent, waits = replay(jobs, NODES, clearway(), observe=conserved).outcomes
    assert urgent.start_s == 160
    assert waits.start_s == 210


def test_two_urgent_jobs_never_count_on_the_same_nodes() -> None:
    jobs = (job(1, 0, 900, 3), job(2, 0, 900, 3), job(3, 100, 50, 3, urgent=True), job(4, 100, 50, 3, urgent=True))
    one, other, *urgent = replay(jobs, NODES, clearway(within_s=60), observe=conserved).outcomes
    assert (one.preemptions, other.preemptions) == (1, 1)
    assert [outcome.start_s for outcome in urgent] == [110, 110]


def short(number: int, submit_s: int, run_s: int, size: int) -> TraceJob:
    batch = job(number, submit_s, run_s, size)
    return replace(batch, names=replace(names_of(batch), partition=SHORT))


def clearway_with_room_for_short_jobs() -> Clearway:
    storage = seconds(10)
    site = site_with_short_jobs(storage)
    return Clearway(JustInTime(storage), config=site, storage=storage, partitions=(BATCH, URGENT, SHORT))


def test_a_long_job_makes_room_for_a_short_one_where_a_rule_says_so() -> None:
    jobs = (job(1, 0, 9_000, NODES), short(2, 2_000, 50, 1))
    long, waits = replay(jobs, NODES, clearway(), observe=conserved).outcomes
    assert (long.preemptions, waits.start_s) == (0, 9_000)
    long, waits = replay(jobs, NODES, clearway_with_room_for_short_jobs(), observe=conserved).outcomes
    assert (long.preemptions, long.lost_s, waits.start_s) == (1, 0, 2_010)


def test_a_short_job_stays_where_an_urgent_one_comes_and_goes_behind_it_where_both_wait() -> None:
    jobs = (short(1, 0, 900, NODES), job(2, 100, 50, NODES, urgent=True), short(3, 100, 50, NODES))
    runs, urgent, waits = replay(jobs, NODES, clearway_with_room_for_short_jobs(), observe=conserved).outcomes
    assert (runs.preemptions, urgent.start_s, waits.start_s) == (0, 900, 950)


def test_small_jobs_first_and_before_them_short_ones() -> None:
    """Job 2 has waited for a week when job 1 ends, which makes up for all nodes."""
    end_s = 10 * MAX_AGE_S
    old = end_s - MAX_AGE_S
    jobs = (
        job(1, 0, end_s, NODES),
        job(2, old, 10, NODES),
        job(3, end_s - 2, 10, 4),
        job(4, end_s - 1, 10, 3),
        short(5, end_s - 1, 10, NODES),
    )
    starts = {o.job.job_id: o.start_s - end_s for o in replay(jobs, NODES, Wfp("small"), observe=conserved).outcomes}
    assert starts == {1: -end_s, 5: 0, 2: 10, 4: 20, 3: 30}
