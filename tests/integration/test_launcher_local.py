"""Checkpoints that are written to the node's own storage first: clearway-run --local and clearway-copy."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from clearway.model.claims import Restart, SaveState
from tests.integration.bench import LAUNCHER, Bench, poll
from tests.integration.test_launcher_generations import (  # a fixture for all tests here, too
    FAKE,
    Run,
    _environment,  # noqa: F401
)

COPY = LAUNCHER.with_name("clearway-copy")
MIB = 1 << 20
LARGE = 66 * MIB  # from 64 MiB on it measures whether to compress
SLOW = 240 * MIB  # at 1 MiB/s longer than any of these tests


@pytest.fixture
def local(bench: Bench) -> Path:
    folder = bench.folder / "the node's own"
    folder.mkdir(mode=0o700)
    return folder


def copy(verb: str, origin: Path, target: Path, state: Path, *more: str) -> dict[str, str]:
    state.mkdir(exist_ok=True)
    target.mkdir()
    env = {**os.environ, "CLEARWAY_STATE": str(state)}
    command = ["sh", str(COPY), verb, str(origin), str(target), *more]
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    return dict(line.split("=", 1) for line in said.stdout.splitlines())


def seen(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Of every file and link: its mode and what it holds, or leads to."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.read_bytes(),
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize(("kind", "packed"), [("zeros", "yes"), ("random", "no"), ("its own", "no"), ("small", "no")])
def test_what_is_packed_and_unpacked_is_as_it_was(tmp_path: Path, kind: str, packed: str) -> None:
    origin = tmp_path / "from here"
    (origin / "a folder").mkdir(parents=True)
    large = random.Random(7).randbytes(LARGE) if kind == "random" else bytes(MIB if kind == "small" else LARGE)
    (origin / "a folder" / "large one").write_bytes(large)
    (origin / "a folder" / "large one").chmod(0o640)
    (origin / "script.sh").write_text("#!/bin/sh\n")
    (origin / "script.sh").chmod(0o700)
    (origin / "empty").touch()
    (origin / "a folder" / "manifest").write_text("the program's own\n")
    (origin / "newest").symlink_to("script.sh")
    if kind == "its own":
        (origin / "a folder" / "old.clearway-zst").write_bytes(b"of the program")
    (origin / "manifest").write_text("the launcher's: it comes last\n")
    # The slower the storage, the better to compress. A real one is as quick as it is: a rate is sure on every machine.
    said = copy("pack", origin, tmp_path / "there", tmp_path / "state", "1" if kind == "zeros" else "0")
    assert said == {"ok": "yes", "packed": packed}
    assert not (tmp_path / "there" / "manifest").exists()
    (origin / "manifest").unlink()
    if packed == "no":
        assert seen(tmp_path / "there") == seen(origin)
        return
    there = tmp_path / "there" / "a folder" / "large one.clearway-zst"
    assert there.stat().st_size < LARGE / 100
    assert copy("unpack", tmp_path / "there", tmp_path / "back", tmp_path / "state") == {"ok": "yes"}
    assert seen(tmp_path / "back") == seen(origin)


def test_it_is_measured_once_a_file_is_large_enough(tmp_path: Path) -> None:
    """Programs begin small; and what a program itself calls so is never taken for a packed file."""
    origin = tmp_path / "origin"
    origin.mkdir()
    packed = []
    for number, size in enumerate((2 * MIB, LARGE, 2 * MIB)):
        (origin / "memory").write_bytes(bytes(size))
        packed.append(copy("pack", origin, tmp_path / f"target-{number}", tmp_path / "state", "1")["packed"])
    assert packed == ["no", "yes", "yes"]
    (origin / "own.clearway-zst").touch()
    assert copy("pack", origin, tmp_path / "target", tmp_path / "state", "1")["packed"] == "no"


def test_a_copy_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    (origin / "large").write_bytes(bytes(3 * MIB))
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    for rate in ("0", "2"):
        disk = tmp_path / f"disk-{rate}"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True, timeout=60)
        try:
            target = disk / "target"
            said = copy("pack", origin, target, tmp_path / "state", rate)
            assert said == {"ok": "no", "reason": f"it could not be copied to {target}"}
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=60)


def test_no_more_than_so_many_mib_each_second(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    (origin / "large").write_bytes(random.Random(3).randbytes(3 * MIB))
    began = time.monotonic()
    assert copy("pack", origin, tmp_path / "target", tmp_path / "state", "1")["ok"] == "yes"
    assert time.monotonic() - began >= 3


def test_it_is_saved_here_first_and_restarted_from_the_copy(bench: Bench, local: Path) -> None:
    (bench.folder / "memory").write_bytes(bytes(LARGE))
    first = Run(bench, "--local", str(local))
    first.ask()
    generation = first.generations / "generation-000001"
    assert (generation / "manifest").exists()
    names = {path.name.removesuffix(".clearway-zst") for path in generation.iterdir()}
    assert names == {"image", "memory", "manifest", "manifest.files", "manifest.used"}
    assert not list(local.rglob("image")), "this node's part is not needed any more"
    saved = int((generation / "image").read_text().split()[0])
    first.end()
    assert list(local.iterdir()) == []
    assert not os.path.lexists(first.generations / "clearway-local")
    later = Run(bench, "--local", str(local))
    poll(lambda: bench.claims().restart is Restart.OK)
    later.ask()
    assert later.kept() == ["generation-000001", "generation-000002"]
    later.end()
    assert later.starts() == [0, saved]
    assert list(local.iterdir()) == []


def packed_by_hand(run: Run) -> Path:
    """The newest generation as where the storage is slow; returns its compressed file."""
    generation = run.generations / run.kept()[-1]
    memory = generation / "memory"
    if memory.exists():
        subprocess.run(["zstd", "-q", "--rm", str(memory), "-o", f"{memory}.clearway-zst"], check=True, timeout=60)
        manifest = generation / "manifest"
        manifest.write_text(manifest.read_text().replace("packed=no\n", "packed=yes\n"))
    return memory.with_name("memory.clearway-zst")


@pytest.mark.parametrize("option", [True, False])
def test_what_is_compressed_is_expanded_also_where_there_is_no_such_storage(
    bench: Bench, local: Path, option: bool
) -> None:
    (bench.folder / "memory").write_bytes(b"much the same " * 100_000)
    first = Run(bench, "--local", str(local))
    first.ask()
    packed_by_hand(first)
    saved = int((first.generations / "generation-000001" / "image").read_text().split()[0])
    first.end()
    later = Run(bench, *(("--local", str(local)) if option else ()))
    poll(lambda: bench.claims().restart is Restart.OK)
    poll(lambda: not list(bench.folder.rglob("clearway-expanded")))
    assert later.end().count("restarting from") == 1
    assert later.starts() == [0, saved]


def test_a_damaged_copy_is_passed_over(bench: Bench, local: Path) -> None:
    (bench.folder / "memory").write_bytes(b"much the same " * 100_000)
    run = Run(bench, "--local", str(local))
    run.ask()
    run.goes_on()
    run.ask()
    packed = packed_by_hand(run)
    os.truncate(packed, packed.stat().st_size // 2)
    saved = int((run.generations / "generation-000001" / "image").read_text().split()[0])
    run.end()
    later = Run(bench, "--local", str(local))
    poll(lambda: bench.claims().restart is Restart.FALLBACK)
    assert f"cannot restart from {run.generations}/generation-000002: it could not be expanded" in later.end()
    assert later.starts() == [0, saved]
    assert list(local.iterdir()) == []


@pytest.fixture
def copying(bench: Bench, local: Path) -> Run:
    """A program that computes while its checkpoint is copied, which takes four minutes."""
    (bench.folder / "memory").write_bytes(random.Random(5).randbytes(SLOW))
    run = Run(bench, "--local", str(local), "--bwlimit", "1", "--interval", "1")
    copied = run.generations / "generation-000001" / "memory"
    poll(lambda: copied.exists() and copied.stat().st_size >= MIB, limit_s=60)  # all of it is on the disk before
    assert bench.claims().generation is None
    run.goes_on()
    return run


def test_a_program_that_ends_does_not_wait_for_a_slow_copy(copying: Run, local: Path) -> None:
    assert "no checkpoint: the program has ended" in copying.end()
    assert copying.kept() == []
    assert list(local.iterdir()) == []


def test_a_request_does_not_wait_for_a_slow_copy(bench: Bench, copying: Run) -> None:
    run, copied = copying, copying.generations / "generation-000001" / "memory"
    before = time.time()
    os.kill(run.pid, signal.SIGUSR1)
    poll(lambda: bench.claims().state is SaveState.SAVED, limit_s=60)
    claims = bench.claims()
    assert claims.asked is not None
    assert claims.asked.timestamp() >= int(before)
    assert (run.generations / "generation-000001" / "manifest").exists()
    assert copied.stat().st_size == SLOW
    assert "no checkpoint: another one is requested, and comes first" in run.end()


@pytest.mark.parametrize("why", ["others", "none"])
def test_storage_that_is_not_used(bench: Bench, local: Path, why: str) -> None:
    given, said = str(local), f"other users can write to {local}"
    if why == "others":
        local.chmod(0o777)
    else:
        given, said = f"{local}/nothing", f"{local}/nothing is not a folder that can be written to"
    run = Run(bench, "--local", given)
    run.ask()
    assert run.kept() == ["generation-000001"]
    assert f"--local is not used: {said}" in run.end()
    assert list(local.iterdir()) == []
    later = Run(bench)
    poll(lambda: bench.claims().restart is Restart.OK)
    later.end()


def test_tasks_on_several_nodes_have_no_storage_in_common(tmp_path: Path, local: Path) -> None:
    drivers = tmp_path / "drivers"
    drivers.mkdir()
    shutil.copy(FAKE, drivers / "fake.sh")
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nexit 3\n")
    srun.chmod(0o755)
    env = {**os.environ, "CLEARWAY_CHECKPOINTERS": str(drivers), "FOLDER": str(tmp_path), "SLURM_JOB_NUM_NODES": "2"}
    options = ("--checkpointer", "fake", "--dir", str(tmp_path / "kept"), "--local", str(local))
    command = ["sh", str(LAUNCHER), *options, "--", str(srun), "-n2", "--", "true"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert "clearway-run: --local is not used: the job has 2 nodes\n" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--bwlimit", "5"), "--bwlimit needs --local"),
        (("--local", ".", "--bwlimit", "0"), "--bwlimit must be MiB/s, a whole number from 1 on, not 0"),
        (("--local", ".", "--checkpointer", "criu"), "--local is for dmtcp, not for criu"),
        (("--local", ".", "--checkpoint-file", "state"), "--local is for dmtcp, not for application"),
    ],
)
def test_options_that_do_not_fit(options: tuple[str, ...], said: str) -> None:
    checkpointer = () if "--checkpointer" in options or "--checkpoint-file" in options else ("--checkpointer", "dmtcp")
    command = ["sh", str(LAUNCHER), *checkpointer, *options, "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (64, f"clearway-run: {said}\n")
