"""How long it takes to read 1,000 jobs through slurmrestd, beside squeue and scontrol in the same run.

In a tree with slurmrestd: ``tests/slurm/chroot/run forky python -m pytest -s tests/benchmarks/bench_slurmrestd.py``.
Both backends take turns. What is held is a ratio: a look at a cluster where nothing has changed costs little more than
the commands, and far less than a look at one where something has.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from clearway.slurm.cli import CliBackend
from clearway.slurm.rest import RestBackend
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import missing_requirements, slurm_version

JOBS = 1_000
RUNS = 9
QUIET_TO_COMMANDS = 5  # so many times what the commands take, at most
CHANGED_TO_QUIET = 2  # at least: the point of asking first


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_requirements(rest=True):
        pytest.skip(f"cannot run here: {reason}")
    if slurm_version() < (24, 11):
        pytest.skip("slurmrestd is used from Slurm 24.11 on")
    with SlurmCluster(rest=True, extra_conf=["MaxJobCount=5000"]) as cluster:
        script = "#!/bin/sh\n" + "\n".join(
            f"sbatch --parsable --hold -o /dev/null -N1 -t {10 + at} -J job{at} --wrap true" for at in range(JOBS)
        )
        path = cluster.work / "submit.sh"
        path.write_text(script)
        cluster.run("sh", str(path), user="cwalice", timeout=300)
        yield cluster


def took_ms(read: Callable[[], object]) -> float:
    begin = time.perf_counter()
    read()
    return (time.perf_counter() - begin) * 1_000


def test_reading_1000_jobs(cluster: SlurmCluster) -> None:
    settings = {"now": now, "slurm_conf": str(cluster.conf), "timeout_s": 60.0}
    cli = CliBackend(**settings)  # type: ignore[arg-type]
    rest = RestBackend(url=f"unix:{cluster.rest_socket}", **settings)  # type: ignore[arg-type]
    first = took_ms(rest.snapshot)
    assert len(cli.snapshot().jobs) == len(rest.snapshot().jobs) == JOBS
    times: dict[str, list[float]] = {"squeue, scontrol": [], "nothing has changed": [], "something has": []}
    for turn in range(RUNS):
        time.sleep(3.1)  # past the margin, within which all counts as changed
        rest.snapshot()  # the last answer was within the margin of its change
        times["nothing has changed"].append(took_ms(rest.snapshot))
        times["squeue, scontrol"].append(took_ms(cli.snapshot))
        cluster.run("scontrol", "update", "JobId=7", f"Comment={turn}")
        times["something has"].append(took_ms(rest.snapshot))
    table = Table(title=f"{JOBS:,} jobs, {cluster.run('slurmctld', '-V').stdout.strip()}")
    for heading in ("look", "median ms", "most ms"):
        table.add_column(heading)
    table.add_row("slurmrestd, the first", f"{first:,.0f}", "")
    for what, taken in times.items():
        table.add_row(what, f"{statistics.median(taken):,.0f}", f"{max(taken):,.0f}")
    memory = Path(f"/proc/{cluster.rest_pid}/status").read_text().partition("VmRSS:")[2].split()[0]
    Console().print(table, f"slurmrestd: {int(memory) / 1024:,.0f} MiB")
    quiet, changed, commands = (
        statistics.median(times[what]) for what in ("nothing has changed", "something has", "squeue, scontrol")
    )
    assert quiet <= QUIET_TO_COMMANDS * commands
    assert changed >= CHANGED_TO_QUIET * quiet
