"""Draining nodes on a simulated cluster: every branch from the request to the empty nodes, and back."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.drains import answer, ask, drain, empty, held, now, saver, undrain
from tests.simulation.world import SAVES, World, config


def test_jobs_go_on_elsewhere_and_the_nodes_stay_empty(make_world: Callable[..., World]) -> None:
    world = make_world()
    serial, wide, elsewhere = saver(world, "n1"), saver(world, "n2", "n3"), saver(world, "n4")
    for _ in range(12):
        world.submit(Program(work_s=300), num_nodes=1, priority=1)
    begun = drain(world, "n[1-2]", reason="new memory")
    assert held(world) == dict.fromkeys(("n1", "n2"), f"clearway drain {begun.eviction_id} {begun.mark}: new memory")
    world.run_until(lambda: now(world, begun).started_at is not None, 60)
    assert empty(world, "n1", "n2")
    world.run_until(world.settled, 1_000, every_s=5.0)
    done = now(world, begun)
    assert done.state is EvictionState.COMPLETED
    assert {p.job_id: (p.action, p.state) for p in done.preemptions} == dict.fromkeys(
        (serial, wide), (Action.APP_CHECKPOINT, PreemptionState.RETURNED)
    )
    for job_id in (serial, wide):
        entry = world.cluster.jobs[job_id]
        assert entry.lost_s <= 1.5
        assert not set(entry.runs[-1]) & {"n1", "n2"}
    assert len(world.cluster.jobs[elsewhere].runs) == 1
    assert empty(world, "n1", "n2")  # although others waited for nodes
    assert set(held(world)) == {"n1", "n2"}
    assert undrain(world, "n1") == "brought back n1"
    assert set(held(world)) == {"n2"}
    assert undrain(world, "n[1-2]") == "brought back n2"
    assert undrain(world, "n[1-2]") == "none was drained"
    late = [world.submit(Program(work_s=50), num_nodes=1) for _ in range(8)]
    world.run_until(lambda: all(world.started(job_id) for job_id in late), 400, every_s=5.0)
    assert any(run[0] in ("n1", "n2") for job_id in late for run in world.cluster.jobs[job_id].runs)


def test_a_moved_job_is_first_in_the_queue_until_it_runs_again(make_world: Callable[..., World]) -> None:
    world = make_world()
    moved = saver(world, "n1", priority=5)
    for number in range(2, 9):
        world.submit(Program(work_s=60 + number), on=(f"n{number}",))
    others = [world.submit(num_nodes=1, priority=900) for _ in range(5)]
    begun = drain(world, "n1")
    world.run_until(lambda: now(world, begun).started_at is not None, 60)
    world.run_until(world.settled, 200, every_s=1.0)
    moved_at = world.started(moved)
    assert moved_at is not None
    assert world.cluster.jobs[moved].job.priority == 5
    assert all((world.started(job_id) or world.clock.now()) > moved_at for job_id in others)
    kinds = [step.kind for step in world.store.steps(begun.eviction_id)]
    assert kinds.index("first_in_queue") < kinds.index("start_now") < kinds.index("usual_priority")


def test_a_job_that_cannot_be_saved_stops_the_drain_and_nothing_was_done(make_world: Callable[..., World]) -> None:
    world = make_world()
    saved, deaf = saver(world, "n1"), world.submit(on=("n2",), ran_s=600, user="bob")
    begun = drain(world, "n[1-2]")
    world.run_until(world.settled, 30)
    ended = now(world, begun)
    assert ended.state is EvictionState.CANCELLED
    assert ended.outcome == f"Not drained: 1 job(s) in the way: job {deaf} of bob: it cannot save itself."
    assert not held(world)
    assert [world.cluster.jobs[job_id].job.restart_count for job_id in (saved, deaf)] == [0, 0]
    assert world.cluster.jobs[saved].asked_at is None


def test_force_requeues_what_cannot_be_saved_after_the_others_are_safe(make_world: Callable[..., World]) -> None:
    world = make_world()
    saved, deaf = saver(world, "n1"), world.submit(on=("n2",), ran_s=600)
    begun = drain(world, "n[1-2]", force=True)
    world.run_until(lambda: now(world, begun).started_at is not None, 60)
    actions = {p.job_id: p for p in now(world, begun).preemptions}
    assert {job_id: p.action for job_id, p in actions.items()} == {saved: Action.APP_CHECKPOINT, deaf: Action.KILL}
    assert actions[saved].requeued_at <= actions[deaf].requeued_at  # type: ignore[operator]  # both have left
    assert world.cluster.jobs[saved].lost_s <= 1.5
    assert world.cluster.jobs[deaf].lost_s > 600


def test_force_does_not_cancel_for_good(make_world: Callable[..., World]) -> None:
    world = make_world()
    fixed = world.submit(on=("n1",), requeueable=False)
    begun = drain(world, "n1", force=True)
    world.run_until(world.settled, 30)
    assert "it cannot be requeued" in now(world, begun).outcome
    assert world.state(fixed) is JobState.RUNNING
    assert not held(world)


@pytest.mark.parametrize("force", [False, True])
def test_a_checkpoint_that_fails(make_world: Callable[..., World], force: bool) -> None:
    world = make_world()
    failing = world.submit(Program(save_s=2.0, save_fails=True), on=("n1",), ran_s=600, comment=SAVES)
    begun = drain(world, "n1", force=force)
    world.run_until(lambda: now(world, begun).started_at is not None or now(world, begun).state.terminal, 60)
    if force:
        assert world.cluster.jobs[failing].lost_s > 600
        assert world.cluster.jobs[failing].job.restart_count == 1
        assert held(world)
    else:
        assert now(world, begun).state is EvictionState.CANCELLED
        assert world.state(failing) is JobState.RUNNING
        assert not held(world)


@pytest.mark.parametrize("force", [False, True])
def test_a_job_that_never_answers(make_world: Callable[..., World], force: bool) -> None:
    world = make_world(config=config(drain={"patience": 40}))
    silent = world.submit(on=("n1",), ran_s=600, comment=SAVES)
    begun = drain(world, "n1", force=force)
    world.run_until(lambda: now(world, begun).started_at is not None or now(world, begun).state.terminal, 120)
    waited_s = (world.clock.now() - begun.created_at).total_seconds()
    assert 40 < waited_s < 60
    assert world.cluster.jobs[silent].job.restart_count == int(force)
    assert bool(held(world)) is force


def test_parallel_leave_waits_for_jobs_that_also_run_elsewhere(make_world: Callable[..., World]) -> None:
    world = make_world()
    wide = world.submit(Program(work_s=200), on=("n2", "n3"), num_nodes=2, ran_s=100)
    inside, serial = saver(world, "n4", "n5"), saver(world, "n1")
    begun = drain(world, "n[1-2],n[4-5]", parallel="leave")
    world.run_until(lambda: empty(world, "n1", "n4", "n5"), 30)
    assert now(world, begun).started_at is None
    assert world.state(wide) is JobState.RUNNING
    verdicts = {v.job_id: v.code for v in now(world, begun).plan.verdicts}
    assert verdicts[wide] == "parallel_left"
    world.run_until(lambda: now(world, begun).started_at is not None, 200, every_s=5.0)
    assert world.cluster.jobs[wide].job.restart_count == 0
    assert {p.job_id for p in now(world, begun).preemptions} == {inside, serial}


def test_with_a_deadline_jobs_may_end_by_themselves(make_world: Callable[..., World]) -> None:
    world = make_world()
    ending = world.submit(Program(work_s=9_000), on=("n1",), ran_s=100, time_limit_s=400)
    begun = drain(world, "n1", deadline=world.clock.now() + timedelta(seconds=400))
    world.run_until(lambda: now(world, begun).started_at is not None, 400, every_s=5.0)
    assert world.cluster.jobs[ending].job.raw_state == "TIMEOUT"
    (p,) = now(world, begun).preemptions
    assert (p.action, p.state) == (Action.END, PreemptionState.ENDED)
    assert not now(world, begun).late


def test_a_deadline_that_leaves_no_time_to_save_is_told(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(costs={"checkpoint_overhead": 50}))
    job = saver(world, "n1")
    begun = drain(world, "n1", deadline=world.clock.now() + timedelta(seconds=30))
    world.run_until(world.settled, 10)
    assert now(world, begun).outcome.startswith("Not drained: saving its jobs takes longer than")
    assert world.cluster.jobs[job].asked_at is None
    assert not held(world)


def test_cancelled_between_the_first_and_the_second_job(make_world: Callable[..., World]) -> None:
    world = make_world()
    first, second = saver(world, "n1"), saver(world, "n2", save_s=20.0)
    begun = drain(world, "n[1-2]")
    world.run_until(lambda: world.cluster.jobs[first].job.restart_count == 1, 60)
    request_id = world.store.add_request("cancel", begun.eviction_id, "olga", world.clock.now())
    world.run_until(world.settled, 60)
    assert answer(world, request_id) == "cancelled"
    assert now(world, begun).state is EvictionState.CANCELLED
    assert not held(world)
    assert world.cluster.jobs[second].job.restart_count == 0
    states = {p.job_id: p.state for p in now(world, begun).preemptions}
    assert states == {first: PreemptionState.RETURNED, second: PreemptionState.SPARED}


def test_second_drain_over_the_same_node(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n1", save_s=20.0)
    begun = drain(world, "n1")
    again = ask(world, "n[1-3]")
    world.tick()
    assert answer(world, again) == f"refused: node n1 already belongs to drain {begun.eviction_id}"
    assert (
        undrain(world, "n1") == f"refused: node n1 is being emptied by drain {begun.eviction_id}; cancel that instead"
    )
    world.run_until(world.settled, 100)
    again = ask(world, "n[1-3]")
    world.tick()
    assert (
        answer(world, again)
        == f"refused: node n1 already has a reason: clearway drain {begun.eviction_id} {begun.mark}"
    )
    assert set(held(world)) == {"n1"}


def test_somebody_elses_drain_is_left_alone(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.by_hand.drain("n2", "bad disk")
    request_id = ask(world, "n[1-2]")
    world.tick()
    assert answer(world, request_id) == "refused: node n2 already has a reason: bad disk"
    assert undrain(world, "n2") == "refused: node n2 was not drained by Clearway: bad disk"
    assert held(world) == {"n2": "bad disk"}


def test_a_node_that_somebody_drains_or_brings_back_meanwhile(make_world: Callable[..., World]) -> None:
    world = make_world()
    job = saver(world, "n1", save_s=30.0)
    begun = drain(world, "n[1-2]")
    world.tick()
    reason = held(world)["n2"]
    world.by_hand.undrain("n2", reason)
    world.run_until(world.settled, 60)
    assert now(world, begun).outcome == "Node n2 was brought back outside Clearway."
    assert not held(world)
    assert world.cluster.jobs[job].job.restart_count == 0


def test_a_new_reason_of_somebody_else_stays_when_the_drain_is_cancelled(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n1", save_s=30.0)
    begun = drain(world, "n[1-2]")
    world.tick()
    reason = held(world)["n2"]
    world.by_hand.undrain("n2", reason)
    world.by_hand.drain("n2", "bad disk")
    world.tick()
    assert now(world, begun).state is EvictionState.PREEMPTING
    world.store.add_request("cancel", begun.eviction_id, "olga", world.clock.now())
    world.run_until(world.settled, 60)
    assert held(world) == {"n2": "bad disk"}


def test_urgent_jobs_and_protected_users_are_in_the_way_unless_forced(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates={"protected_users": ["vip"]}))
    protected, urgent = saver(world, "n1", user="vip"), saver(world, "n2", partitions=("urgent",))
    begun = drain(world, "n[1-2]")
    world.run_until(world.settled, 10)
    assert "its user vip is protected" in now(world, begun).outcome
    assert "it is an urgent job" in now(world, begun).outcome
    begun = drain(world, "n[1-2]", force=True)
    world.run_until(lambda: now(world, begun).started_at is not None, 60)
    assert all(world.cluster.jobs[job_id].lost_s <= 1.5 for job_id in (protected, urgent))


def test_a_job_that_asks_for_a_drained_node_is_in_the_way(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n1", required_nodes=("n1",))
    begun = drain(world, "n1")
    world.run_until(world.settled, 10)
    assert "it asks for node n1, so it could not go on elsewhere" in now(world, begun).outcome
    assert not held(world)


def test_urgent_job_gets_other_nodes_than_those_that_are_drained(make_world: Callable[..., World]) -> None:
    world = make_world()
    for number in range(1, 9):
        saver(world, f"n{number}")
    begun = drain(world, "n[1-4]")
    urgent = world.urgent(2)
    world.run_until(lambda: world.started(urgent) is not None, 120)
    assert not set(world.cluster.jobs[urgent].runs[0]) & {"n1", "n2", "n3", "n4"}
    world.run_until(lambda: now(world, begun).started_at is not None, 120)


def test_an_urgent_job_is_called_one_while_its_eviction_is_still_open(make_world: Callable[..., World]) -> None:
    world = make_world()
    for number in range(1, 9):
        saver(world, f"n{number}")
    urgent = world.urgent(8)
    world.run_until(lambda: world.started(urgent) is not None, 200)
    assert world.store.open_evictions()  # those who left for it wait
    begun = drain(world, "n1")
    world.run_until(lambda: now(world, begun).state.terminal, 20)
    assert now(world, begun).outcome == (
        f"Not drained: 1 job(s) in the way: job {urgent} of {world.cluster.jobs[urgent].job.user}: it is an urgent job."
    )
