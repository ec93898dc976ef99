"""What people start in batch scripts runs under the launcher as it runs without it: input, output, errors, exit status,
signals, environment, limits; with each checkpointer, and with each shell that may be a node's sh.

A short run tries each program with one of them, which the commit chooses; ``tests/run --full`` with all.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest

from tests.integration.bench import LAUNCHER, SHELLS, Bench, poll
from tests.integration.programs import LINES, PROGRAMS
from tests.integration.stand_in import install_dmtcp
from tests.integration.test_launcher_generations import FAKE
from tests.oracle.sampled import share

DRIVERS = Path(__file__).parents[2] / "plugins" / "clearway_checkpoint"
OPTIONS = {
    "application": ("--checkpoint-file", "ck"),
    "application at intervals": ("--checkpoint-file", "ck", "--interval", "600"),
    "dmtcp": ("--checkpointer", "dmtcp", "--dir", "generations-dmtcp"),
    "criu": ("--checkpointer", "criu", "--dir", "generations-criu"),
    "fake": ("--checkpointer", "fake", "--dir", "generations"),
    "none": ("--checkpointer", "none"),
    "missing": ("--checkpointer", "missing", "--dir", "generations-missing"),
}
WAYS = [(shell, option) for option in OPTIONS for shell in SHELLS]
# Where it cannot be the same with a checkpointer, that is said before the program starts: another test holds it.
SAID = {"input: high descriptors": "dmtcp"}
SRUN = """\
export SLURM_PROCID=0
while :; do
    case $1 in
        -n) shift 2 ;;
        --input=none) exec </dev/null; shift ;;
        --input=*) exec <"${1#*=}"; shift ;;
        -*) shift ;;
        *) break ;;
    esac
done
case "$*" in *" : "*) echo components ;; *) exec "$@" ;; esac
"""
AS_SH = {"dash": "dash", "bash": "bash --posix"}


class Ran(NamedTuple):
    status: int
    output: str
    errors: str


def tool(bench: Bench, name: str, script: str) -> None:
    (bench.folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (bench.folder / name).chmod(0o755)


@pytest.fixture(autouse=True)
def _tools(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins: what is tried is how programs are started, not how they are saved."""
    drivers = bench.folder / "drivers"
    drivers.mkdir()
    shutil.copy(FAKE, drivers / "fake.sh")
    for name in ("application", "dmtcp", "criu"):
        shutil.copy(DRIVERS / f"{name}.sh", drivers)
    install_dmtcp(
        bench.folder, "/bin/bash -p"
    )  # as DMTCP itself, and other than dash, it drops nothing from the environment
    tool(bench, "clearway-criu", "case $1 in probe) echo ok=yes; echo version=4.2 ;; esac")
    tool(bench, "srun", SRUN)
    for name, value in {
        "CLEARWAY_CHECKPOINTERS": str(drivers),
        "CLEARWAY_CRIU_HELPER": str(bench.folder / "clearway-criu"),
        "CLEARWAY_DMTCP_GUARDS": "skipped",
        "VERSION": "4.2.0",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


def below(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for kid in (task / "children").read_text().split():
                yield int(kid)
                yield from below(int(kid))


def play(bench: Bench, script: str, run: str) -> Ran:
    """The batch script in a folder of its own, as the child of a process that is called slurmstepd."""
    folder = Path(mkdtemp(dir=bench.folder))
    (folder / "in.txt").write_text(LINES)
    path = folder / "batch"
    path.write_text(script.replace("RUN ", run) + "\n", newline="")
    interpreter = script[2:].partition("\n")[0].split() if script.startswith("#!") else ["/bin/bash"]
    env = os.environ | {
        "PATH": f"{bench.folder}:{os.environ['PATH']}",
        "FOLDER": str(bench.folder),
        "TMPDIR": str(folder),
        "SLURM_JOB_ID": "7",
    }
    with subprocess.Popen(
        [bench.folder / "slurmstepd", *interpreter, path],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as step:  # fmt: skip
        if asked := re.search(r"^# @signal (\w+) (\w+)$", script, re.MULTILINE):
            poll((folder / "ready").exists)
            name, who = asked.groups()
            batch = next(below(step.pid))
            for pid in [*below(batch), batch] if who == "all" else [batch]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.Signals[f"SIG{name}"])
        output, errors = step.communicate(timeout=120)
    return Ran(step.returncode, _same(output, folder), _same(errors, folder))


def _same(text: str, folder: Path) -> str:
    """Without what differs from run to run, and without what the launcher says."""
    whole = text.replace(str(folder), ".").splitlines()
    lines = (line for line in whole if not line.startswith("clearway-run: ") and "/slurmstepd: " not in line)
    return "\n".join(re.sub(r"line \d+: +\d+ ", "line ", line) for line in lines)


def ways(place: int) -> list[tuple[str, str]]:
    return WAYS if share().of == 1 else [WAYS[(place + share().turn) % len(WAYS)]]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("bench", SHELLS[:1], indirect=True)
@pytest.mark.fault(
    "A program under the launcher had no standard input, and other signals than alone.", found_by="trial"
)
def test_a_program_runs_as_it_would_without_the_launcher(bench: Bench, name: str) -> None:
    script = PROGRAMS[name]
    if (needed := re.search(r"^# @needs (\w+)$", script, re.MULTILINE)) and not shutil.which(needed[1]):
        assert "integration" not in os.environ.get("CLEARWAY_REQUIRE_TIERS", ""), f"no {needed[1]} here"
        pytest.skip(f"no {needed[1]} here")
    launchers = {
        way: f"{AS_SH[way[0]]} {LAUNCHER} {' '.join(OPTIONS[way[1]])} -- " for way in ways(list(PROGRAMS).index(name))
    }
    with ThreadPoolExecutor(4) as pool:
        without = pool.submit(play, bench, script, "")
        runs = {way: pool.submit(play, bench, script, run) for way, run in launchers.items()}
    for way, ran in runs.items():
        if way[1] != SAID.get(name):
            assert ran.result() == without.result(), way


def test_what_cannot_be_the_same_is_said_beforehand(bench: Bench) -> None:
    path = bench.folder / "batch"
    run = f"{bench.shell} {LAUNCHER} {' '.join(OPTIONS['dmtcp'])} -- "
    path.write_text(f"#!/bin/bash\ncd {bench.folder}; exec 20<&0\n{run} sh -c 'echo begun >&2'\n")
    env = os.environ | {"PATH": f"{bench.folder}:{os.environ['PATH']}", "FOLDER": str(bench.folder)}
    done = subprocess.run(
        [bench.folder / "slurmstepd", "bash", path], env=env | {"SLURM_JOB_ID": "7"}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    said, _, _ = done.stderr.partition("begun")
    assert "clearway-run: its descriptors 20 are closed when it starts: left open they could hang a restart" in said


def test_there_are_programs_enough() -> None:
    assert len(PROGRAMS) >= 100
    for way in WAYS:
        of_all = [name for place, name in enumerate(PROGRAMS) if way in ways(place)]
        assert len(of_all) >= len(PROGRAMS) // len(WAYS)
