"""Plans are explained between cycles: stored, told, and never at a cycle's expense."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.model.events import Event, PlanExplained
from clearway.model.explanation import Explanation
from clearway.model.plan import Choice, Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.explanation import explain
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, Quiet, World, config

FOREVER = float("inf")


def fill(world: World) -> None:
    for number in range(1, 9):
        comment = SAVES if number > 6 else ""
        world.submit(Program(save_s=3.0), on=(f"n{number}",), ran_s=100 * number, comment=comment)


class Listening(Quiet):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[int, Explanation]] = []

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, PlanExplained):
            self.heard.append((event.operation.eviction_id, event.explanation))


def test_a_plan_is_explained_after_its_cycle_and_only_once(world: World) -> None:
    observer = Listening()
    world.start_daemon(emit=observer)
    fill(world)
    world.urgent(3)
    world.tick()
    eviction = world.eviction()
    assert world.store.explanation(eviction.eviction_id) is None, "no cycle waits for it"

    world.loop.explain(FOREVER)
    found = world.store.explanation(eviction.eviction_id)
    expected = explain(eviction.plan, EvictionDP())
    assert found == replace(expected, curve=None)
    assert observer.heard == [(eviction.eviction_id, expected)]
    curve = world.eviction().plan.curve
    assert curve == expected.curve, "it has joined the plan"
    assert len(curve.points) > len(eviction.plan.curve.points) == 1
    assert {each.job_id for each in found.alternatives} == {str(number) for number in range(1, 9)}
    chosen = {each.job_id for each in found.alternatives if each.choice is Choice.CHOSEN}
    assert chosen == {job.job_id for job in eviction.plan.preemptees}

    world.tick()
    world.loop.explain(FOREVER)
    assert len(observer.heard) == 1


def test_explaining_stops_when_the_pause_is_over_and_goes_on_in_the_next(world: World) -> None:
    fill(world)
    world.urgent(3)
    world.tick()
    world.loop.explain(world.clock.monotonic())
    assert world.store.explanation(1) is None
    for _ in range(100):  # one solution a pause
        world.loop.wake()
        world.loop.explain(FOREVER)
    assert world.store.explanation(1) is None, "somebody who wakes the loop goes first"
    world.loop._wake.clear()
    world.loop.explain(FOREVER)
    assert world.store.explanation(1) is not None


def test_a_plan_has_its_share_of_time_and_no_more(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(planning={"explanation_time": "15s"}))

    class Slow(EvictionDP):
        def decide(self, problem: EvictionProblem, *given: Any, **named: Any) -> Curve:
            world.clock.advance(1.0)
            return super().decide(problem, *given, **named)

    world.start_daemon(planner=Slow())
    fill(world)
    world.urgent(3)
    world.tick()
    world.loop.explain(FOREVER)
    found = world.store.explanation(1)
    assert found is not None
    assert not found.complete
    assert 0 < sum(each.known for each in found.alternatives) < len(found.alternatives)
    assert len(found.rules) == 4, "the rules come first"


def test_a_restarted_daemon_explains_what_the_one_before_did_not(world: World) -> None:
    fill(world)
    world.urgent(3)
    world.tick()
    world.store.close()
    world.start_daemon()
    world.tick()
    world.loop.explain(FOREVER)
    assert world.store.explanation(1) is not None


@pytest.mark.parametrize("standing_by", [False, True])
def test_only_the_daemon_that_acts_explains(world: World, standing_by: bool) -> None:
    fill(world)
    world.urgent(3)
    world.tick()
    if standing_by:
        world.store.close()
        world.start_daemon(owner="another")
        world.tick()
    world.loop.explain(FOREVER)
    assert (world.store.explanation(1) is None) is standing_by


def test_an_explanation_that_fails_costs_no_cycle_and_is_not_tried_again(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(daemon={"poll_interval": 0.001, "active_interval": 0.001}))
    tried: list[int] = []

    class Breaks(EvictionDP):
        def decide(self, problem: EvictionProblem, *_: Any, **__: Any) -> Curve:
            tried.append(len(problem.candidates))
            raise RuntimeError("out of order")

    fill(world)
    world.urgent(3)
    world.tick()
    world.start_daemon(planner=Breaks())
    stop, cycles = threading.Event(), [0]

    def beat() -> None:
        cycles[0] += 1
        world.clock.advance(0.5)
        if cycles[0] == 12:
            stop.set()

    world.loop.run(stop, beat)
    assert cycles[0] == 12
    assert len(tried) == 1
    assert [str(failure) for failure in world.observer.failures] == ["out of order"]
    assert world.store.explanation(1) is None


def test_nothing_is_explained_where_that_is_switched_off(make_world: Callable[..., World]) -> None:
    fields: dict[str, Any] = {"planning": {"explanation_time": 0}}
    world = make_world(config=config(**fields))
    fill(world)
    world.urgent(3)
    world.tick()
    world.loop.explain(FOREVER)
    assert world.store.explanation(1) is None
