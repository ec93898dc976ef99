from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.world import World

pytest.register_assert_rewrite("tests.simulation.killing")


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**fields: Any) -> World:
        worlds.append(World(f"sqlite:///{tmp_path}/store-{len(worlds)}.sqlite", **fields))
        return worlds[-1]

    yield make
    for world in worlds:
        world.store.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
