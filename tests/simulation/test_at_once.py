"""Urgent jobs that take parts of nodes or certain ones, planned at once where turns would serve them worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.plan import Choice
from clearway.planning.joint.requests import Best, Request
from clearway.planning.joint.several import plan_together
from clearway.preemption import batch
from clearway.simulation.jobs import Program
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.shown import show
from tests.simulation.test_parts import fill, finish, restarted, small
from tests.simulation.world import SAVES, World, config

EVERYWHERE_ELSE = ("n2", "n3", "n4", "n5", "n6", "n7")


def turns_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "plan_together", lambda *_: None)


def test_nobody_is_left_out_for_a_node_that_only_one_can_use(world: World) -> None:
    jobs = fill(world)
    anywhere, there = small(world), small(world, required_nodes=("n1",))
    submitted = world.clock.now()
    world.tick()
    plans = {e.preemptor.job_id: e.plan for e in world.store.evictions()}
    assert plans[anywhere].together == (there,)
    assert plans[there].together == (anywhere,)
    assert plans[there].staying == (jobs["n1b"],)
    assert plans[anywhere].staying == (jobs["n2b"],)
    assert not plans[there].note
    (chosen,) = (each for each in plans[there].verdicts if each.choice is Choice.CHOSEN)
    assert chosen.reason.endswith("; planned together with other urgent jobs")
    finish(world, anywhere, there)
    assert world.cluster.jobs[anywhere].runs == [("n2",)]
    assert world.cluster.jobs[there].runs == [("n1",)]
    assert restarted(world, jobs) == {"n1a", "n2a"}
    for job_id in (anywhere, there):
        started = world.started(job_id)
        assert started is not None
        assert (started - submitted).total_seconds() <= 60
    assert {e.state for e in world.store.evictions()} == {EvictionState.COMPLETED}
    assert {e.revision for e in world.store.evictions()} == {0}


def test_by_turns_one_of_them_has_no_plan(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def proposed() -> tuple[World, set[str]]:
        world = make_world(config=config("observe"))
        fill(world)
        both = {small(world), small(world, required_nodes=("n1",))}
        world.tick()
        return world, both

    world, both = proposed()
    assert {e.preemptor.job_id for e in world.store.evictions()} == both
    turns_alone(monkeypatch)
    world, both = proposed()
    assert {e.preemptor.job_id for e in world.store.evictions()} == {min(both)}
    assert "there was no time" in world.eviction().plan.note
    show(world, world.eviction().eviction_id, "table")
    assert "It was planned in its turn; there was no time" in " ".join(capsys.readouterr().out.split())


def test_what_is_not_proven_is_said(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    def unproven(requests: Sequence[Request], seconds_left: Callable[[], float]) -> Best | None:
        best = plan_together(requests, seconds_left)
        return None if best is None else best._replace(proven=False, least_node_s=0.9 * best.least_node_s)

    def notes() -> list[str]:
        world = make_world()
        fill(world)
        small(world)
        small(world)
        world.tick()
        return [e.plan.note for e in world.store.evictions()]

    assert notes() == ["", ""]
    monkeypatch.setattr(batch, "plan_together", unproven)
    assert set(notes()) == {"planned together with others; of what they all lose there may be needless at most 10.0 %"}
    monkeypatch.setattr(
        batch, "plan_together", lambda *given: (best := unproven(*given)) and best._replace(least_node_s=0.0)
    )
    assert set(notes()) == {"planned at once with others; that is not proven to be the best"}


def test_less_is_lost_than_by_turns(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> tuple[float, set[str]]:
        world = make_world()
        jobs = fill(world)
        world.tick()
        urgent = [small(world), small(world, excluded_nodes=EVERYWHERE_ELSE)]
        finish(world, *urgent)
        assert not world.leftovers()
        return sum(e.plan.chosen.lost_work_node_s or 0.0 for e in world.store.evictions()), restarted(world, jobs)

    together, gone = lost()
    assert gone == {"n1a", "n2a"}
    turns_alone(monkeypatch)
    by_turns, gone = lost()
    assert together < by_turns
    assert "n2a" not in gone


def wide(world: World, *, saves: bool = False) -> tuple[dict[str, str], str]:
    """A job of parts of two nodes: dearer than the one that costs least, cheaper than any two.

    ``saves``: these two save themselves, in 20 and in 15 seconds.
    """

    def on(*nodes: str, ran_s: float, save_s: float | None = None) -> str:
        how = {} if save_s is None else {"comment": f"{SAVES},took={save_s:.0f}"}
        program = None if save_s is None else Program(save_s=save_s)
        return world.submit(
            program, on=nodes, num_nodes=len(nodes), cpus_per_node=2, ran_s=ran_s, memory_mib=100, **how
        )

    jobs = {f"n{number}a": on(f"n{number}", ran_s=3_000) for number in (1, 2)}
    jobs |= {f"n{number}{half}": on(f"n{number}", ran_s=3_000) for number in range(4, 9) for half in "ab"}
    jobs |= {"n3a": on("n3", ran_s=700, save_s=15.0 if saves else None), "n3b": on("n3", ran_s=3_000)}
    return jobs, on("n1", "n2", ran_s=500, save_s=20.0 if saves else None)


def test_a_job_of_parts_makes_room_for_two_and_is_preempted_once(world: World) -> None:
    jobs, both = wide(world)
    urgent = [small(world), small(world)]
    finish(world, *urgent)
    assert restarted(world, jobs | {"both": both}) == {"both"}
    second, first = world.store.evictions()
    assert [job.job_id for job in first.plan.preemptees] == [both]
    assert second.plan.preemptees == ()
    assert both not in second.plan.staying
    assert {first.plan.placement_nodes, second.plan.placement_nodes} == {("n1",), ("n2",)}
    codes = {verdict.job_id: verdict.code for verdict in second.plan.verdicts}
    assert codes[both] == "leaves_for_another"
    assert (first.revision, second.revision) == (0, 0)


def test_when_one_disappears_only_who_counted_on_its_jobs_is_planned_anew(world: World) -> None:
    jobs, both = wide(world, saves=True)
    urgent = [small(world), small(world), small(world, required_nodes=("n4",))]
    world.tick()
    before = {e.preemptor.job_id: e for e in world.store.evictions()}
    assert set(before) == set(urgent)
    (owner,) = [job_id for job_id, e in before.items() if both in {job.job_id for job in e.plan.preemptees}]
    (counting,) = {*urgent[:2]} - {owner}
    assert before[counting].plan.preemptees == ()
    world.tick()
    world.cluster.withdraw(world.cluster.jobs[owner])
    finish(world, counting, urgent[2])
    after = {e.preemptor.job_id: e for e in world.store.evictions()}
    assert after[urgent[2]].plan == before[urgent[2]].plan, "its plan stays"
    assert (after[urgent[2]].revision, after[counting].revision) == (0, 1)
    assert len(restarted(world, jobs | {"both": both})) == 2


class TestInterruption(Interruption):
    """Two urgent jobs for which one job leaves."""

    every, first = 17, 3
    least_effects = 20
    end: ClassVar[End] = {"restarted": {"both"}, "running": True, "leftovers": []}

    def play(self, world: World, daemon: MortalDaemon) -> End:
        jobs, both = wide(world)
        urgent = [small(world), small(world)]
        for _ in range(200):
            daemon.tick()
            if all(world.started(job_id) for job_id in urgent) and world.settled():
                break
        return {
            "urgent": [world.cluster.jobs[job_id].runs for job_id in urgent],
            "restarted": restarted(world, jobs | {"both": both}),
            "running": world.state(both) is JobState.RUNNING,
            "evictions": [e.state for e in world.store.evictions()],
            "leftovers": world.leftovers(),
        }


def test_a_crowd_on_shared_nodes_has_its_plans_in_one_cycle(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=60)
    jobs = {
        f"n{number}{half}": world.submit(on=(f"n{number}",), cpus_per_node=2, ran_s=10 * number + at, memory_mib=100)
        for number in range(1, 61)
        for at, half in enumerate("ab")
    }
    crowd = [small(world) for _ in range(14)]
    world.tick()
    plans = {e.preemptor.job_id: e.plan for e in world.store.evictions(limit=50)}
    assert plans.keys() == set(crowd)
    assert all(set(plan.together) == set(crowd) - {own} for own, plan in plans.items())
    assert len({plan.note for plan in plans.values()}) == 1
    finish(world, *crowd)
    # One of its two jobs leaves each node, and those that have run for the shortest time lose least.
    assert {world.cluster.jobs[job_id].runs[0] for job_id in crowd} == {(f"n{number}",) for number in range(1, 15)}
    assert restarted(world, jobs) == {f"n{number}a" for number in range(1, 15)}
