"""Lightning's automatic requeue: on SIGUSR1 it saves, requeues its job itself, and computes on until Slurm ends it.

Lightning needs PyTorch, so most runs have a stand-in whose handler does what Lightning's does. Where ``lightning``
can be imported, the same test runs with it.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import SYSTEM_PATH
from tests.slurm.urgent import SCRIPT, let_go

pytestmark = pytest.mark.one_slurm

WHOLE = ("--exclusive", "--mem=0")
TURNS = 200  # of a second, until the test lets them hurry
CLAIM = "--comment=clearway:checkpoint=signal,signal=USR1,to=steps,requeues=self,took=3"

STAND_IN = """\
import json, os, signal, subprocess, sys, time
turns, folder = int(sys.argv[1]), sys.argv[2]
state = folder + "/hpc_ckpt_1.ckpt"
done = int(open(state).read()) if os.path.exists(state) else 0
def save_and_requeue(*_):
    with open(state + ".new", "w") as out:
        out.write(str(done))
    os.rename(state + ".new", state)
    subprocess.call(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]])
signal.signal(signal.SIGUSR1, save_and_requeue)
while done < turns:
    end = time.monotonic() + 1.0
    while time.monotonic() < end and not os.path.exists(folder + "/hurry"):
        time.sleep(0.05)
    with open(folder + "/training.log", "a") as out:
        out.write(f"{done + 1} {os.environ.get('SLURM_RESTART_COUNT', '0')}\\n")
    done += 1  # last: a turn that is saved has its line
with open(folder + "/result.new", "w") as out:
    json.dump(done, out)
os.rename(folder + "/result.new", folder + "/result")
"""

LIGHTNING = """\
import json, os, sys, time
import lightning
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
turns, folder = int(sys.argv[1]), sys.argv[2]
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
    def training_step(self, batch, index):
        time.sleep(0.0 if os.path.exists(folder + "/hurry") else 1.0)
        with open(folder + "/training.log", "a") as out:
            out.write(f"{self.global_step + 1} {os.environ.get('SLURM_RESTART_COUNT', '0')}\\n")
        return ((self.weight - batch) ** 2).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.arange(turns, dtype=torch.float32), batch_size=1)
trainer = lightning.Trainer(
    max_steps=turns, accelerator="cpu", devices=1, default_root_dir=folder, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, plugins=[SLURMEnvironment(auto_requeue=True)],
)
trainer.fit(Model(), loader)
with open(folder + "/result.new", "w") as out:
    json.dump(trainer.global_step, out)
os.rename(folder + "/result.new", folder + "/result")
"""


def command(kind: str, folder: Path) -> str:
    """The batch script; Lightning itself runs with this interpreter's packages."""
    python, path = "/usr/bin/python3", ""
    if kind == "lightning":
        if importlib.util.find_spec("lightning") is None:
            pytest.skip("lightning is not installed: it brings PyTorch, which is large")
        python, path = sys.executable, f"export PYTHONPATH={':'.join(filter(None, sys.path))}\n"
    program = folder / "train.py"
    program.write_text(LIGHTNING if kind == "lightning" else STAND_IN)
    return f"#!/bin/sh\n{path}export PATH={SYSTEM_PATH}\nexec srun {python} {program} {TURNS} {folder}\n"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["stand-in", "lightning"])
def test_job_saves_and_requeues_itself_when_the_daemon_asks(cluster: SlurmCluster, tmp_path: Path, kind: str) -> None:
    folder = cluster.work / kind
    folder.mkdir()
    folder.chmod(0o777)
    script = command(kind, folder)
    for _ in cluster.node_names[:7]:
        other = cluster.sbatch("sleep 900", "--time=30", *WHOLE, "--output=/dev/null", user="cwbob")
        cluster.wait_state(other, "RUNNING")
    options = ("--requeue", "--open-mode=append", f"--output={folder}/out", "--time=30", "-n1", "--job-name=train")
    job_id = cluster.sbatch(script, *options, *WHOLE, CLAIM, user="cwalice")
    log, result = folder / "training.log", folder / "result"
    cluster.wait_for(lambda: log.exists() and len(log.read_text().splitlines()) >= 3, 90, "three turns")
    try:
        with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
            arguments = ("-p", "urgent", "-N1", *WHOLE, "--time=5", "--output=/dev/null")
            urgent = cluster.sbatch(SCRIPT, *arguments, user="cwalice")
            let_go(cluster, daemon, urgent)
            daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 120, "the eviction's end")
            (eviction,) = daemon.evictions()
            (p,) = eviction.preemptions
            assert (p.job_id, p.action, p.state) == (job_id, Action.APP_CHECKPOINT, PreemptionState.RETURNED)
            store = daemon.store()
            try:
                kinds = [step.kind for step in store.steps(eviction.eviction_id) if step.job_id == job_id]
            finally:
                store.close()
            assert kinds.count("ask_checkpoint") == 1
            assert "requeue" not in kinds
            (folder / "hurry").touch()
            cluster.wait_for(result.exists, 120, "the result of the training")
    except BaseException as error:
        error.add_note((folder / "out").read_text()[-3_000:])
        raise
    assert json.loads(result.read_text()) == TURNS
    assert cluster.job(job_id)["Restarts"] == "1"
    turns = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    again = [turn for turn, run in turns if run]
    assert {turn for turn, _ in turns} == set(range(1, TURNS + 1))
    assert again == list(range(again[0], TURNS + 1))
    # Its handler does not end it: what it computed from there until Slurm's SIGTERM is computed again.
    if kind == "stand-in":
        assert again[0] == int((folder / "hpc_ckpt_1.ckpt").read_text()) + 1
    assert len(turns) - TURNS <= 12
