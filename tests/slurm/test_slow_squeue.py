"""A squeue as slow as a large site's: urgent jobs are served within their delay and two cycles."""

from __future__ import annotations

import os
import re
import shutil
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from clearway.model.operations import Eviction, EvictionState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import BACKEND, RunningDaemon, config_text
from tests.slurm.machine import SLACK
from tests.slurm.test_arrays import fill, urgent_array
from tests.slurm.test_end_to_end import WHOLE
from tests.slurm.test_het_jobs import het_job
from tests.slurm.urgent import SCRIPT

pytestmark = pytest.mark.skipif(BACKEND != "cli", reason="only this backend asks squeue")

BACKFILL_S = 30.0  # before that Slurm starts no heterogeneous job
SETTLES_S = 6.0 * SLACK  # from the last requeue to the start
USUAL = {("single", 1.0, 0), ("array", 0.5, 0)}
CASES = [
    pytest.param(*case, marks=() if case in USUAL else pytest.mark.full)
    for case in product(("single", "array", "heterogeneous"), (0.25, 0.5, 1.0), (0, 15, 60))
]


def slow_squeue(cluster: SlurmCluster, folder: Path, seconds: float) -> dict[str, str]:
    """An environment in which squeue takes so much longer."""
    real = shutil.which("squeue", path=cluster.env.get("PATH", os.environ["PATH"]))
    folder.mkdir()
    wrapper = folder / "squeue"
    wrapper.write_text(f'#!/bin/sh\nsleep {seconds}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    return {"PATH": f"{folder}:{cluster.env.get('PATH', os.environ['PATH'])}"}


def submit(cluster: SlurmCluster, kind: str) -> list[str]:
    if kind == "heterogeneous":
        return list(het_job(cluster))
    if kind == "array":
        return [urgent_array(cluster, "1-2", "-N1")]
    fixed = ("-p", "urgent", *WHOLE, "-N2", "--time=5", "--output=/dev/null")
    return [cluster.sbatch(SCRIPT, *fixed, user="cwalice")]


def longest_cycle_s(daemon: RunningDaemon) -> float:
    found = re.findall(r"\bcycle\b.*?\bseconds=([0-9.]+)", daemon.log.read_text())
    return max((float(each) for each in found), default=0.0)


def started(daemon: RunningDaemon, ids: list[str]) -> list[Eviction] | None:
    begun = [e for e in daemon.evictions() if e.preemptor.job_id in ids and e.started_at]
    return begun if {e.preemptor.job_id for e in begun} == set(ids) else None


@pytest.mark.parametrize(("kind", "seconds", "delay_s"), CASES)
@pytest.mark.fault(
    "A plan that took longer than 1.5 s was put off to the next cycle, where it was too old, for ever.",
    found_by="trial",
)
def test_an_urgent_job_is_served(
    cluster: SlurmCluster, tmp_path: Path, kind: str, seconds: float, delay_s: int
) -> None:
    fill(cluster)
    config = config_text(tmp_path / "daemon", cluster.conf, max_delay_s=delay_s)
    env = slow_squeue(cluster, tmp_path / "bin", seconds)
    with RunningDaemon(cluster, tmp_path / "daemon", config=config, env=env) as daemon:
        submitted = datetime.now(UTC)
        ids = submit(cluster, kind)
        begun = daemon.wait_for(lambda: started(daemon, ids), delay_s + 60, "the urgent jobs to start")
        took_s = max((e.started_at - submitted).total_seconds() for e in begun if e.started_at)
        backfill_s = BACKFILL_S if kind == "heterogeneous" else 0.0
        assert took_s <= delay_s + 2 * longest_cycle_s(daemon) + SETTLES_S + backfill_s
        every = daemon.evictions()
        assert sum("too much time" in e.outcome for e in every) <= 1
        assert not [e for e in every if e.state in (EvictionState.CANCELLED, EvictionState.FAILED)]
        assert len(every) <= 2 * len(ids)
