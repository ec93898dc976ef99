"""Evictions that share the file system with others: whatever comes later, what was promised first is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

from clearway.config.configuration import Config
from clearway.drain.request import DrainRequest
from clearway.model.operations import Eviction
from clearway.model.problem import Action
from tests.simulation.drains import drain, now
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.test_shared_bandwidth import NODE_MIB_S, occupy, saving, shared
from tests.simulation.world import World


def in_time(eviction: Eviction) -> bool:
    return not eviction.late and eviction.started_at is not None and eviction.started_at <= eviction.plan.deadline


def test_an_urgent_job_that_comes_later_does_not_count_on_bandwidth_that_is_promised(
    make_world: Callable[..., World],
) -> None:
    """The first one's checkpoint takes all the bandwidth for 32 s of its 54 s; the second's would be complete at 64 s.

    So the second is promised in time what it can have in time: the loss of its job's work.
    """
    world = make_world(**shared(NODE_MIB_S, allow_kill=True))
    occupy(world, 2)
    first = world.urgent(1, work_s=5.0)
    world.run_until(lambda: saving(world) == 1)
    second = world.urgent(1, work_s=5.0)
    world.run_until(lambda: None not in (world.started(first), world.started(second)), limit_s=120)
    begun, later = sorted(world.store.evictions(), key=lambda each: each.eviction_id)
    assert in_time(begun)
    assert in_time(later)
    assert [p.action for p in begun.preemptions] == [Action.APP_CHECKPOINT]
    assert [p.action for p in later.preemptions] == [Action.KILL]


def test_a_drain_that_waits_for_its_turn_is_in_time_though_an_urgent_job_is_more_urgent(
    make_world: Callable[..., World],
) -> None:
    """Three jobs are saved one after another, 96 s of 100; an urgent job's 32 s in between would be too many."""
    world = make_world(**shared(NODE_MIB_S, allow_kill=True))
    occupy(world, 4)
    drained = drain(world, "n[1-3]", deadline=world.clock.now() + timedelta(seconds=110))
    world.run_until(lambda: saving(world) == 1)
    urgent = world.urgent(1, work_s=5.0)
    world.run_until(lambda: world.started(urgent) is not None and now(world, drained).started_at is not None, 200)
    made = next(each for each in world.store.evictions() if isinstance(each, Eviction))
    assert in_time(made)
    assert in_time(now(world, drained))


def test_without_kills_nothing_is_promised_that_can_not_be_kept(make_world: Callable[..., World]) -> None:
    world = make_world(**shared(NODE_MIB_S))
    occupy(world, 2)
    first = world.urgent(1, work_s=5.0)
    world.run_until(lambda: saving(world) == 1)
    world.urgent(1, work_s=5.0)
    world.run_until(lambda: world.started(first) is not None, limit_s=60)
    assert in_time(world.eviction())
    waiting = world.tick().waiting[-1]
    assert waiting.eviction_id is None
    assert "not enough within" in waiting.why


def test_several_urgent_jobs_count_what_is_written_before_them(make_world: Callable[..., World]) -> None:
    """32 s of another one's checkpoint, then 32 s each: the first of the two is not in time by 80 s without it."""
    world = make_world(**shared(NODE_MIB_S, allow_kill=True))
    occupy(world, 3)
    first = world.urgent(1, work_s=5.0)
    world.run_until(lambda: saving(world) == 1)
    two = [world.urgent(1, work_s=5.0, comment=f"clearway:max_delay={delay_s}") for delay_s in (60, 80)]
    world.run_until(lambda: None not in [world.started(job_id) for job_id in (first, *two)], limit_s=200)
    evictions = sorted(world.store.evictions(), key=lambda each: each.plan.deadline)
    assert all(in_time(each) for each in evictions)
    assert [len(each.plan.together) for each in evictions] == [0, 1, 1]
    actions = [p.action for each in evictions[1:] for p in each.preemptions]
    assert sorted(actions) == [Action.APP_CHECKPOINT, Action.KILL], "one fits behind the first"


def test_jobs_of_a_drain_are_saved_at_once_where_its_deadline_leaves_no_other_way(
    make_world: Callable[..., World],
) -> None:
    """Three times 32 s of 54 s; at once they take 3 x 6.4 s and 25.6 s at most."""
    world = make_world(**shared(5 * NODE_MIB_S))
    jobs = occupy(world, 3)
    drained = drain(world, "n[1-3]", deadline=world.clock.now() + timedelta(seconds=60))
    world.run_until(lambda: saving(world) == 3, 10)
    world.run_until(lambda: now(world, drained).started_at is not None, 100)
    done = now(world, drained)
    assert in_time(done)
    assert {p.job_id: p.action for p in done.preemptions} == dict.fromkeys(jobs, Action.APP_CHECKPOINT)
    assert all(each.file_system_s == 6.4 for each in done.plan.chosen.actions)


