"""The splitting of worlds that the interruption tests rest on: a kill that matters is found, and told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.sampled import CHANGED, UNCHANGED, Share
from tests.simulation.killing import PARTS, MortalDaemon, killed_everywhere, one_in, tried_parts
from tests.simulation.world import World


def play(world: World, daemon: MortalDaemon) -> dict[str, Any]:
    job = world.submit(on=("n1",), ran_s=40)
    for number in range(2, 9):
        world.submit(on=(f"n{number}",), ran_s=2_000)
    urgent = world.urgent(1, work_s=600.0)
    for _ in range(20):
        daemon.tick()
    return {"started": world.started(urgent) is not None, "runs": len(world.cluster.jobs[job].runs)}


def test_the_original_plays_on_as_if_nothing_had_been_killed(world: World) -> None:
    daemon = killed_everywhere(world, play, one_in(4))
    assert [kill.effect for kill in daemon.kills] == list(range(0, daemon.effects, 4))
    assert len(daemon.kills) > 3
    assert world.started("9") is not None


def test_an_end_that_a_kill_has_changed_is_found(world: World) -> None:
    def forgets(world: World, daemon: MortalDaemon) -> dict[str, Any]:
        end = play(world, daemon)
        return end | {"runs": 0} if not daemon.kills else end  # the first copy knows of no kill before its own

    with pytest.raises(AssertionError, match="killed at effect 0"):
        killed_everywhere(world, forgets, one_in(8))


def test_a_failure_after_a_kill_is_told_with_its_traceback(world: World) -> None:
    def fails(world: World, daemon: MortalDaemon) -> None:
        play(world, daemon)
        if not daemon.kills:
            raise LookupError("after a kill only")

    with pytest.raises(AssertionError, match=r"killed at effect 0(?s:.)*LookupError: after a kill only"):
        killed_everywhere(world, fails, one_in(8))


@pytest.mark.parametrize("of", [CHANGED, UNCHANGED])
def test_every_part_of_a_scenario_has_its_turn(of: int) -> None:
    assert tried_parts(Share(1)) == list(range(PARTS))
    tried = [tried_parts(Share(of, turn)) for turn in range(of)]
    assert all(len(each) == 1 for each in tried)
    assert {part for each in tried for part in each} == set(range(PARTS))


def test_the_parts_of_a_scenario_have_each_effect_once() -> None:
    chosen = [one_in(2, 0, part, PARTS) for part in range(PARTS)]
    assert [sum(each(number) for each in chosen) for number in range(40)] == [1, 0] * 20
