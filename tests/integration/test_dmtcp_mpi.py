"""MPI programs under the real DMTCP, on one node: saved, killed, restarted, with the result of an undisturbed run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway_checkpoint.dmtcp import Dmtcp
from tests.integration.test_dmtcp import Run, end_group, poll
from tests.real_dmtcp import dmtcp_folder
from tests.slurm.test_mpi import EXAMPLE, RANKS, STEPS, undisturbed


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    dmtcp_folder()
    made = Run(tmp_path / "run", os.environ["PATH"])
    made.env["CLEARWAY_DMTCP_MPI"] = "one-node"
    made.driver = Dmtcp(made.env)
    yield made
    made.driver.end()


@pytest.mark.timeout(600)
def test_four_ranks_are_saved_and_come_back_twice(run: Run) -> None:
    compiler = shutil.which("mpicc.mpich")
    if compiler is None:
        pytest.skip("there is no MPICH (Debian: mpich, libmpich-dev)")
    ring = run.folder / "ring"
    subprocess.run([compiler, "-O2", "-o", ring, EXAMPLE], check=True, timeout=120)
    hurry, result = run.folder / "hurry", run.folder / "result"
    command = ["mpiexec", "-n", str(RANKS), str(ring), str(STEPS), str(run.folder / "own"), str(result), str(hurry)]
    probe = run.driver.probe(command)
    if not run.driver.probe().version.startswith("4."):
        assert "DMTCP 4.2 saves MPI programs" in probe.reason
        return
    assert probe.ok, probe.reason
    process = run.spawn(run.driver.wrap(command))
    output = run.folder / "output"
    poll(lambda: output.exists() and "from step 0" in output.read_text(), what="four ranks")
    for number in (1, 2):
        generation = run.generation(number)
        saved = run.driver.checkpoint(generation, process.pid)
        assert saved.ok, saved.reason
        assert len(list(generation.rglob("ckpt_*.dmtcp"))) == RANKS + 2, "the ranks, mpiexec and its proxy"
        end_group(process)
        run.driver.end()
        assert not result.exists()
        process = run.spawn(run.driver.restart(generation, command))
        poll(run.told, what="the restart")
        assert run.told() == "ok=yes\n", output.read_text()[-2_000:]
    hurry.touch()
    assert process.wait(240) == 0, output.read_text()[-2_000:]
    assert int(result.read_text()) == undisturbed()
