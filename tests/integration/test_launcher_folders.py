"""Folders and files that another user could have prepared: the launcher uses none of them, and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clearway.model.claims import CheckpointHow, Restart
from tests.integration.bench import LAUNCHER, SHELLS, Bench, poll
from tests.integration.test_launcher_generations import (  # a fixture for all tests here, too
    COUNTS,
    Run,
    _environment,  # noqa: F401
)

GENERATIONS = LAUNCHER.with_name("clearway-generations")
ME, OTHER = 4_001, 4_002
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make files of two users")
one_shell = pytest.mark.parametrize("bench", SHELLS[:1], indirect=True)


def made(path: Path, mode: int, owner: int = ME) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


def said(shell: str, function: str, path: Path) -> str:
    """What a function of the launcher, run for the user ME, makes of a path."""
    script = f'me={ME}; . {GENERATIONS}; reason=; real=; {function} "$1" && echo "$real" || echo "no: $reason"'
    done = subprocess.run([shell, "-uc", script, "sh", str(path)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


@needs_root
@pytest.mark.parametrize("shell", SHELLS)
def test_a_way_that_only_its_user_and_root_can_change(shell: str, tmp_path: Path) -> None:
    home = made(tmp_path / "home", 0o755)
    tmp = made(tmp_path / "tmp", 0o1777, 0)
    own = made(tmp / "own", 0o700)
    (home / "link").symlink_to("../tmp/own")
    os.chown(home / "link", ME, ME, follow_symlinks=False)
    assert said(shell, "trusted_way", own) == str(own)
    assert said(shell, "trusted_way", home / "link" / "." / "new" / "7") == str(own / "new" / "7")
    assert said(shell, "trusted_way", home / "link" / ".." / "own") == str(own)
    assert said(shell, "trusted_way", tmp / "new") == str(tmp / "new")
    with_blanks = made(home / "a * b", 0o700)
    assert said(shell, "trusted_way", with_blanks) == str(with_blanks)


@needs_root
@pytest.mark.parametrize("shell", SHELLS)
def test_a_way_that_another_user_could_change(shell: str, tmp_path: Path) -> None:
    home = made(tmp_path / "home", 0o755)
    tmp = made(tmp_path / "tmp", 0o1777, 0)
    for writable, mode in (("group", 0o770), ("all", 0o707)):
        folder = made(home / writable, mode)
        made(folder / "own", 0o700)
        assert f"other users can write to {folder}" in said(shell, "trusted_way", folder / "own")
        assert "no: " in said(shell, "trusted_way", folder / "new")
    theirs = made(tmp / "theirs", 0o755, OTHER)
    made(theirs / "own", 0o700)
    assert f"{theirs} belongs to another user" in said(shell, "trusted_way", theirs / "own")
    their_link = tmp / "link"
    their_link.symlink_to(home)
    os.chown(their_link, OTHER, OTHER, follow_symlinks=False)
    assert f"{their_link} belongs to another user" in said(shell, "trusted_way", their_link)
    (home / "round").symlink_to("round")
    os.chown(home / "round", ME, ME, follow_symlinks=False)
    assert "too many links" in said(shell, "trusted_way", home / "round" / "x")
    sticky_of_theirs = made(tmp / "sticky", 0o1777, OTHER)
    assert "belongs to another user" in said(shell, "trusted_way", sticky_of_theirs / "new")


@needs_root
@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_and_files_of_ones_own(shell: str, tmp_path: Path) -> None:
    for mode, good in ((0o700, True), (0o755, True), (0o770, False), (0o702, False), (0o1777, False)):
        folder = made(tmp_path / f"{mode:o}", mode)
        assert (said(shell, "own_folder", folder) == "") == good, oct(mode)
    assert "not a folder that is yours" in said(shell, "own_folder", made(tmp_path / "theirs", 0o755, OTHER))
    (tmp_path / "link").symlink_to("700")
    assert "not a folder that is yours" in said(shell, "own_folder", tmp_path / "link")


def planted(folder: Path, what: str) -> None:
    """One file or folder of what another user may have put there while that was possible."""
    file = folder / "rank-0" / "image"
    if what == "another user's file":
        os.chown(file, OTHER, OTHER)
    elif what == "another user's folder":
        os.chown(folder / "rank-0", OTHER, OTHER)
    elif what == "link":
        file.unlink()
        file.symlink_to("/etc/passwd")
    elif what == "pipe":
        file.unlink()
        os.mkfifo(file)
    elif what == "second name":
        file.chmod(0o666)
        (folder.parent / "name").hardlink_to(file)
    elif what == "link upwards":
        (folder / "up").symlink_to("..")
        os.chown(folder / "up", ME, ME, follow_symlinks=False)
    elif what == "open to all":
        folder.chmod(0o755)
        file.chmod(0o666)


@needs_root
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.fault(
    "In a folder where others may write, a job ran a script or an image that another user had prepared.",
    found_by="attack",
)
def test_files_that_another_user_may_have_made_are_found(shell: str, tmp_path: Path) -> None:
    found = (
        "another user's file",
        "another user's folder",
        "link",
        "pipe",
        "second name",
        "open to all",
        "link upwards",
    )
    for what in ("", "written with an open umask", *found):
        folder = made(tmp_path / (what or "sound"), 0o700)
        made(folder / "rank-0", 0o775 if what == "written with an open umask" else 0o755)
        (folder / "newest").symlink_to("rank-0")  # DMTCP's way to name its newest script
        os.chown(folder / "newest", ME, ME, follow_symlinks=False)
        file = folder / "rank-0" / "image"
        file.write_text("saved")
        file.chmod(0o664 if what == "written with an open umask" else 0o600)
        os.chown(file, ME, ME)
        planted(folder, what)
        script = f'me={ME}; . {GENERATIONS}; foreign "$1"'
        done = subprocess.run([shell, "-uc", script, "sh", str(folder)], capture_output=True, text=True, check=True)
        assert bool(done.stdout) == (what in found), what


def prepared(bench: Bench) -> Path:
    """A complete generation, as a run of this very launcher leaves it; the program had counted to its number."""
    run = Run(bench, generations=bench.folder / "elsewhere saved")
    run.ask()
    run.end()
    (bench.folder / "starts").unlink()
    return run.generations


@one_shell
@pytest.mark.parametrize("as_link", [False, True])
def test_a_first_run_uses_nothing_that_is_there(bench: Bench, as_link: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job ids are known beforehand: what is there before the first run was prepared, or is of another job."""
    monkeypatch.setenv("CLEARWAY_DIR", str(bench.folder / "kept"))
    before = prepared(bench)
    (bench.folder / "kept").mkdir()
    leaf = bench.folder / "kept" / "7"
    if as_link:
        leaf.symlink_to(before)
    else:
        before.rename(leaf)
    names = sorted(path.name for path in leaf.iterdir())
    run = Run(bench, generations=leaf, given=False)
    assert bench.claims().checkpoint is CheckpointHow.NONE
    (run.folder / "stop").touch()
    _, errors = run.step.communicate(timeout=60)
    assert run.step.returncode == 42
    assert errors.count("\n") == 1
    assert f"this job runs without checkpoints: cannot make {leaf}, or something is there before" in errors
    assert run.starts() == [0], "another's image was restarted"
    assert sorted(path.name for path in leaf.iterdir()) == names


