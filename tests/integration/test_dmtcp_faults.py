"""Faults of the real DMTCP under the launcher: the job goes on, from its last whole generation or from its start."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clearway.model.claims import Claims, Restart, SaveState
from tests.integration.bench import Bench, poll
from tests.real_dmtcp import dmtcp_folder, steps_in

PYTHON = str(Path(sys.executable).resolve())
STEPS = 150
# A child process and an open log. With a file `grow` its child's child fills 120 MiB: shared memory that no process
# shows as its own, so that it is in the image, but not in what the driver expects. With a file `gone` it writes each
# step into a file that has no name any more, which DMTCP has to keep.
PROGRAM = """\
import mmap, os, subprocess, sys, time
folder, steps = sys.argv[1], int(sys.argv[2])
data = open(folder + "/input") if os.path.exists(folder + "/input") else None
gone = None
if os.path.exists(folder + "/gone"):
    gone = open(folder + "/gone", "w+")
    os.unlink(folder + "/gone")
with open(folder + "/log", "a", buffering=1) as log:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    shared = None
    for step in range(steps):
        child.stdin.write(f"{step}\\n")
        log.write(child.stdout.readline())
        if gone is not None:
            gone.write(f"{step}\\n")
            gone.flush()
        if shared is None and os.path.exists(folder + "/grow"):
            shared = mmap.mmap(-1, 120 << 20)
            if os.fork() == 0:
                shared.write(b"x" * (120 << 20))
                os._exit(0)
            os.wait()
            os.rename(folder + "/grow", folder + "/grown")
        if os.path.exists(folder + "/stop"):
            break
        time.sleep(0.05)
        sum(range(200_000))  # a restart counts once it computes
if gone is not None:
    gone.seek(0)
    assert [int(line) for line in gone] == list(range(steps))
sys.exit(7)
"""


class Job:
    """A job whose program runs under the launcher with DMTCP; ``again`` is its next run."""

    def __init__(self, bench: Bench, generations: Path, *options: str) -> None:
        self.bench, self.folder, self.generations = bench, bench.folder, generations
        (self.folder / "program.py").write_text(PROGRAM)
        (self.folder / "input").write_text("data")
        self.log = self.folder / "log"
        self.run(*options)

    def run(self, *options: str) -> None:
        (self.folder / "pid").unlink(missing_ok=True)
        (self.folder / "comment").write_text("\n")
        self.step = self.bench.start(
            "--checkpointer", "dmtcp", "--hold", "0", "--grace", "60", "--dir", str(self.generations), *options,
            program=f"exec {PYTHON} {self.folder}/program.py {self.folder} {STEPS}",
        )  # fmt: skip
        self.pid = self.bench.launcher_pid()
        poll(lambda: "clearway:" in self.bench.comment)

    @property
    def claims(self) -> Claims:
        return self.bench.claims()

    def steps(self) -> list[int]:
        return steps_in(self.log)

    def reaches(self, step: int) -> None:
        poll(lambda: self.steps()[-1:] >= [step], 30)

    def goes_on(self) -> None:
        self.reaches(self.steps()[-1] + 3)

    def save(self) -> None:
        before = self.claims.generation
        os.kill(self.pid, signal.SIGUSR1)
        poll(lambda: self.claims.state is SaveState.SAVED and self.claims.generation != before, 60)
        time.sleep(1.1)  # a request is told from the one before by its second
        self.goes_on()

    def kill(self) -> None:
        """As a node that fails: nobody tidies up."""
        for pid in processes(self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ValueError):  # what it said has been read
            print(self.bench.comment, self.step.communicate(timeout=80)[1])

    def ends_well(self) -> str:
        """With the program's own exit status, and every step there once; what the launcher said."""
        _, said = self.step.communicate(timeout=240)
        assert self.step.returncode == 7, said
        assert self.steps() == list(range(STEPS)), said
        return said


def processes(folder: Path, name: str = "") -> list[int]:
    """Everything that works for this job, or what is called so."""
    mark, found = f"FOLDER={folder}".encode(), []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if mark in (path / "environ").read_bytes().split(b"\0") and (path / "comm").read_text().startswith(name):
                found.append(int(path.name))
    return found


@pytest.fixture
def start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Job]]:
    dmtcp_folder()
    if bench.shell != "dash":
        pytest.skip("the launcher's shells are compared with stand-ins; here it is DMTCP that is tried")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    monkeypatch.setenv("CLEARWAY_DMTCP_RESTART_S", "60")
    jobs: list[Job] = []

    def make(generations: Path = bench.folder / "generations", *options: str) -> Job:
        jobs.append(Job(bench, generations, *options))
        jobs[0].reaches(5)
        return jobs[0]

    yield make
    for job in jobs:
        job.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.parametrize("saved", [True, False])
