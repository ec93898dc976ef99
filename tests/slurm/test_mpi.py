"""An MPI program of four ranks: preempted by a real urgent job, and back. It saves itself, or DMTCP saves it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from clearway.cli import launcher
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from clearway_checkpoint.dmtcp import Dmtcp
from tests.real_dmtcp import dmtcp_folder
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon
from tests.slurm.urgent import SCRIPT, let_go

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "mpi_saves_itself.c"
STEPS, RANKS = 60, 4  # of half a second each, until it may hurry: ranks that wait for messages keep a core busy
WHOLE = ("--exclusive", "--mem=0")

# Ranks that wait for messages keep a core busy: with two cores, and other tests beside, a step may take seconds.
pytestmark = [pytest.mark.one_slurm, pytest.mark.full, pytest.mark.debian12("they have no MPICH and no compiler")]


def undisturbed() -> int:
    """What the token becomes: each step begins at rank 0, and each other rank adds to it."""
    token = 1
    for step in range(STEPS):
        token = (token * 31 + step + sum(range(1, RANKS)) * step) % (1 << 64)
    return token


@pytest.fixture
def program(cluster: SlurmCluster) -> Path:
    compiler = shutil.which("mpicc.mpich")
    if compiler is None:
        skip_or_fail("there is no MPICH (Debian: mpich, libmpich-dev)")
        raise AssertionError
    built = cluster.work / "mpi_saves_itself"
    command = [compiler, "-Wall", "-Werror", "-O2", "-o", built, EXAMPLE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    built.chmod(0o755)
    return built


@dataclass(frozen=True)
class Way:
    """How the ring is saved."""

    nodes: int
    options: str
    starter: str
    action: Action


SAVES_ITSELF = Way(2, "--checkpoint-file {folder}/state", "srun --mpi=pmi2", Action.APP_CHECKPOINT)
BY_DMTCP = Way(1, "--checkpointer dmtcp --dir {folder}/kept", f"mpiexec -n {RANKS}", Action.SYS_CHECKPOINT)


@pytest.mark.parametrize("way", [SAVES_ITSELF, BY_DMTCP], ids=["saves itself on two nodes", "DMTCP on one node"])
def test_an_mpi_ring_loses_nothing(cluster: SlurmCluster, program: Path, tmp_path: Path, way: Way) -> None:
    work, path = cluster.work, os.environ["PATH"]
    if way is BY_DMTCP:
        path = f"{dmtcp_folder()}:{path}"
        if not (version := Dmtcp({"PATH": path}).probe().version).startswith("4."):
            pytest.skip(f"the launcher refuses MPI with DMTCP {version} (docs/explanation/mpi.md)")
    launcher.install(work)
    for _ in cluster.node_names[way.nodes :]:
        other = cluster.sbatch("sleep 900", "--time=30", "-N1", *WHOLE, "--output=/dev/null", user="cwbob")
        cluster.wait_state(other, "RUNNING")
    folder, output = work / f"mpi-{way.nodes}", work / f"mpi-{way.nodes}.out"
    folder.mkdir()
    folder.chmod(0o1777 if way is SAVES_ITSELF else 0o755)
    shutil.chown(folder, "cwalice")
    # Shared memory: over TCP inside one machine MPICH 4.0.2 stands still in MPI_Finalize (docs/explanation/mpi.md).
    script = f"""\
#!/bin/sh
export UCX_TLS=posix,self CLEARWAY_CHECKPOINTERS={work}/checkpointers CLEARWAY_DMTCP_MPI=one-node PATH={path}
exec {work}/clearway-run {way.options.format(folder=folder)} -- \\
    {way.starter} {program} {STEPS} {folder}/state {folder}/result {folder}/hurry
"""
    nodes = f"-N{way.nodes}"
    options = ("--requeue", "--open-mode=append", f"--output={output}", "--time=30", f"-n{RANKS}", nodes, *WHOLE)
    job = cluster.sbatch(script, *options, user="cwalice")
    try:
        cluster.wait_for(lambda: output.exists() and "from step 0" in output.read_text(), 60, "four ranks")
        with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
            wanted = ("-p", "urgent", nodes, *WHOLE, "--time=5", "--output=/dev/null")
            urgent = cluster.sbatch(SCRIPT, *wanted, user="cwalice")
            let_go(cluster, daemon, urgent)
            daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 120, "its return")
            (eviction,) = daemon.evictions()
            (p,) = eviction.preemptions
            assert (p.job_id, p.action, p.state) == (job, way.action, PreemptionState.RETURNED)
            (folder / "hurry").touch()
            cluster.wait_state(job, "COMPLETED", timeout=120)
    except BaseException as error:
        error.add_note(output.read_text() if output.exists() else "no output")
        raise
    assert int((folder / "result").read_text()) == undisturbed()
    if way is BY_DMTCP:
        assert "restarting from" in output.read_text()
        return
    starts = [int(line.rsplit(" ", 1)[1]) for line in output.read_text().splitlines() if "ranks, from step" in line]
    assert len(starts) == 2
    assert starts[0] == 0 < starts[1], "the second run begins where all ranks had saved"
    assert len(list(folder.glob("state.*.[0-9]"))) == RANKS, "one save of each rank is kept"
