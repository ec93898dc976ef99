"""How a restarted program ends within its first moments: told right, and learned from right. DMTCP is a stand-in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from clearway.model.claims import Restart, SaveState
from tests.integration.bench import LAUNCHER, Bench, poll
from tests.integration.stand_in import install_dmtcp
from tests.integration.test_launcher_generations import Run

COUNTS = """
    echo start >> "$FOLDER/starts"
    while [ ! -e "$FOLDER/stop" ]; do sleep 0.05; done
    exit 42
"""


class Job:
    """A job under DMTCP's stand-in; ``run`` again is its next run."""

    def __init__(self, bench: Bench, version: str) -> None:
        self.bench, self.folder = bench, bench.folder
        install_dmtcp(self.folder)
        os.environ["VERSION"] = version
        self.run()

    def run(self, program: str = COUNTS) -> None:
        (self.folder / "pid").unlink(missing_ok=True)
        (self.folder / "comment").write_text("my own words\n")
        folder = ("--dir", str(self.folder / "generations"), "--hold", "0")
        self.step = self.bench.start("--checkpointer", "dmtcp", *folder, program=program)
        self.pid = self.bench.launcher_pid()
        poll(lambda: "clearway:" in self.bench.comment)

    def save(self, number: int) -> None:
        while self.bench.claims().generation != number:  # while it is held, the checkpoint before is the answer
            last = self.bench.claims().asked
            poll(lambda last=last: last is None or time.time() >= last.timestamp() + 1)  # told in whole seconds
            os.kill(self.pid, signal.SIGUSR1)
            poll(lambda last=last: (said := self.bench.claims()).state is SaveState.SAVED and said.asked != last)

    def ends(self) -> tuple[int, str]:
        _, said = self.step.communicate(timeout=120)
        return self.step.returncode, said

    def starts(self) -> int:
        return len((self.folder / "starts").read_text().split())


@pytest.fixture
def saved(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Job]:
    """A job that was saved twice, and has ended; its next run goes on from generation 2 in the way that is told."""
    if bench.shell != "dash":
        pytest.skip("the launcher's shells are compared elsewhere; here it is the driver that is tried")
    monkeypatch.setenv("VERSION", "")
    monkeypatch.setenv("CLEARWAY_DMTCP_GUARDS", "skipped")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)

    def make(version: str, ending: str) -> Job:
        job = Job(bench, version)
        poll((job.folder / "starts").exists)  # before it runs it cannot be saved
        job.save(1)
        job.save(2)
        (job.folder / "stop").touch()
        assert job.ends()[0] == 42
        (job.folder / "stop").unlink()
        (job.folder / "ending-000002").write_text(ending)
        job.run()
        return job

    return make


@pytest.mark.parametrize(
    ("version", "what", "code"), [("5.0", "exit 0", 0), ("4.2.0", "exit 5", 5), ("4.2.0", "kill KILL", 137)]
)
@pytest.mark.fault(
    "A program that ended in the first moments of its restart was taken for a failed restart, and run again.",
    found_by="real cluster",
)
def test_a_program_that_ends_before_anything_has_seen_it_run(
    saved: Callable[[str, str], Job], version: str, what: str, code: int
) -> None:
    """It ended by itself: its status is the job's, nothing is run again, and the restart counts as a good one."""
    job = saved(version, f"complete\n{what}\n")
    assert job.ends()[0] == code
    assert job.starts() == 1
    assert job.bench.claims().restart is Restart.OK
    assert job.bench.comment.startswith("my own words")
    assert (job.folder / "generations" / "generation-000002").is_dir()


