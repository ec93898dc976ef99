"""Files that a program changes are not in its image: what it did to them since is taken back before a restart."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from clearway.model.claims import Restart
from tests.integration.bench import Bench, poll
from tests.integration.test_dmtcp_faults import Job, start
from tests.integration.test_launcher_generations import Run, _environment

__all__ = ["_environment", "start"]  # fixtures

# Says what its table holds when it starts; then counts in it, in place, and appends to a log that it holds open.
TABLE = """
    cat "$FOLDER/table" >>"$FOLDER/seen"
    exec 5<>"$FOLDER/table" 6>"$FOLDER/log.$(cat "$FOLDER/runs" | wc -l)" 7>>"$FOLDER/appended"
    n=$(cat "$FOLDER/count" 2>/dev/null || echo 0)
    while [ ! -e "$FOLDER/stop" ]; do
        n=$((n + 1))
        printf '%08d\\n' $n 1<>"$FOLDER/table"
        echo $n >&6
        echo $n >&7
        echo $n >"$FOLDER/count.new"; mv "$FOLDER/count.new" "$FOLDER/count"; sleep 0.05
    done
    exit 42
"""


def killed(run: Run) -> None:
    """As a node that fails."""
    os.kill(run.pid, signal.SIGSTOP)
    pids = [int(pid) for pid in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]
    for pid in pids:
        os.killpg(pid, signal.SIGKILL) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGKILL)
    os.kill(run.pid, signal.SIGKILL)
    run.step.communicate(timeout=60)


@pytest.mark.fault(
    "After a node failed, a file that the program updates in place was further than its image, and the result wrong.",
    found_by="trial",
)
def test_what_came_after_the_image_is_taken_back(bench: Bench) -> None:
    folder = bench.folder
    (folder / "table").write_text("00000000\nand more that stays\n")
    (folder / "runs").write_text("")
    first = Run(bench, "--interval", "1", program=TABLE)
    poll(lambda: bool(first.kept()) and (first.generations / first.kept()[0] / "manifest").exists())
    first.goes_on()
    killed(first)
    newest = max(path.parent for path in first.generations.glob("generation-*/manifest"))
    lines = [line.split(" ", 2) for line in (newest / "manifest.files").read_text().splitlines()]
    noted = {name: (length, how) for length, how, name in lines}
    assert noted[str(folder / "table")][1] == "place"
    assert noted[str(folder / "log.0")][1] == "end"
    assert noted[str(folder / "appended")][1] == "append"
    (copy,) = newest.glob("manifest.file-*")
    assert copy.read_text().endswith("and more that stays\n")
    assert (folder / "table").read_text() != copy.read_text()
    appended = (folder / "appended").read_text()
    (folder / "runs").write_text("1\n")
    later = Run(bench, program=TABLE)
    poll(lambda: bench.claims().restart is Restart.OK)
    (folder / "stop").touch()
    assert later.step.wait(timeout=60) == 42
    seen = (folder / "seen").read_text().splitlines()
    assert seen[2] == copy.read_text().splitlines()[0]
    assert (folder / "log.0").stat().st_size == int(noted[str(folder / "log.0")][0])
    assert (folder / "appended").read_text().startswith(appended), "others may have written there, too"


def test_a_log_that_is_gone_is_told(bench: Bench) -> None:
    (bench.folder / "table").write_text("0" * 20)
    (bench.folder / "runs").write_text("")
    first = Run(bench, program=TABLE)
    first.ask()
    first.end()
    (bench.folder / "log.0").unlink()
    (bench.folder / "appended").write_text("")
    (bench.folder / "runs").write_text("1\n")
    said = Run(bench, program=TABLE).end()
    assert f"{bench.folder}/log.0 is gone since the program was saved" in said
    assert f"{bench.folder}/appended is shorter than when the program was saved (0 of " in said


IN_PLACE = """
import sys, time
with open(sys.argv[1], "r+b") as table, open(sys.argv[1] + ".steps", "w") as steps:
    for step in range(int(sys.argv[2])):
        table.seek(0)
        value = int(table.read(8))
        table.seek(0)
        table.write(b"%08d" % (value + 1))
        table.flush()
        print(step, file=steps, flush=True)
        sum(range(200_000))
        time.sleep(0.05)
sys.exit(7)
"""


@pytest.mark.usefixtures("start")
def test_counted_in_place_and_killed(bench: Bench) -> None:
    """With the real DMTCP: images at an interval, the program goes on, and its node fails."""
    table, steps = bench.folder / "table", bench.folder / "table.steps"
    table.write_text("00000000 and more")
    (bench.folder / "in_place.py").write_text(IN_PLACE)

    class InPlace(Job):
        def run(self, *options: str) -> None:
            (self.folder / "pid").unlink(missing_ok=True)
            (self.folder / "comment").write_text("\n")
            self.step = bench.start(
                "--checkpointer", "dmtcp", "--dir", str(self.generations), *options,
                program=f"exec {sys.executable} {self.folder}/in_place.py {table} 150",
            )  # fmt: skip
            self.pid = bench.launcher_pid()

    job = InPlace(bench, bench.folder / "generations", "--interval", "1")
    poll(lambda: "generation=" in bench.comment and (job.claims.generation or 0) >= 2, 60)
    so_far = int(table.read_bytes()[:8])
    poll(lambda: int(table.read_bytes()[:8]) > so_far + 3)
    job.kill()
    job.run()
    poll(lambda: "restart=ok" in bench.comment, 60)
    assert job.step.wait(120) == 7
    assert table.read_text() == "00000150 and more"
    assert [int(line) for line in steps.read_text().split()] == list(range(150))
