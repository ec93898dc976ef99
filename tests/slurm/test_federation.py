"""Two clusters in a federation, with one slurmdbd: the daemon of one of them sees and touches its own jobs alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clearway.slurm.cli import CliBackend
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import missing_requirements
from tests.slurm.test_end_to_end import LOOP, WHOLE, submit_urgent

pytestmark = [pytest.mark.one_slurm, pytest.mark.full]


class Second(SlurmCluster):
    """Of the same munge and the same slurmdbd as the first one."""

    def __init__(self, first: SlurmCluster) -> None:
        self._munge_of_both = first._munge_socket
        dbd = "AccountingStorage"
        accounting = (f"{dbd}Type=accounting_storage/slurmdbd", f"{dbd}Port={first._ports['slurmdbd']}")
        more = (f"{dbd}Host=localhost", f"{dbd}Pass={first._munge_socket}")
        super().__init__(nodes=2, extra_conf=("ClusterName=second", *accounting, *more))

    def start_munge(self) -> None: ...

    @property
    def _munge_socket(self) -> Path:
        return self._munge_of_both


@pytest.fixture
def federation(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SlurmCluster, SlurmCluster]]:
    if reason := missing_requirements(accounting=True):
        skip_or_fail(reason)
    with SlurmCluster(nodes=2, accounting=True) as first, Second(first) as second:
        first.run("sacctmgr", "-i", "add", "federation", "fed", "clusters=clearway,second")
        for each in (first, second):
            each.wait_for(lambda each=each: in_step(each), 60, "the federation")
        monkeypatch.setenv("SLURM_CONF", str(first.conf))
        yield first, second


def in_step(cluster: SlurmCluster) -> bool:
    return "Synced:Yes" in cluster.run("scontrol", "show", "federation").stdout


def seen_by(cluster: SlurmCluster) -> dict[str, str]:
    """State by job id, of jobs that are not over."""
    snapshot = CliBackend(now=lambda: datetime.now(UTC), slurm_conf=str(cluster.conf)).snapshot()
    assert snapshot.skipped == ()
    return {job.job_id: job.state.value for job in snapshot.jobs}


def test_each_cluster_sees_its_own_jobs(federation: tuple[SlurmCluster, SlurmCluster], tmp_path: Path) -> None:
    """Four jobs of one cluster fill both. For an urgent job one leaves here, and none there."""
    here, there = federation
    limits = ("--requeue", "--output=/dev/null", "--time=60", *WHOLE)
    jobs = [here.sbatch(LOOP, *limits, user="cwalice") for _ in range(4)]
    assert all(int(job_id) > 2**26 for job_id in jobs)

    def each_runs_once() -> tuple[dict[str, str], dict[str, str]] | None:
        mine, other = seen_by(here), seen_by(there)
        once = sorted([*mine, *other]) == sorted(jobs) and {*mine.values(), *other.values()} == {"running"}
        return (mine, other) if once else None

    mine, other = here.wait_for(each_runs_once, 60, "siblings to be revoked")
    with RunningDaemon(here, tmp_path / "daemon") as daemon:
        urgent, _ = submit_urgent(here, 1)
        here.wait_state(urgent, "RUNNING", timeout=60)
        daemon.wait_for(lambda: daemon.evictions()[0].started_at, 60, "the daemon to see it run")
        (eviction,) = daemon.evictions()
        (gone,) = (p.job_id for p in eviction.preemptions if p.requeued_at)
        assert gone in mine
        assert all(there.job(job_id)["Restarts"] == "0" for job_id in other)
        assert all(seen_by(there)[job_id] == "running" for job_id in other)
        assert not there.scontrol_reservations()
