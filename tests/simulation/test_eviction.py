"""The main job from end to end, on the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.model.cluster import JobState, Reservation
from clearway.model.errors import SlurmRefusedError
from clearway.model.events import Event, JobLeft
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.plan import Choice
from clearway.model.problem import Action
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config


def fill(world: World) -> dict[str, str]:
    """Eight busy nodes with jobs of all sorts."""
    return {
        "saver": world.submit(Program(save_s=4.0), on=("n1", "n2"), num_nodes=2, ran_s=900, comment=SAVES),
        "slow_saver": world.submit(Program(save_s=9.0), on=("n3",), ran_s=2_000, comment=SAVES),
        "deaf": world.submit(Program(exit_s=60.0), on=("n4",), ran_s=100),
        "protected": world.submit(on=("n5",), ran_s=10, user="vip"),
        "ending": world.submit(Program(work_s=99_999), on=("n6",), ran_s=600, time_limit_s=615),
        "left": world.submit(on=("n7",), cpus_per_node=2, ran_s=500),
        "right": world.submit(on=("n7",), cpus_per_node=2, ran_s=400),
        "young": world.submit(on=("n8",), ran_s=20),
    }


def guarded() -> dict[str, dict[str, object]]:
    return {"candidates": {"protected_users": ["vip"], "min_runtime": "30s"}}


def test_urgent_job_starts_in_time_on_freed_nodes_and_the_others_return(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(**guarded()))
    jobs = fill(world)
    urgent = world.urgent(4)
    submitted = world.clock.now()

    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    started = world.started(urgent)
    assert started is not None
    assert (started - submitted).total_seconds() <= 60

    eviction = world.eviction()
    # Saving two jobs (three nodes) and waiting for the one that ends costs nothing: any kill would lose work.
    assert {p.job_id: p.action for p in eviction.preemptions} == {
        jobs["saver"]: Action.APP_CHECKPOINT,
        jobs["slow_saver"]: Action.APP_CHECKPOINT,
        jobs["ending"]: Action.END,
    }
    assert set(world.cluster.jobs[urgent].job.nodes) == {"n1", "n2", "n3", "n6"} == set(eviction.plan.placement_nodes)
    for name in ("deaf", "protected", "left", "right", "young"):
        assert world.state(jobs[name]) is JobState.RUNNING, name
        assert len(world.cluster.jobs[jobs[name]].runs) == 1, name

    world.run_until(world.settled, limit_s=1_200, every_s=5)
    assert world.eviction().state is EvictionState.COMPLETED
    for name in ("saver", "slow_saver"):
        entry = world.cluster.jobs[jobs[name]]
        assert len(entry.runs) == 2, name
        assert entry.lost_s == pytest.approx(0.0, abs=1.0), name
    assert not world.leftovers()
    assert not world.observer.failures


def test_every_job_has_a_verdict_with_a_reason(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe", **guarded()))
    jobs = fill(world)
    world.urgent(4)
    world.tick()
    verdicts = {verdict.job_id: verdict for verdict in world.eviction().plan.verdicts}
    assert set(verdicts) == set(jobs.values())
    assert all(verdict.reason for verdict in verdicts.values())
    assert verdicts[jobs["protected"]].code == "protected_user"
    assert verdicts[jobs["young"]].code == "too_young"
    assert verdicts[jobs["saver"]].choice is Choice.CHOSEN
    assert verdicts[jobs["deaf"]].choice is Choice.SPARED


def test_observe_mode_never_touches_the_cluster(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    fill(world)
    world.urgent(4)
    for _ in range(40):
        world.tick()
    assert not world.leftovers()
    assert all(len(entry.runs) <= 1 for entry in world.cluster.jobs.values())
    assert all(e.state in (EvictionState.PROPOSED, EvictionState.SUPERSEDED) for e in world.store.evictions())


def test_approve_mode_acts_only_after_approval(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve", execution={"approval_time": "20s"}))
    fill(world)
    urgent = world.urgent(2)
    world.tick()
    assert world.eviction().state is EvictionState.AWAITING_APPROVAL
    world.tick()
    assert not world.leftovers()
    world.store.add_request("approve", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert world.eviction().approved_by == "olga"


def test_plan_that_waited_too_long_for_approval_is_made_anew(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve", execution={"approval_time": "5s"}))
    for number in range(1, 9):
        world.submit(Program(save_s=20.0), on=(f"n{number}",), ran_s=100 * number, comment=f"{SAVES},took=20")
    urgent = world.urgent(1)
    world.tick()
    first = world.eviction()
    assert first.plan.chosen.max_delay_s >= 20
    world.tick(45.0)  # 20 s of saving do not fit before the deadline any more
    world.store.add_request("approve", first.eviction_id, "olga", world.clock.now())
    world.tick()
    newest, oldest = world.store.evictions()
    assert (oldest.eviction_id, oldest.state) == (first.eviction_id, EvictionState.SUPERSEDED)
    assert newest.state is EvictionState.AWAITING_APPROVAL
    assert all(len(entry.runs) <= 1 for entry in world.cluster.jobs.values())
    assert world.state(urgent) is JobState.PENDING


def test_job_that_ignores_the_signal_is_replaced_by_another_plan(make_world: Callable[..., World]) -> None:
    world = make_world()
    liar = world.submit(Program(), on=("n1",), ran_s=900, comment=SAVES)  # says it can save itself, and cannot
    others = [world.submit(on=(f"n{number}",), ran_s=100 * number) for number in range(2, 9)]
    urgent = world.urgent(1)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=90)
    eviction = world.eviction()
    states = {p.job_id: p.state for p in eviction.preemptions}
    assert states[liar] is PreemptionState.SPARED
    assert world.state(liar) is JobState.RUNNING
    assert len(world.cluster.jobs[liar].runs) == 1
    assert world.state(others[0]) is not JobState.RUNNING  # the one that lost least
    assert eviction.revision == 1


def test_late_checkpoint_is_killed_only_where_configured(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(execution={"late_checkpoint": "kill", "kill_allowance": "6s"}))
    liar = world.submit(Program(), on=tuple(f"n{n}" for n in range(1, 9)), num_nodes=8, ran_s=900, comment=SAVES)
    urgent = world.urgent(1)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=90)
    (preemption,) = world.eviction().preemptions
    assert preemption.job_id == liar
    assert "late" in preemption.note
    assert preemption.actual_lost_node_s > 8 * 900


def test_without_another_plan_the_urgent_job_waits_and_an_event_says_so(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates={"allow_kill": False, "min_runtime": 0}))
    liar = world.submit(Program(), on=tuple(f"n{n}" for n in range(1, 9)), num_nodes=8, ran_s=900, comment=SAVES)
    urgent = world.urgent(1)
    world.run_until(lambda: world.clock.now() > world.eviction().plan.deadline if world.store.evictions() else False)
    for _ in range(20):
        world.tick()
    assert world.state(urgent) is JobState.PENDING
    assert world.state(liar) is JobState.RUNNING
    events = [s.detail for s in world.store.steps(world.eviction().eviction_id) if s.kind == "event"]
    assert sum("it waits" in event for event in events) == 1


def test_cancel_spares_everyone_before_the_point_of_no_return(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world)
    urgent = world.urgent(4)
    world.run_until(lambda: bool(world.store.evictions()))
    world.store.add_request("cancel", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(world.settled)
    eviction = world.eviction()
    assert eviction.state is EvictionState.CANCELLED
    assert {p.state for p in eviction.preemptions} == {PreemptionState.SPARED}
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in jobs.values())
    assert not world.leftovers()
    for _ in range(20):  # nobody wants it planned again behind the operator's back
        world.tick()
    assert len(world.store.evictions()) == 1
    assert world.state(urgent) is JobState.PENDING


def test_cancel_after_some_left_follows_those_to_their_return(make_world: Callable[..., World]) -> None:
    world = make_world()
    fill(world)
    world.urgent(4)

    def one_left() -> bool:
        return any(p.requeued_at for e in world.store.evictions() for p in e.preemptions)

    world.run_until(one_left)
    world.store.add_request("cancel", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(world.settled, limit_s=300)
    states = {p.state for p in world.eviction().preemptions}
    assert states <= {PreemptionState.SPARED, PreemptionState.RETURNED, PreemptionState.ENDED}
    assert PreemptionState.RETURNED in states
    assert not world.leftovers()


def test_second_urgent_job_gets_a_plan_of_its_own(make_world: Callable[..., World]) -> None:
    world = make_world()
    for number in range(1, 9):
        world.submit(Program(save_s=5.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES)
    first = world.urgent(3)
    world.tick()
    second = world.urgent(3)
    world.run_until(lambda: bool(world.started(first) and world.started(second)), limit_s=120)
    one, two = sorted(world.store.evictions(), key=lambda e: e.eviction_id)
    assert not {p.job_id for p in one.preemptions} & {p.job_id for p in two.preemptions}
    assert not set(one.plan.placement_nodes) & set(two.plan.placement_nodes)
    world.run_until(world.settled, limit_s=1_200, every_s=5)
    assert not world.leftovers()


def test_urgent_job_that_is_withdrawn_undoes_the_eviction(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world)
    urgent = world.urgent(4)
    world.tick()
    world.cluster.end_run(world.cluster.jobs[urgent], requeue=False)
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.CANCELLED
    assert world.state(jobs["saver"]) is JobState.RUNNING
    assert not world.leftovers()


def test_budget_makes_an_eviction_wait_for_approval(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(budget={"jobs_per_hour": 1}))
    fill(world)
    world.urgent(4)
    for _ in range(4):
        world.tick()
    assert world.eviction().state is EvictionState.AWAITING_APPROVAL
    assert "1 are allowed" in world.eviction().outcome
    assert not world.leftovers()


def test_paused_daemon_begins_nothing_and_resumes(make_world: Callable[..., World]) -> None:
    world = make_world()
    fill(world)
    world.store.add_request("pause", None, "olga", world.clock.now())
    world.tick()
    urgent = world.urgent(2)
    for _ in range(10):
        assert world.tick().paused
    assert not world.store.evictions()
    world.store.add_request("resume", None, "olga", world.clock.now())
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)


def test_job_that_ends_by_itself_while_it_saves(make_world: Callable[..., World]) -> None:
    world = make_world()
    short = world.submit(Program(work_s=903.0, save_s=20.0), on=("n1",), ran_s=900, comment=SAVES)
    for number in range(2, 9):
        world.submit(on=(f"n{number}",), ran_s=3_000)
    urgent = world.urgent(1)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert world.cluster.jobs[short].job.raw_state == "COMPLETED"
    (preemption,) = world.eviction().preemptions
    assert preemption.state is PreemptionState.ENDED


def test_node_that_fails_under_the_placement_makes_a_new_plan(make_world: Callable[..., World]) -> None:
    world = make_world()
    for number in range(1, 9):
        world.submit(Program(save_s=10.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES)
    urgent = world.urgent(1)
    world.tick()
    (name,) = world.eviction().plan.placement_nodes
    world.by_hand.drain(name, "fan broken")
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert name not in world.cluster.jobs[urgent].job.nodes
    assert world.eviction().revision >= 1


def test_free_nodes_are_left_to_slurm_at_first(make_world: Callable[..., World]) -> None:
    world = make_world()
    urgent = world.urgent(4)
    world.tick()
    assert world.state(urgent) is JobState.RUNNING
    assert not world.store.evictions()


def test_malformed_claims_count_as_none(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe", candidates={"min_runtime": 0}))
    broken = world.submit(Program(), on=("n1",), ran_s=1_000, comment="clearway:checkpoint=signal,last=tomorrow")
    world.submit(on=tuple(f"n{n}" for n in range(2, 9)), num_nodes=7, ran_s=3_000)
    world.urgent(1)
    world.tick()
    (preemption,) = world.eviction().preemptions
    assert (preemption.job_id, preemption.action) == (broken, Action.KILL)
    assert preemption.predicted_lost_node_s == pytest.approx(1_000, abs=1)


def test_plan_for_approval_leaves_time_to_approve_it(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve", execution={"approval_time": "30s"}))
    for number in range(1, 9):
        world.submit(Program(save_s=18.0), on=(f"n{number}",), ran_s=100 * number, comment=f"{SAVES},took=18")
    urgent = world.urgent(1)
    world.tick()
    for _ in range(28):
        world.tick(1.0)
    assert world.eviction().state is EvictionState.AWAITING_APPROVAL  # not made anew meanwhile
    world.store.add_request("approve", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(lambda: world.started(urgent) is not None, limit_s=40)
    started = world.started(urgent)
    assert started is not None
    assert started <= world.eviction().plan.deadline
    assert world.eviction().preemptions[0].action is Action.APP_CHECKPOINT


def test_urgent_job_that_grows_meanwhile_is_planned_for_again(make_world: Callable[..., World]) -> None:
    world = make_world()
    for number in range(1, 9):
        world.submit(Program(save_s=10.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES)
    urgent = world.urgent(1)
    world.tick()
    entry = world.cluster.jobs[urgent]
    entry.job = replace(entry.job, num_nodes=2)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    newest, oldest = world.store.evictions()
    assert oldest.state is EvictionState.CANCELLED
    assert "changed" in oldest.outcome
    assert newest.plan.nodes_needed == 2


def test_refused_placement_is_not_asked_for_again_and_again(make_world: Callable[..., World]) -> None:
    world = make_world()
    fill(world)
    world.urgent(4)
    asked = 0

    class Refusing(SimulatedBackend):
        def create_reservation(self, reservation: Reservation) -> None:
            nonlocal asked
            asked += 1
            raise SlurmRefusedError(f"{reservation.name}: Access/permission denied")

    world.start_daemon(backend=Refusing(world.cluster, world.clock))
    for _ in range(40):
        world.tick()
    assert 2 <= asked <= 5  # 20 s, every 5 s
    assert all(len(entry.runs) <= 1 for entry in world.cluster.jobs.values())


@pytest.mark.fault(
    "No test saw a change after which jobs are noted as gone for a placement that does not stand.", found_by="mutation"
)
def test_nothing_is_noted_of_a_plans_jobs_before_its_placement_stands(make_world: Callable[..., World]) -> None:
    """What has ended by then was not preempted: the urgent job only waits for less."""
    world = make_world()
    jobs = [world.submit(on=(f"n{number}",), ran_s=100 * number) for number in range(1, 9)]
    urgent = world.urgent(2)
    refusing = True

    class Refusing(SimulatedBackend):
        def create_reservation(self, reservation: Reservation) -> None:
            if refusing:
                raise SlurmRefusedError(f"{reservation.name}: Access/permission denied")
            super().create_reservation(reservation)

    world.start_daemon(backend=Refusing(world.cluster, world.clock))
    world.tick()
    assert world.eviction().state is EvictionState.PLACING
    assert {p.job_id for p in world.eviction().preemptions} == set(jobs[:2])
    world.by_hand.cancel(world.cluster.jobs[jobs[0]].job)
    for _ in range(4):
        world.tick()
    assert world.eviction().state is EvictionState.PLACING
    assert {p.state for p in world.eviction().preemptions} == {PreemptionState.PLANNED}
    refusing = False
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert [len(world.cluster.jobs[job_id].runs) for job_id in jobs[2:]] == [1] * 6


def test_no_job_leaves_for_a_placement_that_does_not_stand(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.submit(Program(), on=("n1",), ran_s=900, comment=SAVES)  # says it can save itself, and cannot
    others = [world.submit(on=(f"n{number}",), ran_s=100 * number) for number in range(2, 9)]
    urgent = world.urgent(1)

    class Refusing(SimulatedBackend):
        def update_reservation(self, name: str, nodes: tuple[str, ...]) -> None:
            raise SlurmRefusedError(f"{name}: Requested nodes are busy ({nodes})")

    world.start_daemon(backend=Refusing(world.cluster, world.clock))
    world.run_until(lambda: bool(world.store.evictions()) and world.eviction().revision > 0, limit_s=90)
    for _ in range(40):
        world.tick()
    assert world.state(urgent) is JobState.PENDING
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in others)


def test_no_job_is_killed_for_a_placement_that_lost_a_node(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates={"min_runtime": "50s"}))
    saver = world.submit(Program(save_s=5.0), on=("n1",), ran_s=3_000, comment=SAVES)
    killed = world.submit(on=("n2",), ran_s=100)
    for number in range(3, 9):
        world.submit(on=(f"n{number}",), ran_s=10)  # too young: there is no other plan
    world.urgent(2)
    world.tick()
    assert {p.job_id for p in world.eviction().preemptions} == {saver, killed}
    world.by_hand.drain("n1", "fan broken")
    for _ in range(30):
        world.tick()
    assert len(world.cluster.jobs[killed].runs) == 1
    assert world.state(killed) is JobState.RUNNING


@pytest.mark.fault(
    "No test saw a change after which a job that leaves is counted at each of its steps.", found_by="mutation"
)
def test_each_job_that_leaves_is_counted_once(make_world: Callable[..., World]) -> None:
    """When it has left; not at each of its steps before and after."""
    world = make_world(config=config(**guarded()))
    jobs = fill(world)
    left: list[tuple[str, PreemptionState]] = []

    def hear(event: Event) -> None:
        if isinstance(event, JobLeft):
            left.append((event.preemption.job_id, event.preemption.state))

    world.start_daemon(emit=hear)
    urgent = world.urgent(4)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    world.run_until(world.settled, limit_s=1_800, every_s=5)
    gone = [jobs["saver"], jobs["slow_saver"]]
    assert sorted(left) == [(job_id, PreemptionState.VACATED) for job_id in gone], "the third ended by itself"
