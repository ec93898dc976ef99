"""Situations of real sites, each on a real cluster: docs/explanation/sites.md names them, and what Clearway does."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clearway.model.operations import Eviction, PreemptionState
from clearway.slurm.cli import CliBackend
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import call, missing_requirements
from tests.slurm.sites import SiteCluster
from tests.slurm.test_bad_days import let_cycles_pass, stands_still
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


def busy(cluster: SlurmCluster, count: int = 4, *options: str) -> list[str]:
    """So many jobs of a node each."""
    jobs = [submit(cluster, *options) for _ in range(count)]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    return jobs


def restarted(cluster: SlurmCluster, jobs: list[str]) -> list[str]:
    return [job_id for job_id in jobs if cluster.job(job_id)["Restarts"] != "0"]


def daemon_of(
    cluster: SlurmCluster, folder: Path, delay_s: int = 60, partition: str = "urgent", stop_at: str = ""
) -> RunningDaemon:
    text = config_text(folder, cluster.conf, delay_s)
    return RunningDaemon(cluster, folder, config=text.replace('["urgent"]', named(partition)), kill_at=stop_at)


def named(partitions: str) -> str:
    return json.dumps(partitions.split(","))


@contextmanager
def stopped_before(call: str, cluster: SlurmCluster, folder: Path, nodes: int) -> Iterator[tuple[RunningDaemon, str]]:
    """The daemon stands still before this call, for an urgent job of so many nodes; ``wake`` it."""
    with daemon_of(cluster, folder, 300, stop_at=f"stop:{call}") as daemon:
        try:
            daemon.wait_ready()
            urgent, _ = submit_urgent(cluster, nodes)
            daemon.wait_for(lambda: stands_still(daemon.process.pid), 60, f"the daemon to stop before {call}")
            yield daemon, urgent
        finally:
            wake(daemon)


def wake(daemon: RunningDaemon) -> None:
    os.kill(daemon.process.pid, signal.SIGCONT)


def ended(daemon: RunningDaemon, number: int = 1) -> Eviction:
    """The last of so many evictions, once all have come to their end."""

    def over() -> bool:
        found = daemon.evictions()
        return len(found) == number and all(e.state.terminal for e in found)

    daemon.wait_for(over, 120, f"the end of {number} evictions")
    return max(daemon.evictions(), key=lambda e: e.eviction_id)


# -- power saving ----------------------------------------------------------------------------------------------


@pytest.mark.full
def test_no_job_leaves_where_a_node_that_is_switched_off_boots_in_time(site: SiteCluster, tmp_path: Path) -> None:
    jobs = busy(site, 3, "--exclude=node4")
    site.switch_off("node4")
    with daemon_of(site, tmp_path / "daemon", 120):
        urgent, _ = submit_urgent(site, 1)
        site.wait_state(urgent, "RUNNING", timeout=60)
        assert site.job(urgent)["NodeList"] == "node4"
        assert restarted(site, jobs) == []


@pytest.mark.full
def test_a_job_leaves_beside_a_node_that_is_switched_off(site: SiteCluster, tmp_path: Path) -> None:
    """The urgent job of two nodes gets the one that boots, and one that is freed."""
    jobs = busy(site, 3, "--exclude=node4")
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


# -- prolog and epilog -----------------------------------------------------------------------------------------


@pytest.mark.fault(
    "A long epilog made urgent jobs late: plans took nodes for free when the job had left.", found_by="real cluster"
)
def test_nodes_are_free_when_their_epilog_has_ended(site: SiteCluster, tmp_path: Path) -> None:
    """Eight seconds of it, within the allowance: no other job leaves, and the urgent job starts when it is over."""
    jobs = busy(site)
    site.epilog("sleep 8")
    with daemon_of(site, tmp_path / "daemon") as daemon:
        urgent, _ = submit_urgent(site, 2)
        site.wait_for(lambda: len(restarted(site, jobs)) == 2, 60, "two jobs to be requeued")
        site.wait_for(lambda: "COMPLETING" in states(site, jobs), 10, "an epilog to run")
        site.wait_state(urgent, "RUNNING", timeout=60)
        site.epilog("true")
        let_go(site, daemon, urgent)
        eviction = ended(daemon)
        assert not eviction.late
        for p in eviction.preemptions:
            assert p.requeued_at is not None
            assert p.vacated_at is not None
            assert (p.vacated_at - p.requeued_at).total_seconds() > 7
        assert len(restarted(site, jobs)) == 2
        no_leftovers(site)


def states(cluster: SlurmCluster, jobs: list[str]) -> set[str]:
    return {cluster.state(job_id) for job_id in jobs}


def failed_prolog(cluster: SlurmCluster) -> str | None:
    """The node that Slurm drained for it, which it does after it has held the job."""
    return next((n["NodeName"] for n in cluster.records("node") if "Prolog error" in n.get("Reason", "")), None)


def test_the_prolog_of_the_urgent_job_fails(site: SiteCluster, tmp_path: Path) -> None:
    """Slurm drains the node and holds the job: no other job leaves for it, and the preempted one comes back."""
    jobs = busy(site)
    site.prolog('[ "$SLURM_JOB_PARTITION" = urgent ] && status=1')
    with daemon_of(site, tmp_path / "daemon") as daemon:
        urgent, _ = submit_urgent(site, 1)
        site.wait_for(lambda: "launch_failed" in site.job(urgent)["Reason"], 60, "the prolog to fail")
        drained = site.wait_for(lambda: failed_prolog(site), 30, "the drain of its node")
        daemon.wait_for(lambda: not site.scontrol_reservations(), 60, "the placement to go")
        let_cycles_pass(daemon)
        assert len(restarted(site, jobs)) == 1
        assert len(daemon.evictions()) == 1
        site.run("scontrol", "update", f"NodeName={drained}", "State=RESUME")
        ended(daemon)
        assert states(site, jobs) == {"RUNNING"}
        assert "launch_failed" in site.job(urgent)["Reason"]
        no_reservations(site)


@pytest.mark.full
@pytest.mark.fault(
    "A returning job that Slurm held, because its prolog had failed, was waited for without a word.",
    found_by="real cluster",
)
def test_the_prolog_of_a_returning_job_fails(site: SiteCluster, tmp_path: Path) -> None:
    """Slurm holds the job. Clearway does not release it, as its prolog could fail again, says so, and waits."""
    jobs = busy(site)
    with daemon_of(site, tmp_path / "daemon") as daemon:
        urgent, _ = submit_urgent(site, 1)
        site.wait_state(urgent, "RUNNING", timeout=60)
        (gone,) = restarted(site, jobs)
        site.prolog(f'[ "$SLURM_JOB_ID" = {gone} ] && status=1')
        # It comes back on another node: where a job has just run, slurmd does not always run its prolog again.
        site.run("scancel", next(job_id for job_id in jobs if job_id != gone))
        site.wait_for(lambda: "launch_failed" in site.job(gone)["Reason"], 60, "the prolog to fail")

        def settled() -> bool:
            return daemon.evictions()[0].preemptions[0].state in (PreemptionState.HELD, PreemptionState.RETURNED)

        daemon.wait_for(settled, 60, "the job to be told of")
        (p,) = daemon.evictions()[0].preemptions
        assert p.job_id == gone
        if p.state is PreemptionState.HELD:  # for a moment Slurm says that it runs
            assert "held in the queue" in p.note
            site.prolog("true")
            site.run("scontrol", "update", f"NodeName={failed_prolog(site)}", "State=RESUME")
            site.run("scontrol", "release", gone)
            (p,) = ended(daemon).preemptions
            assert p.state is PreemptionState.RETURNED
        no_reservations(site)


def no_reservations(cluster: SlurmCluster) -> None:
    assert not cluster.scontrol_reservations()
    assert all(job.get("Reservation", "") == "" for job in cluster.records("job"))


# -- Slurm's own preemption ------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", ["batch", "standing", pytest.param("graceful", marks=pytest.mark.full)])
@pytest.mark.fault(
    "Two jobs left for one urgent job where Slurm's own preemption took one as well.", found_by="real cluster"
)
def test_slurm_preempts_at_once(site: SiteCluster, tmp_path: Path, partition: str) -> None:
    """One job leaves for the urgent one: Slurm's choice where it may preempt, and Clearway's where it may not."""
    jobs = busy(site, 4, f"--partition={partition}")
    with daemon_of(site, tmp_path / "daemon", partition="top") as daemon:
        urgent, _ = submit_urgent(site, 1, partition="top")
        site.wait_state(urgent, "RUNNING", timeout=60)
        let_cycles_pass(daemon)
        assert len(restarted(site, jobs)) == 1
        taken = [p.job_id for e in daemon.evictions() for p in e.preemptions if p.requeued_at]
        assert taken == (restarted(site, jobs) if partition == "standing" else [])
        assert len(states(site, jobs)) <= 2


@pytest.fixture
def suspending_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    if reason := missing_requirements():
        skip_or_fail(reason)
    top = "PartitionName=top Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100"
    modes = ("PreemptType=preempt/partition_prio", "PreemptMode=SUSPEND,GANG")
    with SlurmCluster(nodes=3, extra_conf=(*modes, top)) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        yield cluster


@pytest.mark.full
def test_a_job_that_slurm_has_suspended_is_left_alone(suspending_cluster: SlurmCluster, tmp_path: Path) -> None:
    """Slurm suspends a job for the first urgent one, by itself; for the second Clearway takes the other two nodes."""
    cluster = suspending_cluster
    limits = ("--requeue", "--output=/dev/null", "--time=60", "-n4", "-N1", "--mem=1000")
    jobs = [cluster.sbatch(LOOP, *limits, user="cwalice") for _ in cluster.node_names]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    with daemon_of(cluster, tmp_path / "daemon", partition="top,urgent") as daemon:
        first = cluster.sbatch(LOOP, *limits, "--partition=top", user="cwalice")
        cluster.wait_state(first, "RUNNING", timeout=60)
        (suspended,) = (job_id for job_id in jobs if cluster.state(job_id) == "SUSPENDED")
        let_cycles_pass(daemon)
        assert daemon.evictions() == ()
        second, _ = submit_urgent(cluster, 2)
        cluster.wait_state(second, "RUNNING", timeout=60)
        assert sorted(restarted(cluster, [first, *jobs])) == sorted(set(jobs) - {suspended})
        assert cluster.state(suspended) == "SUSPENDED"
        assert cluster.state(first) == "RUNNING"


# -- nodes that come and go between the look and the act -------------------------------------------------------


@pytest.mark.parametrize("harm", ["FAIL", pytest.param("REBOOT", marks=pytest.mark.full)])
def test_a_node_of_the_plan_is_taken_away(site: SiteCluster, tmp_path: Path, harm: str) -> None:
    """After the look that its job leaves by: one more job leaves, and the urgent job gets that one's node."""
    jobs = busy(site)
    with stopped_before("create_reservation", site, tmp_path / "daemon", 1) as (daemon, urgent):
        (name,) = daemon.evictions()[0].plan.placement_nodes
        if harm == "FAIL":
            site.run("scontrol", "update", f"NodeName={name}", "State=FAIL", "Reason=test")
        else:
            site.run("scontrol", "reboot", "ASAP", name)
        wake(daemon)
        site.wait_state(urgent, "RUNNING", timeout=60)
        assert site.job(urgent)["NodeList"] != name
        assert len(restarted(site, jobs)) <= 2
        let_cycles_pass(daemon)
        assert len(restarted(site, jobs)) <= 2


