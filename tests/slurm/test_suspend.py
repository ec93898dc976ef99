"""Suspending in memory on a real cluster: the urgent job runs beside the stopped one, which then goes on first."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearway.model.operations import Eviction, EvictionState, PreemptionState
from clearway.model.problem import Action
from clearway.slurm.parse.hostlist import expand
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text, expected_result, install_programs, result_of
from tests.slurm.urgent import SCRIPT, let_go

LOOKS = 20  # while the urgent job runs
STEPS = 300  # of a second, until the test lets them hurry
SUSPENDS = 'min_runtime = 1\nallow_suspend = true\nallow_kill = false\nprotected_users = ["cwbob"]'


def stepper(cluster: SlurmCluster, name: str, *args: str) -> str:
    script = f"exec python3 {cluster.work}/stepper.py {STEPS} {cluster.work}/{name}"
    options = ("--requeue", "--output=/dev/null", "--time=30", "-n4", "--mem=1500", *args)
    return cluster.sbatch(script, *options, user="cwalice")


def taken_cpus(cluster: SlurmCluster) -> dict[str, int]:
    """Processors that running jobs have, by node; every job here has all four of its nodes'."""
    taken = dict.fromkeys(cluster.node_names, 0)
    for line in cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%N %C %D").stdout.splitlines():
        hosts, cpus, nodes = line.split()
        for name in expand(hosts):
            taken[name] += int(cpus) // int(nodes)
    return taken


def only(daemon: RunningDaemon) -> Eviction:
    (eviction,) = daemon.evictions()
    return eviction


def test_suspended_jobs_wait_for_the_urgent_one_and_go_on_before_anybody_else(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    install_programs(cluster)
    others = [
        cluster.sbatch("sleep 900", "-n4", "--mem=1500", "--time=30", "--output=/dev/null", user="cwbob")
        for _ in cluster.node_names[:6]
    ]
    for job_id in others:
        cluster.wait_state(job_id, "RUNNING")
    asleep = [stepper(cluster, f"steps{number}") for number in (1, 2)]
    for number, job_id in enumerate(asleep, 1):
        cluster.wait_state(job_id, "RUNNING")
        cluster.wait_for((cluster.work / f"steps{number}.log").exists, 30, "the first step")
    # Everybody wants processors that come free.
    queue = [
        cluster.sbatch("sleep 1", "-n4", "--mem=500", "--time=1", "--output=/dev/null", user="cwbob") for _ in range(4)
    ]
    daemon = RunningDaemon(
        cluster, tmp_path / "daemon", config=config_text(tmp_path / "daemon", cluster.conf, candidates=SUSPENDS)
    )
    with daemon:
        arguments = ("-p", "urgent", "-N2", "--ntasks-per-node=4", "--mem=1000", "--time=5", "--output=/dev/null")
        urgent = cluster.sbatch(SCRIPT, *arguments, user="cwalice")
        cluster.wait_state(urgent, "RUNNING", timeout=40)
        eviction = only(daemon)
        assert {p.job_id: p.action for p in eviction.preemptions} == dict.fromkeys(asleep, Action.SUSPEND)
        for _ in range(LOOKS):
            assert max(taken_cpus(cluster).values()) <= cluster.cpus
            assert [cluster.state(job_id) for job_id in asleep] == ["SUSPENDED", "SUSPENDED"]
        let_go(cluster, daemon, urgent)
        daemon.wait_for(lambda: only(daemon).state is EvictionState.COMPLETED, 40, "the end of the eviction")
        assert max(taken_cpus(cluster).values()) <= cluster.cpus
        assert {p.state for p in only(daemon).preemptions} == {PreemptionState.RETURNED}
        assert {p.actual_lost_node_s for p in only(daemon).preemptions} == {0.0}
        assert not cluster.scontrol_reservations()
        # All are looked at before the first one's result is waited for: the next ends in the same moment.
        jobs = [cluster.job(job_id) for job_id in asleep]
        assert [(job["JobState"], job["Restarts"]) for job in jobs] == [("RUNNING", "0")] * len(jobs)
        assert all(job["SuspendTime"] not in ("", "None") for job in jobs)
        for number in range(1, len(asleep) + 1):
            assert result_of(cluster, f"steps{number}") == expected_result(STEPS)
        # Whoever waited got no processor between the suspension and the end of the suspended jobs.
        for job_id in (*asleep, *queue):
            cluster.wait_state(job_id, "COMPLETED")
        first_end = min(cluster.job(job_id)["EndTime"] for job_id in asleep)
        assert all(cluster.job(job_id)["StartTime"] >= first_end for job_id in queue)


@pytest.mark.full
def test_placement_over_a_suspended_job_is_extended_while_the_urgent_one_runs(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    """The daemon extends what it holds while the urgent job runs. Made for 45 s, it lasts Slurm's whole minute."""
    install_programs(cluster)
    for _ in cluster.node_names[:7]:
        job_id = cluster.sbatch("sleep 900", "-n4", "--mem=1500", "--time=30", "--output=/dev/null", user="cwbob")
        cluster.wait_state(job_id, "RUNNING")
    asleep = stepper(cluster, "steps")
    cluster.wait_state(asleep, "RUNNING")
    folder = tmp_path / "daemon"
    text = config_text(
        folder, cluster.conf, candidates=SUSPENDS, execution='kill_allowance = 12\nplacement_grace = "20s"'
    )
    with RunningDaemon(cluster, folder, config=text) as daemon:
        arguments = ("-p", "urgent", "-n4", "--mem=1000", "--output=/dev/null", "--comment=clearway:max_delay=25s")
        urgent = cluster.sbatch("sleep 900", *arguments, user="cwalice")  # without a time limit
        cluster.wait_state(urgent, "RUNNING", timeout=40)
        store = daemon.store()
        try:

            def extended() -> bool:
                steps = store.steps(only(daemon).eviction_id)
                return any(step.kind == "extend_placement" and step.result == "ok" for step in steps)

            daemon.wait_for(extended, 90, "the placement to be extended")
        finally:
            store.close()
        assert cluster.state(asleep) == "SUSPENDED"
        assert len(cluster.scontrol_reservations()) == 1
        cluster.run("scancel", urgent)
        daemon.wait_for(lambda: only(daemon).state is EvictionState.COMPLETED, 40, "the end of the eviction")
        assert cluster.state(asleep) == "RUNNING"
        assert not cluster.scontrol_reservations()
