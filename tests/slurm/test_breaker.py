"""An epilog that fails drains each node that a job leaves.

One urgent job must not cost the whole cluster that way, nor by what its owner does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import missing_requirements
from tests.slurm.urgent import SCRIPT, let_go

NODES = 24
CYCLES = 20


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SlurmCluster, Path]]:
    """A cluster, and the file that makes its epilogs fail."""
    if reason := missing_requirements():
        skip_or_fail(reason)
    folder = tmp_path_factory.mktemp("epilog")
    flag, epilog = folder / "fails", folder / "epilog"
    epilog.write_text(f"#!/bin/sh\n[ ! -e {flag} ]\n")
    epilog.chmod(0o755)
    with SlurmCluster(nodes=NODES, cpus=1, extra_conf=(f"Epilog={epilog}",)) as cluster:
        yield cluster, flag


@pytest.fixture
def scene(failing: tuple[SlurmCluster, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SlurmCluster, Path]]:
    cluster, flag = failing
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    flag.unlink(missing_ok=True)
    cluster.reset()
    yield cluster, flag
    flag.unlink(missing_ok=True)
    cluster.reset()


def metric(daemon: RunningDaemon, name: str) -> float:
    found = re.search(rf"^clearway_{name}(?:\{{\}})? (\S+)$", daemon.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def approve_all(daemon: RunningDaemon) -> None:
    for e in daemon.evictions():
        if e.state is EvictionState.AWAITING_APPROVAL:
            daemon.post(f"/api/v1/evictions/{e.eviction_id}/approve")  # refused where it is no longer there


@pytest.mark.parametrize("mode", ["automatic", "approve"])
@pytest.mark.parametrize("nodes", [8, NODES])
@pytest.mark.fault(
    "A plan that was made anew after each lost node had no bound: 24 of 24 jobs left within 61 s on a real Slurm.",
    found_by="trial",
)
def test_one_urgent_job_costs_two_jobs_at_most(
    scene: tuple[SlurmCluster, Path], tmp_path: Path, nodes: int, mode: str
) -> None:
    cluster, flag = scene
    for name in cluster.node_names[nodes:]:
        cluster.run("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=not in this test")
    busy = [cluster.sbatch("exec sleep 3600", "-N1", "--exclusive", user="cwalice") for _ in range(nodes)]
    for job_id in busy:
        cluster.wait_state(job_id, "RUNNING")
    flag.touch()
    text = config_text(
        tmp_path / "daemon",
        cluster.conf,
        300,
        daemon=f'mode = "{mode}"\npoll_interval = 1\nactive_interval = 0.25',
        candidates="min_runtime = 0",
        execution="kill_allowance = 12\napproval_time = 30",
    )

    def left() -> int:
        return sum(cluster.job(job_id)["Restarts"] != "0" for job_id in busy)

    with RunningDaemon(cluster, tmp_path / "daemon", config=text) as daemon:
        urgent = cluster.sbatch(SCRIPT, "-N1", "--exclusive", "-p", "urgent", "--time=10", user="cwdaemon")

        def stopped() -> str:
            approve_all(daemon)
            return str(daemon.get("/api/v1/status").json()["stopped"])

        daemon.wait_for(stopped, 90, "it to stop")
        until = metric(daemon, "cycles_total") + CYCLES
        daemon.wait_for(lambda: stopped() and metric(daemon, "cycles_total") >= until, 90, f"{CYCLES} cycles more")
        assert left() == 2
        assert "2 nodes were lost after jobs had left them" in stopped()
        assert "Epilog error" in stopped()
        assert metric(daemon, "stopped") == 1
        assert "no job is made to leave any more" in daemon.log.read_text()
        (waiting,) = daemon.get("/api/v1/status").json()["waiting"]
        assert "clearway resume goes on" in waiting["why"]
        assert cluster.scontrol_reservations() == []

        flag.unlink()
        daemon.post("/api/v1/resume").raise_for_status()

        def runs() -> bool:
            approve_all(daemon)
            return cluster.state(urgent) == "RUNNING"

        daemon.wait_for(runs, 90, "the urgent job to run once an operator has looked")
        assert left() == 3
        let_go(cluster, daemon, urgent)
        assert metric(daemon, "stopped") == 0


def daemon_config(cluster: SlurmCluster, folder: Path, mode: str, execution: str = "kill_allowance = 12") -> str:
    daemon = f'mode = "{mode}"\npoll_interval = 1\nactive_interval = 0.25'
    return config_text(folder, cluster.conf, 300, daemon=daemon, candidates="min_runtime = 0", execution=execution)


def test_what_only_observes_costs_nothing(scene: tuple[SlurmCluster, Path], tmp_path: Path) -> None:
    cluster, flag = scene
    busy = fill(cluster, 8)
    flag.touch()
    text = daemon_config(cluster, tmp_path / "daemon", "observe")
    with RunningDaemon(cluster, tmp_path / "daemon", config=text) as daemon:
        cluster.sbatch(SCRIPT, "-N1", "--exclusive", "-p", "urgent", "--time=10", user="cwdaemon")
        daemon.wait_for(lambda: [e for e in daemon.evictions() if e.state is EvictionState.PROPOSED], 60, "a proposal")
        until = metric(daemon, "cycles_total") + CYCLES
        daemon.wait_for(lambda: metric(daemon, "cycles_total") >= until, 90, f"{CYCLES} cycles more")
    assert left(cluster, busy) == 0


def fill(cluster: SlurmCluster, nodes: int, script: str = "exec sleep 3600") -> list[str]:
    for name in cluster.node_names[nodes:]:
        cluster.run("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=not in this test")
    busy = [cluster.sbatch(script, "-N1", "--exclusive", user="cwalice") for _ in range(nodes)]
    for job_id in busy:
        cluster.wait_state(job_id, "RUNNING")
    return busy


def left(cluster: SlurmCluster, busy: list[str]) -> int:
    return sum(cluster.job(job_id)["Restarts"] != "0" for job_id in busy)


@pytest.mark.full
def test_an_urgent_job_that_its_owner_sends_back_again_and_again(
    scene: tuple[SlurmCluster, Path], tmp_path: Path
) -> None:
    """And that does not want the nodes that were freed for it before: as many jobs as it is sent back, without end."""
    cluster, _ = scene
    busy = fill(cluster, 8)
    text = daemon_config(cluster, tmp_path / "daemon", "automatic", "kill_allowance = 12\nwatch_return = 1")
    with RunningDaemon(cluster, tmp_path / "daemon", config=text) as daemon:
        urgent = cluster.sbatch("exec sleep 3600", "-N1", "--exclusive", "-p", "urgent", "--time=60", user="cwdaemon")
        had: list[str] = []

        def asked() -> str:
            return next((e.outcome for e in daemon.evictions() if e.state is EvictionState.AWAITING_APPROVAL), "")

        def over() -> bool:
            known = daemon.evictions()
            return len(known) > len(had) and all(e.started_at is not None and e.state.terminal for e in known)

        for _ in range(3):
            daemon.wait_for(
                lambda: (over() and cluster.state(urgent) == "RUNNING") or asked(), 90, "it to run, or to wait"
            )
            if asked():
                break
            had.append(cluster.job(urgent)["NodeList"])
            cluster.run("scontrol", "requeue", urgent, user="cwdaemon")
            cluster.wait_state(urgent, "PENDING")
            cluster.run("scontrol", "update", f"JobId={urgent}", f"ExcNodeList={','.join(had)}", user="cwdaemon")
            cluster.run("scontrol", "update", f"JobId={urgent}", "StartTime=now", user="cwdaemon")
        assert len(had) == 2
        assert "than was planned" in asked()
        assert left(cluster, busy) == 2
        cluster.run("scancel", urgent)


@pytest.mark.full
def test_slurms_own_preemption_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The yardstick: one urgent job of one node, epilogs that fail, and Slurm preempts by itself for 90 s."""
    if reason := missing_requirements():
        skip_or_fail(reason)
    epilog = tmp_path / "epilog"
    epilog.write_text("#!/bin/sh\nexit 1\n")
    epilog.chmod(0o755)
    tmp_path.chmod(0o755)
    own = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", f"Epilog={epilog}")
    with SlurmCluster(nodes=8, cpus=1, extra_conf=own) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        busy = fill(cluster, 8)
        cluster.run("scontrol", "update", "PartitionName=urgent", "PriorityTier=100", "PreemptMode=OFF")
        cluster.sbatch(SCRIPT, "-N1", "--exclusive", "-p", "urgent", "--time=10", user="cwdaemon")
        cluster.wait_for(lambda: left(cluster, busy) > 2, 180, "more to leave than Clearway lets go")
