"""An urgent job that a limit would hold back: no job leaves for it, and the reason is shown; once lifted it is served.

A job of another rule stands before it in its partition, so that Slurm says "Priority" and not which limit it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_without_accounting
from tests.slurm.daemon import RunningDaemon, config_text

pytestmark = pytest.mark.one_slurm

URGENT, ORDINARY, SPARED = "cwdaemon", "cwalice", "cwbob"
WHOLE_NODE = ("-N1", "-n4", "--time=60")
CYCLES = 8
SHOWN_AS = {  # by slurmctld, once slurmdbd has told it; a limit for each user only where one has a job
    "MaxJobsPerUser": "MaxJobsPU",
    "MaxTRESPerUser": "MaxTRESPU",
    "MaxTRESPerJob": "MaxTRESPJ",
    "MaxWall": "MaxWallPJ",
}


@pytest.fixture(scope="module")
def limited() -> Iterator[SlurmCluster]:
    """Four nodes; limits count. Backfill would look at each job, and then Slurm itself would name the limit."""
    skip_without_accounting()
    conf = ("AccountingStorageEnforce=limits,qos", "SchedulerParameters=batch_sched_delay=0,bf_interval=600")
    with SlurmCluster(accounting=True, nodes=4, extra_conf=conf) as cluster:
        cluster.run("sacctmgr", "-i", "add", "account", "above")
        cluster.run("sacctmgr", "-i", "add", "account", "hot", "parent=above")
        cluster.run("sacctmgr", "-i", "add", "qos", "urgent")
        cluster.run("sacctmgr", "-i", "add", "user", f"{URGENT},{ORDINARY},{SPARED}", "Account=hot")
        cluster.run("sacctmgr", "-i", "modify", "user", f"{URGENT},{ORDINARY},{SPARED}", "set", "qos+=urgent")
        yield cluster


@pytest.fixture
def cluster(limited: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    monkeypatch.setenv("SLURM_CONF", str(limited.conf))
    limited.reset()
    yield limited
    limited.reset()


class Limit:
    """What sets and lifts a limit, and how it is told."""

    def __init__(
        self, told: str, entity: Sequence[str], key: str, value: str, lifted: str = "-1", *, reason: str = ""
    ) -> None:
        # Slurm itself looks at limits of one job at once, and then its reason is told.
        self.told = (told, f"(reason {reason})") if reason else (told,)
        self._entity, self._key, self._value, self._lifted = entity, key, value, lifted

    def set(self, cluster: SlurmCluster) -> None:
        self._give(cluster, self._value)

    def lift(self, cluster: SlurmCluster) -> None:
        self._give(cluster, self._lifted)

    def _give(self, cluster: SlurmCluster, value: str) -> None:
        if self._entity[0] == "partition":
            cluster.run("scontrol", "update", f"PartitionName={self._entity[1]}", f"{self._key}={value}")
            return
        cluster.run("sacctmgr", "-i", "modify", *self._entity, "set", f"{self._key}={value}", check=False)
        key, wanted = SHOWN_AS.get(self._key, self._key), value == self._value

        def known() -> bool:
            shown = cluster.run("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos").stdout
            of_it = [line for line in shown.splitlines() if self._entity[1] in line.split(" Priority=")[0]]
            given = re.compile(rf"\b{key}=([^ ]*,)?{re.escape(self._value)}(?=[(, }}])")
            return wanted == any(given.search(line) for line in of_it)

        cluster.wait_for(known, 30, f"{key}={value} to reach slurmctld")


CASES = {
    "GrpTRES of a QoS": Limit(
        "QoS urgent has the limit GrpTRES=cpu=8", ("qos", "urgent"), "GrpTRES", "cpu=8", "cpu=-1"
    ),
    "GrpTRES of an account": Limit(
        "account above has the limit GrpTRES=cpu=8", ("account", "above"), "GrpTRES", "cpu=8", "cpu=-1"
    ),
    "GrpTRES node": Limit("QoS urgent has the limit GrpTRES=node=2", ("qos", "urgent"), "GrpTRES", "node=2", "node=-1"),
    "MaxJobsPerUser": Limit("QoS urgent has the limit MaxJobsPerUser=1", ("qos", "urgent"), "MaxJobsPerUser", "1"),
    "MaxTRESPerUser": Limit(
        "QoS urgent has the limit MaxTRESPerUser=cpu=8", ("qos", "urgent"), "MaxTRESPerUser", "cpu=8", "cpu=-1"
    ),
    "MaxTRESPerJob": Limit(
        "QoS urgent has the limit MaxTRESPerJob=cpu=4",
        ("qos", "urgent"),
        "MaxTRESPerJob",
        "cpu=4",
        "cpu=-1",
        reason="QOSMaxCpuPerJobLimit",
    ),
    "MaxWall": Limit(
        "QoS urgent has the limit MaxWall=5", ("qos", "urgent"), "MaxWall", "5", reason="QOSMaxWallDurationPerJobLimit"
    ),
    "MaxNodes of the partition": Limit(
        "partition urgent has the limit MaxNodes=1",
        ("partition", "urgent"),
        "MaxNodes",
        "1",
        "UNLIMITED",
        reason="PartitionNodeLimit",
    ),
}


def fill(cluster: SlurmCluster, *, qos: str = "normal") -> list[str]:
    """Every node has a job; that of one is the urgent user's own, in its QoS, and cannot leave."""
    jobs = [
        cluster.sbatch("exec sleep 3600", *WHOLE_NODE, "-A", "hot", f"--qos={qos}", user=ORDINARY) for _ in range(3)
    ]
    options = ("-A", "hot", "--qos=urgent", "--no-requeue")
    jobs.append(cluster.sbatch("exec sleep 3600", *WHOLE_NODE, *options, user=URGENT))
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    cluster.sbatch("exec sleep 1", "-N4", "-p", "urgent", "--time=60", "--exclusive", user=SPARED)  # stands before
    return jobs


