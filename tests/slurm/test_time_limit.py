"""The launcher without the daemon: on Slurm's signal before the time limit a job is saved and requeues itself."""

from __future__ import annotations

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import install_programs

pytestmark = pytest.mark.one_slurm

# Computes until it is saved; what goes on from there takes ten more steps, and ends with a status of its own.
PROGRAM = """\
import os, signal, sys, time
state, wanted = sys.argv[1], False
def ask(*_):
    global wanted
    wanted = True
signal.signal(signal.SIGUSR1, ask)
done, end = 0, None
if os.path.exists(state):
    done = int(open(state).read())
    end = done + 10
while done != end:
    done += 1
    with open(state + ".log", "a") as log:
        log.write(f"{done} {os.environ.get('SLURM_RESTART_COUNT', '0')}\\n")
    time.sleep(0.2)
    if wanted:
        wanted = False
        with open(state + ".new", "w") as out:
            out.write(str(done))
        os.rename(state + ".new", state)
sys.exit(7)
"""


def test_a_job_goes_on_after_its_time_limit(cluster: SlurmCluster) -> None:
    install_programs(cluster)
    (cluster.work / "program.py").write_text(PROGRAM)
    state = cluster.work / "limit-state"
    script = (
        "#!/bin/sh\n#SBATCH --time=2\n#SBATCH --signal=B:USR2@75\n#SBATCH --requeue\n#SBATCH --open-mode=append\n"
        f"exec {cluster.work}/clearway-run --checkpoint-file {state} --limit-signal USR2 -- \\\n"
        f"    python3 {cluster.work}/program.py {state}\n"
    )
    job_id = cluster.sbatch(script, "-n1", "--output=limit-out", user="cwalice")
    # Slurm looks at time limits every half minute and tells jobs up to that much too early: 15 to 45 s from its start.
    cluster.wait_for(lambda: cluster.job(job_id)["Restarts"] == "1", 90, "the job to requeue itself")
    cluster.wait_state(job_id, "PENDING")
    comment = cluster.run("squeue", "-h", "-j", job_id, "-o", "%k").stdout
    assert "state=saved" in comment
    cluster.run("sleep", "1.1")  # started in the second of its requeue it would be lost
    cluster.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")  # instead of Slurm's two minutes
    cluster.wait_state(job_id, "FAILED", "COMPLETED", timeout=30)
    job = cluster.job(job_id)
    assert (job["ExitCode"], job["Restarts"]) == ("7:0", "1")
    said = (cluster.work / "limit-out").read_text()
    assert "saved near the time limit as generation 1, and requeued" in said
    runs: dict[str, list[int]] = {"0": [], "1": []}
    for line in (cluster.work / "limit-state.log").read_text().splitlines():
        step, run = line.split()
        runs[run].append(int(step))
    saved = int(state.read_text())
    assert runs["0"][:saved] == list(range(1, saved + 1))
    # Until the launcher has seen the file the program goes on; then it is held. Of the fifteen seconds and more that
    # are saved only a part is repeated.
    assert len(runs["0"]) - saved < saved
    assert runs["1"] == list(range(saved + 1, saved + 11))
