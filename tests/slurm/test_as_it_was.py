"""After an operation every field of every job, node, reservation and partition is as it was before.

None of the values is a default: Nice, an administrator's priority, excluded nodes, a Comment of the user's own, a
weight, a reservation with a job in it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from tests.slurm.all_fields import ELSEWHERE, OF_A_RUN, all_fields, changed
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text, install_programs, saver_script
from tests.slurm.machine import missing_requirements
from tests.slurm.test_bad_days import stands_still
from tests.slurm.test_drain import UNPROTECTED, ask, newest
from tests.slurm.urgent import SCRIPT, let_go

CLAIM = "clearway:run"  # as the records of ``scontrol`` are read: the rest of the Comment is the user's
LONG = "while :; do sleep 0.2; done"
ONE = ("-N1", "-n4", "--time=30", "--requeue", "--output=/dev/null")
MULTIFACTOR = (
    "PriorityType=priority/multifactor", "PriorityWeightPartition=10000", "PriorityWeightJobSize=5000",
    "PriorityCalcPeriod=1",
)  # fmt: skip


@pytest.fixture(scope="module", params=["multifactor", pytest.param("basic", marks=pytest.mark.one_slurm)])
def odd(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    if reason := missing_requirements():
        skip_or_fail(reason)
    with SlurmCluster(nodes=6, extra_conf=MULTIFACTOR if request.param == "multifactor" else ()) as cluster:
        yield cluster


@dataclass
class Scene:
    cluster: SlurmCluster
    nice: str  # of a user who has given it a Nice
    placed: str  # whose priority an administrator has set
    here: tuple[str, str]  # their nodes


@pytest.fixture
def scene(odd: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Two jobs on two nodes, which will leave them; beside them what nobody may touch."""
    cluster = odd
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    cluster.reset()
    install_programs(cluster)
    comment = "--comment=text of mine"
    nice = cluster.sbatch(saver_script(cluster, 300), *ONE, "--nice=100", comment, "-x", "node6", user="cwalice")
    cluster.wait_state(nice, "RUNNING")
    placed = cluster.sbatch(
        saver_script(cluster, 300), *ONE, "--uid=cwalice", "--nice=100", "--priority=77777", comment, "-x", "node6"
    )
    cluster.wait_state(placed, "RUNNING")
    for job_id in (nice, placed):
        cluster.wait_for(lambda job_id=job_id: CLAIM in cluster.job(job_id), 30, "its claim")
    cluster.run("scontrol", "update", "NodeName=node1", "Weight=50", "Comment=rack 7")
    cluster.run("scontrol", "update", "NodeName=node6", "State=DRAIN", "Reason=a fan")
    cluster.run("scontrol", "update", "PartitionName=urgent", "MaxTime=120")
    own = ("ReservationName=mine", "StartTime=now", "Duration=120", "Users=cwbob", "Nodes=node5")
    cluster.run("scontrol", "create", "reservation", *own)
    inside = cluster.sbatch(LONG, *ONE, "--reservation=mine", "--nice=7", user="cwbob")
    cluster.wait_state(inside, "RUNNING")
    cluster.sbatch(LONG, *ONE, "--hold", "--nice=9", "--begin=now+2hours", user="cwbob")
    cluster.wait_for(lambda: "RESERVED" in cluster.records("node", "node5")[0]["State"], 30, "Slurm to reserve it")
    here = (cluster.job(nice)["NodeList"], cluster.job(placed)["NodeList"])
    try:
        yield Scene(cluster, nice, placed, here)
    finally:
        cluster.run("scontrol", "update", "NodeName=node1", "Weight=1", "Comment=")
        cluster.run("scontrol", "update", "PartitionName=urgent", "MaxTime=INFINITE")
        cluster.reset()


@contextmanager
def daemon_of(scene: Scene, folder: Path, kill_at: str = "") -> Iterator[RunningDaemon]:
    changes = {"candidates": UNPROTECTED, "drain": 'operators = ["tester"]'}
    text = config_text(folder, scene.cluster.conf, 600, **changes)
    with RunningDaemon(scene.cluster, folder, config=text, kill_at=kill_at) as daemon:
        daemon.wait_ready()
        yield daemon


def all_are_back(daemon: RunningDaemon, state: EvictionState) -> None:
    daemon.wait_for(lambda: newest(daemon).state is state, 60, f"the operation to be {state}")


def nothing_has_changed(scene: Scene, before: dict[tuple[str, str], dict[str, str]]) -> None:
    cluster = scene.cluster
    cluster.wait_for(lambda: {cluster.state(job) for job in (scene.nice, scene.placed)} == {"RUNNING"}, 30, "both jobs")
    for job_id in (scene.nice, scene.placed):  # what the launcher says of the next run
        cluster.wait_for(lambda job_id=job_id: CLAIM in cluster.job(job_id), 30, "its claim")
    after = all_fields(cluster)
    claims = {("job", CLAIM): "what the launcher says of each run"}
    assert changed(before, after, OF_A_RUN, ELSEWHERE, claims) == {}
    assert all(after["job", job_id]["Comment"] == "text of mine" for job_id in (scene.nice, scene.placed))


