"""What ``slurm/releases.py`` says of this release is so, and its answers still have the keys that were recorded.

A new version from Debian that answers otherwise is seen here first.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import SlurmRefusedError
from clearway.slurm import parse
from clearway.slurm.base import SlurmBackend
from clearway.slurm.cli import CliBackend
from clearway.slurm.parse import over
from clearway.slurm.process import Commands
from clearway.slurm.pyslurm import WorkerProcess
from clearway.slurm.releases import TRIED, only_observed, release_of
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import slurm_version
from tests.slurm.test_backend_conformance import make_backend
from tests.unit.slurm import recordings

REASON = "clearway drain 7: by hand"


@pytest.fixture
def commands(cluster: SlurmCluster) -> Commands:
    return Commands(slurm_conf=str(cluster.conf))


@pytest.fixture
def recorded(cluster: SlurmCluster) -> Path:  # noqa: ARG001 - where there is no Slurm, there is no release
    release = "{}.{:02d}".format(*slurm_version())
    (folder,) = (folder for folder in recordings.RELEASES if folder.name == release)
    return folder


def snapshot(backend: SlurmBackend) -> ClusterSnapshot:
    try:
        return backend.snapshot()
    finally:
        backend.close()


def test_the_release_is_recognised_and_acted_on(cluster: SlurmCluster) -> None:
    """By either backend: what counts is slurmctld's word."""
    seen = snapshot(make_backend(cluster)).slurm_version
    assert release_of(seen) == "{}.{:02d}".format(*slurm_version())
    assert release_of(seen) in {row.name for row in TRIED}
    assert only_observed(seen) == ""


def test_the_row_of_this_release(cluster: SlurmCluster, commands: Commands, recorded: Path) -> None:
    (row,) = (row for row in TRIED if row.name == recorded.name)
    try:
        known = commands.run(["squeue", "--helpFormat"])
    except SlurmRefusedError:
        known = ""
    assert bool(known.split()) is (row.name in recordings.TELL_COLUMNS)
    assert row.sharing_column in parse.job_columns(known)

    cluster.run("scontrol", "update", "NodeName=node2", "State=DRAIN", f"Reason={REASON}")
    cluster.run("scontrol", "update", "NodeName=node2", "State=UNDRAIN")
    assert cluster.node_reasons() == ({} if row.name in recordings.CLEAR_REASONS else {"node2": REASON})

    resv = ["StartTime=now", "Duration=60", "Flags=IGNORE_JOBS,FLEX", "Nodes=node7", "Users=root"]
    cluster.run("scontrol", "create", "reservation", "ReservationName=clearway-1", *resv)
    cluster.wait_for(lambda: "RESERVED" in cluster.records("node", "node7")[0]["State"], 30, "node7 reserved")
    assert ("ReservationName" in cluster.records("node", "node7")[0]) is (row.name in recordings.NAME_RESERVATIONS)


def test_a_drain_of_ours_leaves_no_reason_in_force(cluster: SlurmCluster) -> None:
    backend = make_backend(cluster)
    backend.drain("node3", "clearway drain 7: by hand")
    backend.undrain("node3", "clearway drain 7: by hand")
    assert set(cluster.node_reasons().values()) <= {over("clearway drain 7")}
    assert [node.reason for node in snapshot(backend).nodes if node.reason] == []


ANSWERS: dict[str, tuple[str, ...]] = {
    "nodes.txt": ("scontrol", "-o", "-d", "show", "node"),
    "reservations.txt": ("scontrol", "-o", "show", "reservation"),
    "partitions.txt": ("scontrol", "-o", "show", "partition"),
}


@pytest.fixture
def filled(cluster: SlurmCluster) -> SlurmCluster:
    job_id = cluster.sbatch("sleep 600", "-n1", "-t", "10", "-o", "/dev/null", user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    resv = ["StartTime=now", "Duration=60", "Flags=IGNORE_JOBS,FLEX", "Nodes=node7", "Users=root,cwbob"]
    cluster.run("scontrol", "create", "reservation", "ReservationName=clearway-1", *resv)
    cluster.wait_for(lambda: "RESERVED" in cluster.records("node", "node7")[0]["State"], 30, "node7 reserved")
    return cluster


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_have_the_keys_that_were_recorded(
    filled: SlurmCluster, commands: Commands, recorded: Path, name: str
) -> None:
    """Each line has those that every recorded line has, and none that no recorded line has."""
    then, now = recordings.keys(recordings.read(recorded, name)), recordings.keys(commands.run(ANSWERS[name]))
    assert filled.controller_is_up()
    assert now
    for line in now:
        assert frozenset.intersection(*then) <= line <= frozenset.union(*then)


def test_squeue_prints_the_columns_that_were_recorded(filled: SlurmCluster, commands: Commands, recorded: Path) -> None:
    assert filled.controller_is_up()
    (job,) = snapshot(CliBackend(now=lambda: datetime.now(UTC), slurm_conf=str(filled.conf))).jobs
    assert (job.user, job.partitions, job.exclusive, job.time_limit_s) == ("cwalice", ("batch",), False, 600)
    try:
        known = commands.run(["squeue", "--helpFormat"])
    except SlurmRefusedError:
        known = ""
    assert known.split() == recordings.read(recorded, "columns.txt").split()


def test_pyslurm_hands_over_the_keys_that_were_recorded(filled: SlurmCluster, recorded: Path) -> None:
    if not (recorded / "pyslurm.jsonl").exists():
        pytest.skip("pyslurm does not know this release")
    worker = WorkerProcess(slurm_conf=str(filled.conf), timeout_s=60.0)
    try:
        answer = worker.call("snapshot")
    finally:
        worker.close()
    for kind, then in recordings.pyslurm_records(recorded).items():
        assert answer[kind], kind
        for record in answer[kind]:
            assert record.keys() == then[0].keys()
            for key, value in record.items():
                types = {type(each[key]) for each in then} - {type(None)}
                assert value is None or not types or type(value) in types, (kind, key, value)
