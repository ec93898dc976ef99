"""Slurm's own preemption on a real cluster: whom it takes, and whom the planner that stands for it takes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.model.plan import Preemptor
from clearway.planning.rules import SLURM_DEFAULT
from clearway.preemption.problem import prepare_problem
from clearway.slurm.cli import CliBackend
from clearway.slurm.parse import site
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import missing_requirements

pytestmark = pytest.mark.one_slurm

BUSY = (("mid", 1), ("low", 2), ("low", 1), ("mid", 3), ("low", 1))  # partition and nodes, in the order of their start
TIERS = {"batch": 1, "low": 10, "mid": 20, "top": 100, "urgent": 1}


@pytest.fixture(scope="module")
def preempting_cluster() -> Iterator[SlurmCluster]:
    """Eight nodes where jobs of the partition ``top`` preempt those of ``mid`` and ``low``."""
    reason = missing_requirements()
    if reason:
        pytest.skip(reason)
    partitions = [
        f"PartitionName={name} Nodes=ALL MaxTime=INFINITE State=UP PriorityTier={TIERS[name]}"
        for name in ("low", "mid", "top")
    ]
    preemption = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")
    with SlurmCluster(extra_conf=(*preemption, *partitions)) as cluster:
        yield cluster


@pytest.fixture
def busy(preempting_cluster: SlurmCluster) -> list[str]:
    """The jobs of ``BUSY``, which hold every node."""
    preempting_cluster.reset()
    jobs = []
    for partition, nodes in BUSY:
        options = (f"--partition={partition}", f"-N{nodes}", "--exclusive", "--requeue", "--time=60")
        jobs.append(preempting_cluster.sbatch("exec sleep 3600", *options, "--output=/dev/null", user="cwalice"))
        preempting_cluster.wait_state(jobs[-1], "RUNNING")
    return jobs


def now() -> datetime:
    return datetime.now(UTC)


def planned(cluster: SlurmCluster, backend: CliBackend, urgent: str) -> set[str]:
    """Whom ``slurm-default`` would preempt for the urgent job, as the daemon sees the cluster."""
    snapshot = backend.snapshot()
    preemptor = Preemptor(snapshot.job_by_id[urgent], "urgent", 600, now() + timedelta(seconds=600))
    config = Config.model_validate({"preemptors": [{"partition": ["top"]}], "candidates": {"min_runtime": 0}})
    context = PlanningContext(
        snapshot=snapshot, config=config, now=snapshot.taken_at, preempted={}, under_way=UnderWay()
    )
    situation = prepare_problem(preemptor, "top", context)
    assert len(situation.problem.candidates) == len(BUSY), situation.verdicts
    assert cluster.state(urgent) == "PENDING"
    return {gone.job_id for gone in SLURM_DEFAULT.solve(situation.problem).points[0].actions}


@pytest.mark.parametrize(
    ("needed", "preempted"),
    [
        (2, [("low", 1), ("low", 1)]),
        (3, [("low", 1), ("low", 2)]),
        (5, [("low", 1), ("low", 1), ("low", 2), ("mid", 1)]),
    ],
)
def test_slurm_preempts_whom_its_planner_does(
    preempting_cluster: SlurmCluster, busy: list[str], needed: int, preempted: list[tuple[str, int]]
) -> None:
    """Of jobs that are alike in tier and size Slurm may take another one: its order of ties is not told."""
    cluster = preempting_cluster
    backend = CliBackend(now=now, slurm_conf=str(cluster.conf))
    assert backend.snapshot().preempt_priorities.by_name == TIERS
    options = ("--partition=top", f"-N{needed}", "--exclusive", "--time=5", "--output=/dev/null", "--hold")
    urgent = cluster.sbatch("exec sleep 60", *options, user="cwbob")
    expected = planned(cluster, backend, urgent)
    cluster.run("scontrol", "release", urgent)
    cluster.wait_state(urgent, "RUNNING", timeout=60)
    by_slurm = {job_id for job_id in busy if cluster.job(job_id)["Restarts"] != "0"}
    for chosen in (by_slurm, expected):
        assert sorted(BUSY[busy.index(job_id)] for job_id in chosen) == preempted


def test_the_priority_of_a_qos_is_read_from_the_controller(accounting_cluster: SlurmCluster) -> None:
    cluster = accounting_cluster
    cluster.run("sacctmgr", "-i", "add", "qos", "pushy", "Preempt=normal", "Priority=1000")
    try:
        found = cluster.wait_for(
            lambda: (
                "pushy" in (read := site.read_qos_priorities(
                    cluster.run("scontrol", "show", "assoc_mgr", "flags=qos", user="cwdaemon").stdout
                ))
                and read
            ),
            30,
            "the controller to know the QoS",
        )  # fmt: skip
        assert found == {"normal": 0, "pushy": 1000}
    finally:
        cluster.run("sacctmgr", "-i", "delete", "qos", "pushy")
