"""A program's standard input and signals: the same under the launcher as without it, in each form that scripts have."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
from pathlib import Path
from tempfile import mkdtemp

import pytest

from clearway.model.claims import SaveState
from tests.integration.bench import LAUNCHER, Bench, poll
from tests.integration.programs import INPUT, LINES
from tests.integration.stand_in import install_dmtcp
from tests.integration.test_launcher_generations import FAKE
from tests.real_dmtcp import dmtcp_folder

DRIVERS = Path(__file__).parents[2] / "plugins" / "clearway_checkpoint"
OPTIONS = {
    "application": ("--checkpoint-file", "ck"),
    "dmtcp": ("--checkpointer", "dmtcp", "--dir", "generations-dmtcp"),
    "fake": ("--checkpointer", "fake", "--dir", "generations"),
    "none": ("--checkpointer", "none"),
    "missing": ("--checkpointer", "missing", "--dir", "generations-missing"),
}


@pytest.fixture(autouse=True)
def _tools(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = bench.folder / "drivers"
    drivers.mkdir()
    shutil.copy(FAKE, drivers / "fake.sh")
    for name in ("application", "dmtcp", "criu"):
        shutil.copy(DRIVERS / f"{name}.sh", drivers)
    monkeypatch.setenv("CLEARWAY_CHECKPOINTERS", str(drivers))
    monkeypatch.setenv("CLEARWAY_DMTCP_GUARDS", "skipped")
    monkeypatch.setenv("VERSION", "4.2.0")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    (bench.folder / "in.txt").write_text(LINES)
    tool(bench, "srun", 'export SLURM_PROCID=0; while :; do case $1 in -*) shift ;; *) break ;; esac; done; exec "$@"')


def tool(bench: Bench, name: str, script: str) -> None:
    (bench.folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (bench.folder / name).chmod(0o755)


def stand_ins(bench: Bench) -> None:
    install_dmtcp(bench.folder)


def batch(bench: Bench, script: str, run: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a batch script."""
    path = Path(mkdtemp(dir=bench.folder)) / "script"
    path.write_text(f"#!/bin/bash\ncd {bench.folder}\n{script.replace('RUN ', run)}\n")
    env = os.environ | {
        "PATH": f"{bench.folder}:{os.environ['PATH']}",
        "FOLDER": str(bench.folder),
        "TMPDIR": str(bench.folder),
        "SLURM_JOB_ID": "7",
    }
    command = [str(bench.folder / "slurmstepd"), "bash", str(path)]
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


def launcher(bench: Bench, *options: str) -> str:
    return f"{bench.shell} {LAUNCHER} {' '.join(options)} -- "


def test_a_pipe_is_said_to_be_in_the_way_of_a_checkpoint_and_no_offer_is_made(bench: Bench) -> None:
    for form in ("pipe", "here-document"):
        _, output, said = batch(bench, INPUT[form], launcher(bench, *OPTIONS["fake"]))
        assert output == LINES
        expected = "clearway-run: this job runs without checkpoints: its standard input is a pipe or a socket, whose"
        assert said.startswith(expected), said
        assert said.count("\n") == 1
    assert "checkpoint=none" in bench.comment  # of the here-document: in a pipe the launcher is not the batch shell
    status, _, said = batch(bench, INPUT["pipe"], launcher(bench, "--try", "1", "--checkpointer", "fake"))
    assert status == 1
    assert "this program cannot be saved here: its standard input is a pipe or a socket" in said


