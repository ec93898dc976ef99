"""An urgent job that no plan serves in time, in the daemon and in a replay: nodes are freed for it all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean

import pytest

from clearway.model.cluster import JobState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from clearway_lab.schedulers.clearway import MAX_KILL_LOSS_S, Clearway
from clearway_lab.schedulers.realtime import WeightedCost
from clearway_lab.simulator.checkpoint_models import MIRA, CheckpointModel, JustInTime, NoCheckpoints
from clearway_lab.simulator.cluster_view import INSTRUMENT, URGENT
from clearway_lab.simulator.engine import Outcome, Scheduler, replay
from clearway_lab.studies.realtime import bounded_slowdown
from clearway_lab.traces.trace import Names, TraceJob
from tests.simulation.world import SAVES, World, config

BEAM = Names(user="beam", account=INSTRUMENT, partition=URGENT, qos="", job_name="")
IMAGE_S = 512  # of a job on Mira
BLOCKS = 8


def instrument(max_late: str) -> dict[str, object]:
    return {
        "candidates": {"allow_kill": False, "min_runtime": 0},
        "preemptors": [{"name": "instrument", "partition": ["urgent"], "max_delay": "5s", "max_late": max_late}],
    }


@pytest.mark.fault(
    "Urgent jobs of minutes were left to wait for hours, as no checkpoint could be in time.",
    found_by="recorded workloads",
)
def test_the_daemon_frees_nodes_after_the_deadline_where_the_rule_allows_it(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(**instrument("2m")))
    saver = world.submit(
        Program(save_s=40.0), on=tuple(f"n{n}" for n in range(1, 9)), num_nodes=8, ran_s=900, comment=SAVES + ",took=40"
    )
    urgent, submitted = world.urgent(1), world.clock.now()
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    started = world.started(urgent)
    assert started is not None
    assert 40 <= (started - submitted).total_seconds() <= 120
    eviction = world.eviction()
    assert [p.action for p in eviction.preemptions] == [Action.APP_CHECKPOINT]
    assert eviction.late, "what was promised to its user was not kept"
    assert "no plan keeps the deadline" in eviction.plan.note
    world.run_until(world.settled, limit_s=1_200, every_s=5)
    assert world.cluster.jobs[saver].lost_s == pytest.approx(0.0, abs=1.0)
    assert not world.leftovers()


def test_the_daemon_leaves_it_to_slurm_where_the_rule_does_not(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(**instrument("0s")))
    world.submit(
        Program(save_s=40.0), on=tuple(f"n{n}" for n in range(1, 9)), num_nodes=8, ran_s=900, comment=SAVES + ",took=40"
    )
    urgent = world.urgent(1)
    for _ in range(60):
        world.tick(2)
    assert world.state(urgent) is JobState.PENDING
    assert not world.store.evictions()


def burst(*, young: bool) -> tuple[TraceJob, ...]:
    """Long jobs hold the machine; four analyses of three minutes come together, then four more."""
    submit_s = 20_000 - (MAX_KILL_LOSS_S // 2 if young else 15_000)
    jobs = [TraceJob(n, submit_s, 40_000, 2, requested_s=50_000) for n in range(1, 5)]
    jobs += [TraceJob(n, 20_100, 900, 1, requested_s=1_800) for n in range(5, 9)]
    for n in range(8):
        jobs.append(TraceJob(10 + n, 20_000 + 9_000 * (n // 4), 180, 1, requested_s=300, urgent=True, names=BEAM))
    return tuple(jobs)


def slowdowns(scheduler: Scheduler, model: CheckpointModel, jobs: tuple[TraceJob, ...]) -> tuple[float, float]:
    """Mean bounded slowdowns of the urgent and of the other jobs."""
    done: tuple[Outcome, ...] = replay([model.lengthened(job) for job in jobs], BLOCKS, scheduler).outcomes
    return (
        mean(bounded_slowdown(each) for each in done if each.job.urgent),
        mean(bounded_slowdown(each) for each in done if not each.job.urgent),
    )


@pytest.mark.parametrize("young", [False, True])
def test_a_burst_is_served_better_than_by_weighted_cost(young: bool) -> None:
    jobs = burst(young=young)
    urgent, batch = slowdowns(Clearway(JustInTime(MIRA), storage=MIRA, order="wfp"), JustInTime(MIRA), jobs)
    for model in (JustInTime(MIRA), NoCheckpoints()):
        theirs = slowdowns(WeightedCost(model, unit_nodes=MIRA.unit_nodes), model, jobs)
        assert urgent < theirs[0]
        assert batch < theirs[1]
    saved = 1 + IMAGE_S / 600
    # Those that come while the others have just begun start at once.
    assert urgent == pytest.approx(mean((1, saved)) if young else saved)


def test_jobs_that_are_no_instruments_are_served_in_time_or_left_to_wait() -> None:
    jobs = [replace(job, names=None) for job in burst(young=True)]
    done = replay(jobs, BLOCKS, Clearway(JustInTime(MIRA), storage=MIRA, order="wfp")).outcomes
    assert not any(each.preemptions for each in done)
