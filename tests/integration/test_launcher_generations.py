"""The launcher's own part in checkpoints from outside: generations, restarts, faults. The driver is a stand-in."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from clearway.model.claims import CheckpointHow, Restart, SaveState
from tests.integration.bench import Bench, poll

FAKE = Path(__file__).with_name("fake_checkpointer.sh")
PLUGINS = Path(__file__).parents[2] / "plugins"

COUNTS = """
    n=$(cat "$FOLDER/count" 2>/dev/null || echo 0)
    echo "$n" >> "$FOLDER/starts"
    while [ ! -e "$FOLDER/stop" ]; do
        n=$((n + 1)); echo $n > "$FOLDER/count.new"; mv "$FOLDER/count.new" "$FOLDER/count"; sleep 0.05
    done
    exit 42
"""


class Run:
    """One run of a job under the launcher with the stand-in; several share a folder of generations."""

    def __init__(
        self, bench: Bench, *options: str, program: str = COUNTS, generations: Path | None = None, given: bool = True
    ) -> None:
        self.bench = bench
        self.folder = bench.folder
        self.generations = generations or bench.folder / "my generations"
        (self.folder / "stop").unlink(missing_ok=True)
        (self.folder / "pid").unlink(missing_ok=True)
        (self.folder / "count").unlink(missing_ok=True)
        (self.folder / "comment").write_text("my own words\n")
        drivers = self.folder / "drivers"
        drivers.mkdir(exist_ok=True)
        shutil.copy(FAKE, drivers / "fake.sh")
        os.environ["CLEARWAY_CHECKPOINTERS"] = str(drivers)
        folder = ("--dir", str(self.generations)) if given else ()
        self.step = bench.start("--checkpointer", "fake", "--hold", "0", *folder, *options, program=program)
        self.pid = bench.launcher_pid()
        poll(lambda: "clearway:" in bench.comment)
        # A program that has ended may have left no count: what is not saved goes with it.
        poll(lambda: (self.folder / "count").exists() or self.step.poll() is not None)

    def ask(self, state: SaveState = SaveState.SAVED) -> None:
        last = self.bench.claims().asked
        poll(lambda: last is None or time.time() >= last.timestamp() + 1)  # asked is told in whole seconds
        os.kill(self.pid, signal.SIGUSR1)
        poll(lambda: (claims := self.bench.claims()).state is state and claims.asked != last)
        self.goes_on()  # while it is held, a request is answered with the same checkpoint

    def goes_on(self) -> None:
        before = int((self.folder / "count").read_text())
        poll(lambda: int((self.folder / "count").read_text()) > before + 3)

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.generations.glob("generation-*"))

    def end(self) -> str:
        (self.folder / "stop").touch()
        _, errors = self.step.communicate(timeout=60)
        assert self.step.returncode == 42
        assert not list(self.folder.glob("clearway-run.*")), "the private folder is left behind"
        assert (self.folder / "verbs").read_text().split()[-1] == "end"
        return errors

    def starts(self) -> list[int]:
        return [int(line) for line in (self.folder / "starts").read_text().split()]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARWAY_CHECKPOINTERS", "")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


def test_a_later_run_goes_on_from_the_newest_generation(bench: Bench) -> None:
    first = Run(bench)
    claims = bench.claims()
    assert (claims.checkpointer, claims.app, claims.restart) == ("fake", "program", None)
    first.ask()
    claims = bench.claims()
    assert (claims.generation, claims.size_mib) == (1, 1)
    manifest = (first.generations / "generation-000001" / "manifest").read_text()
    assert manifest.startswith("checkpointer=fake\ngeneration=1\n")
    assert manifest.rstrip().endswith("./image")
    assert first.generations.stat().st_mode & 0o077 == 0, "an image holds the program's memory"
    saved = int((first.generations / "generation-000001" / "image").read_text().split()[0])
    first.end()
    later = Run(bench)
    poll(lambda: bench.claims().restart is Restart.OK)
    assert bench.claims().restart_s is not None
    later.ask()
    assert bench.claims().generation == 2
    assert "restarting from" in later.end()
    assert later.starts() == [0, saved]


def test_what_the_driver_warns_of_is_shown(bench: Bench) -> None:
    (bench.folder / "fault").write_text("doubtful")
    assert "clearway-run: the program may hang\n" in Run(bench).end()


def test_only_the_newest_are_kept(bench: Bench) -> None:
    run = Run(bench)
    for number in range(1, 4):
        poll(lambda number=number: int((run.folder / "count").read_text()) > 20 * number)
        run.ask()
    assert run.kept() == ["generation-000002", "generation-000003"]
    run.end()


@pytest.mark.parametrize("damage", ["truncated", "missing", "manifest", "refused"])
@pytest.mark.fault(
    "A run that went on from an older image did not say which, so its loss was counted from the newest.",
    found_by="trial",
)
def test_a_damaged_generation_is_passed_over(bench: Bench, damage: str) -> None:
    run = Run(bench)
    run.ask()
    poll(lambda: int((run.folder / "count").read_text()) > 30)
    run.ask()
    run.end()
    newest = run.generations / "generation-000002"
    if damage == "truncated":
        os.truncate(newest / "image", 1)
    elif damage == "missing":
        (newest / "image").unlink()
    elif damage == "manifest":
        (newest / "manifest").rename(newest / "manifest.new")  # as after a launcher that was killed: never complete
    else:
        (run.folder / "refuse-000002").touch()
    saved = int((run.generations / "generation-000001" / "image").read_text().split()[0])
    later = Run(bench)
    poll(lambda: bench.claims().restart is not None)
    assert bench.claims().restart is (Restart.OK if damage == "manifest" else Restart.FALLBACK)
    written = re.search(r"^time=(\d+)$", (run.generations / "generation-000001" / "manifest").read_text(), re.MULTILINE)
    last = bench.claims().last
    assert written is not None
    assert last is not None
    assert (bench.claims().generation, int(last.timestamp())) == (1, int(written[1])), "the image that was really used"
    later.ask()  # now the damaged one may go, and the one restarted from is still there
    assert later.kept()[-1] == ("generation-000002" if damage == "manifest" else "generation-000003")
    assert "generation-000001" in later.kept()
    errors = later.end()
    assert later.starts() == [0, saved]
    assert damage == "manifest" or "cannot restart from" in errors


def test_without_a_sound_generation_it_starts_anew_and_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(bench)
    run.ask()
    run.end()
    (run.generations / "generation-000001" / "image").write_text("")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    later = Run(bench)
    assert (bench.claims().restart, bench.claims().last) == (Restart.SCRATCH, None)
    assert "starting anew" in later.end()
    assert later.starts() == [0, 0]


@pytest.mark.parametrize("fault", ["truncated", "lost", "killed", "hang"])
def test_a_checkpoint_that_goes_wrong_is_not_claimed(bench: Bench, fault: str) -> None:
    run = Run(bench, "--grace", "12" if fault == "hang" else "120")
    run.ask()
    (run.folder / "fault").write_text(fault)
    run.ask(SaveState.FAILED)
    assert run.kept() == ["generation-000001"]
    run.goes_on()
    (run.folder / "fault").unlink()
    run.ask()
    assert run.kept() == ["generation-000001", "generation-000002"]
    assert "no checkpoint: " in run.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk(bench: Bench) -> None:
    disk = bench.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True, timeout=60)
    try:
        run = Run(bench, generations=disk / "generations")
        run.ask()
        (run.folder / "fault").write_text("full")
        run.ask(SaveState.FAILED)
        assert run.kept() == ["generation-000001"]
        (run.folder / "fault").unlink()
        (run.folder / "size").write_text("8")
        run.ask()  # now 8 MiB is what the next is expected to take
        checkpoints = (run.folder / "verbs").read_text().split().count("checkpoint")
        run.ask(SaveState.FAILED)
        assert (run.folder / "verbs").read_text().split().count("checkpoint") == checkpoints, "tried all the same"
        assert "MiB free" in run.end()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=60)


@pytest.mark.parametrize("saved", [True, False])
def test_a_program_that_its_checkpoint_ended_goes_on_from_the_last_one(bench: Bench, saved: bool) -> None:
    run = Run(bench, program=COUNTS.replace("exit 42", 'exit $(grep . "$FOLDER/stop" || echo 42)'))
    at = 0
    if saved:
        run.ask()
        at = int((run.generations / "generation-000001" / "image").read_text().split()[0])
    (run.folder / "fault").write_text("fatal")
    before = bench.claims().asked
    poll(lambda: before is None or time.time() >= before.timestamp() + 1)
    os.kill(run.pid, signal.SIGUSR1)
    poll(lambda: bench.claims().restart is (Restart.OK if saved else Restart.SCRATCH))
    claims = bench.claims()
    assert claims.state is SaveState.FAILED, "the answer to who asked"
    assert claims.generation == (1 if saved else None)
    assert (claims.last is not None) == saved
    (run.folder / "fault").unlink()
    poll((run.folder / "count").exists)  # a new program is told of before it has begun to count
    run.ask()
    assert bench.claims().generation == (2 if saved else 1)
    assert "fake ended the program: the disk was full" in run.end()
    assert run.starts() == [0, at]


def test_a_program_that_its_checkpointer_ends_again_and_again(bench: Bench) -> None:
    run = Run(bench, program='echo 1 > $FOLDER/count; until [ -e "$FOLDER/seen" ]; do sleep 0.05; done; exit 99')
    (run.folder / "seen").touch()
    _, errors = run.step.communicate(timeout=60)
    assert run.step.returncode == 99
    assert errors.count("starting anew") == 3


def test_a_job_that_ends_during_its_checkpoint_is_not_saved(bench: Bench) -> None:
    run = Run(bench)
    (run.folder / "fault").write_text("ends")
    os.kill(run.pid, signal.SIGUSR1)
    assert run.step.wait(timeout=60) == 42
    assert bench.claims().state is SaveState.FAILED
    assert run.kept() == []


def test_asked_again_during_a_checkpoint(bench: Bench) -> None:
    run = Run(bench)
    (run.folder / "fault").write_text("slow")
    os.kill(run.pid, signal.SIGUSR1)
    poll(lambda: bench.claims().state is SaveState.SAVING)
    os.kill(run.pid, signal.SIGUSR1)
    (run.folder / "go").touch()
    poll(lambda: bench.claims().state is SaveState.SAVED)
    run.end()
    assert run.kept() == ["generation-000001"], "the checkpoint under way was the answer"


@pytest.mark.fault(
    "With bash as sh a signal that came while the launcher substituted a command was lost, or ended the launcher.",
    found_by="random faults",
)
def test_many_signals_in_a_row(bench: Bench) -> None:
    """Of $(...) none stands where a shell with traps would expand it."""
    run = Run(bench)
    for _ in range(1_500):
        os.kill(run.pid, signal.SIGUSR1)
        time.sleep(0.003)
    poll(lambda: bench.claims().state is SaveState.SAVED)
    assert "trap" not in run.end()
    for script in (*PLUGINS.glob("slurm/clearway-*"), *PLUGINS.glob("clearway_checkpoint/*.sh")):
        text = re.sub("^ *#.*|`[^`]*`", "", script.read_text(), flags=re.MULTILINE)
        if script.name in ("clearway-criu", "dmtcp.sh"):  # programs of their own
            assert not re.findall(r"^ *trap (?!''|-).*", text, re.MULTILINE)
        else:
            assert not re.findall(r"\$\([^(N].*", text), script.name  # $(NF - 1) is awk's


def test_asked_while_it_tells_of_its_restart(bench: Bench) -> None:
    first = Run(bench)
    first.ask()
    first.end()
    squeue, waits = bench.folder / "squeue", bench.folder / "waits"
    second = 'echo >> "$FOLDER/looks"; [ $(wc -l < "$FOLDER/looks") -ne 2 ] ||'
    waiting = f'{second} while [ -e "$FOLDER/waits" ]; do sleep 0.05; done'
    slow = f'#!/bin/sh\ncase "$*" in *%k*) {waiting} ;; esac\n'
    squeue.write_text(squeue.read_text().replace("#!/bin/sh\n", slow))
    waits.touch()
    later = Run(bench)
    poll(lambda: (bench.folder / "looks").read_text().count("\n") == 2)
    os.kill(later.pid, signal.SIGUSR1)
    waits.unlink()
    poll(lambda: bench.claims().generation == 2)
    assert later.kept() == ["generation-000001", "generation-000002"]
    later.goes_on()
    later.end()
    claims = bench.claims()
    assert (claims.state, claims.generation, claims.restart) == (SaveState.SAVED, 2, Restart.OK)


def test_at_its_own_pace_it_is_not_held(bench: Bench) -> None:
    run = Run(bench, "--interval", "1", "--hold", "600")
    poll(lambda: (bench.claims().generation or 0) >= 2)
    assert bench.claims().state is None
    assert bench.claims().last is not None
    run.goes_on()
    run.end()


@pytest.mark.parametrize("fault", ["", "truncated"])
def test_near_the_time_limit_it_requeues_itself_if_it_is_saved(bench: Bench, fault: str) -> None:
    scontrol = bench.folder / "scontrol"
    scontrol.write_text(scontrol.read_text().replace("#!/bin/sh\n", '#!/bin/sh\necho "$*" >> "$FOLDER/calls"\n'))
    run = Run(bench, "--limit-signal", "USR2")
    (run.folder / "fault").write_text(fault)
    os.kill(run.pid, signal.SIGUSR2)
    poll(lambda: bench.claims().state in {SaveState.SAVED, SaveState.FAILED})
    if fault:
        errors = run.end()
        assert "requeue Incomplete 7" not in (run.folder / "calls").read_text()
        assert "no checkpoint: not whole" in errors
        return
    poll(lambda: "requeue Incomplete 7" in (run.folder / "calls").read_text())
    child = int(subprocess.check_output(["pgrep", "-P", str(run.pid), "program"], text=True).split()[0])
    (bench.folder / "job-state").write_text("COMPLETING\n")
    for pid in (child, run.pid):  # as Slurm does then
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
    _, errors = run.step.communicate(timeout=60)
    assert run.step.returncode == 128 + signal.SIGTERM
    assert "and requeued" in errors


@pytest.mark.parametrize(
    ("ends", "options", "kept"),
    [
        ("well", ("--after-end", "remove"), False),
        ("well", (), True),  # in a folder that was given
        ("with 42", ("--after-end", "remove"), True),
        ("well when it is told to end", ("--after-end", "remove"), True),
        ("well in a job that is requeued", ("--after-end", "remove"), True),
    ],
)
def test_what_is_left_of_a_job_that_has_ended(bench: Bench, ends: str, options: tuple[str, ...], kept: bool) -> None:
    program = COUNTS if ends == "with 42" else "trap 'exit 0' TERM\n" + COUNTS.replace("exit 42", "exit 0")
    run = Run(bench, *options, program=program)
    run.ask()
    others = run.generations / "of somebody else"
    if ends == "well when it is told to end":
        os.kill(run.pid, signal.SIGTERM)
    elif ends == "well in a job that is requeued":
        (run.folder / "job-state").write_text("COMPLETING\n")
        subprocess.run(["pkill", "-TERM", "-P", str(run.pid), "program"], check=True)
    else:
        others.touch()
        (run.folder / "stop").touch()
    assert run.step.wait(timeout=60) == (42 if ends == "with 42" else 0)
    assert run.kept() == (["generation-000001"] if kept else [])
    assert (run.generations / "fake.status").exists() == kept
    assert (run.folder / "elsewhere").exists() == kept
    if not kept:
        assert list(run.generations.iterdir()) == [others]
        others.unlink()


def test_nothing_is_left_of_the_folder_that_the_launcher_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARWAY_DIR", str(bench.folder / "kept"))
    script = bench.folder / "script"
    script.write_text('#!/bin/sh\nexec "$FOLDER/program"\n')
    script.chmod(0o755)
    ends_well = COUNTS.replace("exit 42", "exit 0")
    kept = bench.folder / "kept" / "7"
    run = Run(bench, "--script", str(script), program=ends_well, generations=kept, given=False)
    run.ask()
    assert run.kept() == ["generation-000001"]
    (run.folder / "stop").touch()
    assert run.step.wait(timeout=60) == 0
    assert not run.generations.exists()


@pytest.mark.parametrize("why", ["unfit", "none", "unknown"])
def test_what_cannot_be_saved_runs_plainly_and_says_so(bench: Bench, why: str) -> None:
    (bench.folder / "fault").write_text(why)
    options = {"unfit": (), "none": ("--checkpointer", "none"), "unknown": ("--checkpointer", "other")}[why]
    run = Run(bench, *options)
    assert bench.claims().checkpoint is CheckpointHow.NONE
    assert bench.claims().app == "program"
    (run.folder / "stop").touch()
    _, errors = run.step.communicate(timeout=60)
    assert run.step.returncode == 42
    assert not list(run.folder.glob("clearway-run.*"))
    assert {"unfit": "the program is static", "none": "", "unknown": "there is no"}[why] in errors


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_restarted_program_that_dies_of_a_signal(bench: Bench, number: signal.Signals) -> None:
    run = Run(bench)
    run.ask()
    run.end()
    later = Run(bench, program=COUNTS.replace("while", f"kill -{number.value} $$\n    while"))
    assert later.step.wait(timeout=60) == 128 + number
    assert not list(later.folder.glob("clearway-run.*"))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("sh", "-c", "exit 0"), "sh"),
        (("env", "X=1", "sh", "{}/my job.sh"), "myjob.sh"),
        (("timeout", "99", "{}/my job.sh"), "myjob.sh"),
    ],
)
def test_what_the_program_is_called(bench: Bench, command: tuple[str, ...], name: str) -> None:
    script = bench.folder / "my job.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    run = [word.format(bench.folder) for word in command]
    step = bench.start("--checkpointer", "none", "--", *run, program="exit 1")
    assert step.wait(timeout=60) == 0
    assert bench.claims().app == name


def test_no_folder_for_its_own_files_does_not_keep_a_program_from_running(bench: Bench) -> None:
    """TMPDIR comes along from the login node, where it may name another disk."""
    step = bench.start("--checkpointer", "none", program="exit 42", TMPDIR="/nonexistent/of-the-login-node")
    assert step.wait(timeout=60) == 42
