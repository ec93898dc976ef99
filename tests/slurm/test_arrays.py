"""Arrays on a real cluster: urgent ones, whose tasks start at once, and tasks that are preempted one by one."""

from __future__ import annotations

from pathlib import Path

from clearway.model.operations import Eviction, EvictionState, PreemptionState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon
from tests.slurm.test_end_to_end import LOOP, SILENT, WHOLE, patient
from tests.slurm.urgent import is_the_best, let_go

TASK = 'until [ -e "let-go.$SLURM_ARRAY_JOB_ID" ] || [ -e "let-go.$SLURM_JOB_ID" ]; do sleep 0.2; done'


def fill(cluster: SlurmCluster, script: str = LOOP, *args: str) -> list[str]:
    fixed = ("--requeue", "--output=/dev/null", "--time=30", *WHOLE, *args)
    jobs = [cluster.sbatch(script, *fixed, user="cwalice") for _ in cluster.node_names]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    return jobs


def urgent_array(cluster: SlurmCluster, tasks: str, *args: str) -> str:
    fixed = ("-p", "urgent", *WHOLE, "--time=5", "--output=/dev/null", f"--array={tasks}", *args)
    return cluster.sbatch(TASK, *fixed, user="cwalice")


def running(cluster: SlurmCluster, array: str) -> list[str]:
    """Ids of the tasks that run."""
    listed = cluster.run("squeue", "-h", "-t", "RUNNING", "-O", "JobID:20,ArrayJobID:20").stdout.splitlines()
    return [task for task, owner in (line.split() for line in listed) if owner == array]


def attached(cluster: SlurmCluster) -> list[dict[str, str]]:
    """Jobs in a reservation; Slurm keeps its name for those that have ended."""
    return [j for j in cluster.records("job") if j.get("Reservation") and j["JobState"] in ("PENDING", "RUNNING")]


def requeued(cluster: SlurmCluster, jobs: list[str]) -> list[str]:
    return [job_id for job_id in jobs if cluster.job(job_id)["Restarts"] != "0"]


def only(daemon: RunningDaemon) -> Eviction:
    (eviction,) = daemon.evictions()
    return eviction


def over(daemon: RunningDaemon) -> bool:
    return all(e.state.terminal for e in daemon.evictions())


def nothing_left(cluster: SlurmCluster) -> None:
    assert not cluster.scontrol_reservations()
    assert not attached(cluster)


def test_as_many_tasks_as_may_run_start_at_once(cluster: SlurmCluster, tmp_path: Path) -> None:
    """``%2``: two jobs leave and two tasks start on exactly their nodes; the others wait, attached to nothing."""
    jobs = fill(cluster)
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        array = urgent_array(cluster, "0-5%2")
        cluster.wait_for(lambda: len(running(cluster, array)) == 2, 75, "two tasks")
        daemon.wait_for(lambda: only(daemon).state is EvictionState.RETURNING, 30, "the placement to be removed")
        eviction = only(daemon)
        is_the_best(eviction)
        assert eviction.plan.tasks == 2
        used = {cluster.job(task)["NodeList"] for task in running(cluster, array)}
        assert used == set(eviction.plan.placement_nodes)
        assert sorted(requeued(cluster, jobs)) == sorted(p.job_id for p in eviction.preemptions)
        assert len(eviction.preemptions) == 2
        nothing_left(cluster)
        cluster.run("scancel", array)
        daemon.wait_for(lambda: over(daemon), 120, "the end of the eviction")
        assert {p.state for p in only(daemon).preemptions} == {PreemptionState.RETURNED}
        nothing_left(cluster)


