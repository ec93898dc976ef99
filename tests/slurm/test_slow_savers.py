"""Sixteen real jobs that say that they save themselves, one of which never answers: the others do, and in time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from clearway.model.operations import PreemptionState
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, check_result, config_text, install_programs, saver_script
from tests.slurm.test_end_to_end import SILENT, no_leftovers, start_of, submit_urgent
from tests.slurm.urgent import let_go

pytestmark = pytest.mark.one_slurm

STEPS = 400  # of a second: no job ends before the test wants that
JOBS = 16
CLAIM = "checkpoint=signal"
MAX_DELAY_S = 60  # sixteen checkpoints one after another, of three seconds each, and ten to end jobs


def submitted(cluster: SlurmCluster, script: str, memory_mib: int, *args: str) -> str:
    """Two such jobs are on each node. One with less memory is expected to be quicker, and is asked first."""
    options = ("--requeue", "--output=/dev/null", "--time=30", "-n2", f"--mem={memory_mib}", *args)
    job_id = cluster.sbatch(script, *options, user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    return job_id


def test_one_that_never_answers_beside_fifteen_that_save_themselves(cluster: SlurmCluster, tmp_path: Path) -> None:
    install_programs(cluster)
    silent = submitted(cluster, SILENT, 500, f"--comment=clearway:run=0,{CLAIM}")
    cluster.wait_begun(silent)
    savers = [submitted(cluster, saver_script(cluster, STEPS), 1_000) for _ in range(JOBS - 1)]
    for job_id in savers:
        cluster.wait_for(lambda job_id=job_id: CLAIM in cluster.job(job_id).get("Comment", ""), 60, "a saver's claim")
        cluster.wait_for((cluster.work / f"state.{job_id}.log").exists, 60, "a saver's first step")
    text = config_text(tmp_path / "daemon", cluster.conf, MAX_DELAY_S, execution="", costs="")  # the defaults
    with RunningDaemon(cluster, tmp_path / "daemon", config=text) as daemon:
        urgent, submitted_at = submit_urgent(cluster, nodes=8)
        daemon.wait_for(lambda: cluster.state(urgent) == "RUNNING", MAX_DELAY_S + 60, "the urgent job")
        assert start_of(cluster, urgent) <= submitted_at + timedelta(seconds=MAX_DELAY_S)
        (eviction,) = daemon.evictions()
        by_job = {p.job_id: p for p in eviction.preemptions}
        unsaved = {job_id: p.action for job_id, p in by_job.items() if p.action is not Action.APP_CHECKPOINT}
        assert unsaved == {silent: Action.KILL}
        assert sorted(by_job) == sorted([silent, *savers])
        assert [job_id for job_id, p in by_job.items() if p.checkpointed_at is None] == [silent]
        steps = daemon.get(f"/api/v1/evictions/{eviction.eviction_id}/steps").json()["items"]
        asked = [each["job_id"] for each in steps if each["kind"] == "ask_checkpoint"]
        assert asked[0] == silent, "the others had to be asked beside it"
        assert len(asked) == JOBS
        told = [each["detail"] for each in steps if each["detail"]]
        assert f"Planned anew ({silent}: its checkpoint takes longer than expected)." in told
        let_go(cluster, daemon, urgent)
        back = dict.fromkeys(by_job, PreemptionState.RETURNED)
        daemon.wait_for(
            lambda: {p.job_id: p.state for p in daemon.evictions()[0].preemptions} == back, 150, "all to be back"
        )
        no_leftovers(cluster)
    for job_id in savers:
        check_result(cluster, job_id, STEPS)
    assert {cluster.job(job_id)["Restarts"] for job_id in by_job} == {"1"}