READS_AND_SAVES = """\
trap 'echo > ck.new; mv ck.new ck' USR1
wc -l >> "$FOLDER/counts"
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(
    ("form", "rest"),
    [
        ("{ RUN ./reads; cat; } <in.txt", 120),
        ("{ read -r first; RUN ./reads; cat; } <in.txt", 119),
        ("seq 120 | RUN ./reads", 0),
    ],
)
def test_each_run_of_a_trial_reads_the_input(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, form: str, rest: int
) -> None:
    """And leaves a file to what comes after it."""
    monkeypatch.setenv("CLEARWAY_TRY_LIMIT_S", "3")
    tool(bench, "reads", READS_AND_SAVES)
    _, output, said = batch(bench, form, launcher(bench, "--try", "1", *OPTIONS["application"]))
    assert "not known: it was saved, came back and computes" in said, said
    lines = rest or 120
    assert (bench.folder / "counts").read_text().split() == [str(lines)] * 3
    assert output.count("\n") == rest
    assert not list(bench.folder.glob("clearway-run.*"))


@pytest.mark.fault("On a busy machine a trial said of a program that ran on that it stood still.", found_by="load")
@pytest.mark.parametrize(("look_s", "trials"), [(0, 2), (3.2, 1)], ids=["quick", "slow"])
def test_a_trial_with_a_checkpointer_reads_the_input_from_its_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, look_s: float, trials: int
) -> None:
    monkeypatch.setenv("CLEARWAY_TRY_LIMIT_S", "3")
    tool(bench, "awk", f'sleep {look_s}; exec /usr/bin/awk "$@"')  # each look at the processes takes as long
    tool(bench, "reads", 'echo 1 >"$FOLDER/count"; wc -l >>"$FOLDER/counts"; while :; do sleep 0.05; done')
    for _ in range(trials):
        status, _, said = batch(bench, "RUN ./reads <in.txt", launcher(bench, "--try", "1", "--checkpointer", "fake"))
        assert status == 2, said
        assert "it was saved, came back and computes" in said
    assert (bench.folder / "counts").read_text().split() == ["120"] * 3 * trials


@pytest.mark.parametrize("checkpointer", ["application", "fake"])
def test_a_trial_at_a_terminal(bench: Bench, checkpointer: str) -> None:
    """A program that saves itself reads what is typed; no checkpointer can bring a terminal back, and that is said."""
    script = f'read -r line; echo 1 >"$FOLDER/count"; echo "<$line>" >>"$FOLDER/typed"\n{READS_AND_SAVES}'
    tool(bench, "reads", script.replace("wc -l", ":"))
    ours, theirs = pty.openpty()
    path = bench.folder / "script"
    run = launcher(bench, "--try", "1", *OPTIONS[checkpointer][:2])
    path.write_text(f"#!/bin/sh\ncd {bench.folder}\n{run} ./reads\n")
    env = os.environ | {"PATH": f"{bench.folder}:{os.environ['PATH']}", "FOLDER": str(bench.folder)}
    env["CLEARWAY_TRY_LIMIT_S"] = "3"
    os.write(ours, b"one\ntwo\nthree\n")
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", "sh", str(path)], env=env, stdin=theirs, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        _, said = process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == 2, said
    assert "it was saved, came back and computes" in said
    typed = (bench.folder / "typed").read_text().split()
    assert typed == (["<one>", "<two>", "<three>"] if checkpointer == "application" else ["<>", "<>", "<>"])
    assert ("a terminal cannot be saved" in said) == (checkpointer == "fake")


# A line at a time from the input's descriptor: what Python has read ahead would be saved with its memory.
SLOW_READER = """\
import os, sys, time
line = read = b""
while byte := os.read(0, 1):
    line += byte
    if byte == b"\\n":
        with open("read.txt", "ab") as log:
            log.write(line)
        read, line = read + line, b""
        time.sleep(0.0 if os.path.exists("hurry") else 0.1)
open("result.txt", "wb").write(read)
sys.exit(5)
"""


def test_a_saved_program_goes_on_reading_where_it_was_under_the_real_dmtcp(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bench.shell != "dash":
        pytest.skip("the launcher's shells are compared elsewhere")
    dmtcp_folder()
    folder = bench.folder
    monkeypatch.chdir(folder)
    (folder / "slow.py").write_text(SLOW_READER)
    program = "exec python3 slow.py"
    options = ("--checkpointer", "dmtcp", "--dir", str(folder / "generations"), "--hold", "600")
    with (folder / "in.txt").open("rb") as source:
        step = bench.start(*options, program=program, stdin=source)
    pid = bench.launcher_pid()
    poll(lambda: (folder / "read.txt").exists() and len((folder / "read.txt").read_text().split()) >= 30, 60)
    os.kill(pid, signal.SIGUSR1)
    poll(lambda: bench.claims().state is SaveState.SAVED, 60)
    bench.end()
    step.wait(timeout=60)
    read = len((folder / "read.txt").read_text().split())
    assert 30 <= read < 120
    (folder / "hurry").touch()
    (folder / "pid").unlink()
    with (folder / "in.txt").open("rb") as source:
        again = bench.start(*options, program=program, stdin=source)
        _, said = again.communicate(timeout=120)
    assert again.returncode == 5, said
    assert "restarting from" in said
    assert (folder / "result.txt").read_text() == LINES
