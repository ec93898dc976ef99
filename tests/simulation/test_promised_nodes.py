"""Promised nodes on a simulated cluster: every branch from the request to the end of a promise."""

from collections.abc import Callable

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.drains import now
from tests.simulation.promised import promise
from tests.simulation.world import SAVES, World, config

PROMISES = {"hold": "300s", "spare": "10s"}


def test_room_is_made_in_time_and_only_what_is_in_the_way_leaves(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    ending = world.submit(Program(work_s=9_000), on=("n1",), ran_s=100, time_limit_s=400)
    saved = world.submit(Program(save_s=3, work_s=5_000), on=("n2",), ran_s=900, comment=SAVES, time_limit_s=9_000)
    deaf = [world.submit(Program(work_s=9_000), on=(f"n{number}",), ran_s=900) for number in range(3, 9)]
    promised = promise(world, 2, 600)
    assert promised.state is EvictionState.SCHEDULED
    world.run_until(
        lambda: world.clock.now() >= promised.created_at + (promised.order.at - promised.created_at) / 2.1, 600, 5
    )
    assert not world.cluster.reservations
    world.run_until(lambda: bool(world.cluster.reservations), 100, 1)
    (held,) = world.cluster.reservations.values()
    assert held.nodes == ("n1", "n2")
    assert (held.start_time, held.end_time) == (promised.order.at, promised.order.until)
    assert held.users == ("beam",)
    long_one = world.submit(Program(work_s=60), time_limit_s=1_000)
    short_one = world.submit(Program(work_s=60), time_limit_s=100)
    world.run_until(lambda: world.state(ending) is JobState.ENDED, 100, 1)
    world.run_until(lambda: world.started(short_one) is not None, 10)
    assert world.cluster.jobs[short_one].job.nodes == ("n1",)
    assert world.started(long_one) is None
    assert world.cluster.jobs[saved].asked_at is None
    mine = world.submit(Program(work_s=100), num_nodes=2, user="beam", reservation=held.name, time_limit_s=500)
    world.run_until(lambda: now(world, promised).started_at is not None, 300, 1)
    kept = now(world, promised)
    assert kept.outcome_code is OutcomeCode.KEPT
    (p,) = kept.preemptions
    assert (p.job_id, p.action) == (saved, Action.APP_CHECKPOINT)
    assert p.asked_at is not None
    assert 3 + 6 + 10 <= (promised.order.at - p.asked_at).total_seconds() <= 3 + 6 + 10 + 6  # late, and in time
    world.run_until(lambda: world.started(mine) is not None, 10)
    assert world.cluster.jobs[mine].job.nodes == ("n1", "n2")
    assert world.started(long_one) is None
    world.run_until(lambda: now(world, promised).state is not EvictionState.STARTED, 700, 5)
    world.run_until(world.settled, 200, 1)
    assert now(world, promised).state is EvictionState.COMPLETED
    assert not world.leftovers()
    assert world.started(long_one) is not None
    assert all(world.cluster.jobs[job_id].job.restart_count == 0 for job_id in deaf)
    assert now(world, promised).preemptions[0].state is PreemptionState.RETURNED
