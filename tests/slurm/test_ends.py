"""Ends are Slurm's, and what would not come back is not sent away: on a real cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from clearway.model.operations import Eviction, Preemption
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text, install_programs, saver_script
from tests.slurm.machine import missing_requirements
from tests.slurm.urgent import SCRIPT, let_go

LONG_S = 240  # within which a job of two minutes surely ends
SOON_S = 60
KILLS = 'min_runtime = 1\nspare_before_end = "0s"'


@pytest.fixture(scope="module")
def small() -> Iterator[SlurmCluster]:
    """Two nodes, and a partition that tests change."""
    if reason := missing_requirements():
        skip_or_fail(reason)
    other = "PartitionName=other Nodes=ALL MaxTime=INFINITE State=UP"
    with SlurmCluster(nodes=2, extra_conf=(other,)) as cluster:
        install_programs(cluster)
        yield cluster


@pytest.fixture
def pair(small: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    monkeypatch.setenv("SLURM_CONF", str(small.conf))
    small.reset()
    yield small
    small.run("scontrol", "update", "PartitionName=other", "State=UP", "MaxTime=INFINITE", "OverTimeLimit=0")
    for name in small.node_names:
        small.run("scontrol", "update", f"NodeName={name}", "AvailableFeatures=", "ActiveFeatures=")
    small.reset()


def running(cluster: SlurmCluster, *args: str, script: str = "exec sleep 3600", limit: str = "60") -> str:
    args = (f"--time={limit}", "--output=/dev/null", "-N1", "--exclusive", *args)
    job_id = cluster.sbatch(script, *args, user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    return job_id


def saver(cluster: SlurmCluster) -> str:
    """Saves itself within seconds whenever it is asked."""
    job_id = running(cluster, script=saver_script(cluster, 3_600))
    cluster.wait_for(lambda: "checkpoint=signal" in cluster.job(job_id).get("Comment", ""), 40, "its claim")
    return job_id


def daemon_of(cluster: SlurmCluster, folder: Path, delay_s: int, candidates: str = KILLS) -> RunningDaemon:
    text = config_text(folder / "daemon", cluster.conf, delay_s, candidates=candidates)
    return RunningDaemon(cluster, folder / "daemon", config=text)


def urgent(cluster: SlurmCluster) -> str:
    return cluster.sbatch(SCRIPT, "-p", "urgent", "-N1", "--exclusive", "--time=1", "--output=/dev/null", user="cwbob")


def only(daemon: RunningDaemon) -> Eviction:
    (eviction,) = daemon.evictions()
    return eviction


def actions(daemon: RunningDaemon) -> Mapping[str, Action]:
    return {planned.job_id: planned.action for planned in only(daemon).plan.chosen.actions}


def preemption(daemon: RunningDaemon, job_id: str) -> Preemption:
    return next(p for p in only(daemon).preemptions if p.job_id == job_id)


@pytest.mark.fault(
    "A time limit that was extended was noticed at the deadline only, though another job could have been saved.",
    found_by="trial",
)
@pytest.mark.parametrize("change", ["JobId={} TimeLimit=60", "PartitionName=other OverTimeLimit=60"])
def test_an_end_that_moves_is_planned_around_at_once(pair: SlurmCluster, tmp_path: Path, change: str) -> None:
    other = saver(pair)
    ending = running(pair, "-p", "other", limit="2")
    with daemon_of(pair, tmp_path, LONG_S) as daemon:
        job_id = urgent(pair)
        daemon.wait_for(lambda: daemon.evictions() and only(daemon).state.acting, 30, "a plan that is carried out")
        assert actions(daemon) == {ending: Action.END}
        pair.run("scontrol", "update", *change.format(ending).split())
        pair.wait_state(job_id, "RUNNING", timeout=40)
        assert pair.state(ending) == "RUNNING"
        assert preemption(daemon, other).action is Action.APP_CHECKPOINT
        assert preemption(daemon, other).actual_lost_node_s < 5
        let_go(pair, daemon, job_id)


def test_over_time_is_no_end(pair: SlurmCluster, tmp_path: Path) -> None:
    pair.run("scontrol", "update", "PartitionName=other", "OverTimeLimit=5")
    other = saver(pair)
    running(pair, "-p", "other", limit="2")
    with daemon_of(pair, tmp_path, LONG_S) as daemon:
        job_id = urgent(pair)
        pair.wait_state(job_id, "RUNNING", timeout=40)
        assert actions(daemon) == {other: Action.APP_CHECKPOINT}
        let_go(pair, daemon, job_id)


@pytest.mark.fault("The time that a job stood suspended counted as lost work, and not for its end.", found_by="trial")
def test_time_suspended_is_added_to_the_end_and_is_no_lost_work(pair: SlurmCluster, tmp_path: Path) -> None:
    stood = running(pair)
    began = time.monotonic()
    pair.run("scontrol", "suspend", stood)
    pair.run("sleep", "12")
    pair.run("scontrol", "resume", stood)
    protected = running(pair, "-p", "other")
    candidates = f'{KILLS}\npartitions = ["batch"]'
    with daemon_of(pair, tmp_path, SOON_S, candidates) as daemon:
        job_id = urgent(pair)
        pair.wait_state(job_id, "RUNNING", timeout=40)
        passed_s = time.monotonic() - began
        assert pair.state(protected) == "RUNNING"
        assert actions(daemon) == {stood: Action.KILL}
        assert preemption(daemon, stood).actual_lost_node_s < passed_s - 10
        let_go(pair, daemon, job_id)


@pytest.mark.fault(
    "A job with --deadline was requeued, and Slurm removed it, though jobs might not be lost for good.",
    found_by="trial",
)
def test_a_job_that_would_miss_its_deadline_is_not_requeued(pair: SlurmCluster, tmp_path: Path) -> None:
    """It has lost less so far; once it waits, Slurm removes it."""
    longer = running(pair)
    pair.wait_for(lambda: pair.job(longer)["RunTime"] >= "00:00:03", 30, "it to have more to lose")
    bound = running(pair, "--deadline=now+6minutes", limit="5")
    with daemon_of(pair, tmp_path, SOON_S) as daemon:
        job_id = urgent(pair)
        pair.wait_state(job_id, "RUNNING", timeout=40)
        assert actions(daemon) == {longer: Action.KILL}
        assert pair.state(bound) == "RUNNING"
        (verdict,) = (each for each in only(daemon).plan.verdicts if each.job_id == bound)
        assert verdict.code == "deadline"
        let_go(pair, daemon, job_id)


@pytest.mark.full
def test_what_slurm_removes_after_its_requeue_is_told(pair: SlurmCluster, tmp_path: Path) -> None:
    running(pair, "-p", "other")
    bound = running(pair, "--deadline=now+320", limit="5")  # twenty seconds in which it may start
    candidates = f'{KILLS}\npartitions = ["batch"]\nallow_cancel = true'
    with daemon_of(pair, tmp_path, SOON_S, candidates) as daemon:
        job_id = urgent(pair)
        pair.wait_state(job_id, "RUNNING", timeout=40)
        assert actions(daemon) == {bound: Action.KILL}
        daemon.wait_for(lambda: preemption(daemon, bound).state.terminal, 60, "the end of the job")
        assert "its deadline" in preemption(daemon, bound).note
        let_go(pair, daemon, job_id)


@pytest.mark.parametrize("change", ["State=INACTIVE", "State=DOWN", "MaxTime=5", "feature"])
def test_a_job_that_slurm_would_not_start_again_is_not_requeued(
    pair: SlurmCluster, tmp_path: Path, change: str
) -> None:
    longer = running(pair)
    pair.wait_for(lambda: pair.job(longer)["RunTime"] >= "00:00:03", 30, "it to have more to lose")
    (free,) = (node["NodeName"] for node in pair.records("node") if node["State"] == "IDLE")
    if change == "feature":
        pair.run("scontrol", "update", f"NodeName={free}", "AvailableFeatures=ib", "ActiveFeatures=ib")
        shut = running(pair, "-p", "other", "-C", "ib")
        pair.run("scontrol", "update", f"NodeName={free}", "AvailableFeatures=", "ActiveFeatures=")
    else:
        shut = running(pair, "-p", "other")
        pair.run("scontrol", "update", "PartitionName=other", change)
    with daemon_of(pair, tmp_path, SOON_S) as daemon:
        job_id = urgent(pair)
        pair.wait_state(job_id, "RUNNING", timeout=40)
        assert actions(daemon) == {longer: Action.KILL}
        assert pair.state(shut) == "RUNNING"
        (verdict,) = (each for each in only(daemon).plan.verdicts if each.job_id == shut)
        assert verdict.code == "would_not_return"
        let_go(pair, daemon, job_id)