def test_jobs_of_a_drain_that_has_time_are_saved_one_after_another(make_world: Callable[..., World]) -> None:
    """So that an urgent job's checkpoint can come between them."""
    world = make_world(**shared(5 * NODE_MIB_S))
    occupy(world, 4)
    drained = drain(world, "n[1-3]", deadline=world.clock.now() + timedelta(seconds=300))
    world.run_until(lambda: saving(world) == 1, 10)
    urgent = world.urgent(1, work_s=5.0, comment="clearway:max_delay=100")
    most = 0

    def both() -> bool:
        nonlocal most
        most = max(most, saving(world))
        return world.started(urgent) is not None and now(world, drained).started_at is not None

    world.run_until(both, 400)
    assert most == 2, "one of the drain, and the urgent job's beside it"
    assert all(in_time(each) for each in world.store.evictions())


def test_a_drain_counts_what_is_written_for_an_urgent_job(make_world: Callable[..., World]) -> None:
    world = make_world(**shared(NODE_MIB_S))
    occupy(world, 2)
    world.urgent(1, work_s=5.0)
    world.run_until(lambda: saving(world) == 1)
    (urgent,) = world.store.evictions()
    (node,) = {"n1", "n2"} - set(urgent.plan.placement_nodes)
    early = drain(world, node, deadline=world.clock.now() + timedelta(seconds=60))
    world.run_until(lambda: now(world, early).state.terminal, 20)
    assert now(world, early).outcome.startswith("Not drained: saving its jobs takes longer than")
    late = drain(world, node, deadline=world.clock.now() + timedelta(seconds=90))
    world.run_until(lambda: now(world, late).started_at is not None, 120)
    assert in_time(now(world, late))
    assert in_time(now(world, urgent))


def test_a_plan_that_is_approved_after_another_one_has_begun_is_made_anew(make_world: Callable[..., World]) -> None:
    fields = shared(NODE_MIB_S, allow_kill=True)
    settings = fields["config"].model_dump(mode="json") | {}
    settings["daemon"]["mode"] = "approve"
    settings["execution"]["approval_time"] = 20
    world = make_world(**fields | {"config": type(fields["config"]).model_validate(settings)})
    occupy(world, 2)
    world.urgent(1, work_s=5.0)
    world.tick()
    world.urgent(1, work_s=5.0)
    world.tick()
    first, second = (each.eviction_id for each in sorted(world.store.evictions(), key=lambda each: each.eviction_id))

    def approve(eviction_id: int) -> None:
        world.store.add_request("approve", eviction_id, "olga", world.clock.now())
        world.tick()

    approve(first)
    world.run_until(lambda: saving(world) == 1, 10)
    approve(second)
    put_aside = world.store.eviction(second)
    assert put_aside.outcome == "Not carried out: checkpoints of other evictions come before its own now."
    world.run_until(lambda: len(world.store.evictions()) == 3, 10)
    anew = next(each for each in world.store.evictions() if each.eviction_id not in (first, second))
    assert [planned.action for planned in anew.plan.chosen.actions] == [Action.KILL]
    approve(anew.eviction_id)
    world.run_until(world.settled, 400)
    assert in_time(world.store.eviction(first))
    assert in_time(world.store.eviction(anew.eviction_id))


class TestInterruption(Interruption):
    """The jobs of a drain are saved at once, and an urgent job waits for them with its own."""

    every = 19  # of some 150
    least_effects = 100
    end: ClassVar[End] = {"in_time": [True, True], "restarts": [1, 1, 1, 1], "leftovers": []}

    def settings(self) -> Config:
        return shared(5 * NODE_MIB_S)["config"]

    def play(self, world: World, daemon: MortalDaemon) -> End:
        jobs = occupy(world, 4)
        wish = DrainRequest(nodes="n[1-3]", deadline=world.clock.now() + timedelta(seconds=70))
        world.store.add_request("drain", None, "root (command line)", world.clock.now(), wish.model_dump_json())
        for _ in range(8):
            daemon.tick()
        urgent = world.urgent(1, work_s=5.0, comment="clearway:max_delay=120")
        for _ in range(300):
            daemon.tick(1.0)
            if world.started(urgent) and world.settled():
                break
        evictions = sorted(world.store.evictions(), key=lambda each: each.eviction_id)
        return {
            "in_time": [in_time(each) for each in evictions],
            "actions": [sorted((p.job_id, p.action) for p in each.preemptions) for each in evictions],
            "restarts": [world.cluster.jobs[job_id].job.restart_count for job_id in jobs],
            "leftovers": world.leftovers(),
        }
