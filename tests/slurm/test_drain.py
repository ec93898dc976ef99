"""Draining nodes on a real cluster: the nodes become empty, the jobs go on elsewhere and end with the right results."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from clearway.model.operations import Eviction, EvictionState, PreemptionState
from clearway.model.problem import Action
from tests.slurm.client import BEGUN
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, check_result, config_text, install_programs, saver_script
from tests.slurm.machine import SLACK

STEPS = 300  # of a second: nobody ends before a test wants that
WHOLE = ("--exclusive", "--mem=0")
LOOP = "while :; do sleep 0.2; done"
UNPROTECTED = 'min_runtime = 1\nprotected_users = []\nspare_before_end = "80s"'


def config_for(folder: Path, cluster: SlurmCluster) -> str:
    """The token ``tester`` may drain."""
    changes = {
        "candidates": UNPROTECTED,
        "execution": "kill_allowance = 12\nconcurrent_checkpoints = 2",
        "drain": 'operators = ["tester"]',
    }
    return config_text(folder, cluster.conf, **changes)


@pytest.fixture
def daemon(cluster: SlurmCluster, tmp_path: Path) -> RunningDaemon:
    """Not started yet."""
    folder = tmp_path / "daemon"
    return RunningDaemon(cluster, folder, config=config_for(folder, cluster))


def saver(cluster: SlurmCluster, *args: str) -> str:
    """A job that saves itself and says so, in its second step or later."""
    options = ("--requeue", "--output=/dev/null", "--time=30", *args)
    job_id = cluster.sbatch(saver_script(cluster, STEPS), *options, user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    cluster.wait_for(lambda: "checkpoint=signal" in cluster.job(job_id).get("Comment", ""), 30, "the saver's claim")
    cluster.wait_for((cluster.work / f"state.{job_id}.log").exists, 30, "the saver's first step")
    return job_id


def held_by(drain: Eviction) -> str:
    """What the Reason of its nodes begins with."""
    return f"clearway drain {drain.eviction_id} {drain.mark}"


# Everything is imported before the change of user: root's Python may lie where nobody else can read.
RUN_AS = """\
import os, pwd, sys
import sqlalchemy.dialects.sqlite
from clearway import bootstrap
from clearway.cli import app, database, drain
user = pwd.getpwnam(sys.argv.pop(1))
os.setgroups([])
os.setgid(user.pw_gid)
os.setuid(user.pw_uid)
app.main()
"""


def clearway(daemon: RunningDaemon, *args: str, user: str = "root") -> subprocess.CompletedProcess[str]:
    """The command line, as root or another user of this machine."""
    command = [sys.executable, "-c", RUN_AS, user, *args]
    env = {**daemon.cluster.env, "CLEARWAY_CONFIG": str(daemon.config)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120 * SLACK, check=False)


def ask(daemon: RunningDaemon, path: str, **body: object) -> str:
    """Over REST, which is quick; what the loop answered."""
    asked = daemon.post(f"/api/v1/{path}", dict(body) or None)
    assert asked.status_code == 202, asked.text
    answer = f"/api/v1/requests/{asked.json()['request_id']}"
    daemon.wait_for(lambda: daemon.get(answer).json()["handled_at"], 30, "an answer")
    return str(daemon.get(answer).json()["result"])


def node(cluster: SlurmCluster, name: str) -> tuple[str, str]:
    """State and Reason of a node, the latter without who and when.

    NOT_RESPONDING is left out: a node that was just brought back has it until slurmctld's next ping is answered.
    """
    return cluster.node_state(name), cluster.node_reasons().get(name, "")


def drained(cluster: SlurmCluster) -> dict[str, str]:
    return {name: node(cluster, name)[1] for name in cluster.node_names if "DRAIN" in node(cluster, name)[0]}


def nodes_of(cluster: SlurmCluster, job_id: str) -> set[str]:
    return set(cluster.run("scontrol", "show", "hostnames", cluster.job(job_id)["NodeList"]).stdout.split())


def newest(daemon: RunningDaemon) -> Eviction:
    return daemon.evictions()[0]


def wait_end(daemon: RunningDaemon) -> Eviction:
    daemon.wait_for(lambda: newest(daemon).state.terminal, 60, "the end of the drain")
    return newest(daemon)


def test_two_nodes_are_emptied_and_their_jobs_go_on_elsewhere(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    install_programs(cluster)
    with daemon:
        serial = saver(cluster, "-N1", "-n1", "--mem=500")
        other = saver(cluster, "-N1", "-n1", "--mem=500")
        inside = saver(cluster, "-N2", *WHOLE)
        beside = saver(cluster, "-N1", "-n4")
        assert [nodes_of(cluster, job_id) for job_id in (serial, other)] == [{"node1"}] * 2
        assert nodes_of(cluster, inside) == {"node2", "node3"}

        def would_leave() -> set[str]:  # by the last cycle's snapshot: an older one does not know of all claims
            plan = daemon.post("/api/v1/drains/what-if", {"nodes": "node[1-2]"}).json()["plan"]
            return {action["job_id"] for action in plan["chosen"]["actions"]} if plan else set()

        daemon.wait_for(lambda: would_leave() == {serial, other, inside}, 10, "a plan with all three")
        assert not drained(cluster)
        assert ask(daemon, "drains", nodes="node[1-2]", reason="new memory").startswith("drain 1")
        daemon.wait_for(lambda: newest(daemon).started_at is not None, 60, "the nodes to be empty")
        reason = f"{held_by(newest(daemon))}: new memory"
        assert drained(cluster) == {"node1": reason, "node2": reason}
        for name in ("node1", "node2"):
            cluster.wait_for(lambda name=name: cluster.node_state(name) == "IDLE+DRAIN", 30, f"{name} to be idle")
        ended = wait_end(daemon)
        assert ended.state is EvictionState.COMPLETED
        assert {p.job_id: (p.action, p.state) for p in ended.preemptions} == dict.fromkeys(
            (serial, inside, other), (Action.APP_CHECKPOINT, PreemptionState.RETURNED)
        )
        for job_id in (serial, inside, other):
            assert not nodes_of(cluster, job_id) & {"node1", "node2"}
            assert cluster.job(job_id)["Restarts"] == "1"
        for job_id in (serial, inside, other, beside):
            check_result(cluster, job_id, STEPS)
        assert cluster.job(beside)["Restarts"] == "0"
        told = daemon.get(f"/api/v1/evictions/{ended.eviction_id}").json()
        assert told["drain"]["nodes"] == "node[1-2]"
        daemon.wait_for(lambda: "clearway_nodes_emptied_total 2.0" in daemon.get("/metrics").text, 10, "the metric")
        assert ask(daemon, "undrains", nodes="node[1-2]") == "brought back node[1-2]"
        assert not drained(cluster)
        again = cluster.sbatch("true", "-w", "node[1-2]", "-N2", "--output=/dev/null", user="cwalice")
        cluster.wait_state(again, "COMPLETED", timeout=30)


def test_a_job_that_cannot_be_saved_stops_the_drain_unless_forced(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    install_programs(cluster)
    with daemon:
        saved = saver(cluster, "-N1", "-n4")
        deaf = cluster.sbatch(LOOP, "--requeue", "-N1", "-n4", "--output=/dev/null", user="cwbob")
        cluster.wait_state(deaf, "RUNNING")
        planned = clearway(daemon, "drain", "node[1-2]", "--dry-run")
        assert planned.returncode == 1
        assert "Not possible: 1 job(s) in the way" in planned.stdout
        assert not drained(cluster)
        refused = clearway(daemon, "drain", "node[1-2]", "--wait")
        assert refused.returncode == 1
        assert f"1 job(s) in the way: job {deaf} of cwbob: it cannot save itself" in refused.stdout
        wait_end(daemon)
        assert not drained(cluster)
        assert [cluster.job(job_id)["Restarts"] for job_id in (saved, deaf)] == ["0", "0"]
        cluster.wait_for(lambda: node(cluster, "node1") == ("ALLOCATED", ""), 30, "node1 as it was")
        forced = clearway(daemon, "drain", "node[1-2]", "--force", "--reason", "new memory", "--wait")
        assert forced.returncode == 0, forced.stderr
        assert forced.stdout.splitlines()[-1] == "The nodes are empty."
        assert {p.job_id: p.action for p in newest(daemon).preemptions} == {
            saved: Action.APP_CHECKPOINT,
            deaf: Action.KILL,
        }
        assert drained(cluster) == dict.fromkeys(("node1", "node2"), f"{held_by(newest(daemon))}: new memory")
        assert clearway(daemon, "undrain", "node[1-2]").stdout.strip() == "brought back node[1-2]"
        assert not drained(cluster)


def test_parallel_leave_lets_jobs_end_that_also_run_elsewhere(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    install_programs(cluster)
    with daemon:
        serial = saver(cluster, "-N1", "-n4")
        wide = saver(cluster, "-N2", *WHOLE)
        assert ask(daemon, "drains", nodes="node[1-2]", parallel="leave").startswith("drain 1")
        cluster.wait_for(lambda: cluster.job(serial)["Restarts"] == "1", 30, "the serial job to leave")
        assert cluster.state(wide) == "RUNNING"
        assert newest(daemon).started_at is None
        check_result(cluster, wide, STEPS)
        daemon.wait_for(lambda: newest(daemon).started_at is not None, 30, "the nodes to be empty")
        assert cluster.job(wide)["Restarts"] == "0"
        assert {p.job_id for p in newest(daemon).preemptions} == {serial}
        check_result(cluster, serial, STEPS)


def test_cancelled_in_the_middle(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    install_programs(cluster)
    with daemon:
        first = saver(cluster, "-N1", "-n4")
        # Deaf to its signal although it says otherwise: the drain waits for its checkpoint until it is cancelled.
        claim = "--comment=clearway:checkpoint=signal"
        script = f"trap '' USR1; {BEGUN}; {LOOP}"
        silent = cluster.sbatch(script, "--requeue", claim, "-N1", "-n4", "--output=/dev/null", user="cwalice")
        cluster.wait_state(silent, "RUNNING")
        cluster.wait_begun(silent)
        assert ask(daemon, "drains", nodes="node[1-2]").startswith("drain 1")
        cluster.wait_for(lambda: cluster.job(first)["Restarts"] == "1", 30, "the first job to leave")
        assert ask(daemon, "evictions/1/cancel") == "cancelled"
        assert wait_end(daemon).state is EvictionState.CANCELLED
        assert not drained(cluster)
        assert {p.job_id: p.state for p in newest(daemon).preemptions} == {
            first: PreemptionState.RETURNED,
            silent: PreemptionState.SPARED,
        }
        assert cluster.job(silent)["Restarts"] == "0"
        check_result(cluster, first, STEPS)


def test_a_moved_job_comes_before_everybody_who_waits(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    install_programs(cluster)
    with daemon:
        moved = saver(cluster, "-N1", "-n4")
        short = [cluster.sbatch("sleep 600", "-N1", "-n4", "--output=/dev/null", user="cwbob") for _ in range(7)]
        for job_id in short:
            cluster.wait_state(job_id, "RUNNING")
        waiting = [cluster.sbatch("sleep 600", "-N1", "-n4", "--output=/dev/null", user="cwbob") for _ in range(3)]
        for job_id in waiting:
            cluster.run("scontrol", "update", f"JobId={job_id}", "Priority=2000000000")
        assert ask(daemon, "drains", nodes="node1").startswith("drain 1")
        daemon.wait_for(lambda: int(cluster.job(moved)["Nice"]) < 0, 60, "the head of the queue")
        assert int(cluster.job(moved)["Priority"]) > 2_000_000_000
        daemon.wait_for(lambda: "start_now" in kinds(daemon), 30, "its wait to be lifted")
        cluster.run("scancel", short[0])
        cluster.wait_state(moved, "RUNNING", timeout=30)
        assert wait_end(daemon).state is EvictionState.COMPLETED
        daemon.wait_for(lambda: cluster.job(moved)["Nice"] == "0", 10, "its own Nice")
        assert [cluster.state(job_id) for job_id in waiting] == ["PENDING"] * 3


@pytest.mark.full
@pytest.mark.one_slurm
def test_a_few_nodes_at_a_time(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    """Two at once of four, one with a job in the way; what has been emptied is never more than two nodes."""
    install_programs(cluster)
    with daemon:
        inside = saver(cluster, "-N2", *WHOLE)
        assert nodes_of(cluster, inside) == {"node1", "node2"}
        deaf = cluster.sbatch(LOOP, "-N1", *WHOLE, "--output=/dev/null", user="cwbob")
        cluster.wait_state(deaf, "RUNNING")
        assert nodes_of(cluster, deaf) == {"node3"}
        asked = clearway(daemon, "drain", "node[1-4]", "--rolling", "2", "--reason", "new kernel")
        assert asked.stdout == "rolling drain 1: 4 node(s), 2 at once\n", asked.stderr

        def turns() -> dict[str, str]:
            found = daemon.get("/api/v1/rolling-drains/1").json()
            assert len(drained(cluster)) <= 2
            return {turn["node"]: turn["state"] for turn in found["turns"]}

        daemon.wait_for(lambda: turns()["node1"] == turns()["node2"] == "away", 60, "the first two to be empty")
        assert cluster.job(inside)["Restarts"] == "1"  # once, although it ran on both
        assert drained(cluster) == dict.fromkeys(("node1", "node2"), f"{held_by(daemon.evictions()[-1])}: new kernel")
        assert ask(daemon, "undrains", nodes="node1") == "brought back node1"
        cluster.run("scontrol", "update", "NodeName=node2", "State=RESUME")  # by other means
        daemon.wait_for(lambda: turns()["node3"] == "skipped", 30, "the job in the way to be noticed")
        daemon.wait_for(lambda: turns()["node4"] == "away", 60, "the last to be empty")
        cluster.wait_for(lambda: list(drained(cluster)) == ["node4"], 10, "the skipped node to be brought back")
        assert cluster.state(deaf) == "RUNNING"
        assert ask(daemon, "undrains", nodes="node4") == "brought back node4"
        daemon.wait_for(lambda: daemon.get("/api/v1/rolling-drains/1").json()["finished_at"], 30, "its end")
        ended = daemon.get("/api/v1/rolling-drains/1").json()
        assert ended["state"] == "completed"
        assert ended["outcome"].startswith(f"3 node(s) were emptied. 1 skipped: node3: 1 job(s) in the way: job {deaf}")
        assert not drained(cluster)


def kinds(daemon: RunningDaemon) -> list[str]:
    steps = daemon.get(f"/api/v1/evictions/{newest(daemon).eviction_id}/steps").json()["items"]
    return [step["kind"] for step in steps if step["result"] == "ok"]


def test_nodes_of_others_and_users_without_rights(cluster: SlurmCluster) -> None:
    install_programs(cluster)
    daemon = RunningDaemon(cluster, cluster.work / "daemon")  # where an ordinary user can get at its database
    cluster.run("scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=bad disk")
    with daemon:
        saved = saver(cluster, "-N1", "-n4")
        assert nodes_of(cluster, saved) == {"node1"}
        assert ask(daemon, "drains", nodes="node1").startswith("refused: tester is neither an operator")
        assert ask(daemon, "undrains", nodes="node2").startswith("refused: tester is neither an operator")
        taken = clearway(daemon, "drain", "node[1-2]")
        assert taken.returncode == 1
        assert taken.stderr.strip() == "clearway: refused: node node2 already has a reason: bad disk"
        assert "was not drained by Clearway" in clearway(daemon, "undrain", "node2").stderr
        for path in (daemon.folder, *daemon.folder.glob("clearway.sqlite*")):
            path.chmod(0o777)
        refused = clearway(daemon, "drain", "node1", user="cwbob")
        assert "refused: cwbob is neither an operator" in refused.stderr
        assert refused.returncode == 1
        assert drained(cluster) == {"node2": "bad disk"}
        assert not daemon.evictions()


def test_second_drain_over_the_same_node(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    install_programs(cluster)
    with daemon:
        saver(cluster, "-N1", "-n4")
        assert ask(daemon, "drains", nodes="node1").startswith("drain 1")
        assert "node node1 already" in ask(daemon, "drains", nodes="node[1,3]")
        daemon.wait_for(lambda: newest(daemon).started_at is not None, 30, "the node to be empty")
        assert (
            ask(daemon, "drains", nodes="node1")
            == f"refused: node node1 already has a reason: {held_by(newest(daemon))}"
        )
        assert drained(cluster) == {"node1": held_by(newest(daemon))}
        assert ask(daemon, "undrains", nodes="node1") == "brought back node1"
        assert not drained(cluster)


KILLS = [
    pytest.param("before:drain", marks=[pytest.mark.one_slurm, pytest.mark.full]),
    pytest.param("after:drain", marks=pytest.mark.full),
    pytest.param("after:signal", marks=[pytest.mark.one_slurm, pytest.mark.full]),
    pytest.param("before:requeue", marks=pytest.mark.one_slurm),
    "after:requeue",
    pytest.param("before:start_now", marks=[pytest.mark.one_slurm, pytest.mark.full]),
]


@pytest.mark.parametrize("kill_at", KILLS)
def test_kill_9_of_the_daemon_changes_nothing_in_the_end(cluster: SlurmCluster, tmp_path: Path, kill_at: str) -> None:
    install_programs(cluster)
    folder = tmp_path / "daemon"
    config = config_for(folder, cluster)
    with RunningDaemon(cluster, folder, config=config, kill_at=kill_at) as doomed:
        doomed.wait_ready()
        jobs = [saver(cluster, "-N1", "-n4"), saver(cluster, "-N2", *WHOLE)]
        assert nodes_of(cluster, jobs[0]) == {"node1"}
        assert "node2" in nodes_of(cluster, jobs[1])
        with suppress(httpx.TransportError):  # it may die before it has answered
            assert doomed.post("/api/v1/drains", {"nodes": "node[1-2]"}).status_code == 202
        doomed.wait_for(lambda: doomed.process.poll() is not None, 60, "the daemon to be killed")
        assert doomed.process.returncode == -9
    died = time.monotonic()
    with RunningDaemon(cluster, folder, config=config) as daemon:
        away_s = time.monotonic() - died
        daemon.wait_for(daemon.evictions, 20, "the drain")
        assert wait_end(daemon).state is EvictionState.COMPLETED
        (eviction,) = daemon.evictions()
        assert {p.job_id: p.state for p in eviction.preemptions} == dict.fromkeys(jobs, PreemptionState.RETURNED)
        assert drained(cluster) == dict.fromkeys(("node1", "node2"), held_by(eviction))
        for job_id in jobs:
            assert cluster.job(job_id)["Restarts"] == "1"
            assert not nodes_of(cluster, job_id) & {"node1", "node2"}
            check_result(cluster, job_id, STEPS, away_s)