def submit(cluster: SlurmCluster) -> str:
    options = ("-p", "urgent", "--qos=urgent", "-A", "hot", "-N2", "-n8", "--time=10")
    return cluster.sbatch("exec sleep 3600", *options, user=URGENT)


def daemon_of(cluster: SlurmCluster, folder: Path) -> RunningDaemon:
    text = config_text(folder, cluster.conf, candidates="min_runtime = 0")
    text = text.replace('max_delay = "60s"', f'max_delay = "60s"\nuser = ["{URGENT}"]')
    return RunningDaemon(cluster, folder, config=text)


def cycles(daemon: RunningDaemon) -> float:
    found = re.search(r"^clearway_cycles_total(?:\{\})? (\S+)$", daemon.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def told(daemon: RunningDaemon, job_id: str) -> str:
    waiting = daemon.get("/api/v1/status").json()["waiting"]
    return next((str(each["why"]) for each in waiting if each["job_id"] == job_id), "")


def restarts(cluster: SlurmCluster, job_ids: Sequence[str]) -> list[str]:
    return [cluster.run("squeue", "-h", "-j", job_id, "-O", "RestartCnt").stdout.strip() for job_id in job_ids]


def stays_so(
    cluster: SlurmCluster, daemon: RunningDaemon, urgent: str, whys: Sequence[str], busy: Sequence[str]
) -> None:
    """The daemon says why (one of these); through many cycles no job leaves, and nothing is even planned."""

    def said() -> bool:
        return any(why in told(daemon, urgent) for why in whys)

    daemon.wait_for(said, 40, f"one of {whys} to be told")
    until = cycles(daemon) + CYCLES
    daemon.wait_for(lambda: cycles(daemon) >= until, 60, f"{CYCLES} cycles")
    assert said(), told(daemon, urgent)
    assert daemon.evictions() == ()
    assert restarts(cluster, busy) == ["0"] * len(busy)


@pytest.mark.parametrize("limit", CASES.values(), ids=CASES.keys())
def test_no_job_leaves_where_a_limit_would_bind(cluster: SlurmCluster, tmp_path: Path, limit: Limit) -> None:
    busy = fill(cluster)
    limit.set(cluster)
    try:
        with daemon_of(cluster, tmp_path / "daemon") as daemon:
            urgent = submit(cluster)
            stays_so(cluster, daemon, urgent, limit.told, busy)
            limit.lift(cluster)
            for look_again in ("hold", "release"):  # backfill would do so within half a minute
                cluster.run("scontrol", look_again, urgent)
            daemon.wait_for(lambda: cluster.state(urgent) == "RUNNING", 60, "the urgent job to run")
            assert sorted(restarts(cluster, busy)) == ["0", "0", "1", "1"]
    finally:
        limit.lift(cluster)


def test_a_limit_that_no_longer_binds_when_the_jobs_of_the_plan_have_left(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    """The whole limit is in use, by jobs of which two leave."""
    limit = Limit("", ("qos", "urgent"), "GrpTRES", "cpu=16", "cpu=-1")
    busy = fill(cluster, qos="urgent")
    limit.set(cluster)
    try:
        with daemon_of(cluster, tmp_path / "daemon") as daemon:
            urgent = submit(cluster)
            daemon.wait_for(lambda: cluster.state(urgent) == "RUNNING", 60, "the urgent job to run")
            assert sorted(restarts(cluster, busy)) == ["0", "0", "1", "1"]
    finally:
        limit.lift(cluster)


def test_a_maintenance_before_the_job_would_have_ended(cluster: SlurmCluster, tmp_path: Path) -> None:
    busy = fill(cluster)
    maintenance = ("ReservationName=maintenance", "StartTime=now+5minutes", "Duration=60", "Users=root")
    flags = ("Nodes=node[1-3]", "Flags=MAINT,IGNORE_JOBS")
    cluster.run("scontrol", "create", "reservation", *maintenance, *flags)
    with daemon_of(cluster, tmp_path / "daemon") as daemon:
        urgent = submit(cluster)
        why = "3 are reserved (maintenance) before the job would have ended"
        stays_so(cluster, daemon, urgent, [why], busy)
        cluster.run("scontrol", "delete", "ReservationName=maintenance")
        daemon.wait_for(lambda: cluster.state(urgent) == "RUNNING", 60, "the urgent job to run")
        assert sorted(restarts(cluster, busy)) == ["0", "0", "1", "1"]


@pytest.mark.parametrize(
    ("option", "why"),
    [("--dependency=afterok:{first}", "it waits for other jobs"), ("--begin=now+1hour", "it is not to start before")],
)
def test_a_job_that_waits_for_another_job_or_a_time(
    cluster: SlurmCluster, tmp_path: Path, option: str, why: str
) -> None:
    """Slurm says at first that it waits for nodes."""
    busy = fill(cluster)
    with daemon_of(cluster, tmp_path / "daemon") as daemon:
        options = ("-p", "urgent", "-A", "hot", "-N2", "-n8", "--time=10", option.format(first=busy[0]))
        urgent = cluster.sbatch("exec sleep 3600", *options, user=URGENT)
        stays_so(cluster, daemon, urgent, [why], busy)
