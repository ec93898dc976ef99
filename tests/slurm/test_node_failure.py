"""A node dies under a running job of two nodes: it goes on from its newest checkpoint to an undisturbed end."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from clearway.model.claims import parse_claims
from tests.real_dmtcp import dmtcp_folder
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import SYSTEM_PATH
from tests.slurm.preempted_program import install_launcher

pytestmark = pytest.mark.one_slurm
STEPS = 400  # of a twentieth of a second, until they may hurry
# Each rank counts by itself. What rank 0 writes into `ck` is a step that both have written down.
SAVES_ITSELF = """\
import hashlib, os, sys, time
folder, steps, rank = sys.argv[1], int(sys.argv[2]), os.environ["SLURM_PROCID"]
def part(step, of=rank):
    return f"{folder}/part-{of}-{step}"
def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)
begin, state = 0, rank
if os.path.exists(folder + "/ck"):
    begin = int(open(folder + "/ck").read())
    state = open(part(begin)).read()
for step in range(begin, steps):
    with open(f"{folder}/log-{rank}", "a") as log:
        print(step, file=log)
    state = hashlib.sha256(state.encode()).hexdigest()
    time.sleep(0 if os.path.exists(folder + "/hurry") else 0.05)
    if step % 20 == 19:
        write(part(step + 1), state)
        while rank == "0" and not os.path.exists(part(step + 1, "1")):
            time.sleep(0.01)
        if rank == "0":
            write(folder + "/ck", str(step + 1))
write(f"{folder}/result-{rank}", state)
"""
# A line of each step; it does not know of checkpoints.
KNOWS_NOTHING = """\
import os, sys, time
folder, steps, rank = sys.argv[1], int(sys.argv[2]), os.environ["SLURM_PROCID"]
state = 0
with open(f"{folder}/log-{rank}", "a", buffering=1) as log:
    for step in range(steps):
        log.write(f"{step}\\n")
        state += sum(range(200_000)) % (step + 7)  # a restart counts once it computes
        time.sleep(0 if os.path.exists(folder + "/hurry") else 0.05)
with open(f"{folder}/result-{rank}", "w") as result:
    result.write(str(state))
"""


def dies(cluster: SlurmCluster, node: str) -> None:
    """Power off: its slurmd and all that runs on it; then the site's health check says so to Slurm."""
    cluster.stop_node(node)
    mark = f"SLURMD_NODENAME={node}".encode()
    of_jobs, stepds = [], set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if mark in (path / "environ").read_bytes().split(b"\0"):
                of_jobs.append(int(path.name))
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
                if Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
                    stepds.add(int(parent))
    assert stepds
    for pid in (*stepds, *of_jobs):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=dead")


def saved(cluster: SlurmCluster, job: str) -> bool:
    assert cluster.state(job) in ("PENDING", "RUNNING")
    claims = parse_claims(cluster.run("squeue", "-h", "-o", "%k", "-j", job).stdout)
    return claims is not None and (claims.generation or 0) >= 1


def hosts(cluster: SlurmCluster, job: str) -> list[str]:
    return cluster.run("scontrol", "show", "hostnames", cluster.job(job)["NodeList"]).stdout.split()


def lived(cluster: SlurmCluster, launch: str, program: str, which: int) -> tuple[str, Path]:
    """Let a node of a job of two die after a checkpoint that nobody asked for; what the job said, and its folder.

    ``which`` node dies: 0 is the one of the batch script.
    """
    install_launcher(cluster)
    folder = cluster.folder_of("cwalice") / f"run{which}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.chown(folder, "cwalice", "cwalice")
    (folder / "ranks.py").write_text(program)
    script = f"#!/bin/sh\ncd {folder}\n" + launch.format(work=cluster.work, folder=folder, steps=STEPS)
    args = ("-N2", "--ntasks-per-node=1", "--exclusive", "--mem=0", "--requeue", "--open-mode=append", "--time=20")
    job = cluster.sbatch(script, *args, f"--output={folder}/out", user="cwalice")
    try:
        cluster.wait_for(lambda: saved(cluster, job), 90, "a checkpoint that nobody asked for")
        nodes = hosts(cluster, job)
        dies(cluster, nodes[which])
        cluster.lift_waits()
        cluster.wait_for(lambda: cluster.job(job)["Restarts"] == "1", 60, "Slurm's requeue")
        cluster.wait_for(lambda: cluster.lift_waits() or cluster.state(job) == "RUNNING", 60, "its next run")
        assert nodes[which] not in hosts(cluster, job)
        (folder / "hurry").touch()
        cluster.wait_state(job, "COMPLETED", timeout=120)
    except BaseException as error:
        error.add_note((folder / "out").read_text() if (folder / "out").exists() else "no output")
        raise
    return (folder / "out").read_text(), folder


def steps_of(folder: Path, rank: int) -> list[int]:
    return [int(line) for line in (folder / f"log-{rank}").read_text().split()]


@pytest.mark.parametrize("which", [0, 1], ids=["of the batch script", "another"])
def test_a_program_that_saves_itself(cluster: SlurmCluster, which: int) -> None:
    launch = "exec {work}/clearway-run --checkpoint-file ck --interval 5 -- "
    launch += "srun python3 {folder}/ranks.py {folder} {steps}\n"
    said, folder = lived(cluster, launch, SAVES_ITSELF, which)
    assert "run 1 of this job: the program goes on from its own ck of " in said
    for rank in (0, 1):
        expected = str(rank)
        for _ in range(STEPS):
            expected = hashlib.sha256(expected.encode()).hexdigest()
        assert (folder / f"result-{rank}").read_text() == expected
        steps = steps_of(folder, rank)
        assert sorted(set(steps)) == list(range(STEPS))
        assert steps.count(0) == 1


@pytest.mark.parametrize("which", [0, 1], ids=["of the batch script", "another"])
def test_a_program_that_knows_nothing_under_dmtcp(cluster: SlurmCluster, which: int) -> None:
    path = f"{dmtcp_folder()}:{SYSTEM_PATH}"
    launch = (
        f"export PATH={path} CLEARWAY_DMTCP_HOST=127.0.0.1 CLEARWAY_CHECKPOINTERS={{work}}/checkpointers\n"
        "exec {work}/clearway-run --checkpointer dmtcp --interval 4 -- "
        "srun -N 2 -n 2 -- /usr/bin/python3 {folder}/ranks.py {folder} {steps}\n"
    )
    said, folder = lived(cluster, launch, KNOWS_NOTHING, which)
    assert "restarting from" in said, said
    for rank in (0, 1):
        assert (folder / f"result-{rank}").read_text() == str(
            sum(sum(range(200_000)) % (step + 7) for step in range(STEPS))
        )
        steps = steps_of(folder, rank)
        assert sorted(set(steps)) == list(range(STEPS))
        assert steps.count(0) == 1
