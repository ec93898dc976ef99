"""Steps that cannot be killed drain their nodes ("Kill task failed"), as with a file system that hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import missing_requirements
from tests.slurm.test_breaker import CYCLES, approve_all, daemon_config, fill, left, metric
from tests.slurm.urgent import SCRIPT

# The program's group keeps a process that nobody buries: for Slurm the step cannot be killed.
IMMORTAL = """cat > keeper.$SLURM_JOB_ID.py <<'END'
import os, time
if not os.fork():
    if os.fork():
        os.setsid()
        for fd in range(3):
            os.close(fd)
time.sleep(120)
END
exec python3 keeper.$SLURM_JOB_ID.py
"""


@pytest.mark.parametrize("mode", ["automatic", "approve"])
def test_steps_that_cannot_be_killed_cost_two_jobs_at_most(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing_requirements():
        skip_or_fail(reason)
    hangs = ("ProctrackType=proctrack/pgid", "UnkillableStepTimeout=3")
    with SlurmCluster(nodes=8, cpus=1, kill_wait_s=1, extra_conf=hangs) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        busy = fill(cluster, 8, IMMORTAL)
        text = daemon_config(cluster, tmp_path / "daemon", mode, "kill_allowance = 12\napproval_time = 30")
        with RunningDaemon(cluster, tmp_path / "daemon", config=text) as daemon:
            cluster.sbatch(SCRIPT, "-N1", "--exclusive", "-p", "urgent", "--time=10", user="cwdaemon")

            def stopped() -> str:
                approve_all(daemon)
                return str(daemon.get("/api/v1/status").json()["stopped"])

            daemon.wait_for(stopped, 120, "it to stop")
            until = metric(daemon, "cycles_total") + CYCLES
            daemon.wait_for(lambda: stopped() and metric(daemon, "cycles_total") >= until, 90, f"{CYCLES} cycles more")
            assert left(cluster, busy) == 2
            assert "Kill task failed" in stopped()
