"""DMTCP under a real Slurm: tasks that srun started on two nodes are saved together and restarted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clearway_checkpoint.dmtcp import Dmtcp
from tests.slurm.cluster import SYSTEM_PATH, SlurmCluster

STEPS = 60
TASK = """\
import os, sys, time
with open(sys.argv[1] + os.environ["SLURM_PROCID"], "a", buffering=1) as log:
    for step in range(int(sys.argv[2])):
        log.write(f"{step}\\n")
        time.sleep(0.1)
sys.exit(5)
"""


def test_tasks_on_two_nodes_are_saved_and_restarted(cluster: SlurmCluster) -> None:
    found = shutil.which("dmtcp_launch")
    if found is None:
        pytest.skip("no dmtcp_launch on PATH: sites build DMTCP themselves")
    assert Path(found).read_bytes()[:4] == b"\x7fELF", f"{found} is a stand-in"
    work = cluster.work
    driver = work / "dmtcp.sh"
    shutil.copy(Dmtcp().driver, driver)
    (work / "task.py").write_text(TASK)
    run = f"srun -N 2 -n 2 -- /usr/bin/python3 {work}/task.py {work}/rank {STEPS}"
    # The nodes of this cluster are one host, so loopback reaches the coordinator from both.
    script = f"""\
#!/bin/sh
export PATH={Path(found).parent}:{SYSTEM_PATH} CLEARWAY_DMTCP_HOST=127.0.0.1
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
sh {driver} restart "$generation" -- {run}
echo status=$?
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
