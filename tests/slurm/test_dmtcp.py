"""DMTCP under a real Slurm: a preempted job goes on elsewhere, and so do tasks that srun started on two nodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clearway_checkpoint.dmtcp import Dmtcp
from tests.real_dmtcp import dmtcp_folder
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import SYSTEM_PATH
from tests.slurm.preempted_program import install_launcher, preempted_and_back

STEPS = 600  # of a tenth of a second, until it may hurry
TASK = """\
import os, sys, time
with open(sys.argv[1] + os.environ["SLURM_PROCID"], "a", buffering=1) as log:
    for step in range(int(sys.argv[2])):
        log.write(f"{step}\\n")
        time.sleep(0.0 if os.path.exists(sys.argv[1] + "hurry") else 0.1)
sys.exit(5)
"""


@pytest.fixture
def dmtcp_path() -> str:
    """PATH of a job, with the DMTCP that is on ours."""
    return f"{dmtcp_folder()}:{SYSTEM_PATH}"


def test_preempted_by_a_real_urgent_job_and_restarted_on_another_node(
    cluster: SlurmCluster, dmtcp_path: str, tmp_path: Path
) -> None:
    """No line of the program knows of checkpoints; it ends bit for bit as if nothing had happened."""
    install_launcher(cluster)
    preempted_and_back(cluster, tmp_path, "dmtcp", {"PATH": dmtcp_path})


def test_tasks_on_two_nodes_are_saved_and_restarted(cluster: SlurmCluster, dmtcp_path: str) -> None:
    work = cluster.work
    driver = work / "dmtcp.sh"
    shutil.copy(Dmtcp().driver, driver)
    (work / "task.py").write_text(TASK)
    run = f"srun -N 2 -n 2 -- /usr/bin/python3 {work}/task.py {work}/rank {STEPS}"
    # The nodes of this cluster are one host, so loopback reaches the coordinator from both.
    script = f"""\
#!/bin/sh
export PATH={dmtcp_path} CLEARWAY_DMTCP_HOST=127.0.0.1
export CLEARWAY_STATE={work}/$SLURM_JOB_ID.state CLEARWAY_DIR={work}/$SLURM_JOB_ID.dir
generation=$CLEARWAY_DIR/generation
mkdir -p "$CLEARWAY_STATE" "$generation"
sh {driver} start -- {run} &
program=$!
until [ -s {work}/rank0 ] && [ -s {work}/rank1 ] && [ "$(cat {work}/rank[01] | wc -l)" -ge 20 ]; do sleep 0.2; done
sh {driver} checkpoint "$generation" $program
sh {driver} verify "$generation"
scancel --signal=KILL "$SLURM_JOB_ID.0"
wait $program
sh {driver} end
touch {work}/rankhurry
sh {driver} restart "$generation" -- {run}
status=$?
echo status=$status
sh {driver} broken $status # as the launcher asks: they may have ended before anything has seen them run
cat "$CLEARWAY_STATE/restarted"
sh {driver} end
"""
    job_id = cluster.sbatch(script, "-N2", "-n2", "--time=5", "--output=dmtcp.out", user="cwalice")
    cluster.wait_state(job_id, "COMPLETED", timeout=90)
    output = (work / "dmtcp.out").read_text()
    assert output.count("ok=yes") == 5, output  # checkpoint, verify, end, restarted, end
    assert "status=5" in output.splitlines(), output
    for rank in "01":
        assert [int(line) for line in (work / f"rank{rank}").read_text().split()] == list(range(STEPS)), output
