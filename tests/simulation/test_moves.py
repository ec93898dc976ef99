"""Compaction and promotion on a simulated cluster: who is moved where, what keeps it from being done, what is left."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.eligibility.context import PlanningContext
from clearway.model.operations import EvictionState, PreemptionState, Relocation
from clearway.model.orders import MoveKind
from clearway.model.plan import NoPlan, RelocationPlan
from clearway.model.problem import Action
from clearway.relocation.plan import could_be_placed, plan_moves
from clearway.simulation.jobs import Program
from tests.simulation.moving_jobs import ask, assert_nothing_is_left, moving, nodes_of, partly_used, serial, weigh, wide
from tests.simulation.world import SAVES, World


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world(config=moving())


def test_serial_jobs_come_together_and_whole_nodes_become_empty(world: World) -> None:
    jobs = [serial(world, "n1"), serial(world, "n2"), serial(world, "n3", cpus=2)]
    world.tick()
    assert partly_used(world) == 3
    result, eviction = ask(world)
    assert eviction is not None, result
    world.run_until(world.settled)
    end = world.eviction()
    assert end.state is EvictionState.COMPLETED, world.describe()
    assert end.outcome == "2 of 2 job(s) moved; n[1-2] are empty."
    assert [(p.job_id, p.action, p.state) for p in end.preemptions] == [
        (job_id, Action.APP_CHECKPOINT, PreemptionState.RETURNED) for job_id in jobs[:2]
    ]
    assert nodes_of(world, *jobs) == [("n3",)] * 3
    assert partly_used(world) == 0
    assert all(world.cluster.jobs[job_id].lost_s <= 1.5 for job_id in jobs)
    assert len(world.cluster.jobs[jobs[2]].runs) == 1
    assert_nothing_is_left(world)


def test_they_land_where_they_were_told_and_not_where_slurm_would_put_them(world: World) -> None:
    """Nodes 1 and 2 are empty and come first for anybody: only the placement leads elsewhere."""
    lone, stays = serial(world, "n7"), serial(world, "n5", cpus=2)
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(world.settled)
    assert nodes_of(world, lone, stays) == [("n5",), ("n5",)]
    assert_nothing_is_left(world)


def test_a_job_of_several_nodes_leaves_those_that_become_empty_and_keeps_the_rest(world: World) -> None:
    moves = wide(world, "n1", "n2")
    beside, stays = serial(world, "n2", cpus=2, save_s=None), serial(world, "n5", cpus=2, save_s=None)
    world.tick()
    result, eviction = ask(world)
    assert eviction is not None, result
    covered = set()
    while not world.settled():
        world.tick(0.5)
        covered |= {each.nodes for each in world.cluster.reservations.values()}
    end = world.eviction()
    assert (end.state, end.outcome) == (EvictionState.COMPLETED, "1 of 1 job(s) moved; n1 is empty."), world.describe()
    assert [sorted(nodes) for nodes in covered] == [["n2", "n5"]]  # what it keeps, and where it goes
    assert [sorted(nodes) for nodes in nodes_of(world, moves, beside, stays)] == [["n2", "n5"], ["n2"], ["n5"]]
    assert len(world.cluster.jobs[moves].runs) == 2
    assert world.cluster.jobs[moves].lost_s <= 1.5
    assert_nothing_is_left(world)


def test_a_node_that_a_job_keeps_and_that_fails_calls_it_off(world: World) -> None:
    moves = wide(world, "n1", "n2", save_s=20.0)
    serial(world, "n2", cpus=2, save_s=None)
    serial(world, "n5", cpus=2, save_s=None)
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(lambda: world.eviction().state is EvictionState.PREEMPTING)
    world.by_hand.drain("n2", "bad disk")
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.CANCELLED
    assert world.eviction().outcome == "Called off: node n2 is not available any more."
    assert nodes_of(world, moves) == [("n1", "n2")]
    assert world.leftovers() == []


def test_all_parts_of_a_job_rise_at_once(world: World) -> None:
    weigh(world, **{f"n{number}": 50 for number in range(1, 6)})
    rises = wide(world, "n1", "n2", cpus=4)
    world.tick()
    result, eviction = ask(world, "promote")
    assert eviction is not None, result
    world.run_until(world.settled)
    assert world.eviction().outcome == "1 of 1 job(s) moved."
    assert nodes_of(world, rises) == [("n6", "n7")]
    assert_nothing_is_left(world)


def test_one_job_at_a_time_and_the_sources_take_nothing_new_meanwhile(world: World) -> None:
    jobs = [serial(world, "n1", save_s=6.0), serial(world, "n2", save_s=6.0), serial(world, "n3", cpus=2)]
    world.tick()
    eviction = ask(world)[1]
    assert eviction is not None
    reason = f"clearway drain {eviction.eviction_id} {eviction.mark}: compaction"
    most = 0
    newcomer = None
    while not world.settled():
        world.tick()
        now = world.store.eviction(eviction.eviction_id)
        most = max(most, sum(p.on_its_way or p.state is PreemptionState.CHECKPOINTING for p in now.preemptions))
        held = {name for name, node in world.cluster.nodes.items() if node.reason == reason}
        if now.state is EvictionState.PREEMPTING:
            assert held == {"n1", "n2"}
            if newcomer is None:
                newcomer = world.submit(num_nodes=1, cpus_per_node=1, memory_mib=500, time_limit_s=600)
    assert most == 1
    assert newcomer is not None
    assert nodes_of(world, newcomer) == [("n4",)]
    assert nodes_of(world, *jobs) == [("n3",)] * 3
    assert_nothing_is_left(world)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"save_s": None}, "not_saved"),
        ({"time_limit_s": None}, "end_unknown"),
        ({"gres": "gpu:1"}, "gres"),
        ({"licenses": "matlab:1"}, "licenses"),
        ({"required_nodes": ("n1",)}, "asks_for_nodes"),
        ({"features": "[a|b]"}, "features"),
        ({"requeueable": False}, "not_requeueable"),
        ({"time_limit_s": 950}, "no_gain"),  # a move takes 15 s, and a minute and a half is left
        ({"memory_mib": 3_600}, "no_gain"),  # no room beside the other
        ({"excluded_nodes": ("n2",)}, "no_gain"),
        ({"user": "precious"}, "protected_user"),
    ],
)
def test_what_cannot_or_need_not_be_moved_stays_and_says_why(
    make_world: Callable[..., World], fields: dict[str, Any], code: str
) -> None:
    world = make_world(config=moving(candidates={"protected_users": ["precious"], "allow_kill": False}))
    job_id = serial(world, "n1", **fields)
    other = serial(world, "n2", save_s=None, cpus=2)
    world.tick()
    result, eviction = ask(world)
    assert eviction is None
    assert result.startswith(("refused: no move gains enough", "refused: all moves together"))
    found = plan_now(world)
    assert isinstance(found, NoPlan)
    assert {v.job_id: v.code for v in found.verdicts} == {job_id: code, other: "not_saved"}
    assert nodes_of(world, job_id) == [("n1",)]
    assert_nothing_is_left(world)


def plan_now(world: World, kind: MoveKind = MoveKind.COMPACTION) -> RelocationPlan | NoPlan:
    snapshot = world.backend.snapshot()
    context = PlanningContext(snapshot=snapshot, config=world.config, now=snapshot.taken_at)
    return plan_moves(kind, context, jobs=10, actor="x")


def test_memory_of_jobs_that_come_together_is_counted_together(world: World) -> None:
    """Each fits beside the third alone, both do not: one of them stays."""
    jobs = [serial(world, f"n{number}", memory_mib=1_800) for number in (1, 2)]
    serial(world, "n3", cpus=2, memory_mib=500)
    world.tick()
    plan = plan_now(world)
    assert isinstance(plan, RelocationPlan)
    moves = plan.order.moves
    held = {"n1": 1_800, "n2": 1_800, "n3": 500}
    for move in moves:
        held[move.source] -= 1_800
        held[move.target] += 1_800
    assert moves
    assert max(held.values()) <= 4_000
    assert {move.job_id for move in moves} < {*jobs}


def test_nothing_is_planned_while_slurm_could_place_a_waiting_job(world: World) -> None:
    serial(world, "n1")
    serial(world, "n2", cpus=2)
    for number in range(3, 9):
        serial(world, f"n{number}", cpus=4)
    fits = world.submit(num_nodes=1, cpus_per_node=1, memory_mib=500, dependency="afterok:1", priority=0)
    whole = world.submit(num_nodes=1, cpus=4)  # waits for a whole node: compaction is what helps it
    world.tick()
    assert isinstance(plan_now(world), RelocationPlan)
    entry = world.cluster.jobs[fits]
    snapshot = world.backend.snapshot()
    waits = replace(entry.job, priority=10, reason="Resources", cpus=1)
    jobs = tuple(waits if job.job_id == fits else job for job in snapshot.jobs)
    found = could_be_placed(replace(snapshot, jobs=jobs), snapshot.taken_at)
    assert found is not None
    assert found.job_id == fits
    assert could_be_placed(snapshot, snapshot.taken_at) is None
    assert ask(world)[1] is not None
    world.run_until(world.settled)
    world.run_until(lambda: world.started(whole) is not None, limit_s=30)


def test_an_urgent_job_comes_first(world: World) -> None:
    """What has not begun is called off, and a job on its way arrives."""
    jobs = [serial(world, "n1"), serial(world, "n2"), serial(world, "n3", cpus=2)]
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(lambda: world.eviction().between_nodes is not None, every_s=0.2)
    urgent = world.urgent(6)
    world.run_until(lambda: world.started(urgent) is not None)
    world.run_until(world.settled)
    moves = next(e for e in world.store.evictions() if isinstance(e, Relocation))
    assert moves.state is EvictionState.CANCELLED
    assert moves.outcome == "Called off: a job waits that room is made for."
    states = {p.job_id: p.state for p in moves.preemptions}
    assert states == {jobs[0]: PreemptionState.RETURNED, jobs[1]: PreemptionState.SPARED}
    assert nodes_of(world, jobs[0]) == [("n3",)]
    assert_nothing_is_left(world)


def test_a_target_that_fails_calls_the_rest_off(world: World) -> None:
    jobs = [serial(world, "n1"), serial(world, "n3", cpus=2)]
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(lambda: world.eviction().state is EvictionState.PREEMPTING)
    world.cluster.nodes["n3"] = replace(world.cluster.nodes["n3"], available=False, raw_state="DOWN")
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.CANCELLED
    assert world.eviction().outcome == "Called off: node n3 is not available any more."
    assert nodes_of(world, jobs[0]) == [("n1",)]
    assert world.leftovers() == []
    assert not world.cluster.nodes["n1"].reason


def test_a_job_that_does_not_save_itself_stays(make_world: Callable[..., World]) -> None:
    world = make_world(config=moving())
    program = Program(save_s=2.0, save_fails=True, work_s=4_000)
    fields: dict[str, Any] = {"comment": SAVES, "memory_mib": 500, "time_limit_s": 4_500}
    failing = world.submit(program, on=("n1",), cpus_per_node=1, ran_s=900, **fields)
    serial(world, "n3", cpus=2)
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.CANCELLED
    assert world.eviction().outcome == f"Called off: job {failing}: its checkpoint failed."
    assert nodes_of(world, failing) == [("n1",)]
    assert len(world.cluster.jobs[failing].runs) == 1
    assert_nothing_is_left(world)


def test_somebody_elses_reason_is_never_touched(world: World) -> None:
    serial(world, "n1", save_s=30.0)
    serial(world, "n3", cpus=2)
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(lambda: world.eviction().state is EvictionState.PREEMPTING)
    world.cluster.nodes["n1"] = replace(world.cluster.nodes["n1"], reason="broken fan")
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.CANCELLED
    assert world.eviction().outcome == "Node n1 has a Reason that is not Clearway's."
    assert world.cluster.nodes["n1"].reason == "broken fan"
    assert not world.cluster.nodes["n1"].available
    assert world.leftovers() == []


def test_a_job_that_cannot_land_in_time_starts_anywhere(make_world: Callable[..., World]) -> None:
    world = make_world(config=moving(execution={"landing_patience": "40s"}))
    moved = serial(world, "n1")
    serial(world, "n3", cpus=2)
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(lambda: world.eviction().between_nodes is not None, every_s=0.2)
    # The room is gone although the placement keeps it: somebody was let into it by hand.
    intruder = world.submit(
        num_nodes=1, cpus_per_node=2, memory_mib=500, reservation=world.eviction().placement, priority=9_999
    )
    world.tick(0.1)
    assert nodes_of(world, intruder) == [("n3",)]
    world.run_until(lambda: len(world.cluster.jobs[moved].runs) == 2, limit_s=200)
    assert nodes_of(world, moved) == [("n1",)]
    assert world.cluster.jobs[moved].job.reservation is None
    world.by_hand.detach(intruder, world.eviction().placement)
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.CANCELLED
    assert world.eviction().outcome == f"Job {moved} did not start on its new node in time."
    assert_nothing_is_left(world)
