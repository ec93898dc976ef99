"""Urgent by a partition only where Slurm would start the job in it: room is made there, and the job starts there.

Slurm takes a job that names several partitions if one of them admits it. 24.11 and newer let its owner name one more
afterwards, whoever may use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState
from clearway.slurm.releases import means_sub_accounts
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_without_accounting
from tests.slurm.daemon import RunningDaemon, config_text, install_programs, saver_script
from tests.slurm.machine import slurm_version
from tests.slurm.urgent import SCRIPT, let_go

VICTIM, STRANGER, ADMITTED = "cwalice", "cwbob", "cwdaemon"
CYCLES = 8
OF_THE_JOB = ("JobId", "Partition", "ReservationName", "Priority", "Nice", "QOS", "Account", "TimeLimit", "Features")


@dataclass(frozen=True)
class Case:
    """A partition, and the options of the job that it shuts out, and of one that it admits."""

    line: str
    shut_out: tuple[str, ...] = ()
    admitted: tuple[str, ...] | None = ()


CASES = {
    "allowed": Case("AllowAccounts=vip"),
    "denied": Case("DenyAccounts=cw"),
    "qos": Case("AllowQos=vip", admitted=("--qos=vip",)),
    "qosdenied": Case("DenyQos=normal", admitted=("--qos=vip",)),
    "groups": Case(f"AllowGroups={ADMITTED}"),
    "short": Case("MaxTime=5", ("--time=60",), ("--time=4",)),
    "narrow": Case("MaxNodes=1", ("-N2",), ("-N1",)),
    "rootonly": Case("RootOnly=YES", admitted=None),
    "reserved": Case("ReqResv=YES", admitted=None),
    "elsewhere": Case("AllocNodes=elsewhere", admitted=None),
    # The stranger's other account is below cw: the one that is allowed, and denied, in the others' stead.
    "above": Case("AllowAccounts=cw", ("-A", "low"), ("-A", "low")),
    "deniedabove": Case("DenyAccounts=cw", ("-A", "low"), ("-A", "low")),
}


def sub_accounts() -> bool:
    """Whether AllowAccounts and DenyAccounts mean the accounts below as well: a row of what releases do differently."""
    return means_sub_accounts("{:02}.{:02}".format(*slurm_version())) is True


@pytest.fixture(scope="module")
def closed() -> Iterator[SlurmCluster]:
    """Twelve nodes, all of them in every partition; limits of accounts are not enforced, as often."""
    skip_without_accounting()
    lines = [f"PartitionName={name} Nodes=ALL State=UP" for name in CASES]
    conf = ("AccountingStorageEnforce=associations", *lines)
    with SlurmCluster(accounting=True, nodes=12, extra_conf=conf) as cluster:
        for account, above in (("vip", "root"), ("low", "cw")):
            cluster.run("sacctmgr", "-i", "add", "account", account, f"parent={above}")
        cluster.run("sacctmgr", "-i", "add", "qos", "vip")
        for user, account in ((ADMITTED, "vip"), (ADMITTED, "low"), (STRANGER, "low")):
            cluster.run("sacctmgr", "-i", "add", "user", user, f"Account={account}")
        cluster.run("sacctmgr", "-i", "modify", "user", ADMITTED, "set", "qos+=vip")
        for name, case in CASES.items():  # 26.05 does not start with accounts and QoS that slurmdbd does not know
            cluster.run("scontrol", "update", f"PartitionName={name}", case.line)
        install_programs(cluster)
        yield cluster


@pytest.fixture
def cluster(closed: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    monkeypatch.setenv("SLURM_CONF", str(closed.conf))
    closed.reset()
    yield closed
    closed.reset()


def daemon_of(cluster: SlurmCluster, folder: Path) -> RunningDaemon:
    text = config_text(folder, cluster.conf, candidates="min_runtime = 0", budget="user_jobs_per_hour = 100")
    names = ", ".join(f'"{name}"' for name in CASES)
    return RunningDaemon(
        cluster, folder, config=text.replace('partition = ["urgent"]', f"anybody = true\npartition = [{names}]")
    )


def fill(cluster: SlurmCluster) -> list[str]:
    script = saver_script(cluster, 3_600)
    jobs = [cluster.sbatch(script, "-N1", "-n4", "-A", "cw", user=VICTIM) for _ in cluster.node_names]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    return jobs


def restarts(cluster: SlurmCluster, job_ids: Sequence[str]) -> list[str]:
    return [cluster.job(job_id)["Restarts"] for job_id in job_ids]


def cycles(daemon: RunningDaemon) -> float:
    found = re.search(r"^clearway_cycles_total(?:\{\})? (\S+)$", daemon.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def partition_of(cluster: SlurmCluster, job_id: str) -> str:
    return cluster.job(job_id)["Partition"]


@pytest.mark.fault(
    "`sbatch -p batch,urgent` made any account urgent, also where the urgent partition does not admit it.",
    found_by="trial",
)
def test_no_job_leaves_for_one_that_the_partition_shuts_out(cluster: SlurmCluster, tmp_path: Path) -> None:
    """In whatever order it names its partitions, and where the owner adds one later."""
    busy = fill(cluster)
    jobs: dict[str, str] = {}
    with daemon_of(cluster, tmp_path / "daemon") as daemon:
        for name, case in CASES.items():
            if name == ("above" if sub_accounts() else "deniedabove"):
                continue  # this release admits it
            options = ("-N1", "-n4", "-A", "cw", "--time=60", *case.shut_out)
            for partitions in (f"batch,{name}", f"{name},batch"):
                jobs[cluster.sbatch("exec sleep 3600", *options, "-p", partitions, user=STRANGER)] = name
            later = cluster.sbatch("exec sleep 3600", *options, "-p", "batch", user=STRANGER)
            cluster.run("scontrol", "update", f"JobId={later}", f"Partition={name}", user=STRANGER, check=False)
            if name in partition_of(cluster, later).split(","):  # 24.11 takes more than 22.05 does
                jobs[later] = name

        def told() -> Mapping[str, str]:
            waiting = daemon.get("/api/v1/status").json()["waiting"]
            return {each["job_id"]: str(each["why"]) for each in waiting}

        daemon.wait_for(lambda: jobs.keys() <= told().keys(), 60, "all of them to be told of")
        until = cycles(daemon) + CYCLES
        daemon.wait_for(lambda: cycles(daemon) >= until, 60, f"{CYCLES} cycles")
        known = told()
        for job_id, name in jobs.items():
            assert f"partition {name} " in known[job_id] or "does not wait for nodes" in known[job_id], known[job_id]
        assert daemon.evictions() == ()
        assert restarts(cluster, busy) == ["0"] * len(busy)


def test_whom_the_partition_admits_starts_there(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Also where it is the second of two partitions, of which Slurm would take the first."""
    busy = fill(cluster)
    with daemon_of(cluster, tmp_path / "daemon") as daemon:
        jobs = {}
        for name, case in CASES.items():
            if case.admitted is None or name == ("deniedabove" if sub_accounts() else "above"):
                continue
            options = ("-N1", "-n4", "-A", "vip", "--time=60", *case.admitted)
            jobs[cluster.sbatch(SCRIPT, *options, "-p", f"batch,{name}", user=ADMITTED)] = name
        alone = cluster.sbatch(SCRIPT, "-N1", "-n4", "-A", "vip", "--time=60", "-p", "allowed", user=ADMITTED)
        jobs[alone] = "allowed"
        for job_id in jobs:
            daemon.wait_for(lambda job_id=job_id: cluster.state(job_id) == "RUNNING", 90, f"job {job_id} to run")
        assert {job_id: partition_of(cluster, job_id) for job_id in jobs} == jobs
        assert sorted(restarts(cluster, busy)) == ["0"] * (len(busy) - len(jobs)) + ["1"] * len(jobs)
        let_go(cluster, daemon, *jobs)


