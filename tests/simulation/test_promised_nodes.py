"""Promised nodes on a simulated cluster: every branch from the request to the end of a promise."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError
from clearway.model.operations import EvictionState, PreemptionState, Promise
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.promised import cancel, now, promise, refusal
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


def full(world: World, *but: int, **fields: Any) -> list[str]:
    """Jobs that cannot save themselves, and would lose much, on all nodes but these."""
    numbers = [number for number in range(1, 9) if number not in but]
    return [world.submit(Program(work_s=9_000), on=(f"n{n}",), ran_s=4_000, **fields) for n in numbers]


def run_to(world: World, promised: Promise, after_s: float = 0.0) -> None:
    """To the promised time, or so much later."""
    world.run_until(lambda: world.clock.now() >= promised.order.at + timedelta(seconds=after_s), 2_000, 1)
    world.tick(0)


def test_what_cannot_be_saved_is_requeued_where_that_is_allowed(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    full(world, 1)
    cheap = world.submit(Program(work_s=9_000), on=("n1",), ran_s=10)
    promised = promise(world, 1, 100)
    run_to(world, promised, 1)
    kept = now(world, promised)
    assert kept.outcome_code is OutcomeCode.KEPT
    assert {p.job_id: p.action for p in kept.preemptions} == {cheap: Action.KILL}
    assert "clearway_promises" not in kept.outcome


def test_where_no_job_may_leave_it_is_told_and_the_promise_is_not_kept(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES, candidates={"protected_users": ["alice"]}))
    jobs = full(world)
    promised = promise(world, 2, 100, duration_s=200)
    assert now(world, promised).state is EvictionState.SCHEDULED
    assert now(world, promised).outcome.startswith("No nodes are held yet: ")
    run_to(world, promised)
    assert not now(world, promised).late
    world.run_until(lambda: now(world, promised).late, 150, 1)
    run_to(world, promised, 205)
    ended = now(world, promised)
    assert (ended.state, ended.outcome_code) == (EvictionState.FAILED, OutcomeCode.NOT_KEPT)
    assert not world.leftovers()
    assert all(world.cluster.jobs[job_id].job.restart_count == 0 for job_id in jobs)


def test_a_job_that_never_answers_makes_it_late_and_the_rest_is_as_for_an_urgent_job(
    make_world: Callable[..., World],
) -> None:
    world = make_world(config=config(promises=PROMISES, candidates={"allow_kill": False}))
    full(world, 1, 2)
    silent = world.submit(Program(work_s=9_000), on=("n1",), ran_s=900, comment=SAVES)
    world.submit(Program(work_s=9_000), on=("n2",), ran_s=100, time_limit_s=500)
    promised = promise(world, 1, 200, duration_s=900)
    run_to(world, promised, 5)
    assert now(world, promised).late  # told before
    assert now(world, promised).state is EvictionState.PREEMPTING
    world.run_until(lambda: now(world, promised).started_at is not None, 600, 1)
    late = now(world, promised)
    assert late.outcome_code is OutcomeCode.KEPT_LATE
    assert late.plan.placement_nodes == ("n2",)
    assert world.cluster.jobs[silent].job.restart_count == 0
    world.run_until(lambda: now(world, promised).state.terminal, 1_500, 5)
    assert not world.leftovers()


def test_jobs_that_end_before_their_limits_leave_less_to_do(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    full(world, 1, 2)
    first = world.submit(Program(work_s=1_000, save_s=3), on=("n1",), ran_s=900, comment=SAVES, time_limit_s=9_000)
    other = world.submit(Program(work_s=5_000, save_s=3), on=("n2",), ran_s=900, comment=SAVES, time_limit_s=9_000)
    promised = promise(world, 2, 250)
    run_to(world, promised, 1)
    assert now(world, promised).outcome_code is OutcomeCode.KEPT
    assert world.state(first) is JobState.ENDED
    assert [p.job_id for p in now(world, promised).preemptions] == [other]


def test_a_node_that_is_lost_is_replaced(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    full(world, 1, 2)
    promised = promise(world, 1, 200)
    world.run_until(lambda: bool(world.cluster.reservations), 10)
    assert now(world, promised).plan.placement_nodes == ("n1",)
    world.by_hand.drain("n1", "broken")
    world.run_until(lambda: [each.nodes for each in world.cluster.reservations.values()] == [("n2",)], 10)
    run_to(world, promised, 1)
    assert now(world, promised).outcome_code is OutcomeCode.KEPT


@pytest.mark.parametrize("ahead_s", [1_000, 200, -1])
def test_a_promise_can_be_cancelled_at_any_time(make_world: Callable[..., World], ahead_s: int) -> None:
    world = make_world(config=config(promises=PROMISES))
    full(world, 1)
    saved = world.submit(Program(work_s=5_000, save_s=3), on=("n1",), ran_s=900, comment=SAVES)
    promised = promise(world, 1, 1_100)
    run_to(world, promised, -ahead_s)
    assert bool(world.cluster.reservations) is (ahead_s < 300)
    inside = None
    if ahead_s < 0:
        name = now(world, promised).placement
        inside = world.submit(Program(work_s=500), user="beam", reservation=name)
        waiting = world.submit(Program(work_s=500), user="beam", reservation=name)
        world.run_until(lambda: world.started(inside) is not None, 10)
    assert cancel(world, promised) == "cancelled"
    world.run_until(lambda: not world.cluster.reservations, 10)
    assert not world.leftovers()
    if inside is not None:
        assert world.state(inside) is JobState.RUNNING
        assert world.cluster.jobs[waiting].job.reservation is None
    else:
        assert world.cluster.jobs[saved].job.restart_count == 0
    world.run_until(lambda: now(world, promised).state.terminal, 1_500, 5)
    assert now(world, promised).state is EvictionState.CANCELLED
    assert "is cancelled" in cancel(world, promised)


def test_a_job_that_waits_in_it_goes_on_as_an_ordinary_one_when_it_is_over(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    promised = promise(world, 1, 30, duration_s=60)
    world.run_until(lambda: bool(world.cluster.reservations), 10)
    name = now(world, promised).placement
    jobs = [world.submit(Program(work_s=70), user="beam", reservation=name) for _ in range(2)]
    run_to(world, promised, 65)
    world.run_until(lambda: now(world, promised).state.terminal, 60, 1)
    world.run_until(lambda: all(world.started(job_id) for job_id in jobs), 60, 1)
    assert now(world, promised).state is EvictionState.COMPLETED
    assert not world.leftovers()


def test_what_is_refused_has_one_clear_line_and_leaves_nothing(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    assert refusal(world, 9, 600) == "refused: nodes: partition batch has 8, not 9"
    assert refusal(world, 1, 600, partition="gpu") == "refused: partition: there is no partition gpu"
    assert refusal(world, 1, 600, partition="") == "refused: partition: it has to be named, as there are several"
    assert "has passed" in refusal(world, 1, -100)
    assert "more than 366 days ahead" in refusal(world, 1, 400 * 86_400)
    assert "neither an operator" in refusal(world, 1, 600, actor="mallory")
    promise(world, 5, 600)
    assert (
        refusal(world, 4, 900)
        == "refused: nodes: 5 of the 8 nodes of partition batch are promised for that time already"
    )
    promise(world, 8, 1_200)  # the first one is over by then
    assert len(world.store.open_evictions()) == 2


def test_nodes_of_a_promise_that_has_begun_are_not_promised_again(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    first = promise(world, 5, 60, duration_s=600)
    run_to(world, first, 65)
    assert now(world, first).state is EvictionState.STARTED
    assert (
        refusal(world, 4, 100)
        == "refused: nodes: 5 of the 8 nodes of partition batch are promised for that time already"
    )


def test_in_observe_mode_nothing_is_promised(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe", promises=PROMISES))
    assert refusal(world, 1, 600) == "refused: the daemon only observes (daemon.mode)"


def test_a_promise_that_comes_due_in_observe_mode_or_a_pause_is_only_told(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    full(world)
    promised = promise(world, 1, 400, duration_s=60)
    world.store.add_request("pause", None, "root", world.clock.now())
    run_to(world, promised, 65)
    ended = now(world, promised)
    assert (ended.state, ended.outcome_code) == (EvictionState.FAILED, OutcomeCode.NOT_KEPT)
    assert "paused" in ended.outcome
    assert not world.leftovers()


def test_the_budget_holds(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES, budget={"jobs_per_hour": 0}))
    jobs = full(world)
    promised = promise(world, 1, 100, duration_s=60)
    run_to(world, promised, 65)
    assert now(world, promised).state in (EvictionState.FAILED, EvictionState.CANCELLING)
    assert all(world.cluster.jobs[job_id].job.restart_count == 0 for job_id in jobs)
    world.run_until(lambda: now(world, promised).state is EvictionState.FAILED, 60)
    assert not world.leftovers()


def test_promises_that_follow_one_another_may_have_the_same_nodes(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    first, second = promise(world, 8, 100, duration_s=100), promise(world, 8, 220, duration_s=100)
    world.run_until(lambda: len(world.cluster.reservations) == 2, 10)
    run_to(world, first, 1)
    assert now(world, first).outcome_code is OutcomeCode.KEPT
    run_to(world, second, 1)
    assert now(world, second).outcome_code is OutcomeCode.KEPT
    world.run_until(lambda: now(world, second).state.terminal, 200, 5)
    assert not world.leftovers()


def test_an_urgent_job_gets_room_beside_promised_nodes(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    full(world, 1, 2)
    for name in ("n1", "n2"):
        world.submit(Program(work_s=5_000, save_s=3), on=(name,), ran_s=900, comment=SAVES)
    promised = promise(world, 1, 200)
    world.run_until(lambda: bool(world.cluster.reservations), 10)
    urgent = world.urgent(1, time_limit_s=600)
    world.run_until(lambda: world.started(urgent) is not None, 60)
    assert not set(world.cluster.jobs[urgent].job.nodes) & set(now(world, promised).plan.placement_nodes)
    run_to(world, promised, 1)
    assert now(world, promised).outcome_code is OutcomeCode.KEPT


def test_slurm_that_does_not_reserve_is_told_and_nothing_else_is_done(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    jobs = full(world)
    promised = promise(world, 1, 600)

    def refuse(call: str, _: float) -> None:
        if call == "create_reservation":
            raise SlurmRefusedError("Invalid user")

    world.backend.before_change = refuse
    world.run_until(lambda: now(world, promised).state.terminal, 600, 5)
    ended = now(world, promised)
    assert (ended.state, ended.outcome_code) == (EvictionState.FAILED, OutcomeCode.NOT_KEPT)
    assert ended.outcome == "Not kept: Slurm does not reserve the nodes: Invalid user."
    assert all(world.cluster.jobs[job_id].job.restart_count == 0 for job_id in jobs)


def test_an_urgent_job_that_waits_for_promised_nodes_is_left_to_slurm(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises=PROMISES))
    jobs = full(world, 1)
    promised = promise(world, 1, 200)
    world.run_until(lambda: bool(world.cluster.reservations), 10)
    world.submit(Program(work_s=9_000), on=("n1",), time_limit_s=190)  # until the promised time, at the latest
    mine = world.urgent(1, user="beam", reservation=now(world, promised).placement, time_limit_s=300)
    run_to(world, promised, -20)
    assert world.started(mine) is None
    assert [e.eviction_id for e in world.store.evictions()] == [promised.eviction_id]
    world.run_until(lambda: world.started(mine) is not None, 60, 1)
    assert all(world.cluster.jobs[job_id].job.restart_count == 0 for job_id in jobs)


def test_no_approval_is_waited_for_nor_is_time_left_for_it(make_world: Callable[..., World]) -> None:
    execution = {"kill_allowance": "6s", "approval_time": "90s"}
    world = make_world(config=config("approve", promises={"hold": "300s", "spare": "0s"}, execution=execution))
    full(world, 1)
    saved = world.submit(Program(save_s=3, work_s=5_000), on=("n1",), ran_s=900, comment=SAVES)
    promised = promise(world, 1, 250)
    run_to(world, promised, 1)
    kept = now(world, promised)
    assert kept.outcome_code is OutcomeCode.KEPT
    assert {p.job_id: p.action for p in kept.preemptions} == {saved: Action.APP_CHECKPOINT}


def test_a_reservation_to_come_that_was_left_over_is_removed(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(promises={"hold": "2h"}))
    promised = promise(world, 1, 5_000)
    world.run_until(lambda: bool(world.cluster.reservations), 10)
    (held,) = world.cluster.reservations.values()
    cancel(world, promised)
    world.run_until(lambda: now(world, promised).state.terminal, 10)
    world.cluster.reservations[held.name] = held  # Slurm made it after all, or a backup was restored
    world.run_until(lambda: not world.cluster.reservations, 700, 10)
