"""Compaction and promotion on a real cluster: jobs move to the nodes that were told, and end with the right results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState, Relocation
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, check_result, config_text, install_programs
from tests.slurm.test_drain import STEPS, UNPROTECTED, ask, clearway, drained, newest, nodes_of, saver

HEAD_OF_QUEUE = 4_294_960_000  # priorities that Slurm works out are below


def config_for(folder: Path, cluster: SlurmCluster) -> str:
    """The token ``tester`` may have jobs moved; nobody does so of its own accord."""
    changes = {
        "candidates": UNPROTECTED,
        "drain": 'operators = ["tester"]',
        "compaction": "min_gain = 0.1",
        "promotion": "min_gain = 0.1",
    }
    return config_text(folder, cluster.conf, **changes)


@pytest.fixture
def daemon(cluster: SlurmCluster, tmp_path: Path) -> Iterator[RunningDaemon]:
    folder = tmp_path / "daemon"
    with RunningDaemon(cluster, folder, config=config_for(folder, cluster)) as running:
        yield running


def small(cluster: SlurmCluster) -> str:
    return saver(cluster, "-N1", "-n1", "--mem=500")


def filler(cluster: SlurmCluster, cpus: int, *more: str) -> str:
    """Takes what is left of a node, so that the next job goes to another one."""
    args = ("-N1", f"-n{cpus}", "--mem=500", "--output=/dev/null", *more)
    job_id = cluster.sbatch("sleep 600", *args, user="cwbob")
    cluster.wait_state(job_id, "RUNNING")
    return job_id


def partly_used(cluster: SlurmCluster) -> set[str]:
    return {node["NodeName"] for node in cluster.records("node") if 0 < int(node["CPUAlloc"]) < 4}


def assert_nothing_is_left(cluster: SlurmCluster) -> None:
    assert cluster.scontrol_reservations() == []
    assert not [node["NodeName"] for node in cluster.records("node") if "DRAIN" in node["State"]]
    assert cluster.node_reasons() == {}


def moved(daemon: RunningDaemon) -> None:
    daemon.wait_for(lambda: newest(daemon).state.terminal, 60, "the end of the moves")
    assert newest(daemon).state is EvictionState.COMPLETED, newest(daemon).outcome


@pytest.mark.one_slurm
def test_three_partly_used_nodes_become_one(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    install_programs(cluster)
    jobs, fillers = [], []
    for _ in range(3):
        jobs.append(small(cluster))
        fillers.append(filler(cluster, 3))
    for job_id in fillers:
        cluster.run("scancel", job_id)
        cluster.wait_state(job_id, "CANCELLED")
    assert [nodes_of(cluster, job_id) for job_id in jobs] == [{"node1"}, {"node2"}, {"node3"}]
    cluster.wait_for(lambda: partly_used(cluster) == {"node1", "node2", "node3"}, 10, "three partly used nodes")
    daemon.wait_for(lambda: daemon.post("/api/v1/compactions/what-if").json()["feasible"], 10, "a plan")
    assert partly_used(cluster) == {"node1", "node2", "node3"}
    done = clearway(daemon, "compact", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert newest(daemon).state is EvictionState.COMPLETED
    done_by = newest(daemon)
    assert isinstance(done_by, Relocation)
    order = done_by.order
    targets = {move.job_id: move.target for move in order.moves}
    assert len(targets) == 2
    assert {p.job_id: p.state for p in newest(daemon).preemptions} == dict.fromkeys(targets, PreemptionState.RETURNED)
    assert {job_id: nodes_of(cluster, job_id) for job_id in targets} == {i: {n} for i, n in targets.items()}
    assert len(partly_used(cluster)) == 1
    assert [cluster.job(job_id)["Restarts"] for job_id in jobs] == [str(int(job_id in targets)) for job_id in jobs]
    assert_nothing_is_left(cluster)
    planned = clearway(daemon, "compact", "--dry-run")
    assert planned.returncode == 1, planned.stdout + planned.stderr
    assert "Not possible: no move gains enough for what it costs" in planned.stdout
    told = daemon.get(f"/api/v1/evictions/{newest(daemon).eviction_id}").json()
    assert told["drain"]["move"]["kind"] == "compaction"
    for job_id in jobs:
        check_result(cluster, job_id, STEPS)


@pytest.mark.full
def test_the_larger_part_of_an_uneven_job_moves(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    """It has two processors on node1 and one on node2, which is full."""
    install_programs(cluster)
    job_id = saver(cluster, "-N2", "-n3", "--mem=500")
    assert nodes_of(cluster, job_id) == {"node1", "node2"}
    filler(cluster, 3, "-w", "node2")
    filler(cluster, 1, "-w", "node3")
    assert [node["CPUAlloc"] for node in cluster.records("node")[:3]] == ["2", "4", "1"]
    daemon.wait_for(lambda: daemon.post("/api/v1/compactions/what-if").json()["feasible"], 10, "a plan")
    done = clearway(daemon, "compact", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert newest(daemon).state is EvictionState.COMPLETED
    assert newest(daemon).outcome == "1 of 1 job(s) moved; node1 is empty."
    assert nodes_of(cluster, job_id) == {"node2", "node3"}
    assert [node["CPUAlloc"] for node in cluster.records("node")[:3]] == ["0", "4", "3"]
    assert cluster.job(job_id)["Restarts"] == "1"
    assert_nothing_is_left(cluster)
    check_result(cluster, job_id, STEPS)


def test_a_job_rises_to_a_better_node(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    """Its node becomes the last that Slurm would give, by weight; it goes to the fullest of the others.

    That is not where Slurm would start it by itself: nodes 2 to 4 come first.
    """
    install_programs(cluster)
    try:
        job_id, beside = small(cluster), filler(cluster, 3)
        filler(cluster, 1, "-w", "node5")
        assert nodes_of(cluster, job_id) == {"node1"}
        cluster.run("scontrol", "update", "NodeName=node1", "Weight=50")
        assert ask(daemon, "promotions").startswith("promote 1")
        moved(daemon)
        assert nodes_of(cluster, job_id) == {"node5"}
        assert nodes_of(cluster, beside) == {"node1"}
        assert cluster.job(job_id)["Restarts"] == "1"
        assert_nothing_is_left(cluster)
        check_result(cluster, job_id, STEPS)
    finally:
        cluster.run("scontrol", "update", "NodeName=node1", "Weight=1")


@pytest.mark.full
@pytest.mark.one_slurm
@pytest.mark.parametrize(("kill_at", "nodes"), [("after:requeue", 1), ("before:start_now", 2)])
def test_kill_9_of_the_daemon_changes_nothing_in_the_end(
    cluster: SlurmCluster, tmp_path: Path, kill_at: str, nodes: int
) -> None:
    """It dies when its job has left node1 and does not run on node3 yet; a job of two nodes keeps node2."""
    install_programs(cluster)
    folder = tmp_path / "daemon"
    config = config_for(folder, cluster)
    before, after = [{"node1"}, {"node3"}] if nodes == 1 else [{"node1", "node2"}, {"node2", "node3"}]
    with RunningDaemon(cluster, folder, config=config, kill_at=kill_at) as doomed:
        doomed.wait_ready()
        job_id = saver(cluster, f"-N{nodes}", f"-n{nodes}", "--mem=500")
        assert nodes_of(cluster, job_id) == before
        if nodes > 1:
            filler(cluster, 3, "-w", "node2")  # nothing else goes there, and it does not become empty
        filler(cluster, 1, "-w", "node3")
        assert partly_used(cluster) == {"node1", "node3"}
        doomed.wait_for(lambda: doomed.post("/api/v1/compactions/what-if").json()["feasible"], 10, "a plan")
        assert doomed.post("/api/v1/compactions").status_code == 202
        doomed.wait_for(lambda: doomed.process.poll() is not None, 60, "the daemon to be killed")
        assert doomed.process.returncode == -9
    died = time.monotonic()
    assert cluster.job(job_id)["Restarts"] == "1"
    assert "node1" in drained(cluster)
    assert cluster.scontrol_reservations()
    with RunningDaemon(cluster, folder, config=config) as daemon:
        away_s = time.monotonic() - died
        moved(daemon)
        (eviction,) = daemon.evictions()
        assert eviction.outcome == "1 of 1 job(s) moved; node1 is empty."
        assert {p.job_id: p.state for p in eviction.preemptions} == {job_id: PreemptionState.RETURNED}
        assert nodes_of(cluster, job_id) == after
        assert partly_used(cluster) == {"node3"}
        job = cluster.job(job_id)
        assert (job["Restarts"], job.get("Reservation")) == ("1", None)
        assert int(job["Priority"]) < HEAD_OF_QUEUE
        assert_nothing_is_left(cluster)
        check_result(cluster, job_id, STEPS, away_s)
