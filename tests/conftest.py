"""Settings of every tier, and what a short run leaves out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.oracle.sampled import left_out, share

# No limit in seconds for an example: a machine that others share may stand still for as long.
settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_configure() -> None:
    share()  # before xdist starts its workers, so that all go by the same


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without ``tests/run --full``: no tests marked ``full``, and of the oracle's problems a share."""
    dropped = left_out(items, share())
    if not os.environ.get("CLEARWAY_FULL"):
        dropped |= {item for item in items if item.get_closest_marker("full")}
    items[:] = [item for item in items if item not in dropped]
    config.hook.pytest_deselected(items=list(dropped))


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has its tables: to make them takes longer than many a test."""
    from clearway.store.repository import Store

    path = tmp_path_factory.mktemp("empty") / "store.sqlite"
    Store(f"sqlite:///{path}").close()
    return path