@pytest.mark.fault("A plan whose node was deleted had its placement refused again and again.", found_by="real cluster")
def test_a_dynamic_node_of_the_plan_is_deleted(site: SiteCluster, tmp_path: Path) -> None:
    """Slurm refuses the placement (22.05), or makes it without that node (24.11): one more job leaves, and no third."""
    jobs = busy(site)
    site.add_dynamic("dyn1")
    with stopped_before("create_reservation", site, tmp_path / "daemon", 2) as (daemon, urgent):
        assert "dyn1" in daemon.evictions()[0].plan.placement_nodes
        site.remove_dynamic("dyn1")
        wake(daemon)
        site.wait_state(urgent, "RUNNING", timeout=60)
        assert len(restarted(site, jobs)) == 2
        ended = [(e.outcome_code, len(e.preemptions)) for e in daemon.evictions() if e.state.terminal]
        assert ended in ([], [("called_off", 1)])


def test_nodes_of_the_future_are_not_seen(site: SiteCluster) -> None:
    """Partitions name them, and no job can run there."""
    assert "future1" in site.run("scontrol", "-o", "show", "partition", "urgent").stdout
    seen = CliBackend(now=lambda: datetime.now(UTC), slurm_conf=str(site.conf)).snapshot()
    assert [node.name for node in seen.nodes] == site.node_names
    assert seen.skipped == ()