@pytest.mark.fault(
    "A job that named an urgent partition started in its other one, on the nodes that strangers had left for it.",
    found_by="trial",
)
def test_a_job_that_is_left_alone_again_is_as_it_was(cluster: SlurmCluster, tmp_path: Path) -> None:
    """An array and a single job, of the user whom the partition admits, with a priority that an administrator gave."""
    busy = fill(cluster)
    for job_id in busy:
        (cluster.work / f"state.{job_id}.hold").touch()  # nobody gets away: the evictions stay under way
    options = ("-N1", "-n4", "-A", "vip", "--time=60", "-p", "batch,allowed,groups")
    jobs = [cluster.sbatch(SCRIPT, *options, *more, user=ADMITTED) for more in ((), ("--array=1-3",))]
    for job_id in jobs:
        cluster.run("scontrol", "update", f"JobId={job_id}", "Priority=77777")
    before = [{key: cluster.job(job_id).get(key) for key in OF_THE_JOB} for job_id in jobs]
    with daemon_of(cluster, tmp_path / "daemon") as daemon:

        def pinned() -> bool:
            return all(partition_of(cluster, job_id) == "allowed" for job_id in jobs)

        daemon.wait_for(pinned, 60, "both to be in the placement's partition")
        for e in daemon.evictions():
            daemon.post(f"/api/v1/evictions/{e.eviction_id}/cancel").raise_for_status()
        ended = (EvictionState.CANCELLED, EvictionState.FAILED)
        daemon.wait_for(lambda: all(e.state in ended for e in daemon.evictions()), 90, "the evictions to be undone")
        assert [{key: cluster.job(job_id).get(key) for key in OF_THE_JOB} for job_id in jobs] == before
        assert cluster.scontrol_reservations() == []
        assert restarts(cluster, busy) == ["0"] * len(busy)