def test_disk_that_is_full_in_the_middle_of_a_checkpoint(
    start: Callable[..., Job], tmp_path: Path, saved: bool
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=150m", "tmpfs", disk], check=True)
    try:
        job = start(disk / "generations")
        if saved:
            job.save()
        (job.folder / "grow").touch()
        poll((job.folder / "grown").exists)
        job.goes_on()
        os.kill(job.pid, signal.SIGUSR1)
        poll(lambda: job.claims.restart is (Restart.OK if saved else Restart.SCRATCH), 60)
        assert job.claims.state is SaveState.FAILED
        if not saved:
            job.log.unlink()  # it begins with the first step again
        said = job.ends_well()
        assert "dmtcp ended the program: status 99 while DMTCP was saving it" in said
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def program_of(job: Job) -> int:
    """Its process that writes; a restored one has no environment that could be read."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if any(each.readlink() == job.log for each in (path / "fd").iterdir()):
                return int(path.name)
    raise AssertionError("nobody has its log open")


def test_program_killed_while_its_image_is_written(start: Callable[..., Job]) -> None:
    job = start()
    job.save()
    program = program_of(job)

    def kill_in_time() -> None:
        while not list(job.generations.rglob("*.temp")):
            pass
        os.kill(program, signal.SIGKILL)

    killer = threading.Thread(target=kill_in_time)
    killer.start()
    os.kill(job.pid, signal.SIGUSR1)
    killer.join(120)
    poll(lambda: job.claims.restart is Restart.OK, 60)
    assert job.claims.state is SaveState.FAILED
    assert "restarting from" in job.ends_well()


def test_coordinator_killed(start: Callable[..., Job]) -> None:
    """DMTCP takes the program down with it."""
    job = start()
    job.save()
    (coordinator,) = processes(job.folder, "dmtcp_coor")
    os.kill(coordinator, signal.SIGKILL)
    poll(lambda: job.claims.restart is Restart.OK, 60)
    job.save()
    assert job.claims.generation == 2
    said = job.ends_well()
    assert "its coordinator ended with exit status 137" in said
    assert "Did DMTCP coordinator die uncleanly?" in said  # its own word, in one line: no backtrace, no colour
    assert "Backtrace" not in said
    assert "\033" not in said


def test_saved_on_one_node_and_restarted_on_another(start: Callable[..., Job], bench: Bench, tmp_path: Path) -> None:
    """With storage of the nodes' own, of which the other node sees nothing."""
    here, there = tmp_path / "here", tmp_path / "there"
    for node in (here, there):
        node.mkdir(mode=0o700)
    (bench.folder / "gone").touch()
    job = start(tmp_path / "generations", "--local", str(here))
    job.save()
    job.kill()
    generation = tmp_path / "generations" / "generation-000001"
    for image in generation.rglob("ckpt_*.dmtcp"):
        subprocess.run(["zstd", "-q", "--rm", str(image), "-o", f"{image}.clearway-zst"], check=True, timeout=60)
    manifest = generation / "manifest"
    manifest.write_text(manifest.read_text().replace("packed=no\n", "packed=yes\n"))
    shutil.rmtree(here)
    job.run("--local", str(there))
    poll(lambda: job.claims.restart is Restart.OK, 60)
    job.save()
    assert job.claims.generation == 2
    job.ends_well()
    assert list(there.iterdir()) == []


def test_newest_image_cut_short(start: Callable[..., Job]) -> None:
    job = start()
    job.save()
    first = job.steps()
    job.save()
    job.kill()
    image = max((job.generations / "generation-000002").rglob("ckpt_*.dmtcp"), key=lambda path: path.stat().st_size)
    os.truncate(image, image.stat().st_size // 2)
    job.run()
    poll(lambda: job.claims.restart is Restart.FALLBACK, 60)
    said = job.ends_well()
    assert "generation-000002: its files are not those of its manifest" in said
    assert f"restarting from {job.generations}/generation-000001" in said
    assert first


def test_log_that_is_gone(start: Callable[..., Job]) -> None:
    """DMTCP makes it anew, with zeros in place of what it held; the computation goes on."""
    job = start()
    job.save()
    saved = len(job.log.read_bytes())
    job.kill()
    job.log.unlink()
    job.run()
    _, said = job.step.communicate(timeout=240)
    assert job.step.returncode == 7, said
    assert job.claims.restart is Restart.OK
    zeros, lines = job.log.read_bytes().rpartition(b"\0")[::2]
    assert not zeros.strip(b"\0")
    assert len(zeros) < saved
    steps = [int(line) for line in lines.split()]
    assert steps == list(range(steps[0], STEPS))


def test_input_that_is_gone(start: Callable[..., Job]) -> None:
    """No generation can be restored without it: the job starts anew, and says so."""
    job = start()
    job.save()
    job.kill()
    (job.folder / "input").unlink()
    job.log.unlink()
    job.run()
    poll(lambda: job.claims.restart is Restart.SCRATCH, 60)
    said = job.ends_well()
    assert "cannot restart from" in said
    assert "starting anew" in said


def test_program_that_ends_during_its_checkpoint(start: Callable[..., Job]) -> None:
    """Whichever is first, its own exit status is the job's."""
    job = start()
    os.kill(job.pid, signal.SIGUSR1)
    (job.folder / "stop").touch()
    _, said = job.step.communicate(timeout=240)
    assert job.step.returncode == 7, said
    assert "restarting" not in said
