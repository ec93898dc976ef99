"""The main job on a real cluster: a real daemon frees nodes for an urgent job, and everybody else goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clearway.model.operations import Eviction, EvictionState, Preemption, PreemptionState
from clearway.model.problem import Action
from tests.slurm.client import BEGUN
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import BACKEND, RunningDaemon, check_result, config_text, install_programs, saver_script
from tests.slurm.urgent import SCRIPT, is_the_best, let_go

STEPS = 300
LOOP = "while :; do sleep 0.2; done"
DEAF = f"trap '' TERM USR1; {BEGUN}; {LOOP}"
SILENT = f"trap '' USR1; {BEGUN}; {LOOP}"  # never answers Clearway's signal: its checkpoint hangs
WHOLE = ("--exclusive", "--mem=0")
GOES_ON = ("PENDING", "RUNNING", "SUSPENDED")  # a job that has ended keeps its record for a while
MAX_DELAY_S = 60  # of the daemon's rule; a quiet machine takes three to six
PATIENT_S = 600


@dataclass
class Mix:
    """Eight nodes full of jobs of all sorts."""

    saver: str  # two nodes, checkpoint on signal
    deaf: str
    protected: str
    ending: str
    shared: tuple[str, str]
    array: tuple[str, ...]

    @property
    def everyone(self) -> set[str]:
        return {self.saver, self.deaf, self.protected, self.ending, *self.shared, *self.array}


def fill(cluster: SlurmCluster, last: str = "--time=1") -> Mix:
    install_programs(cluster)
    limit = "--time=30"

    def submit(script: str, *args: str, user: str = "cwalice") -> str:
        return cluster.sbatch(script, "--requeue", "--output=/dev/null", *args, user=user)

    deaf = submit(DEAF, limit, *WHOLE)
    protected = submit(LOOP, limit, *WHOLE, user="cwbob")
    shared = (submit(LOOP, limit, "-n2", "--mem=1000"), submit(LOOP, limit, "-n2", "--mem=1000"))
    cluster.wait_for(lambda: all(cluster.state(i) == "RUNNING" for i in (deaf, protected, *shared)), 30)
    cluster.wait_begun(deaf)
    saver = submit(saver_script(cluster, STEPS), limit, "-N2", *WHOLE)
    cluster.wait_state(saver, "RUNNING")
    submit(LOOP, limit, "--array=0-1", *WHOLE)
    tasks = cluster.wait_for(lambda: array_tasks(cluster), 30, "two array tasks")
    cluster.wait_for((cluster.work / f"state.{saver}.log").exists, 30, "the saver's first step")
    cluster.wait_for(lambda: "checkpoint=signal" in cluster.job(saver).get("Comment", ""), 30, "the saver's claim")
    # The last, as it may have a minute only; it takes the node that is left.
    ending = submit(LOOP, last, *WHOLE)
    cluster.wait_state(ending, "RUNNING")
    cluster.wait_for(
        lambda: not cluster.run("sinfo", "-h", "-t", "idle", "-o", "%n").stdout.strip(), 10, "no node idle"
    )
    return Mix(saver, deaf, protected, ending, shared, tasks)


def array_tasks(cluster: SlurmCluster) -> tuple[str, ...] | None:
    listed = cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%A %K").stdout.splitlines()
    tasks = tuple(sorted(line.split()[0] for line in listed if line.split()[1] != "N/A"))
    return tasks if len(tasks) == 2 else None


def submit_urgent(cluster: SlurmCluster, nodes: int = 4, partition: str = "urgent") -> tuple[str, datetime]:
    now = datetime.now(UTC)
    args = ("-p", partition, f"-N{nodes}", *WHOLE, "--time=5", "--output=/dev/null")
    return cluster.sbatch(SCRIPT, *args, user="cwalice"), now


def started_in_time(cluster: SlurmCluster, job_id: str, submitted: datetime, max_delay_s: int = MAX_DELAY_S) -> None:
    cluster.wait_state(job_id, "RUNNING", "COMPLETED", timeout=75)
    took_s = (start_of(cluster, job_id) - submitted).total_seconds()
    assert took_s <= max_delay_s


def patient(cluster: SlurmCluster, folder: Path, kill_at: str = "") -> RunningDaemon:
    """With a max delay that a machine on a bad day keeps, though the daemon has yet to start, or starts twice."""
    return RunningDaemon(cluster, folder, config=config_text(folder, cluster.conf, PATIENT_S), kill_at=kill_at)


def start_of(cluster: SlurmCluster, job_id: str) -> datetime:
    return datetime.fromisoformat(cluster.job(job_id)["StartTime"]).astimezone(UTC)


def preempted(eviction: Eviction) -> list[Preemption]:
    """Those that were made to leave; the others ended by themselves."""
    return [p for p in eviction.preemptions if p.action is not Action.END]


def no_leftovers(cluster: SlurmCluster) -> None:
    """Nothing of ours is on the cluster: reservation, hold, priority, words on a job; drain and Reason of a node."""
    assert not cluster.scontrol_reservations()
    for job in cluster.records("job"):
        assert job.get("Reservation", "") == "", job
        assert job["JobState"] != "PENDING" or job.get("Priority") != "0", job
        assert job["JobState"] not in GOES_ON or int(job["Nice"]) >= 0, job
        assert "clearway" not in job.get("AdminComment", ""), job
    assert not [node["NodeName"] for node in cluster.records("node") if "DRAIN" in node["State"]]
    assert not cluster.node_reasons()


def test_urgent_job_gets_nodes_in_time_and_everybody_goes_on(cluster: SlurmCluster, tmp_path: Path) -> None:
    mix = fill(cluster)
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        urgent, submitted = submit_urgent(cluster)
        started_in_time(cluster, urgent, submitted)
        let_go(cluster, daemon, urgent)
        (eviction,) = daemon.evictions()

        is_the_best(eviction)
        actions = {p.job_id: p.action for p in preempted(eviction)}
        assert actions[mix.saver] is Action.APP_CHECKPOINT
        assert set(actions) <= {mix.saver, mix.deaf, *mix.shared, *mix.array}
        # On a slow machine the minute of the last one is over in time.
        assert {p.job_id for p in eviction.preemptions} - set(actions) <= {mix.ending}

        # Exactly the freed nodes.
        used = cluster.run("scontrol", "show", "hostnames", cluster.job(urgent)["NodeList"]).stdout.split()
        assert sorted(used) == sorted(eviction.plan.placement_nodes)

        # Nobody else was touched.
        spared = mix.everyone - set(actions) - {mix.ending}
        assert mix.protected in spared
        for job_id in spared:
            job = cluster.job(job_id)
            assert (job["JobState"], job["Restarts"]) == ("RUNNING", "0"), job

        # All preempted jobs run again, without Slurm's two minutes of waiting, and the eviction ends by itself.
        for job_id in actions:
            cluster.wait_for(lambda job_id=job_id: cluster.job(job_id)["Restarts"] == "1", 30, f"{job_id} requeued")
            cluster.wait_state(job_id, "RUNNING", "COMPLETED", timeout=90)
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 60, "the end of the eviction")
        assert {p.state for p in preempted(daemon.evictions()[0])} == {PreemptionState.RETURNED}
        check_result(cluster, mix.saver, STEPS)
        cluster.wait_state(mix.saver, "COMPLETED")
        no_leftovers(cluster)
        assert daemon.evictions()[0].preemptions[0].actual_lost_node_s is not None

        # REST tells the same.
        told = daemon.get(f"/api/v1/evictions/{eviction.eviction_id}").json()
        assert told["state"] == "completed"
        assert "clearway_preemptions_total" in daemon.get("/metrics").text

        # By now there was a moment to say what every other decision would have cost.
        path = f"/api/v1/evictions/{eviction.eviction_id}/explanation"
        daemon.wait_for(lambda: daemon.get(path).status_code == 200, 30, "the explanation")
        explained = daemon.get(path).json()
        assert explained["complete"]
        assert explained["alternatives"]
        assert explained["rules"]
        assert all(each["known"] for each in explained["alternatives"])
        assert all(rule["cost"] is None or rule["more_lost_work_node_s"] >= 0 for rule in explained["rules"])


@pytest.mark.parametrize(
    "kill_at",
    [
        pytest.param("after:create_reservation", marks=pytest.mark.one_slurm),
        "after:requeue",
        pytest.param("during:requeue", marks=pytest.mark.skipif(BACKEND == "rest", reason="slurmrestd takes no lists")),
        pytest.param("before:delete_reservation", marks=pytest.mark.one_slurm),
    ],
)
def test_kill_9_of_the_daemon_changes_nothing_in_the_end(cluster: SlurmCluster, tmp_path: Path, kill_at: str) -> None:
    mix = fill(cluster, last="--time=30")
    folder = tmp_path / "daemon"
    with patient(cluster, folder, kill_at) as doomed:
        urgent, _ = submit_urgent(cluster)
        doomed.wait_for(lambda: doomed.process.poll() is not None, 60, "the daemon to be killed")
        assert doomed.process.returncode == -9
    died = time.monotonic()
    with patient(cluster, folder) as daemon:
        away_s = time.monotonic() - died
        cluster.wait_state(urgent, "RUNNING", "COMPLETED", timeout=150)
        let_go(cluster, daemon, urgent)
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 120, "the end of the eviction")
        (eviction,) = daemon.evictions()
        assert {p.state for p in preempted(eviction)} == {PreemptionState.RETURNED}
        for p in preempted(eviction):
            assert cluster.job(p.job_id)["Restarts"] == "1"
        for job_id in mix.everyone - {p.job_id for p in eviction.preemptions} - {mix.ending}:
            assert cluster.job(job_id)["Restarts"] == "0"
        check_result(cluster, mix.saver, STEPS, away_s)
        no_leftovers(cluster)


def test_second_urgent_job_meanwhile(cluster: SlurmCluster, tmp_path: Path) -> None:
    """No node becomes free by itself before there is a plan for the second: it could start without one."""
    fill(cluster, last="--time=30")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        first, _ = submit_urgent(cluster, nodes=3)
        daemon.wait_for(daemon.evictions, 20, "a plan")
        second, _ = submit_urgent(cluster, nodes=1)
        daemon.wait_for(lambda: len(daemon.evictions()) == 2, 20, "a plan for the second")
        let_go(cluster, daemon, first, second)
        one, two = sorted(daemon.evictions(), key=lambda e: e.eviction_id)
        assert not {p.job_id for p in one.preemptions} & {p.job_id for p in two.preemptions}
        daemon.wait_for(lambda: all(e.state.terminal for e in daemon.evictions()), 120, "both evictions to end")
        no_leftovers(cluster)


def test_two_urgent_jobs_at_once_are_served_together(cluster: SlurmCluster, tmp_path: Path) -> None:
    """One job of four nodes makes room for both; the others, which would lose more, stay."""
    wide, others = two_for_one(cluster, LOOP)
    urgent = [submit_urgent(cluster, nodes=2) for _ in range(2)]
    with patient(cluster, tmp_path / "daemon") as daemon:
        for job_id, submitted in urgent:
            started_in_time(cluster, job_id, submitted, PATIENT_S)
        let_go(cluster, daemon, *(job_id for job_id, _ in urgent))
        one, two = sorted(daemon.evictions(), key=lambda e: -len(e.plan.preemptees))
        assert [job.job_id for job in one.plan.preemptees] == [wide]
        assert two.plan.preemptees == ()
        assert (one.plan.together, two.plan.together) == ((two.preemptor.job_id,), (one.preemptor.job_id,))
        assert (one.revision, two.revision) == (0, 0)
        assert not set(one.plan.placement_nodes) & set(two.plan.placement_nodes)
        daemon.wait_for(lambda: all(e.state.terminal for e in daemon.evictions()), 120, "both evictions to end")
        assert cluster.job(wide)["Restarts"] == "1"
        assert {cluster.job(job_id)["Restarts"] for job_id in others} == {"0"}
        no_leftovers(cluster)


def test_of_two_urgent_jobs_planned_together_one_disappears(cluster: SlurmCluster, tmp_path: Path) -> None:
    """The one whose plan held the shared job is cancelled before that job has left: the other starts all the same."""
    comment = "--comment=clearway:checkpoint=signal,took=25"
    wide, _ = two_for_one(cluster, SILENT, comment)
    cluster.wait_begun(wide)
    urgent = [submit_urgent(cluster, nodes=2) for _ in range(2)]
    with patient(cluster, tmp_path / "daemon") as daemon:
        daemon.wait_for(lambda: len(daemon.evictions()) == 2, 20, "two plans")
        one, two = sorted(daemon.evictions(), key=lambda e: -len(e.plan.preemptees))
        assert [job.job_id for job in one.plan.preemptees] == [wide]
        assert two.plan.preemptees == ()
        cluster.run("scancel", one.preemptor.job_id)
        left = two.preemptor.job_id
        started_in_time(cluster, left, dict(urgent)[left], PATIENT_S)
        let_go(cluster, daemon, left)
        daemon.wait_for(lambda: all(e.state.terminal for e in daemon.evictions()), 120, "both evictions to end")
        gone = [p.job_id for e in daemon.evictions() for p in e.preemptions if p.requeued_at is not None]
        assert len(gone) == len(set(gone)), "nobody was preempted twice"
        no_leftovers(cluster)


def two_for_one(cluster: SlurmCluster, script: str, *args: str) -> tuple[str, list[str]]:
    """A job on four nodes, and one on each other node that has run for longer."""
    install_programs(cluster)

    def submit(text: str, *more: str) -> str:
        fixed = ("--requeue", "--output=/dev/null", "--time=30", *WHOLE, *more)
        return cluster.sbatch(text, *fixed, user="cwalice")

    others = [submit(LOOP) for _ in range(len(cluster.node_names) - 4)]
    cluster.wait_for(lambda: all(cluster.state(job_id) == "RUNNING" for job_id in others), 30)
    begun = datetime.now(UTC)
    # On as many nodes they lose more than it, however old it becomes.
    cluster.wait_for(lambda: (datetime.now(UTC) - begun).total_seconds() > 3, 40, "the others to grow older")
    wide = submit(script, "-N4", *args)
    cluster.wait_state(wide, "RUNNING")
    return wide, others


def test_cancelled_eviction_leaves_everything_as_it_was(cluster: SlurmCluster, tmp_path: Path) -> None:
    install_programs(cluster)
    # Deaf to its signal although it says otherwise: the eviction waits for its checkpoint until it is cancelled.
    comment = "--comment=clearway:checkpoint=signal"
    jobs = [
        cluster.sbatch(SILENT, "--requeue", comment, "--time=30", *WHOLE, "--output=/dev/null", user="cwalice")
        for _ in cluster.node_names
    ]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
        cluster.wait_begun(job_id)
    with patient(cluster, tmp_path / "daemon") as daemon:
        urgent, _ = submit_urgent(cluster, nodes=2)
        daemon.wait_for(cluster.scontrol_reservations, 20, "the placement")
        number = daemon.evictions()[0].eviction_id
        asked = daemon.post(f"/api/v1/evictions/{number}/cancel")
        assert asked.status_code == 202, asked.text
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.CANCELLED, 20, "the cancellation")
        no_leftovers(cluster)
        assert all(cluster.job(job_id)["Restarts"] == "0" for job_id in jobs)
        assert cluster.state(urgent) == "PENDING"
