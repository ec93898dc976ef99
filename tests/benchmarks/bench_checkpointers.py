"""What it costs to be moved, and to be movable: the Slurm+DMTCP paper's Table 1, and the run time beside a plain run.

A program of one, two or four tasks holds 50, 100 or 1,000 MB in each (one that saves itself has one task). It is
saved, its job is requeued and started again as the daemon does (without Slurm's two minutes of delay), and goes on:
the overhead is the time from the request until every task has done a step that it had not done before. What is
written is on the disk before it counts; in the row "from disk" it is taken out of the page cache as well, as if
another node read it. CRIU runs in the forky tree (``tests/run slurm26``), the others on Debian 12 (``tests/run
bench``), DMTCP where ``dmtcp_launch`` is on PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from clearway.cli.launcher import install
from clearway.model.claims import Claims, Restart, SaveState, parse_claims
from clearway.model.cluster import JobState
from clearway.slurm.base import SlurmBackend
from tests.benchmarks.alone import alone_s
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.criu_site import HELPER, criu_site
from tests.slurm.machine import SYSTEM_PATH, missing_requirements
from tests.slurm.test_backend_conformance import make_backend

PAPER_S = {  # Table 1: seconds by tasks and MB of each
    (1, 50): 51, (1, 100): 53, (1, 1000): 89,
    (2, 50): 51, (2, 100): 54, (2, 1000): 97,
    (4, 50): 52, (4, 100): 55, (4, 1000): 115,
}  # fmt: skip
PURGE_JOB_INTERVAL_S = 30  # of these the paper's Slurm waited on average
MOST_TIMES_ALONE = 2.0  # to save and resume one task of 1,000 MB, beside the checkpointer by itself (``alone``)
LOOK_EVERY_S = 0.25  # the daemon's active_interval
ROUNDS = 7
TRIES = 3
MOST_TIMES_PLAIN = {"application": 1.15, "criu": 1.15, "dmtcp": 1.5}

# Each task keeps a step and its memory. On USR1 it writes both, and reads them when it starts again.
HOLDER = """\
import os, random, signal, sys, time
tasks, mb, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
wanted = False
def ask(*_):
    global wanted
    wanted = True
signal.signal(signal.SIGUSR1, ask)
children = []
for rank in range(tasks - 1, -1, -1):
    child = rank and os.fork()
    if not child: break
    children.append(child)
if rank: children = []
block, state = random.Random(rank).randbytes(1_000_000), f"{folder}/state.{rank}"
if os.path.exists(state):
    with open(state, "rb") as saved: step, data = int(saved.readline()), bytearray(saved.read())
else: step, data = 0, bytearray(block * mb)
def save():
    with open(state + ".new", "wb") as out:
        out.write(b"%d\\n" % step)
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.rename(state + ".new", state)
log = open(f"{folder}/log.{rank}", "a")
while not os.path.exists(folder + "/stop"):
    step += 1
    data[step % len(data)] ^= 0
    print(step, time.time(), file=log, flush=True)
    time.sleep(0.02)
    if wanted:
        wanted = False
        save()
view = memoryview(data)  # without copies: DMTCP 4.2.0 ends a restored program that enlarges its heap
whole = all(view[at : at + len(block)] == block for at in range(0, len(data), len(block)))
for each in children: whole = os.waitpid(each, 0)[1] == 0 and whole
sys.exit((0 if rank else 7) if whole else 1)
"""

WORKER = """\
import os, sys, time
def took(act):
    begin = time.process_time()
    act()
    return time.process_time() - begin
def compute():
    value = 7
    for step in range(3_000_000): value = (value * 31 + step) % 1000003
def call():
    for step in range(10_000):
        with open(__file__) as source: source.readline()