# -- partitions ------------------------------------------------------------------------------------------------


def test_partitions_overlap_and_share_processors(site: SiteCluster, tmp_path: Path) -> None:
    """Two jobs on the same processors of a node both leave; the urgent job of two partitions gets the nodes of one.

    The jobs on the nodes of the other partition are protected. Those that left had named two partitions.
    """
    protected = [submit(site, f"--nodelist={name}", user="cwbob") for name in ("node3", "node4")]
    options = ("--partition=forced,batch", "-n4", "--mem=1000", "--exclude=node3,node4")
    limits = ("--requeue", "--output=/dev/null", "--time=60")
    jobs = [site.sbatch(LOOP, *limits, *options, user="cwalice") for _ in range(4)]
    for job_id in (*protected, *jobs):
        site.wait_state(job_id, "RUNNING")
    assert {site.job(job_id)["NodeList"] for job_id in jobs} == {"node1", "node2"}
    with daemon_of(site, tmp_path / "daemon", partition="left,right") as daemon:
        urgent, _ = submit_urgent(site, 2, partition="right,left")
        site.wait_state(urgent, "RUNNING", timeout=60)
        assert site.job(urgent)["Partition"] == "left"
        assert sorted(restarted(site, jobs)) == sorted(jobs)
        assert restarted(site, protected) == []
        let_go(site, daemon, urgent)
        ended(daemon)
        assert states(site, jobs) == {"RUNNING"}
        no_leftovers(site)


# -- clients without a configuration file ----------------------------------------------------------------------


def test_a_client_that_asks_slurmctld_for_its_configuration(site: SiteCluster) -> None:
    """It asks before it knows where munge's socket is, which therefore has its usual place, for this client alone."""
    (job_id,) = busy(site, 1)
    socket = "/run/munge/munge.socket.2"
    mounts = f"mount -t tmpfs none /run && mkdir /run/munge && ln -s {site.root}/munge/munge.socket {socket}"
    program = (
        "from datetime import UTC, datetime; from clearway.slurm.cli import CliBackend\n"
        "seen = CliBackend(now=lambda: datetime.now(UTC)).snapshot()\n"
        "print(*(job.job_id for job in seen.jobs), *(node.name for node in seen.nodes))"
    )
    env = {key: value for key, value in site.env.items() if key != "SLURM_CONF"}
    env |= {"SLURM_CONF_SERVER": f"localhost:{site.port}", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$0" "$@"', sys.executable, "-c", program]
    assert call(command, timeout=30, env=env).stdout.split() == [job_id, *site.node_names]
