"""docs/howto/recipes.md: its programs as they stand, under the launcher: asked, ended as Slurm does it, started again.

PyTorch and transformers are large, so CI has them not: their recipes run where ``CLEARWAY_FRAMEWORKS_PYTHON`` (else
this interpreter) can load them. MPICH and mpi4py come from PyPI.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from clearway.model.claims import SaveState
from tests.integration.bench import Bench, poll
from tests.recipes import FRAMEWORKS, PIECE, PYTHON, lacks, recipe, same_result, slowed

ANSWER_S = 60.0  # four times as long on a busy machine; a framework takes seconds to load

MEGATRON = """\
import os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
name = "ckpt/latest_checkpointed_iteration.txt"
step = int(open(name).read()) if os.path.exists(name) else 0
while step < int(sys.argv[-1]):
    time.sleep(0.0 if os.path.exists("hurry") else 0.5)
    step += 1
    with open("log", "a") as out:
        out.write(f"{step}\\n")
    if asked:
        os.makedirs("ckpt", exist_ok=True)
        with open(name, "w") as out:
            out.write(str(step))
        sys.exit(0)
with open("result", "w") as out:
    out.write(str(step))
"""


@dataclass
class Run:
    """The recipe in a job of its own folder."""

    bench: Bench
    command: str
    checkpoint: str
    steps: int

    def start(self) -> subprocess.Popen[str]:
        (self.bench.folder / "pid").unlink(missing_ok=True)
        (self.bench.folder / "comment").write_text("\n")
        program = f'cd "$FOLDER"\nexec {self.command} >>told 2>>errors\n'
        file = str(self.bench.folder / self.checkpoint)
        return self.bench.start("--hold", "600", "--checkpoint-file", file, program=program)

    def done(self, log: str) -> list[int]:
        path = self.bench.folder / log
        return [int(word) for word in path.read_text().split() if word.isdigit()] if path.exists() else []

    def errors(self) -> str:
        path = self.bench.folder / "errors"
        return path.read_text()[-3_000:] if path.exists() else ""

    def preempted_once(self, log: str = "told") -> None:
        """It is asked in the middle, ended once it has answered, and run again to its end; no step is missing."""
        step = self.start()
        try:
            pid = self.bench.launcher_pid()
            poll(lambda: "checkpoint=signal" in self.bench.comment and len(self.done(log)) >= 3, ANSWER_S)
            os.kill(pid, signal.SIGUSR1)
            poll(lambda: self.bench.claims().state is SaveState.SAVED, ANSWER_S)
            before = self.done(log)
        finally:
            for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGKILL):  # as Slurm ends the processes of a job
                os.killpg(step.pid, number)
            step.communicate()
        assert before[-1] < self.steps, "it was asked in the middle of its work"
        (self.bench.folder / "hurry").touch()
        assert self.start().wait(timeout=4 * ANSWER_S) == 0, self.errors()
        again = self.done(log)[len(before) :]
        assert set(before) | set(again) == set(range(1, self.steps + 1))
        assert again[0] > 1, "it went on from its checkpoint"
        assert again[0] <= before[-1] + 1


# The recipes are the same for every shell of the launcher.
pytestmark = pytest.mark.parametrize("bench", ["dash"], indirect=True)


def test_bash(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIECES", "150")
    for name, text in {"pieces.sh": recipe("Plain bash", "bash"), "piece": PIECE}.items():
        (bench.folder / name).write_text(text)
        (bench.folder / name).chmod(0o755)
    Run(bench, "./pieces.sh", "next.txt", 150).preempted_once("log")


def test_megatron(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUEUED_WITHIN", "600")
    stand_ins = {
        "train.sh": recipe("Megatron-LM", "bash"),
        "srun": '#!/bin/sh\nexec "$@"\n',
        "pretrain_gpt.py": MEGATRON,
    }
    for name, text in stand_ins.items():
        (bench.folder / name).write_text(text.replace("srun python", f"srun {sys.executable}"))
        (bench.folder / name).chmod(0o755)
    Run(bench, "./train.sh 150", "ckpt/latest_checkpointed_iteration.txt", 150).preempted_once("log")
    assert (bench.folder / "result").read_text() == "150"


@pytest.mark.parametrize(("heading", "needs", "checkpoint"), FRAMEWORKS)
def test_frameworks(bench: Bench, monkeypatch: pytest.MonkeyPatch, heading: str, needs: str, checkpoint: str) -> None:
    if lacks(needs):
        pytest.skip(f"{PYTHON} has no {needs}: PyTorch is large")
    steps = 400
    slowed(bench.folder, "program.py", recipe(heading, "python"))
    monkeypatch.setenv("PYTHONPATH", str(bench.folder))
    Run(bench, f"{PYTHON} program.py {steps}", checkpoint, steps).preempted_once()
    monkeypatch.delenv("PYTHONPATH")
    same_result(bench.folder, heading, steps)


def test_mpi(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if subprocess.run([sys.executable, "-c", "import mpi4py"], check=False, capture_output=True).returncode:
        pytest.skip("mpi4py is not installed")
    steps = 300
    slowed(bench.folder, "ring.py", recipe("MPI", "python"))
    monkeypatch.setenv("PYTHONPATH", str(bench.folder))
    command = f"{mpiexec} -n 4 {sys.executable} ring.py {steps}"
    Run(bench, command, "saved", steps).preempted_once()
    values = [1, 2, 3, 4]
    for step in range(steps):
        values = [(values[(rank - 1) % 4] * 31 + step) % 1000003 for rank in range(4)]
    assert json.loads((bench.folder / "result").read_text()) == values
