"""The recipes of docs/howto/recipes.md in batch jobs: preempted by a real urgent job, and back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from clearway.cli import launcher
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from tests.recipes import FRAMEWORKS, PIECE, PYTHON, lacks, recipe, same_result, slowed
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon
from tests.slurm.urgent import SCRIPT, let_go

WHOLE = ("--exclusive", "--mem=0")
STEPS = 1_500  # of half a second each, until they may hurry

pytestmark = pytest.mark.one_slurm


def made(cluster: SlurmCluster) -> Path:
    """The job's folder; all nodes but one are protected."""
    launcher.install(cluster.work)
    folder = Path(tempfile.mkdtemp(prefix="recipe-", dir=cluster.work))
    folder.chmod(0o777)
    others = [
        cluster.sbatch("sleep 900", "--time=30", *WHOLE, "--output=/dev/null", user="cwbob")
        for _ in cluster.node_names[1:]
    ]
    for other in others:
        cluster.wait_state(other, "RUNNING")
    return folder


def preempted_once(cluster: SlurmCluster, tmp_path: Path, checkpoint: str, command: str, log: Path) -> None:
    """No step is missing, and it goes on from its checkpoint."""
    folder = log.parent
    program = folder / "run.sh"
    program.write_text(f"#!/bin/sh\nexec {command} >>told 2>>errors\n")
    program.chmod(0o755)

    def done() -> list[int]:
        return [int(word) for word in log.read_text().split() if word.isdigit()] if log.exists() else []

    script = f"""\
#!/bin/sh
cd {folder}
export CLEARWAY_CHECKPOINTERS={cluster.work}/checkpointers
exec {cluster.work}/clearway-run --checkpoint-file {checkpoint} -- ./run.sh
"""
    options = ("--requeue", "--open-mode=append", f"--output={folder}/job.out", "--time=30", "-n1", *WHOLE)
    job_id = cluster.sbatch(script, *options, user="cwalice")
    try:
        cluster.wait_for(lambda: len(done()) >= 3, 120, "three steps")
        with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
            arguments = ("-p", "urgent", "-N1", *WHOLE, "--time=5", "--output=/dev/null")
            urgent = cluster.sbatch(SCRIPT, *arguments, user="cwalice")
            let_go(cluster, daemon, urgent)
            before = done()
            daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 120, "the eviction's end")
            (eviction,) = daemon.evictions()
            (p,) = eviction.preemptions
            assert (p.job_id, p.action, p.state) == (job_id, Action.APP_CHECKPOINT, PreemptionState.RETURNED)
            (folder / "hurry").touch()
            cluster.wait_state(job_id, "COMPLETED", timeout=180)
    except BaseException as error:
        for said in (folder / "job.out", folder / "errors"):
            error.add_note(said.read_text()[-3_000:] if said.exists() else f"no {said.name}")
        raise
    assert cluster.job(job_id)["Restarts"] == "1"
    again = done()[len(before) :]
    assert set(before) | set(again) == set(range(1, STEPS + 1))
    assert 1 < again[0] <= before[-1] + 1, "it went on from its checkpoint"


@pytest.mark.full
def test_bash(cluster: SlurmCluster, tmp_path: Path) -> None:
    folder = made(cluster)
    for name, text in {"pieces.sh": recipe("Plain bash", "bash"), "piece": PIECE}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    preempted_once(cluster, tmp_path, "next.txt", f"env PIECES={STEPS} ./pieces.sh", folder / "log")


@pytest.mark.parametrize(("heading", "needs", "checkpoint"), FRAMEWORKS)
def test_frameworks(cluster: SlurmCluster, tmp_path: Path, heading: str, needs: str, checkpoint: str) -> None:
    if lacks(needs):
        pytest.skip(f"{PYTHON} has no {needs}: PyTorch is large")
    if cluster.run(PYTHON, "-c", "", user="cwalice", check=False).returncode:
        pytest.skip(f"cwalice cannot run {PYTHON}")
    folder = made(cluster)
    slowed(folder, "program.py", recipe(heading, "python"))
    command = f"env PYTHONPATH={folder} {PYTHON} program.py {STEPS}"
    preempted_once(cluster, tmp_path, checkpoint, command, folder / "told")
    same_result(folder, heading, STEPS)