@pytest.mark.fault("A drain left jobs without the Nice and the priority that they had had.", found_by="trial")
def test_a_drain_and_its_end(scene: Scene, tmp_path: Path) -> None:
    before = all_fields(scene.cluster)
    with daemon_of(scene, tmp_path / "daemon") as daemon:
        ask(daemon, "drains", nodes=",".join(scene.here))
        all_are_back(daemon, EvictionState.COMPLETED)
        assert {p.state for p in newest(daemon).preemptions} == {PreemptionState.RETURNED}
        assert all(scene.cluster.job(job)["Restarts"] == "1" for job in (scene.nice, scene.placed))
        ask(daemon, "undrains", nodes=",".join(scene.here))
    nothing_has_changed(scene, before)


@pytest.mark.parametrize(
    "kill_at",
    [
        *(pytest.param(each, marks=pytest.mark.full) for each in ("before:set_nice", "before@2:set_nice")),
        "after:set_nice",
    ],
)
def test_a_drain_whose_daemon_is_killed(scene: Scene, tmp_path: Path, kill_at: str) -> None:
    """When it gives the job its Nice, and when it gives it back."""
    before, folder = all_fields(scene.cluster), tmp_path / "daemon"
    with daemon_of(scene, folder, kill_at) as doomed:
        doomed.post("/api/v1/drains", {"nodes": ",".join(scene.here)})
        doomed.wait_for(lambda: doomed.process.poll() is not None, 60, "the daemon to be killed")
    with daemon_of(scene, folder) as daemon:
        all_are_back(daemon, EvictionState.COMPLETED)
        ask(daemon, "undrains", nodes=",".join(scene.here))
    nothing_has_changed(scene, before)


def test_a_nice_that_the_user_gives_it_meanwhile_stands(scene: Scene, tmp_path: Path) -> None:
    """While it waits for nodes in the first place of the queue; so does a start that is asked for."""
    cluster = scene.cluster
    with daemon_of(scene, tmp_path / "daemon", "stop@2:set_nice") as daemon:
        daemon.post("/api/v1/drains", {"nodes": scene.here[0]})
        daemon.wait_for(lambda: int(cluster.job(scene.nice)["Nice"]) < 0, 60, "the job to be first")
        cluster.run("scontrol", "update", f"JobId={scene.nice}", "Nice=300", user="cwalice")
        os.kill(daemon.process.pid, signal.SIGCONT)
        all_are_back(daemon, EvictionState.COMPLETED)
        assert cluster.job(scene.nice)["Nice"] == "300"


def test_an_eviction_and_its_end(scene: Scene, tmp_path: Path) -> None:
    cluster = scene.cluster
    fill = cluster.sbatch(LONG, *ONE, "-N2", "-n8", user="cwbob")
    cluster.wait_state(fill, "RUNNING")
    before = all_fields(cluster)
    with daemon_of(scene, tmp_path / "daemon") as daemon:
        urgent = cluster.sbatch(
            SCRIPT, "-p", "urgent,batch", "-N1", "-n4", "--time=5", "--output=/dev/null", user="cwbob"
        )
        cluster.wait_state(urgent, "RUNNING", timeout=60)
        let_go(cluster, daemon, urgent)
        all_are_back(daemon, EvictionState.COMPLETED)
        cluster.wait_state(urgent, "COMPLETED")
        before["job", urgent] = all_fields(cluster)["job", urgent]
    nothing_has_changed(scene, before)


def test_a_drain_that_is_cancelled_while_a_job_is_first(scene: Scene, tmp_path: Path) -> None:
    """The daemon stands still before it gives the job its own Nice back."""
    cluster = scene.cluster
    before = all_fields(cluster)
    with daemon_of(scene, tmp_path / "daemon", "stop@2:set_nice") as daemon:
        daemon.post("/api/v1/drains", {"nodes": ",".join(scene.here)})
        daemon.wait_for(lambda: int(cluster.job(scene.nice)["Nice"]) < 0, 60, "the job to be first")
        daemon.wait_for(lambda: stands_still(daemon.process.pid), 60, "the daemon to stand still")
        os.kill(daemon.process.pid, signal.SIGCONT)
        daemon.post(f"/api/v1/evictions/{newest(daemon).eviction_id}/cancel")
        daemon.wait_for(lambda: newest(daemon).state.terminal, 60, "the end of the drain")
        if newest(daemon).state is EvictionState.COMPLETED:  # it was emptied just before
            ask(daemon, "undrains", nodes=",".join(scene.here))
    nothing_has_changed(scene, before)


def test_a_promise_that_is_made_and_withdrawn(scene: Scene, tmp_path: Path) -> None:
    cluster = scene.cluster
    before = all_fields(cluster)
    with daemon_of(scene, tmp_path / "daemon") as daemon:
        at = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds")
        wish = {"nodes": 2, "at": at, "duration_s": 600, "partition": "batch", "users": ["cwbob"]}
        ask(daemon, "promises", **wish)
        daemon.wait_for(lambda: len(cluster.scontrol_reservations()) == 2, 60, "its reservation")
        daemon.post(f"/api/v1/evictions/{newest(daemon).eviction_id}/cancel")
        all_are_back(daemon, EvictionState.CANCELLED)
    assert changed(before, all_fields(cluster)) == {}
