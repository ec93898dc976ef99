"""What keeps an urgent job from starting after it was planned for: no job leaves for it any more, and nothing is held.

One job saves itself for as long as the test likes; the other one would leave once that has saved itself. Meanwhile an
owner or an administrator changes the urgent job, its partition, its QoS, a license or the nodes. Once that is over
the job is planned for anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_without_accounting
from tests.slurm.daemon import RunningDaemon, config_text, install_programs, saver_script
from tests.slurm.urgent import SCRIPT, let_go

URGENT, ORDINARY = "cwdaemon", "cwalice"
DONE = (EvictionState.CANCELLED, EvictionState.FAILED)


@pytest.fixture(scope="module")
def limited() -> Iterator[SlurmCluster]:
    skip_without_accounting()
    conf = ("AccountingStorageEnforce=limits,qos", "Licenses=matlab:1")
    with SlurmCluster(accounting=True, nodes=2, extra_conf=conf) as cluster:
        cluster.run("sacctmgr", "-i", "add", "account", "hot")
        cluster.run("sacctmgr", "-i", "add", "qos", "urgent")
        cluster.run("sacctmgr", "-i", "add", "user", f"{URGENT},{ORDINARY}", "Account=hot")
        cluster.run("sacctmgr", "-i", "modify", "user", URGENT, "set", "qos+=urgent")
        install_programs(cluster)
        yield cluster


@pytest.fixture
def cluster(limited: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    monkeypatch.setenv("SLURM_CONF", str(limited.conf))
    limited.reset()
    yield limited
    limited.reset()


@dataclass(frozen=True)
class Scene:
    cluster: SlurmCluster
    urgent: str
    saver: str
    other: str

    def update(self, *words: str, user: str | None = None) -> None:
        self.cluster.run("scontrol", "update", *words, user=user)

    def of_job(self, *words: str) -> None:
        """By its owner."""
        self.update(f"JobId={self.urgent}", *words, user=URGENT)

    def qos(self, what: str, value: str) -> None:
        self.cluster.run("sacctmgr", "-i", "modify", "qos", "urgent", "set", f"{what}={value}", check=False)

    def account(self, what: str, value: str) -> None:
        self.cluster.run("sacctmgr", "-i", "modify", "account", "hot", "set", f"{what}={value}", check=False)

    def licenses(self, line: str) -> None:
        conf = self.cluster.conf
        lines = [each for each in conf.read_text().splitlines() if not each.startswith("Licenses=")]
        conf.write_text("\n".join([*lines, line]) + "\n")
        self.cluster.run("scontrol", "reconfigure")

    def licenses_again(self) -> None:
        self.licenses("Licenses=matlab:1")
        self.cluster.run("scontrol", "release", self.urgent)

    def reserve(self) -> None:
        flags = "MAINT,IGNORE_JOBS,OVERLAP"
        named = ("ReservationName=maintenance", "Users=root", "Nodes=ALL", "StartTime=now", "Duration=60")
        self.cluster.run("scontrol", "create", "reservation", *named, f"Flags={flags}")

    def unreserve(self) -> None:
        self.cluster.run("scontrol", "delete", "ReservationName=maintenance")


Act = Callable[[Scene], None]


@dataclass(frozen=True)
class Change:
    """What keeps it from starting, how that ends, and what is said."""

    set: Act
    lift: Act
    told: str


CHANGES = {
    "StartTime": Change(
        lambda it: it.of_job("StartTime=now+1hour"), lambda it: it.of_job("StartTime=now"), "it is not to start before"
    ),
    "Dependency": Change(
        lambda it: it.of_job(f"Dependency=afterany:{it.other}"),
        lambda it: it.of_job("Dependency="),
        "it waits for other jobs",
    ),
    "admin hold": Change(
        lambda it: it.update(f"JobId={it.urgent}", "Priority=0"),
        lambda it: it.cluster.run("scontrol", "release", it.urgent) and None,
        "is held",
    ),
    "partition down": Change(
        lambda it: it.update("PartitionName=urgent", "State=DOWN"),
        lambda it: it.update("PartitionName=urgent", "State=UP"),
        "partition urgent is DOWN",
    ),
    "limit of the QoS": Change(
        lambda it: it.qos("MaxTRESPerJob", "cpu=4"),
        lambda it: it.qos("MaxTRESPerJob", "cpu=-1"),
        "QoS urgent has the limit MaxTRESPerJob=cpu=4",
    ),
    "a limit of the account": Change(
        lambda it: it.account("GrpTRES", "cpu=4"),
        lambda it: it.account("GrpTRES", "cpu=-1"),
        "account hot has the limit GrpTRES=cpu=4",
    ),
    "account denied": Change(
        lambda it: it.update("PartitionName=urgent", "DenyAccounts=hot"),
        lambda it: it.update("PartitionName=urgent", "DenyAccounts="),
        "partition urgent does not allow account hot",
    ),
    "QoS taken away": Change(
        lambda it: it.cluster.run("sacctmgr", "-i", "modify", "user", URGENT, "set", "qos-=urgent") and None,
        lambda it: it.cluster.run("sacctmgr", "-i", "modify", "user", URGENT, "set", "qos+=urgent") and None,
        "QOS",
    ),
    "license gone": Change(lambda it: it.licenses("Licenses=other:1"), Scene.licenses_again, "it is held"),
    "reserved by others": Change(Scene.reserve, Scene.unreserve, "maintenance"),
    "partition without a node": Change(
        lambda it: it.update("PartitionName=urgent", "Nodes=node1"),
        lambda it: it.update("PartitionName=urgent", "Nodes=ALL"),
        "(reason PartitionConfig)",
    ),
}


# What a short run tries: of each kind one.
SHORT: Mapping[str, tuple[pytest.MarkDecorator, ...]] = {
    **dict.fromkeys(("StartTime", "Dependency", "partition down", "limit of the QoS"), ()),
    "license gone": (pytest.mark.full, pytest.mark.one_slurm),  # 24.11 takes the license from the job, which can start
}
LONG = (pytest.mark.full,)


def daemon_of(cluster: SlurmCluster, folder: Path) -> RunningDaemon:
    text = config_text(folder, cluster.conf, max_delay_s=600, candidates="min_runtime = 0")
    return RunningDaemon(cluster, folder, config=text)


def restarts(cluster: SlurmCluster, *job_ids: str) -> list[str]:
    return [cluster.job(job_id)["Restarts"] for job_id in job_ids]


def begin(cluster: SlurmCluster, daemon: RunningDaemon, *more: str) -> Scene:
    """An urgent job for which one job saves itself, and another one waits for that before it leaves."""
    saver = cluster.sbatch(saver_script(cluster, 3_600), "-N1", "-n4", "-A", "hot", user=ORDINARY)
    (cluster.work / f"state.{saver}.hold").touch()
    other = cluster.sbatch("exec sleep 3600", "-N1", "-n4", "-A", "hot", user=ORDINARY)
    cluster.wait_state(saver, "RUNNING")
    cluster.wait_state(other, "RUNNING")
    daemon.wait_for(lambda: "clearway:" in cluster.job(saver).get("Comment", ""), 30, "the launcher to be there")
    options = ("-p", "urgent", "--qos=urgent", "-A", "hot", "-N2", "-n8", "--time=10", *more)
    urgent = cluster.sbatch(SCRIPT, *options, user=URGENT)

    def asked() -> bool:
        found = [e for e in daemon.evictions() if e.state is EvictionState.PREEMPTING]
        return any(p.state is PreemptionState.CHECKPOINTING for e in found for p in e.preemptions)

    daemon.wait_for(asked, 40, "a job to be asked to save itself")
    return Scene(cluster, urgent, saver, other)


@pytest.mark.fault(
    "Jobs left for an urgent job that its owner, or an administrator, had changed so that it could not start any more.",
    found_by="trial",
)
@pytest.mark.parametrize(
    "change", [pytest.param(CHANGES[name], id=name, marks=SHORT.get(name, LONG)) for name in CHANGES]
)
def test_no_job_leaves_for_one_that_cannot_start_any_more(
    cluster: SlurmCluster, tmp_path: Path, change: Change
) -> None:
    with daemon_of(cluster, tmp_path / "daemon") as daemon:
        it = begin(cluster, daemon, "-L", "matlab:1")
        try:
            change.set(it)
            # Slurm itself has no reason to look before half a minute has passed; the daemon's own look is enough.
            daemon.wait_for(lambda: all(e.state in DONE for e in daemon.evictions()), 45, "the eviction to be undone")
            (cluster.work / f"state.{it.saver}.hold").unlink()
            assert restarts(cluster, it.saver, it.other) == ["0", "0"]
            assert cluster.scontrol_reservations() == [] or change.told == "maintenance"
            assert cluster.job(it.urgent).get("ReservationName", "(null)") == "(null)"
            assert any(change.told in e.outcome for e in daemon.evictions()), [e.outcome for e in daemon.evictions()]
        finally:
            change.lift(it)
        daemon.wait_for(lambda: cluster.state(it.urgent) == "RUNNING", 75, "the urgent job to run once that is over")
        assert sorted(restarts(cluster, it.saver, it.other)) == ["1", "1"]
        let_go(cluster, daemon, it.urgent)


def test_a_job_that_may_not_be_requeued_any_more_stays(cluster: SlurmCluster, tmp_path: Path) -> None:
    """So does the other one, which had saved itself first: it would leave in vain."""
    with daemon_of(cluster, tmp_path / "daemon") as daemon:
        it = begin(cluster, daemon)
        cluster.run("scontrol", "update", f"JobId={it.other}", "Requeue=0", user=ORDINARY)
        (cluster.work / f"state.{it.saver}.hold").unlink()
        daemon.wait_for(lambda: all(e.late for e in daemon.evictions()), 40, "that no other plan is possible")
        assert restarts(cluster, it.saver, it.other) == ["0", "0"]
        cluster.run("scontrol", "update", f"JobId={it.other}", "Requeue=1")
        daemon.wait_for(lambda: cluster.state(it.urgent) == "RUNNING", 75, "the urgent job to run")
        assert restarts(cluster, it.saver, it.other) == ["1", "1"]
        let_go(cluster, daemon, it.urgent)