@pytest.mark.parametrize(("version", "what"), [("4.2.0", "exit 0"), ("5.0", "exit 2"), ("4.2.0", "kill SEGV")])
def test_a_restart_that_fails_before_the_program_runs(
    saved: Callable[[str, str], Job], version: str, what: str
) -> None:
    """Whatever its status says: the program has not run, so the generation before is taken."""
    job = saved(version, f"partial\n{what}\n")
    poll(lambda: job.starts() == 2)
    poll(lambda: job.bench.claims().restart is Restart.FALLBACK)
    (job.folder / "stop").touch()
    code, said = job.ends()
    assert code == 42
    assert "generation-000002: status" in said
    assert f"restarting from {job.folder}/generations/generation-000001" in said


@pytest.mark.fault(
    "A program whose memory was not what it had been died of it after its restart, and its job failed.",
    found_by="trial",
)
@pytest.mark.parametrize("end", ["kill SEGV", "kill BUS", "kill ILL", "exit 99"])  # 99: DMTCP's own failures
def test_a_program_that_dies_of_its_restored_memory(saved: Callable[[str, str], Job], end: str) -> None:
    """A plain requeue would have run it to its end."""
    job = saved("4.2.0", f"complete\n{end}\n")
    poll(lambda: job.bench.claims().restart is Restart.FALLBACK)
    (job.folder / "stop").touch()
    code, said = job.ends()
    assert code == 42
    assert "as if not all of it had been restored" in said


@pytest.mark.fault(
    "A program that stood still for ever after its restart was told as saved and running.", found_by="trial"
)
def test_a_restored_program_that_stands_still(
    saved: Callable[[str, str], Job], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpointer says that it runs. Before it used a processor; so the generation before is taken."""
    monkeypatch.setenv("CLEARWAY_STILL_S", "2")
    manifest = bench.folder / "generations" / "generation-000002" / "manifest"
    job = saved("5.0", "complete\nstand\n")
    assert re.search(r"^busy=[0-9]+$", manifest.read_text(), re.MULTILINE)
    manifest.write_text(re.sub(r"^busy=.*$", "busy=9000000", manifest.read_text(), flags=re.MULTILINE))
    poll(lambda: job.bench.claims().restart is Restart.FALLBACK)
    (job.folder / "stop").touch()
    code, said = job.ends()
    assert code == 42
    assert "it has stood still for" in said
    assert f"restarting from {job.folder}/generations/generation-000001" in said


def test_a_restarted_program_of_any_checkpointer_that_ends_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARWAY_CHECKPOINTERS", "")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    first = Run(bench)
    first.ask()
    first.end()
    later = Run(bench, program="exit 42")
    assert later.step.wait(timeout=60) == 42
    assert bench.claims().restart is Restart.OK


def test_a_program_that_ends_well_while_it_is_asked_has_not_failed_to_save_itself(bench: Bench) -> None:
    """Its application would be asked less often: the daemon counts failures."""
    program = "trap 'exit 0' USR1\n" + COUNTS.replace("while", 'touch "$FOLDER/ready"\nwhile')
    step = bench.start("--checkpoint-file", f"{bench.folder}/ck", program=program)
    pid = bench.launcher_pid()
    poll(lambda: "checkpoint=signal" in bench.comment and (bench.folder / "ready").exists())
    os.kill(pid, signal.SIGUSR1)
    assert step.wait(timeout=60) == 0
    assert bench.claims().state is SaveState.SAVING


# The launcher's own functions, while bash answers a request that comes just then.
ENDS = """
eval "$(sed -n '/^quietly() {/,/^}/p; /^ended() {/,/^}/p' "$1")"
trial=
pause() { :; }
wait() { if [ $asked = yes ]; then asked=no; return 138; fi; command wait "$@"; }
sh -c 'exit 5' & child=$! asked=yes
ended; echo $code
sh -c 'kill -s SEGV $$' & child=$! asked=no
ended; echo $code
"""


def test_a_request_that_comes_as_the_program_ends_does_not_change_its_status(bench: Bench) -> None:
    said = subprocess.check_output([bench.shell, "-uc", ENDS, "sh", str(LAUNCHER)], text=True, timeout=60)
    assert said.split() == ["5", "139"]