@one_shell
def test_a_later_run_takes_the_folder_that_the_first_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARWAY_DIR", str(bench.folder / "kept"))
    leaf = bench.folder / "kept" / "7"
    first = Run(bench, generations=leaf, given=False)
    first.ask()
    first.end()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    later = Run(bench, generations=leaf, given=False)
    poll(lambda: bench.claims().restart is Restart.OK)
    later.end()
    assert leaf.stat().st_mode & 0o777 == 0o700


@one_shell
@pytest.mark.parametrize("open_to", ["the folder", "the folder above it"])
def test_a_folder_that_others_can_write_to_is_not_used(
    bench: Bench, open_to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = bench.folder / "shared"
    above.mkdir()
    first = Run(bench, generations=above / "saved")
    first.ask()
    first.end()
    (above if open_to != "the folder" else above / "saved").chmod(0o777)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    later = Run(bench, generations=above / "saved")
    assert bench.claims().checkpoint is CheckpointHow.NONE
    (later.folder / "stop").touch()
    _, errors = later.step.communicate(timeout=60)
    assert later.step.returncode == 42
    assert errors.count("\n") == 1
    assert "this job runs without checkpoints: " in errors
    assert str(above) in errors
    assert later.starts() == [0, 0]


@needs_root
@one_shell
@pytest.mark.parametrize("what", ["owner", "link"])
def test_a_generation_of_another_user_is_passed_over(bench: Bench, what: str) -> None:
    run = Run(bench)
    run.ask()
    saved = int((run.generations / "generation-000001" / "image").read_text().split()[0])
    run.end()
    newest = run.generations / "generation-000002"
    if what == "owner":
        shutil.copytree(run.generations / "generation-000001", newest)
        os.chown(newest / "image", OTHER, OTHER)
    else:
        theirs = bench.folder / "theirs"
        shutil.copytree(run.generations / "generation-000001", theirs)
        newest.symlink_to(theirs)
    later = Run(bench)
    poll(lambda: bench.claims().restart is Restart.FALLBACK)
    assert "another user may have made or can change" in later.end()
    assert later.starts() == [0, saved]


@one_shell
def test_the_script_is_kept_with_the_checkpoints(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As job_submit.lua calls it: Slurm's copy of a script lies elsewhere in each run."""
    monkeypatch.setenv("CLEARWAY_DIR", str(bench.folder / "kept"))
    spooled = bench.folder / "slurm_script"
    for number, restarts in ((3, ""), (4, "1")):
        spooled.write_text(f'#!/bin/sh\necho "$0 $*" >>"$FOLDER/said"\nexit {number}\n')
        spooled.chmod(0o700)
        if restarts:
            monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
        shutil.copy(Path(__file__).with_name("fake_checkpointer.sh"), bench.folder / "fake.sh")
        monkeypatch.setenv("CLEARWAY_CHECKPOINTERS", str(bench.folder))
        step = bench.start("--checkpointer", "fake", "--script", str(spooled), program="exit 1")
        assert step.wait(timeout=60) == 3, "the script of the first run"
    leaf = bench.folder / "kept" / "7"
    program = bench.folder / "program"
    assert (bench.folder / "said").read_text() == f"{leaf}/script {program}\n" * 2


@one_shell
def test_where_its_folder_cannot_be_used_the_script_runs_where_slurm_put_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "kept").mkdir()
    (bench.folder / "kept").chmod(0o777)
    prepared_script = bench.folder / "kept" / "7" / "script"
    prepared_script.parent.mkdir()
    prepared_script.write_text("#!/bin/sh\nexit 66\n")
    prepared_script.chmod(0o755)
    monkeypatch.setenv("CLEARWAY_DIR", str(bench.folder / "kept"))
    spooled = bench.folder / "slurm_script"
    spooled.write_text("#!/bin/sh\nexit 3\n")
    spooled.chmod(0o700)
    step = bench.start("--checkpointer", "dmtcp", "--script", str(spooled), program="exit 1")
    assert step.wait(timeout=60) == 3


@one_shell
def test_its_own_folder_is_not_made_where_others_can_replace_it(bench: Bench) -> None:
    bench.folder.chmod(0o777)  # the bench's TMPDIR
    step = bench.start("--checkpoint-file", f"{bench.folder}/ck", program="exit 5")
    _, errors = step.communicate(timeout=60)
    assert step.returncode == 5
    assert f"TMPDIR is not used: other users can write to {bench.folder}" in errors


def test_a_chain_in_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    chain = tmp_path / "chain"
    chain.mkdir()
    chain.chmod(0o777)
    env = {**os.environ, "CLEARWAY_CHAIN": str(chain), "SLURM_JOB_ID": "7"}
    command = [str(LAUNCHER), "--checkpoint-file", "x", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 64
    assert "the chain is not used: " in done.stderr
    assert done.stderr.count("\n") == 1


@needs_root
@pytest.mark.parametrize(
    ("name", "says"),
    [("state", "the chain is not used: another user may have made"), ("note", "state is damaged: request is ''")],
)
def test_of_a_chain_what_is_read_must_be_its_owners(tmp_path: Path, name: str, says: str) -> None:
    """A file that an administrator laid beside it ended a chain for good."""
    chain = tmp_path / "chain"
    chain.mkdir(mode=0o700)
    (chain / name).touch()
    os.chown(chain / name, 4002, -1)
    env = {**os.environ, "CLEARWAY_CHAIN": str(chain), "SLURM_JOB_ID": "7"}
    command = [str(LAUNCHER), "--checkpoint-file", "x", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 64
    assert says in done.stderr


@needs_root
@one_shell
def test_a_checkpoint_file_of_another_user_is_no_checkpoint(bench: Bench) -> None:
    """Who can write to the folder could otherwise end the job unsaved, by a file that is newer than the request."""
    program = """
        trap 'touch "$FOLDER/ck"; chown 4002 "$FOLDER/ck"' USR1
        touch "$FOLDER/ready"
        while [ ! -e "$FOLDER/stop" ]; do sleep 0.05; done
    """
    step = bench.start("--checkpoint-file", f"{bench.folder}/ck", program=program)
    pid = bench.launcher_pid()
    poll(lambda: "checkpoint=signal" in bench.comment and (bench.folder / "ready").exists())
    os.kill(pid, 10)
    poll(lambda: "state=failed" in bench.comment)
    (bench.folder / "stop").touch()
    _, errors = step.communicate(timeout=60)
    assert "was written by another user" in errors


def test_a_programs_own_folders_are_let_alone(bench: Bench) -> None:
    """Whatever was called generation-* and had no manifest was deleted as a checkpoint that was not completed."""
    theirs = [
        bench.folder / "my generations" / name for name in ("generation-7", "generation-000009", "generation-best")
    ]
    for each in theirs:
        (each / "deep").mkdir(parents=True)
    left = bench.folder / "my generations" / "generation-000003"
    left.mkdir()
    (left / "manifest.new").touch()
    run = Run(bench, "--after-end", "remove", program=COUNTS.replace("exit 42", "exit 0"))
    assert not left.exists(), "a launcher before this one did not complete it"
    run.ask()
    assert (run.generations / "generation-000010" / "manifest").exists()
    (run.folder / "stop").touch()
    assert run.step.wait(timeout=60) == 0
    poll(lambda: run.kept() == sorted(each.name for each in theirs))
    assert all((each / "deep").is_dir() for each in theirs)