def test_a_task_that_ends_early_gives_its_room_to_the_next(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Three tasks of five start; one ends, and another one starts where it was. No more jobs leave than needed."""
    jobs = fill(cluster)
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        array = urgent_array(cluster, "1-5%3")
        first = cluster.wait_for(lambda: len(found := running(cluster, array)) == 3 and found, 75, "three tasks")
        (cluster.work / f"let-go.{first[0]}").touch()
        cluster.wait_for(lambda: len({*running(cluster, array)} - {*first}) == 1, 75, "the next task")
        (cluster.work / f"let-go.{array}").touch()
        cluster.wait_for(lambda: not cluster.run("squeue", "-h", "-j", array, check=False).stdout, 150, "all tasks")
        daemon.wait_for(lambda: over(daemon), 150, "the end of the evictions")
        assert len(requeued(cluster, jobs)) <= 5
        nothing_left(cluster)


def test_tasks_and_then_the_array_are_cancelled_in_the_middle(cluster: SlurmCluster, tmp_path: Path) -> None:
    jobs = fill(cluster, SILENT, "--comment=clearway:checkpoint=signal")
    for job_id in jobs:
        cluster.wait_begun(job_id)
    with patient(cluster, tmp_path / "daemon") as daemon:
        array = urgent_array(cluster, "0-2")
        daemon.wait_for(lambda: attached(cluster), 30, "the array to be attached")
        assert only(daemon).plan.tasks == 3
        cluster.run("scancel", f"{array}_0")
        daemon.wait_for(lambda: only(daemon).plan.tasks == 2, 30, "another plan")
        assert len(only(daemon).plan.placement_nodes) == 2
        cluster.run("scancel", array)
        daemon.wait_for(lambda: over(daemon), 60, "the end of the eviction")
        assert only(daemon).state is EvictionState.CANCELLED
        assert not requeued(cluster, jobs)
        nothing_left(cluster)


def test_preempted_tasks_come_back_one_by_one_though_many_others_wait(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Squeue shows a requeued task and those that never ran as one: it is told apart all the same."""
    fixed = ("--requeue", "--output=/dev/null", "--time=30", *WHOLE)
    array = cluster.sbatch(LOOP, *fixed, "--array=0-20", user="cwalice")
    cluster.wait_for(lambda: len(running(cluster, array)) == len(cluster.node_names), 30, "all nodes busy")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        urgent = cluster.sbatch(
            'until [ -e "let-go.$SLURM_JOB_ID" ]; do sleep 0.2; done',
            *("-p", "urgent", "-N2", *WHOLE, "--time=5", "--output=/dev/null"),
            user="cwalice",
        )
        cluster.wait_state(urgent, "RUNNING", timeout=75)
        gone = {p.job_id for p in only(daemon).preemptions}
        assert len(gone) == 2
        let_go(cluster, daemon, urgent)
        daemon.wait_for(
            lambda: {p.state for p in only(daemon).preemptions} == {PreemptionState.QUEUED} or over(daemon),
            60,
            "the tasks to be back in the queue",
        )
        cluster.run("scancel", *(f"{array}_{task}" for task in range(8, 21)))
        for job_id in gone:
            cluster.wait_state(job_id, "RUNNING", timeout=90)
        daemon.wait_for(lambda: over(daemon), 60, "the end of the eviction")
        assert {p.state for p in only(daemon).preemptions} == {PreemptionState.RETURNED}
        assert set(requeued(cluster, running(cluster, array))) == gone
        nothing_left(cluster)


def test_tasks_that_share_nodes_are_packed(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Each node has two jobs of two processors; where two of these leave, four tasks of one processor start."""
    fixed = ("--requeue", "--output=/dev/null", "--time=30", "-n2", "--mem=1000")
    jobs = [cluster.sbatch(LOOP, *fixed, user="cwalice") for _ in range(2 * len(cluster.node_names))]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        part = ("-p", "urgent", "-N1", "-n1", "--mem=400", "--time=5", "--output=/dev/null", "--array=0-3")
        array = cluster.sbatch(TASK, *part, user="cwalice")
        cluster.wait_for(lambda: len(running(cluster, array)) == 4, 75, "four tasks")
        daemon.wait_for(lambda: not cluster.scontrol_reservations(), 30, "the placement to be removed")
        eviction = only(daemon)
        is_the_best(eviction)
        assert eviction.plan.tasks == 4
        assert len(requeued(cluster, jobs)) == 2
        assert sorted(requeued(cluster, jobs)) == sorted(p.job_id for p in eviction.preemptions)
        cluster.run("scancel", array)
        daemon.wait_for(lambda: over(daemon), 120, "the end of the eviction")
        nothing_left(cluster)
