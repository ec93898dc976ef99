"""Jobs by their name: counted by the states that matter, and cancelled until none is left."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from clearway.model.errors import SlurmRefusedError, SlurmUnavailableError
from clearway.slurm.process import Commands
from clearway_lab.sweeps.slurm_jobs import NamedJobs

MINE = f"--name=sweep-1 --user={getpass.getuser()}"
COUNT = f"squeue --noheader {MINE} --states={{}} --format=%A"
ALIVE = COUNT.format("PENDING,CONFIGURING,RUNNING,SUSPENDED")
LEFT = COUNT.format("PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING")
CANCEL = f"scancel --quiet {MINE}"


class Slurm:
    """squeue and scancel as scripts: squeue answers with the file ``jobs``, each scancel takes a line off it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").write_text("")
        self.script("squeue", 'cat "$0.d/../jobs"')
        self.script("scancel", 'sed -i 1d "$0.d/../jobs"')

    def script(self, name: str, body: str) -> None:
        path = self.folder / name
        (self.folder / f"{name}.d").mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"$0.d/../asked"\n{body}\n')
        path.chmod(0o755)

    def has(self, *jobs: str) -> None:
        (self.folder / "jobs").write_text("".join(f"{job}\n" for job in jobs))

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    return Slurm(tmp_path)


@pytest.fixture
def jobs(slurm: Slurm) -> NamedJobs:
    return NamedJobs("sweep-1", Commands(timeout_s=60, bin_dir=str(slurm.folder)))


def test_alive_counts_the_lines_of_squeue(slurm: Slurm, jobs: NamedJobs) -> None:
    assert jobs.alive() == 0
    slurm.has("12", "13", "14")
    assert jobs.alive() == 3
    assert slurm.asked == [ALIVE, ALIVE]


def test_cancel_goes_on_until_none_is_left(slurm: Slurm, jobs: NamedJobs) -> None:
    slurm.has("12", "13")
    assert jobs.cancel(300.0) == ""
    assert slurm.asked == [LEFT, CANCEL, LEFT, CANCEL, LEFT, ALIVE]


def test_cancel_says_what_it_could_not(slurm: Slurm, jobs: NamedJobs) -> None:
    slurm.script("scancel", "exit 0")
    slurm.has("12", "13")
    assert jobs.cancel(0.05) == "2 after 0.05 s"
    slurm.script("scancel", "echo 'scancel: error: Access denied' >&2; exit 1")
    assert jobs.cancel(300.0) == "scancel: Access denied"
    slurm.script("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert "Unable to contact" in jobs.cancel(300.0)
    with pytest.raises(SlurmUnavailableError):
        jobs.alive()


def test_a_name_that_slurm_would_read_as_several_is_refused(slurm: Slurm) -> None:
    with pytest.raises(SlurmRefusedError, match="is not a name"):
        NamedJobs("a,b", Commands(bin_dir=str(slurm.folder))).alive()
    assert not (slurm.folder / "asked").exists()
