from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tests.simulation.world import World, make_world

__all__ = ["make_world"]
# With what pytest keeps in memory the collector takes a tenth of the unit tier. Elsewhere daemons' memory is measured.
gc.set_threshold(100_000, 20, 50)
pytest.register_assert_rewrite("tests.simulation.killing")


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
