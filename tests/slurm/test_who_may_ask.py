"""Who may make a job urgent is Slurm's word: a rule that rests on what Slurm does not check makes no job urgent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.slurm.site_facts import Site
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_without_accounting
from tests.slurm.daemon import RunningDaemon, config_text

LIAR, FRIEND, OWNER = "cwalice", "cwdaemon", "cwbob"
WHOLE_NODE = ("-N1", "-n4")
CLOSED = (
    "PartitionName=closed Nodes=ALL MaxTime=INFINITE State=UP AllowAccounts=vip",
    "PartitionName=chosen Nodes=ALL MaxTime=INFINITE State=UP AllowQos=urgent",
)


def configured(cluster: SlurmCluster, folder: Path, rests_on: str) -> str:
    text = config_text(folder, cluster.conf, candidates="min_runtime = 0")
    return text.replace('partition = ["urgent"]', rests_on)


def busy(cluster: SlurmCluster) -> list[str]:
    jobs = [cluster.sbatch("exec sleep 600", *WHOLE_NODE, user=OWNER) for _ in cluster.node_names]
    for job in jobs:
        cluster.wait_state(job, "RUNNING")
    return jobs


def cycles(daemon: RunningDaemon) -> float:
    found = re.search(r"^clearway_cycles_total(?:\{\})? (\S+)$", daemon.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def nothing_leaves(daemon: RunningDaemon, jobs: list[str]) -> None:
    began = cycles(daemon)
    daemon.wait_for(lambda: cycles(daemon) >= began + 5, 30, "five cycles")
    assert daemon.evictions() == ()
    shown = daemon.cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").stdout.split()
    assert set(jobs) <= set(shown)


def refused(daemon: RunningDaemon, what: str) -> None:
    """The daemon, check-config and the doctor say the same one line."""
    assert what in daemon.get("/api/v1/status").json()["refused_rules"]
    said = CliRunner().invoke(app, ["check-config", str(daemon.config)])
    assert said.exit_code == 2
    assert what in said.output
    doctor = CliRunner().invoke(app, ["doctor", "-c", str(daemon.config), "-o", "json"])
    assert doctor.exit_code == 1
    assert what in doctor.stdout


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    with SlurmCluster(nodes=1, extra_conf=CLOSED[:1]) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        yield cluster


@pytest.mark.fault("An account or a QoS that Slurm did not check made any user's job urgent.", found_by="attack")
def test_without_slurmdbd_an_account_is_the_jobs_own_word(alone: SlurmCluster, tmp_path: Path) -> None:
    jobs = busy(alone)
    with RunningDaemon(alone, tmp_path / "d", config=configured(alone, tmp_path / "d", 'account = ["vip"]')) as daemon:
        alone.sbatch("exec sleep 60", "--account=vip", *WHOLE_NODE, user=LIAR)
        nothing_leaves(daemon, jobs)
        refused(daemon, "Slurm does not check the account on this site")


def test_a_site_may_let_everybody_have_it(alone: SlurmCluster, tmp_path: Path) -> None:
    busy(alone)
    rule = 'account = ["vip"]\nanybody = true'
    with RunningDaemon(alone, tmp_path / "d", config=configured(alone, tmp_path / "d", rule)) as daemon:
        job = alone.sbatch("exec sleep 60", "--account=vip", *WHOLE_NODE, user=LIAR)
        alone.wait_state(job, "RUNNING")
        assert daemon.get("/api/v1/status").json()["refused_rules"] == ""


@pytest.fixture(scope="module")
def accounted() -> Iterator[SlurmCluster]:
    """Of two users one may use the account and the QoS; Slurm enforces nothing at first."""
    skip_without_accounting()
    with SlurmCluster(nodes=1, accounting=True) as cluster:
        cluster.run("sacctmgr", "-i", "add", "account", "vip")
        cluster.run("sacctmgr", "-i", "add", "qos", "urgent")
        cluster.run("sacctmgr", "-i", "add", "user", FRIEND, "Account=vip")
        cluster.run("sacctmgr", "-i", "modify", "user", FRIEND, "set", "qos+=urgent")
        cluster.run("sacctmgr", "-i", "delete", "user", LIAR)
        with cluster.conf.open("a") as conf:  # 26.05 does not begin while a partition's QoS is missing
            conf.write("\n".join(CLOSED) + "\n")
        yield cluster


@pytest.fixture
def enforcing(accounted: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    monkeypatch.setenv("SLURM_CONF", str(accounted.conf))
    accounted.reset()
    yield accounted
    accounted.reset()


def enforce(cluster: SlurmCluster, words: str) -> None:
    kept = re.sub(r"^AccountingStorageEnforce=.*\n", "", cluster.conf.read_text(), flags=re.MULTILINE)
    cluster.conf.write_text(kept + (f"AccountingStorageEnforce={words}\n" if words else ""))
    cluster.stop_controller(saved=False)
    cluster.start_controller()
    cluster.reset()


def takes(cluster: SlurmCluster, *claims: str) -> bool:
    """Whether Slurm lets a user who has neither account nor QoS submit so, or make a waiting job so."""
    done = cluster.run("sbatch", "--parsable", "--hold", *claims, "--wrap", "sleep 1", user=LIAR, check=False)
    if done.returncode == 0:
        return True
    plain = cluster.run("sbatch", "--parsable", "--hold", "--wrap", "sleep 1", user=LIAR, check=False).stdout.strip()
    changes = [each.removeprefix("--").replace("account", "Account").replace("qos", "QOS") for each in claims]
    changed = cluster.run("scontrol", "update", f"JobId={plain}", *changes, user=LIAR, check=False) if plain else None
    return changed is not None and changed.returncode == 0


@pytest.mark.full
@pytest.mark.parametrize("words", ["", "associations", "limits", "qos", "safe", "nojobs", "all"])
def test_what_slurm_vouches_for_is_what_it_refuses(enforcing: SlurmCluster, words: str) -> None:
    """The user has an association, with another account and without the QoS, and changes a waiting job as well."""
    enforce(enforcing, words)
    enforcing.run("sacctmgr", "-i", "add", "user", LIAR, "Account=cw")
    try:
        known = "scontrol", "-o", "show", "assoc_mgr", f"users={LIAR}", "flags=assoc"
        enforcing.wait_for(lambda: LIAR in enforcing.run(*known).stdout, 30, "the association to be known")
        qos_is_free = takes(enforcing, "--qos=urgent")
    finally:
        enforcing.run("scancel", "--user", LIAR)
        remove = "sacctmgr", "-i", "delete", "user", LIAR  # refused by 24.11 until slurmdbd knows that no job is left
        enforcing.wait_for(lambda: enforcing.run(*remove, check=False).returncode == 0, 60, "the user to be removed")
    enforcing.wait_for(lambda: LIAR not in enforcing.run(*known).stdout, 30, "the association to be forgotten")
    account_is_free = takes(enforcing, "--account=vip")
    _, vouched = Site(str(enforcing.conf)).identity_and_vouched()
    assert (vouched.accounts, vouched.qos) == (not account_is_free, not qos_is_free)
    in_doubt = {"closed": "AllowAccounts"} if account_is_free else {}
    assert vouched.partitions == in_doubt | ({"chosen": "AllowQos"} if qos_is_free else {})


@pytest.mark.one_slurm
def test_with_slurmdbd_it_depends_on_what_slurm_enforces(enforcing: SlurmCluster, tmp_path: Path) -> None:
    """An account, a QoS, and a partition that chooses by them; then the same rule once Slurm checks it."""
    enforce(enforcing, "")
    jobs = busy(enforcing)
    by_account, by_qos = 'account = ["vip"]', 'qos = ["urgent"]'
    rules = f'partition = ["chosen"]\n[[preemptors]]\n{by_account}\n[[preemptors]]\n{by_qos}'
    text = configured(enforcing, tmp_path / "d", rules)
    with RunningDaemon(enforcing, tmp_path / "d", config=text) as daemon:
        enforcing.sbatch("exec sleep 60", "--account=vip", *WHOLE_NODE, user=LIAR)
        enforcing.sbatch("exec sleep 60", "--qos=urgent", *WHOLE_NODE, user=LIAR)
        enforcing.sbatch("exec sleep 60", "--qos=urgent", "-p", "chosen", *WHOLE_NODE, user=LIAR)
        nothing_leaves(daemon, jobs)
        refused(daemon, "AllowQos of partition chosen")
        assert daemon.get("/api/v1/status").json()["refused_rules"].count("Slurm does not check") == 3

    enforce(enforcing, "associations,qos")
    busy(enforcing)
    with RunningDaemon(enforcing, tmp_path / "e", config=configured(enforcing, tmp_path / "e", by_qos)) as daemon:
        assert not takes(enforcing, "--qos=urgent")
        urgent = enforcing.sbatch("exec sleep 60", "-A", "vip", "--qos=urgent", *WHOLE_NODE, user=FRIEND)
        enforcing.wait_state(urgent, "RUNNING")
        assert daemon.evictions()[0].plan.rule == "urgent"
        assert daemon.get("/api/v1/status").json()["refused_rules"] == ""
