from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.world import World, make_world

__all__ = ["make_world"]
pytest.register_assert_rewrite("tests.simulation.killing")


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
