"""The real cluster that the tests of this folder share.

Without Slurm (or without root) these tests are skipped with the reason, unless CLEARWAY_REQUIRE_TIERS names
the tier (``slurm``, or ``slurm24`` and ``slurm26`` inside their trees): what is promised must not be skipped silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.doctor_scene import ODD_CONF, Scene, made
from tests.slurm.machine import missing_requirements


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("CLEARWAY_TIER") not in ("slurm24", "slurm26"):
        return
    short = not os.environ.get("CLEARWAY_FULL")
    for item in items:
        if cannot := item.get_closest_marker("debian12"):
            item.add_marker(pytest.mark.skip(reason=f"not in the trees: {cannot.args[0]}"))
        elif short and item.get_closest_marker("one_slurm"):
            item.add_marker(pytest.mark.skip(reason="says nothing new of another Slurm: --full tries it here, too"))


def skip_or_fail(reason: str) -> None:
    tier = os.environ.get("CLEARWAY_TIER", "slurm")
    if tier in os.environ.get("CLEARWAY_REQUIRE_TIERS", "").replace(",", " ").split():
        pytest.fail(f"tier {tier} is required, but cannot run here: {reason}", pytrace=False)
    pytest.skip(f"cannot run here: {reason}")


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[SlurmCluster]:
    """Eight nodes of four CPUs, for the whole run. Tests take ``cluster``, which is this one, tidied up."""
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    with SlurmCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """The shared cluster without jobs or reservations, and SLURM_CONF pointing to it."""
    monkeypatch.setenv("SLURM_CONF", str(shared_cluster.conf))
    shared_cluster.reset()
    yield shared_cluster
    shared_cluster.reset()


def skip_without_accounting() -> None:
    """Where no cluster with slurmdbd can be started."""
    reason = missing_requirements()
    reason = reason or missing_requirements(accounting=True)
    if reason:
        skip_or_fail(reason)


@pytest.fixture(scope="session")
def accounting_cluster() -> Iterator[SlurmCluster]:
    """A second cluster with MariaDB and slurmdbd, where ``cwdaemon`` is an operator and no root is needed."""
    skip_without_accounting()
    with SlurmCluster(accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmCluster]:
    skip_without_accounting()
    with SlurmCluster(nodes=2, accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def odd_site() -> Iterator[SlurmCluster]:
    """Without slurmdbd."""
    if reason := missing_requirements():
        skip_or_fail(reason)
    with SlurmCluster(nodes=1, extra_conf=ODD_CONF) as cluster:
        yield cluster


@pytest.fixture
def scene(site: SlurmCluster, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield from made(site, tmp_path, empty_database, monkeypatch)


@pytest.fixture
def odd_scene(
    odd_site: SlurmCluster, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    yield from made(odd_site, tmp_path, empty_database, monkeypatch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:  # noqa: ARG001 - pytest's names
    """Show the end of the cluster's logs under a failed test."""
    report = yield
    if report.failed and report.when != "teardown":
        used = getattr(item, "funcargs", {}).items()
        clusters = {id(used_as): (name, used_as) for name, used_as in used if isinstance(used_as, SlurmCluster)}
        for name, cluster in clusters.values():
            report.sections.append((f"logs of {name}", cluster.logs()))
    return report
