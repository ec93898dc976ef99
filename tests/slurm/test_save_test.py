"""A real job is asked to save itself by its owner: it does, goes on where it is, and nothing is requeued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, check_result, install_programs, saver_script

STEPS = 300  # of a second, until the test lets them hurry


def test_a_job_is_tested_and_goes_on(cluster: SlurmCluster, tmp_path: Path) -> None:
    install_programs(cluster)
    options = ("--requeue", "--output=/dev/null", "--time=30", "--exclusive", "--mem=0")
    saver = cluster.sbatch(saver_script(cluster, STEPS), *options, user="cwalice")
    silent = cluster.sbatch("while :; do sleep 0.2; done", *options, user="cwalice")
    cluster.wait_state(saver, "RUNNING")
    cluster.wait_state(silent, "RUNNING")
    cluster.wait_for((cluster.work / f"state.{saver}.log").exists, 30, "the first step")
    cluster.wait_for(lambda: "checkpoint=signal" in cluster.job(saver).get("Comment", ""), 30, "the claim")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:

        def asked(job_id: str) -> Any:
            daemon.wait_for(lambda: daemon.get(f"/api/v1/jobs/{job_id}").status_code == 200, 30, "the job to be seen")
            answer = daemon.post(f"/api/v1/jobs/{job_id}/test-preemption")
            assert answer.status_code == 202, answer.text
            path = answer.headers["Location"]
            daemon.wait_for(lambda: daemon.get(path).json()["handled_at"], 120, "the end of the test")
            return daemon.get(path).json()["result"]

        told = asked(saver)
        assert "saved itself in" in told
        (test,) = daemon.get(f"/api/v1/jobs/{saver}").json()["tests"]
        assert (test["end"], test["generation"], test["sentence"]) == ("saved", 1, told)
        assert "does not say that it can be saved" in asked(silent)
        job = cluster.job(saver)
        assert (job["JobState"], job["Restarts"]) == ("RUNNING", "0")
        assert daemon.evictions() == ()
        check_result(cluster, saver, STEPS)
        cluster.wait_state(saver, "COMPLETED")
