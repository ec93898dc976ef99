"""When the garbage collector is told what stays: never within a cycle, and seldom."""

from __future__ import annotations

import gc

import pytest

from tests.simulation.world import World


def test_it_is_told_at_the_start_after_the_first_cycle_and_once_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("unfreeze", "collect", "freeze"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))
    whole = ["unfreeze", "collect", "freeze"]

    def settled() -> list[str]:
        done.clear()
        world.loop.settle()
        return list(done)

    assert settled() == whole
    assert settled() == []
    world.tick()
    assert done == []
    assert settled() == whole, "now the records of the cluster are there"
    world.clock.advance(3_500)
    assert settled() == []
    world.clock.advance(200)
    assert settled() == whole
    assert settled() == []
