"""DMTCP under a real Slurm: a preempted job goes on elsewhere, and so do tasks that srun started on two nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway_checkpoint.dmtcp import Dmtcp
from tests.real_dmtcp import dmtcp_folder
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import SYSTEM_PATH
from tests.slurm.preempted_program import command_for, install_launcher, preempted_and_back
from tests.slurm.test_job_submit import SCRIPT, cluster_with

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
    for part in (Dmtcp().driver, Dmtcp().driver.with_name("dmtcp_hold.c")):
        shutil.copy(part, work / part.name)
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


# -- without a word by the job's user: job_submit.lua starts every batch job under DMTCP -------------------------------


@pytest.fixture(scope="module")
def transparent() -> Iterator[SlurmCluster]:
    """One node, so that an urgent job takes it from whatever runs there."""
    dmtcp_folder()
    script = SCRIPT.read_text().replace("local CHECKPOINTER = nil", 'local CHECKPOINTER = "dmtcp"')
    with cluster_with(script.replace("/usr/local/bin/clearway-run", "@WORK@/clearway-run")) as cluster:
        install_launcher(cluster)
        yield cluster


WITH_SRUN = """\
#!/bin/bash
step() {{ $1 -n 1 sh -c 'n=$(cat {work}/sum); sleep 0.2; echo $((n + '$2'))'; }}
echo 0 >{work}/sum
for n in $(seq 30); do
    step srun $n >{work}/sum.new && mv {work}/sum.new {work}/sum || exit 3
    [ -e {work}/hurry ] || sleep 0.2
    echo $n >>{work}/steps
done
cp {work}/sum {work}/result
exit 7
"""


# Its text does not say srun, so it is put under DMTCP, and looked at while it runs.
WITH_HIDDEN_SRUN = """\
#!/bin/bash
name=run
rm -f {work}/sum
"s$name" -n 1 sh -c 'for n in $(seq 30); do
    echo $n >>{work}/sum; echo $n >>{work}/steps
    until [ -e {work}/hurry ] || [ $n -lt 10 ]; do sleep 0.1; done; done'
awk '{{ sum += $1 }} END {{ print sum }}' {work}/sum >{work}/result
exit 7
"""


@pytest.mark.parametrize(
    ("script", "told"),
    [
        pytest.param(WITH_SRUN, "", id="named"),  # job_submit.lua leaves it alone
        pytest.param(
            WITH_SRUN.replace("step srun", ". {work}/starter; step $starter"),
            "this job runs without checkpoints: it runs srun, and DMTCP cannot save",
            id="named elsewhere",
        ),
        pytest.param(
            WITH_HIDDEN_SRUN, "this job cannot be saved as it is: srun runs in it, and DMTCP cannot save", id="found"
        ),
    ],
)
def test_a_script_that_calls_srun_runs_as_it_is_and_comes_back(
    transparent: SlurmCluster, dmtcp_path: str, tmp_path: Path, script: str, told: str
) -> None:
    """Restored from a checkpoint it would wait for srun for ever, told as saved and running."""
    cluster, work = transparent, transparent.work
    for left in ("sum", "steps", "result", "hurry", "srun.out"):
        (work / left).unlink(missing_ok=True)
    (work / "starter").write_text("starter=srun\n")
    args = ("-n1", "--requeue", "--open-mode=append", "--output=srun.out", "--time=20", "--exclusive", "--mem=0")
    job = cluster.sbatch(script.format(work=work), *args, f"--export=PATH={dmtcp_path}", user="cwalice")
    steps = work / "steps"
    cluster.wait_for(lambda: steps.exists() and len(steps.read_text().split()) >= 3, 60, "three steps")
    cluster.wait_for(lambda: told in (work / "srun.out").read_text(), 60, "the word that it cannot be saved")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        urgent = ("-p", "urgent", "-N1", "--exclusive", "--mem=0", "--time=5", "--output=/dev/null")
        preemptor = cluster.sbatch("sleep 1", *urgent, user="cwalice")
        cluster.wait_state(preemptor, "COMPLETED", timeout=90)
        cluster.wait_for(lambda: cluster.job(job)["Restarts"] == "1", 60, "the requeue")
        (work / "hurry").touch()
        cluster.wait_state(job, "FAILED", timeout=180)
        assert cluster.job(job)["ExitCode"] == "7:0"
        # The node is no longer held for the urgent job: else the next test waits for it.
        daemon.wait_for(lambda: daemon.evictions()[0].finished_at, 60, "the end of the eviction")
        (preemption,) = daemon.evictions()[0].preemptions
        assert preemption.checkpointed_at is None
    said = (work / "srun.out").read_text()
    assert told in said if told else "clearway" not in said, said
    assert int((work / "result").read_text()) == sum(range(31))


@pytest.mark.fault(
    "A Python program with OpenBLAS that starts others could hang for ever under DMTCP.", found_by="trial"
)
def test_numpy_that_starts_programs_ends_as_it_would_without_dmtcp(transparent: SlurmCluster, dmtcp_path: str) -> None:
    """Under DMTCP it stood still in its first fork, without a preemption and without a word."""
    cluster, work = transparent, transparent.work
    (work / "forks.py").write_text(
        "import numpy, subprocess\na = numpy.ones((300, 300))\nfor step in range(8):\n"
        "    a = a @ a / 300\n    subprocess.run(['true'], check=True)\nprint('end', a.sum())\n"
    )
    python = " ".join(command_for(cluster, "cwalice"))
    script = f"#!/bin/bash\n{python} {work}/forks.py\nexit 7\n"
    job = cluster.sbatch(script, "-n1", "--output=forks.out", f"--export=PATH={dmtcp_path}", user="cwalice")
    cluster.wait_state(job, "FAILED", timeout=60)
    assert cluster.job(job)["ExitCode"] == "7:0"
    said = (work / "forks.out").read_text()
    assert "end 90000.0" in said, said
    assert "and then it hangs under DMTCP when it starts another program" in said
