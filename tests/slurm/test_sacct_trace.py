"""A workload from a real slurmdbd: what ``sacct`` answers to the documented command is read and replayed."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from clearway.cli.app import app
from clearway_lab.traces import sacct
from tests.slurm.cluster import SlurmCluster


def ran_s(job: dict[str, str]) -> float:
    """As slurmctld remembers it."""
    begin, end = (datetime.fromisoformat(job[key]) for key in ("StartTime", "EndTime"))
    return (end - begin).total_seconds()


def test_what_slurm_has_accounted_is_replayed(accounting_cluster: SlurmCluster, tmp_path: Path) -> None:
    cluster = accounting_cluster
    cluster.reset()
    option = "--time=5"
    jobs = [cluster.sbatch(f"sleep {seconds}", option, user="cwalice") for seconds in (2, 3)]
    still_running = cluster.sbatch("sleep 600", user="cwbob")
    for job in jobs:
        cluster.wait_state(job, "COMPLETED")
    cluster.wait_state(still_running, "RUNNING")

    def answer() -> str | None:
        settings = [f"{name}={value}" for name, value in sacct.ENVIRONMENT.items()]
        text = cluster.run("env", *settings, *sacct.command("now-1hours", "now")).stdout
        mine = [line for line in text.splitlines() if line.split("|")[0] in (*jobs, still_running)]
        # slurmdbd may know that a job has ended before it knows all of how the job began.
        ran = sacct.parse_sacct(mine, "site").jobs
        return "\n".join(mine) if len(ran) == len(jobs) and len(mine) == len(jobs) + 1 else None

    text = cluster.wait_for(answer, 60, "three jobs in slurmdbd")
    cluster.run("scancel", still_running)
    trace = sacct.parse_sacct(text.splitlines(), "site")
    assert (trace.broken, trace.never_ran) == ((), 1)
    assert [str(job.job_id) for job in trace.jobs] == jobs
    for job, seconds in zip(trace.jobs, (2, 3), strict=True):
        assert seconds <= job.run_s == ran_s(cluster.job(str(job.job_id)))
        assert (job.requested_s, job.size, job.status) == (300, 1, 1)
        assert job.wait_s >= 0

    path = tmp_path / "jobs.txt"
    path.write_text(text)
    result = CliRunner().invoke(app, ["lab", "simulate", str(path), "--sacct", "--nodes", "1", "-o", "json"])
    assert result.exit_code == 0, result.stderr
    assert [each["jobs"]["all"]["count"] for each in json.loads(result.stdout)["schedulers"]] == [2, 2]

    config = tmp_path / "clearway.toml"
    config.write_text(f'[slurm]\nconf = "{cluster.conf}"\n[[preemptors]]\nname = "mine"\nuser = ["cwalice"]\n')
    options = ["lab", "simulate", "--from-sacct", "now-1hours", "now", "--config", str(config), "-o", "json"]
    # The replay begins when the first job has ended: one that comes then is replayed, whatever else this cluster ran.
    later = cluster.sbatch("sleep 1", option, user="cwalice")
    cluster.wait_state(later, "COMPLETED")

    def made_of_it() -> dict[str, Any] | None:
        result = CliRunner().invoke(app, options)
        found = json.loads(result.stdout) if result.exit_code == 0 else None
        return found if found and later in [each["job_id"] for each in found["urgent"]] else None

    made = cluster.wait_for(made_of_it, 60, "the job in slurmdbd, and in the replay")
    assert made["nodes"] == len(cluster.records("node"))
    runs = {run["name"]: run for run in made["runs"]}
    assert set(runs) == {"recorded", "Slurm alone", "with Clearway"}
    assert runs["Slurm alone"]["urgent_jobs"] == runs["recorded"]["urgent_jobs"] >= 1
    assert made["report"]["cases"] == []  # there was a free node
