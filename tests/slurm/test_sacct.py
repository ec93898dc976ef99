"""Run times from a real slurmdbd: the command that is documented, and a plan made of its answer."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from tests.slurm.cluster import SlurmCluster


def clearway(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_a_plan_from_what_slurm_has_accounted(
    accounting_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = accounting_cluster
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    cluster.reset()
    name = f"fit-{time.time_ns()}"
    option = f"--job-name={name}"
    ended = [cluster.sbatch(f"srun true; sleep {seconds}", option, user="cwalice") for seconds in (2, 2, 4)]
    failed = cluster.sbatch("sleep 1; exit 3", option, user="cwalice")
    cancelled = cluster.sbatch("sleep 600", option, user="cwalice")
    other = cluster.sbatch("sleep 1", f"--job-name={name}x", user="cwalice")
    for job in (*ended, failed, other):
        cluster.wait_state(job, "COMPLETED", "FAILED")
    cluster.run("scancel", cancelled)
    cluster.wait_state(cancelled, "CANCELLED")

    plan = ["walltime", "plan", "-o", "json", "--distribution", f"sacct:user=cwalice,name={name}"]
    # slurmdbd hears of an end some seconds later.
    options = ["--checkpoint-s", "1", "--restart-s", "1"]

    period = ("--user=cwalice", f"--name={name}", "--state=COMPLETED", "--starttime=now-90days", "--endtime=now")

    def known() -> bool:
        those = ",".join([*ended, failed, cancelled, other])
        listed = cluster.run("sacct", "-n", "-X", "-P", f"--jobs={those}", "--format=State").stdout.splitlines()
        found = cluster.run("sacct", "-n", "-X", "-P", *period, "--format=JobIDRaw").stdout.split()
        states = sorted(state.split()[0] for state in listed)
        return states == ["CANCELLED", *["COMPLETED"] * 4, "FAILED"] and sorted(found) == sorted(ended)

    cluster.wait_for(known, 30, "the end of all jobs in slurmdbd, told by number and by name")
    told = ("sacct", "-n", "-X", "-P", f"--jobs={','.join(ended)}", "--format=ElapsedRaw")
    ran_s = [int(line) for line in cluster.run(*told).stdout.split()]  # on a busy machine longer than they slept
    assert ran_s[2] >= 4
    made = clearway(*plan, *options)
    assert made.exit_code == 0, made.stderr
    milestones = [request["milestone_s"] for request in json.loads(made.stdout)["sequence"]]
    assert milestones[-1] == pytest.approx(max(ran_s), abs=0.01), "the failed and the cancelled do not count"
    assert json.loads(made.stdout)["omniscient_cost"] == pytest.approx(sum(ran_s) / 3, abs=0.01)

    none = clearway("walltime", "plan", "--distribution", f"sacct:user=cwbob,name={name}")
    assert none.exit_code == 2
    assert none.stderr == (
        f"clearway: walltime plan: sacct: no job '{name}' of user 'cwbob' has completed in the last 90 days\n"
    )


def test_without_accounting_there_is_one_line(cluster: SlurmCluster) -> None:
    assert cluster.conf.exists()
    refused = clearway("walltime", "plan", "--distribution", "sacct:user=cwalice,name=fit")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("clearway: walltime plan: sacct")
    assert refused.stderr.count("\n") == 1
