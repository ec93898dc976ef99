"""A program that never heard of checkpoints: preempted by a real urgent job, and back on another node, bit for bit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from clearway.cli import launcher
from clearway.model.operations import EvictionState, PreemptionState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon

# Two threads and a child process, each with a state of its own, and a log that stays open. It exits with 7.
# The child is started before numpy is loaded: DMTCP hangs in a fork that has to end the threads of OpenBLAS first.
PROGRAM = """\
import hashlib, os, subprocess, sys, threading, time
steps, pause, log, result = int(sys.argv[1]), float(sys.argv[2]), open(sys.argv[3], "a"), sys.argv[4]
child = subprocess.Popen(["sh", "-c", "n=1; while read x; do n=$(((n * 31 + x) % 1000003)); echo $n; done"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
import numpy
ballast = numpy.ones(int(os.environ.get("BALLAST_MIB", "0")) << 17)
turn, states = threading.Barrier(3), [None, None]
def work(which):
    random = numpy.random.default_rng(which)
    matrix, state = random.random((120, 120)), random.random(120)
    for _ in range(steps):
        turn.wait()
        state = numpy.sin(matrix @ state + random.random(120))
        states[which] = state
        turn.wait()
threads = [threading.Thread(target=work, args=(which,)) for which in (0, 1)]
for thread in threads: thread.start()
for step in range(steps):
    turn.wait()
    turn.wait()
    child.stdin.write(f"{step}\\n")
    said = child.stdout.readline().strip()
    if not said: os._exit(1)  # Slurm ends them all, and the child was first
    print(step, said, file=log, flush=True)
    time.sleep(0 if os.path.exists(sys.argv[3] + ".hurry") else pause)
for thread in threads: thread.join()
child.stdin.close(); child.wait()
digest = hashlib.sha256(b"".join(state.tobytes() for state in states) + said.encode()).hexdigest()
with open(result, "w") as out: out.write(digest)
sys.exit(7)
"""


def install_launcher(cluster: SlurmCluster) -> None:
    """``clearway-run``, ``checkpointers`` and ``program.py`` in the folder that every user of the cluster sees."""
    launcher.install(cluster.work)
    (cluster.work / "program.py").write_text(PROGRAM)


def command_for(cluster: SlurmCluster, user: str) -> list[str]:
    """A Python with numpy that this user can start: ours, else the system's with a copy of our numpy."""
    ours = Path(np.__file__).parents[1]
    copy = cluster.work / "packages"
    for python, packages in ((sys.executable, ours), ("/usr/bin/python3", copy)):
        if packages == copy and not copy.exists():
            for name in ("numpy", "numpy.libs"):
                shutil.copytree(ours / name, copy / name, ignore=shutil.ignore_patterns("tests", "*.pyi"))
        command = ["env", f"PYTHONPATH={packages}", python]
        if cluster.run(*command, "-c", "import numpy", user=user, check=False).returncode == 0:
            return command
    pytest.skip(f"{user} can load numpy neither with {sys.executable} nor with /usr/bin/python3")


def undisturbed(folder: Path, steps: int) -> str:
    """The result of a run without a checkpointer and without a pause, a checksum."""
    script = folder / "undisturbed.py"
    script.write_text(PROGRAM)
    command = [sys.executable, script, str(steps), "0", folder / "log", folder / "result"]
    assert subprocess.run(command, check=False, timeout=240).returncode == 7
    return (folder / "result").read_text()


def preempted_and_back(
    cluster: SlurmCluster, tmp_path: Path, checkpointer: str, exports: dict[str, str], user: str = "cwalice"
) -> None:
    """Run PROGRAM as this user's job, let an urgent job take its node, which is drained then; wait for its end.

    ``exports`` go into the job's environment. Needs ``install_launcher``.
    """
    steps, work = 1_500, cluster.work  # of a tenth of a second, until it may hurry
    for left in ("nodes", "log", "log.hurry", "result"):
        (work / left).unlink(missing_ok=True)
    shutil.rmtree(work / "generations", ignore_errors=True)
    settings = " ".join(f'{name}="{value}"' for name, value in exports.items())
    script = textwrap.dedent(f"""\
        #!/bin/sh
        export CLEARWAY_CHECKPOINTERS={work}/checkpointers {settings}
        echo "$SLURMD_NODENAME" >>{work}/nodes
        exec {work}/clearway-run --checkpointer {checkpointer} --dir {work}/generations -- \\
            {" ".join(command_for(cluster, user))} {work}/program.py {steps} 0.1 {work}/log {work}/result
        """)
    args = ("--requeue", "--open-mode=append", "--output=job.%j", "--time=30", "--exclusive", "--mem=0")
    job = cluster.sbatch(script, *args, user=user)
    cluster.wait_for(lambda: f"checkpointer={checkpointer}" in cluster.job(job).get("Comment", ""), 30, "its claim")
    first = cluster.job(job)["NodeList"]
    full = ("-N1", "--exclusive", "--mem=0", "--output=/dev/null")
    others = [cluster.sbatch("sleep 600", *full, user="cwbob") for _ in range(7)]  # protected
    cluster.wait_for(lambda: all(cluster.state(other) == "RUNNING" for other in others), 30, "no node idle")
    try:
        with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
            urgent = ("-p", "urgent", "-N1", "--exclusive", "--mem=0", "--time=5", "--output=/dev/null")
            preemptor = cluster.sbatch("sleep 120", *urgent, user="cwalice")
            cluster.wait_state(preemptor, "RUNNING", timeout=60)
            assert cluster.job(preemptor)["NodeList"] == first
            cluster.run("scontrol", "update", f"NodeName={first}", "State=DRAIN", "Reason=test")
            cluster.run("scancel", others[0])
            cluster.wait_for(
                lambda: cluster.job(job)["Restarts"] == "1" and cluster.state(job) == "RUNNING", 60, "the return"
            )
            assert cluster.job(job)["NodeList"] != first
            (work / "log.hurry").touch()
            cluster.wait_state(job, "FAILED", timeout=120)  # its own exit status is 7
            assert cluster.job(job)["ExitCode"] == "7:0"
            daemon.wait_for(
                lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 60, "the end of the eviction"
            )
            (preemption,) = daemon.evictions()[0].preemptions
            assert preemption.state is PreemptionState.RETURNED
    except BaseException as error:
        error.add_note((work / f"job.{job}").read_text())
        raise
    said = (work / f"job.{job}").read_text()
    assert "restarting from" in said, said
    assert (work / "result").read_text() == undisturbed(tmp_path, steps)
    # At a requeue Slurm continues what is held a moment before it ends it: what that moment writes is written again.
    lines = (work / "log").read_text().splitlines()
    assert list(dict.fromkeys(lines)) == sorted(set(lines), key=lambda line: int(line.split()[0]))
    assert len(set(lines)) == steps
    assert len(lines) - steps <= 200  # twenty seconds' worth: four times Slurm's KillWait here
    assert len(set((work / "nodes").read_text().split())) == 2
