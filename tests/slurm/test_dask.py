"""Sweeps on a real Slurm through dask-jobqueue: the same results as here, and no job or file left on any way out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway_lab.commands.options import Cluster, SweepOptions, open_sweep
from clearway_lab.errors import SimulationError, TraceError
from tests.slurm.cluster import SlurmCluster

pytestmark = [
    pytest.mark.one_slurm,
    pytest.mark.debian12("under Python 3.13 Dask 2026.8 loses encrypted connections to its client and workers"),
]

REPO = Path(__file__).parents[2]
TWO_JOBS = SweepOptions(cluster=Cluster.SLURM, jobs=2, memory="1GiB", partition="batch", walltime="10")
LONG = """\
import time
from tests.slurm.test_dask import TWO_JOBS, open_sweep
with open_sweep(TWO_JOBS) as sweep:
    sweep(time.sleep, [(0.2,)] * 1_000, str)
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that nodes share, by Dask's configuration; afterwards it is as empty as before."""
    import dask

    before = signal.getsignal(signal.SIGINT)
    import clearway_lab.sweeps.slurm_jobs  # noqa: F401 - with it come Dask's defaults

    assert signal.getsignal(signal.SIGINT) is before
    folder = tmp_path / "shared"
    folder.mkdir()
    # For other processes; workers miss their scheduler sooner than after the usual minute.
    monkeypatch.setenv("DASK_JOBQUEUE__SLURM__SHARED_TEMP_DIRECTORY", str(folder))
    monkeypatch.setenv("DASK_JOBQUEUE__SLURM__DEATH_TIMEOUT", "30")
    with dask.config.set({"jobqueue.slurm.shared-temp-directory": str(folder)}):
        yield folder
    assert list(folder.iterdir()) == []


def jobs(cluster: SlurmCluster) -> list[str]:
    """States of the sweeps' jobs."""
    lines = cluster.run("squeue", "--noheader", "--format=%200j %T").stdout.splitlines()
    return [line.split()[1] for line in lines if line.startswith("clearway-sweep-")]


def no_jobs(cluster: SlurmCluster) -> None:
    """Those that were cancelled take a moment to end."""
    cluster.wait_for(lambda: jobs(cluster) == [], 60, "the end of the jobs")


def remembered(cluster: SlurmCluster) -> list[dict[str, str]]:
    """What Slurm remembers of the sweeps' jobs, those of earlier tests included.

    An earlier test's job whose name breaks the line may be remembered as well, without its name.
    """
    return [job for job in cluster.records("job") if job.get("JobName", "").startswith("clearway-sweep-")]


@pytest.mark.usefixtures("shared")
def test_a_sweep_in_slurm_jobs_gives_the_same_bytes(cluster: SlurmCluster, tmp_path: Path) -> None:
    asked = ["lab", "experiment", "compaction", "--seeds", "1"]
    here = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "here")])
    assert here.exit_code == 0, here.stderr
    options = ["--cluster", "slurm", "--jobs", "2", "--processes", "2", "--memory", "1GiB", "--partition", "urgent"]
    there = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "there"), *options])
    assert there.exit_code == 0, there.stderr
    no_jobs(cluster)
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert names == ["compaction.csv", "report.html"]
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    # Whether they were cancelled or had noticed that they are not needed any more is a matter of moments.
    assert [(job["Partition"], job["NumCPUs"]) for job in remembered(cluster)] == [("urgent", "2")] * 2


@pytest.mark.usefixtures("shared")
def test_a_trace_replayed_in_slurm_jobs_gives_the_same_bytes(cluster: SlurmCluster, tmp_path: Path) -> None:
    """A job for each scheduler; the workers read the trace from the shared file system."""
    trace = tmp_path / "trace.swf"
    lines = [
        f"{n} {60 * n} -1 {600 + n % 7 * 300} {1 + n % 5} -1 -1 {1 + n % 5} 3600 -1 1 1 1 1 1 1 -1 -1"
        for n in range(1, 81)
    ]
    trace.write_text("; MaxNodes: 8\n" + "\n".join(lines) + "\n")
    asked = ["lab", "simulate", str(trace), "--nodes", "8", "--scheduler", "fcfs,easy", "--output", "json"]
    before = {job["JobId"] for job in remembered(cluster)}
    here = CliRunner().invoke(app, [*asked, "--processes", "1"])
    there = CliRunner().invoke(app, [*asked, "--cluster", "slurm", "--memory", "1GiB", "--partition", "urgent"])
    assert (here.exit_code, there.exit_code) == (0, 0), here.stderr + there.stderr
    assert there.stdout_bytes == here.stdout_bytes
    fcfs, easy = json.loads(there.stdout)["schedulers"]
    assert (fcfs["scheduler"], easy["scheduler"]) == ("fcfs", "easy")
    assert fcfs["jobs"] != easy["jobs"]
    no_jobs(cluster)
    assert [job["Partition"] for job in remembered(cluster) if job["JobId"] not in before] == ["urgent"] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_sweep_leaves_no_job(cluster: SlurmCluster, shared: Path, number: signal.Signals) -> None:
    # Tests that were themselves started in the background ignore Ctrl-C, and so would what they start.
    command = ["env", "--default-signal", sys.executable, "-c", LONG]
    process = subprocess.Popen(command, cwd=REPO, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        cluster.wait_for(lambda: jobs(cluster) == ["RUNNING"] * 2, 60, "two running jobs")
        logs = cluster.wait_for(lambda: len(found := list(shared.glob("*/*.err"))) == 2 and found, 60, "their output")
        cluster.wait_for(lambda: all("Registered" in log.read_text() for log in logs), 60, "two workers")
        process.send_signal(number)
        assert process.wait(240) == -number
        if number == signal.SIGKILL:  # nobody could cancel them: they miss their scheduler
            no_jobs(cluster)
            subprocess.run(["rm", "-r", *map(str, shared.iterdir())], check=True)
        no_jobs(cluster)
    finally:
        process.kill()
        process.wait()


def broken(line: int) -> None:
    raise TraceError(f"line {line} is broken")


def ends_its_worker() -> None:
    os.kill(os.getppid(), signal.SIGKILL)  # the nanny, so that the job ends


@pytest.mark.usefixtures("shared")
def test_errors_are_one_line_and_leave_no_job(cluster: SlurmCluster) -> None:
    with pytest.raises(TraceError, match=r"^line 3 is broken$"), open_sweep(TWO_JOBS) as sweep:
        sweep(broken, [(3,)] * 3, str)
    no_jobs(cluster)
    nowhere = SweepOptions(cluster=Cluster.SLURM, jobs=1, memory="1GiB", partition="nowhere")
    with pytest.raises(SimulationError, match=r"^sbatch: .*nowhere"), open_sweep(nowhere) as sweep:
        sweep(abs, [(3,)], str)
    no_jobs(cluster)


@pytest.mark.usefixtures("shared")
def test_jobs_that_end_before_their_work_end_the_sweep(cluster: SlurmCluster) -> None:
    before = time.monotonic()
    one_job = SweepOptions(cluster=Cluster.SLURM, jobs=1, memory="1GiB")
    ended = "all Slurm jobs have ended, but not their work"
    with pytest.raises(SimulationError, match=ended), open_sweep(one_job) as sweep:
        sweep(ends_its_worker, [()], str)
    assert time.monotonic() - before < 200  # workers that are never replaced: it would not end at all
    no_jobs(cluster)
