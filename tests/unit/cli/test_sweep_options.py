"""What is asked of a sweep on the command line, and what is said where it cannot be had."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.model.errors import ClearwayError
from clearway_lab.commands.options import SweepOptions, alone, open_sweep

WITHOUT_DASK = """\
import sys
sys.modules["dask"] = None
from clearway.cli.app import main
sys.argv = ["clearway", *sys.argv[1:]]
main()
"""


def test_nothing_loads_dask_unless_it_is_asked_for() -> None:
    code = (
        "import sys, clearway.cli.app, clearway_lab.commands.lab, clearway_lab.commands.simulate\n"
        "import clearway_lab.commands.simulate_site\n"
        "assert not {'dask', 'distributed', 'dask_jobqueue'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_dask_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    asked = ["lab", "experiment", "compaction", "--out", str(tmp_path), "--cluster", "slurm"]
    done = subprocess.run([sys.executable, "-c", WITHOUT_DASK, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    packages = "'dask-jobqueue>=0.9' 'dask>=2024.8' 'distributed>=2024.8' 'matplotlib>=3.9'"
    assert f"install {packages} into Clearway's environment {sys.prefix} (pip install 'clearway[lab]')" in done.stderr


@pytest.mark.parametrize("option", [("--jobs", "2"), ("--memory", "1GiB"), ("--account", "a"), ("--walltime", "1")])
def test_what_only_jobs_have_is_refused_here(option: tuple[str, str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["lab", "experiment", "compaction", "--out", str(tmp_path), *option])
    assert result.exit_code == 2
    assert result.stderr == f"clearway: experiment compaction: {option[0]} needs --cluster slurm\n"


def test_without_slurm_there_are_no_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClearwayError, match="squeue is not installed"), open_sweep(SweepOptions(cluster="slurm")):  # type: ignore[arg-type]
        pytest.fail("there are workers")


def test_one_task_or_one_process_is_done_here() -> None:
    assert alone(SweepOptions(processes=1), 7)
    assert alone(SweepOptions(processes=7), 1)
    assert not alone(SweepOptions(processes=2), 2)
