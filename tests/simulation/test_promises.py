"""Evictions that share the file system with others: whatever comes later, what was promised first is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from clearway.execution.records import Eviction
from clearway.model import Action
from tests.simulation.test_drain import drain, now
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
    made = next(each for each in world.store.evictions() if each.drain is None)
    assert in_time(made)
    assert in_time(now(world, drained))
