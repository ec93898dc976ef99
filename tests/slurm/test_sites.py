"""Situations of real sites, each on a real cluster: docs/explanation/sites.md names them, and what Clearway does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway.model.operations import Eviction
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import missing_requirements
from tests.slurm.sites import SiteCluster
from tests.slurm.test_end_to_end import LOOP, WHOLE, no_leftovers, submit_urgent
from tests.slurm.urgent import let_go

pytestmark = pytest.mark.one_slurm


@pytest.fixture(scope="module")
def site_cluster() -> Iterator[SiteCluster]:
    if reason := missing_requirements():
        skip_or_fail(reason)
    with SiteCluster() as cluster:
        yield cluster


@pytest.fixture
def site(site_cluster: SiteCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SiteCluster]:
    monkeypatch.setenv("SLURM_CONF", str(site_cluster.conf))
    site_cluster.reset()
    yield site_cluster
    site_cluster.reset()


def submit(cluster: SlurmCluster, *options: str, script: str = LOOP, user: str = "cwalice") -> str:
    return cluster.sbatch(script, "--requeue", "--output=/dev/null", "--time=60", *WHOLE, *options, user=user)


def busy(cluster: SlurmCluster, *nodes: str) -> list[str]:
    """A job on each of these nodes."""
    jobs = [submit(cluster, f"--nodelist={name}") for name in nodes]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    return jobs


def restarted(cluster: SlurmCluster, jobs: list[str]) -> list[str]:
    return [job_id for job_id in jobs if cluster.job(job_id)["Restarts"] != "0"]


def daemon_of(cluster: SlurmCluster, folder: Path, delay_s: int = 60, **changes: str) -> RunningDaemon:
    text = config_text(folder, cluster.conf, **changes)
    return RunningDaemon(cluster, folder, config=text.replace('max_delay = "60s"', f'max_delay = "{delay_s}s"'))


def ended(daemon: RunningDaemon, number: int = 1) -> Eviction:
    """The last of so many evictions, once all have come to their end."""

    def over() -> bool:
        found = daemon.evictions()
        return len(found) == number and all(e.state.terminal for e in found)

    daemon.wait_for(over, 120, f"the end of {number} evictions")
    return max(daemon.evictions(), key=lambda e: e.eviction_id)


# -- power saving ----------------------------------------------------------------------------------------------


def test_no_job_leaves_where_a_node_that_is_switched_off_boots_in_time(site: SiteCluster, tmp_path: Path) -> None:
    jobs = busy(site, "node1", "node2", "node3")
    site.switch_off("node4")
    with daemon_of(site, tmp_path / "daemon", 120):
        urgent, _ = submit_urgent(site, 1)
        site.wait_state(urgent, "RUNNING", timeout=60)
        assert site.job(urgent)["NodeList"] == "node4"
        assert restarted(site, jobs) == []


@pytest.mark.full
def test_a_job_leaves_beside_a_node_that_is_switched_off(site: SiteCluster, tmp_path: Path) -> None:
    """The urgent job of two nodes gets the one that boots, and one that is freed."""
    jobs = busy(site, "node1", "node2", "node3")
    site.switch_off("node4")
    with daemon_of(site, tmp_path / "daemon", 120) as daemon:
        urgent, _ = submit_urgent(site, 2)
        site.wait_state(urgent, "RUNNING", timeout=90)
        let_go(site, daemon, urgent)
        eviction = ended(daemon)
        nodes = site.run("scontrol", "show", "hostnames", site.job(urgent)["NodeList"]).stdout.split()
        assert "node4" in nodes
        assert sorted(nodes) == list(eviction.plan.placement_nodes)
        assert len(restarted(site, jobs)) == 1
        no_leftovers(site)
