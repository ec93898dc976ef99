from __future__ import annotations

from tests.simulation.world import make_world

__all__ = ["make_world"]