print(took(compute), took(call))
"""

# Runs every command once in each round, and writes down what the worker and the whole command took.
ROUNDS_OF = """\
import json, subprocess, sys, time
commands, rounds, results = json.loads(sys.argv[1]), int(sys.argv[2]), {}
for _ in range(rounds):
    for name, command in commands.items():
        begin = time.perf_counter()
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        results.setdefault(name, []).append([*map(float, said), time.perf_counter() - begin])
with open(sys.argv[3] + ".new", "w") as out: json.dump(results, out)
import os; os.rename(sys.argv[3] + ".new", sys.argv[3])
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster, the daemon's hands on it, and a folder on a real disk that every test user may write to."""

    cluster: SlurmCluster
    backend: SlurmBackend
    disk: Path
    checkpointers: tuple[str, ...]
    environment: str

    def launcher(self, name: str, folder: Path) -> str:
        how = f"--checkpoint-file {folder}/state.0" if name == "application" else f"--dir {folder}/generations"
        return f"{self.cluster.work}/bin/clearway-run --checkpointer {name} {how} --"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    names, variables = ["application"], [f"CLEARWAY_CRIU_HELPER={HELPER}"]
    with ExitStack() as stack:
        cluster = stack.enter_context(SlurmCluster(nodes=2, memory_mib=8000))
        disk = Path(tempfile.mkdtemp(prefix="clearway-bench-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, disk, ignore_errors=True)
        disk.chmod(0o1777)
        if os.environ.get("CLEARWAY_TIER") == "slurm26":
            stack.enter_context(criu_site(cluster, disk / "images"))
            names = ["criu"]
        dmtcp = shutil.which("dmtcp_launch")
        if dmtcp is not None:
            names.append("dmtcp")
            variables.append(f"PATH={Path(dmtcp).parent}:{SYSTEM_PATH}")
        for path in install(cluster.work / "bin"):
            path.parent.chmod(0o755)
        (cluster.work / "holder.py").write_text(HOLDER)
        (cluster.work / "worker.py").write_text(WORKER)
        (cluster.work / "rounds.py").write_text(ROUNDS_OF)
        backend = make_backend(cluster)
        stack.callback(backend.close)
        yield Site(cluster, backend, disk, tuple(names), f"export {' '.join(variables)}")


@dataclass(frozen=True, slots=True)
class Moved:
    """Seconds from the request until the checkpoint was told, from there until the job's script began again, and from
    there until every task did new work.
    """

    saved_s: float
    away_s: float  # Slurm's, and the daemon's looks
    resumed_s: float
    size_mib: int

    @property
    def overhead_s(self) -> float:
        return self.saved_s + self.away_s + self.resumed_s


def steps(log: Path) -> list[tuple[int, float]]:
    """(step, time) of each whole line."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [(int(line.split()[0]), float(line.split()[1])) for line in lines if line.endswith("\n")]


def forget(folder: Path) -> None:
    """Take these files out of the page cache: their data is on the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def move(site: Site, name: str, tasks: int, mb: int, *, from_disk: bool = False) -> Moved:
    """Save, requeue and restart one job; it must end by itself with its own exit status and its memory unchanged."""
    cluster, backend = site.cluster, site.backend
    folder = Path(tempfile.mkdtemp(dir=site.disk))
    folder.chmod(0o1777)
    script = (
        f"#!/bin/sh\ndate +%s.%N >>{folder}/began\n{site.environment}\n"
        f"exec {site.launcher(name, folder)} /usr/bin/python3 {cluster.work}/holder.py {tasks} {mb} {folder}\n"
    )
    options = ("--requeue", "--open-mode=append", f"--output={folder}/out", "--exclusive", "--mem=0", "--time=30")
    job_id = cluster.sbatch(script, *options, user="cwalice")
    logs = [folder / f"log.{rank}" for rank in range(tasks)]

    def claims() -> Claims | None:
        job = backend.job(job_id)
        return parse_claims(job.comment) if job else None

    def wait_for(done: Callable[[], object], what: str) -> None:
        end = time.monotonic() + 300
        while not done():
            assert time.monotonic() < end, f"{name}: not {what}: {(folder / 'out').read_text()}"
            time.sleep(LOOK_EVERY_S)

    wait_for(lambda: all(len(steps(log)) > 10 for log in logs) and claims() is not None, "computing")
    job = backend.job(job_id)
    assert job is not None
    asked = time.time()
    backend.signal(job, "USR1", batch_only=True)
    wait_for(lambda: (said := claims()) is not None and said.state in {SaveState.SAVED, SaveState.FAILED}, "saved")
    said = claims()
    assert said is not None
    assert said.state is SaveState.SAVED, (folder / "out").read_text()
    saved_s = time.time() - asked
    if from_disk:
        forget(site.disk)
    backend.requeue(job)
    wait_for(lambda: (seen := backend.job(job_id)) is not None and seen.state is JobState.PENDING, "pending")
    reached = [max(step for step, _ in steps(log)) for log in logs]
    backend.start_now(job_id)

    def new(log: Path, before: int) -> float | None:
        return next((at for step, at in steps(log) if step > before), None)

    wait_for(lambda: all(new(log, before) for log, before in zip(logs, reached, strict=True)), "computing again")
    again = max(new(log, before) or 0.0 for log, before in zip(logs, reached, strict=True))
    _, began = map(float, (folder / "began").read_text().split())
    if name != "application":
        wait_for(lambda: (said := claims()) is not None and said.restart is Restart.OK, "said to be restarted")
    (folder / "stop").touch()
    cluster.wait_state(job_id, "FAILED", timeout=180)
    assert cluster.job(job_id)["ExitCode"] == "7:0", (folder / "out").read_text()
    shutil.rmtree(folder)
    return Moved(saved_s, began - asked - saved_s, again - began, said.size_mib or 0)


def largest(site: Site, name: str) -> tuple[Moved, float]:
    """A move of 1,000 MB, and beside it the seconds of ``alone_s``."""
    folder = Path(tempfile.mkdtemp(dir=site.disk))
    try:
        return move(site, name, 1, 1000), alone_s(name, site.cluster.work / "holder.py", folder, steps)
    finally:
        shutil.rmtree(folder)


def quick(moved: Moved, alone: float) -> bool:
    """Slurm's own part is Slurm's."""
    return moved.saved_s + moved.resumed_s < MOST_TIMES_ALONE * alone


@pytest.mark.parametrize("name", ["application", "criu", "dmtcp"])
@pytest.mark.timeout(1_800)
def test_a_job_is_moved_in_seconds(site: Site, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name not in site.checkpointers:
        where = {
            "criu": "in the tier slurm26",
            "application": "in the tier bench",
            "dmtcp": "with dmtcp_launch on PATH",
        }
        pytest.skip(f"{name} is measured {where[name]}")
    table = Table(title=f"{name}: seconds from the request until it computes again", title_justify="left")
    for heading in (
        "tasks",
        "MB each",
        "on disk, MiB",
        "saved",
        "away",
        "resumed",
        "overhead",
        "paper",
        "without its wait",
    ):
        table.add_column(heading, justify="right")
    tries = [largest(site, name)]
    while not quick(*tries[-1]) and len(tries) < TRIES:  # on a machine that others share whole runs are slow
        tries.append(largest(site, name))
    for (tasks, mb), paper_s in PAPER_S.items():
        if name == "application" and tasks > 1:
            continue  # how tasks agree on a checkpoint is the program's own affair
        if (tasks, mb) == (1, 1000):
            rows = {"1,000": tries[-1][0], "1,000 from disk": move(site, name, tasks, mb, from_disk=True)}
        else:
            rows = {f"{mb:,}": move(site, name, tasks, mb)}
        for what, moved in rows.items():
            parts = (moved.saved_s, moved.away_s, moved.resumed_s, moved.overhead_s)
            theirs = (f"{paper_s}", f"{paper_s - PURGE_JOB_INTERVAL_S}")
            table.add_row(f"{tasks}", what, f"{moved.size_mib:,}", *(f"{each:.1f}" for each in parts), *theirs)
            assert moved.size_mib >= tasks * mb * 1_000_000 // (1 << 20)
            assert moved.overhead_s < paper_s
    table.caption = f"1,000 MB took the checkpointer alone {tries[-1][1]:.1f} s"
    with capsys.disabled():
        print()
        Console(width=110).print(table)
    assert any(quick(*each) for each in tries), tries


def test_to_be_movable_costs_little(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """The program's own processor time over that of the plain program, which takes turns with it."""
    for _ in range(TRIES):  # on a machine that others share whole runs are slow
        results = rounds(site)
        table = Table(title=f"Processor time beside the plain program, {ROUNDS} rounds", title_justify="left")
        for heading in ("", "computes", "opens and reads files", "seconds more to start and end"):
            table.add_column(heading, justify="right")
        longer = {each: statistics.median(row[2] - row[0] - row[1] for row in rows) for each, rows in results.items()}
        ratios = {each: [times_plain(results, each, at) for at in (0, 1)] for each in results}
        for each, (computes, calls) in ratios.items():
            table.add_row(each, f"{computes:.2f}", f"{calls:.2f}", f"{longer[each] - longer['plain']:.1f}")
        with capsys.disabled():
            print()
            Console(width=110).print(table)
        if all(ratios[each][0] < MOST_TIMES_PLAIN[each] for each in site.checkpointers):
            return
    pytest.fail(f"{TRIES} runs, each with a program that takes too long; the last: {ratios}")


def rounds(site: Site) -> dict[str, list[list[float]]]:
    """By command, for each round: seconds of processor time to compute and to read files, and of all that it took."""
    cluster, folder = site.cluster, Path(tempfile.mkdtemp(dir=site.disk))
    folder.chmod(0o1777)
    plain = f"/usr/bin/python3 {cluster.work}/worker.py"
    commands = {"plain": plain} | {each: f"{site.launcher(each, folder / each)} {plain}" for each in site.checkpointers}
    words = json.dumps({each: command.split() for each, command in commands.items()})
    script = (
        f"#!/bin/sh\n{site.environment}\n"
        f"exec /usr/bin/python3 {cluster.work}/rounds.py '{words}' {ROUNDS} {folder}/results\n"
    )
    options = (f"--output={folder}/out", "--exclusive", "--mem=0", "--time=30")
    job_id = cluster.sbatch(script, *options, user="cwalice")
    cluster.wait_state(job_id, "COMPLETED", "FAILED", timeout=480)
    assert cluster.state(job_id) == "COMPLETED", (folder / "out").read_text()
    found: dict[str, list[list[float]]] = json.loads((folder / "results").read_text())
    return found


def times_plain(results: dict[str, list[list[float]]], name: str, at: int) -> float:
    """The least of all rounds over the plain program's least, or the median over rounds, whichever says less.

    A machine that is busy now and then does not change the one, a machine that becomes slower hardly the other.
    """
    ours, plain = ([row[at] for row in results[each]] for each in (name, "plain"))
    each_round = [mine / its for mine, its in zip(ours, plain, strict=True)]
    return min(min(ours) / min(plain), statistics.median(each_round))
