"""The DMTCP driver with the real DMTCP on PATH, and what it says of programs before they start."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clearway_checkpoint.dmtcp import Dmtcp
from tests.real_dmtcp import dmtcp_folder, steps_in

PYTHON = sys.executable
# Threads, a child process and an open log; every step is written once, and the result depends on all of them.
PROGRAM = """\
import os, sys, threading, time
import numpy as np
log_path, result_path, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
up, down = os.pipe(), os.pipe()
if (child := os.fork()) == 0:
    while (got := os.read(up[0], 1)) and got != b"q":
        os.write(down[1], bytes([got[0] ^ 90]))
    os._exit(0)
a, b = np.linspace(0, 1, 40_000).reshape(200, 200), np.eye(200)
def turn(rows, k):
    b[rows] = np.sin(a[rows] @ b.T[:, :200] + k)
with open(log_path, "a", buffering=1) as log:
    for step in range(steps):
        halves = [threading.Thread(target=turn, args=(r, step)) for r in (slice(0, 100), slice(100, 200))]
        for t in halves:  # one after the other: the result must not depend on their order
            t.start()
            t.join()
        os.write(up[1], bytes([step % 256 or 1]))
        b[0, 0] += os.read(down[0], 1)[0]
        log.write(f"{step}\\n")
        time.sleep(0.1)
os.write(up[1], b"q")
os.waitpid(child, 0)
with open(result_path, "wb") as out:
    out.write(b.tobytes())
sys.exit(7)
"""


def poll(condition: Callable[[], object], limit_s: float = 30.0, what: str = "") -> None:
    end = time.monotonic() + 4 * limit_s
    while not condition():
        assert time.monotonic() < end, f"not within {4 * limit_s:g} s: {what}"
        time.sleep(0.05)


class Run:
    """One job's folders, and the driver in them."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        (folder / "state").mkdir(parents=True)
        (folder / "dir").mkdir()
        self.env = {
            "CLEARWAY_STATE": str(folder / "state"),
            "CLEARWAY_DIR": str(folder / "dir"),
            "CLEARWAY_DMTCP_LIMIT_S": "90",
            "CLEARWAY_DMTCP_RESTART_S": "60",
            "PATH": path,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.driver = Dmtcp(self.env)
        self.script = folder / "program.py"
        self.script.write_text(PROGRAM)
        self.log, self.result = folder / "log", folder / "result"

    def generation(self, number: int) -> Path:
        path = self.folder / "dir" / f"generation-{number}"
        path.mkdir()
        return path

    def program(self, steps: int) -> list[str]:
        return [PYTHON, str(self.script), str(self.log), str(self.result), str(steps)]

    def spawn(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as out:
            return subprocess.Popen(
                command, env={**os.environ, **self.env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip

    def steps(self) -> list[int]:
        return steps_in(self.log)

    def told(self) -> str:
        path = self.folder / "state" / "restarted"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Run]:
    dmtcp_folder()
    run = Run(tmp_path / "run", os.environ["PATH"])
    yield run
    run.driver.end()


def end_group(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_saved_killed_restarted_ends_like_an_undisturbed_run(real: Run, tmp_path: Path) -> None:
    assert real.driver.probe(real.program(1)).ok
    undisturbed = Run(tmp_path / "undisturbed", os.environ["PATH"])
    assert undisturbed.spawn(tuple(undisturbed.program(60))).wait(240) == 7

    process = real.spawn(real.driver.wrap(real.program(60)))
    poll(lambda: len(real.steps()) >= 10, what="ten steps")
    generation = real.generation(1)
    saved = real.driver.checkpoint(generation, process.pid)
    assert saved.ok, saved.reason
    assert saved.size_mib >= 2 * 20
    assert real.driver.verify(generation).ok
    # Nothing of it runs on, whoever continues it, until it is let go.
    before = real.log.read_bytes()
    os.killpg(process.pid, signal.SIGCONT)
    time.sleep(1.0)  # several steps
    assert real.log.read_bytes() == before
    real.driver.go_on(process.pid)
    poll(lambda: real.log.read_bytes() != before, what="the program to go on after its checkpoint")
    end_group(process)
    real.driver.end()
    assert not (tmp_path / "run" / "state" / "dmtcp").exists()

    again = real.spawn(real.driver.restart(generation, real.program(60)))
    poll(real.told, what="the restart")
    assert real.told() == "ok=yes\n"
    second = real.driver.checkpoint(real.generation(2), again.pid)
    assert second.ok, second.reason
    real.driver.go_on(again.pid)
    assert again.wait(240) == 7
    assert real.steps() == list(range(60))
    assert real.result.read_bytes() == undisturbed.result.read_bytes()


def test_exit_status_comes_through_and_the_coordinator_is_on_loopback(real: Run) -> None:
    assert real.spawn(real.driver.wrap(["/bin/sh", "-c", "exit 42"])).wait(120) == 42
    process = real.spawn(real.driver.wrap(["/bin/sleep", "60"]))
    port = real.folder / "state" / "dmtcp" / "port"
    poll(lambda: port.exists() and port.read_text().strip(), what="the coordinator")
    if shutil.which("perl") or shutil.which("python3"):
        wanted = f"0100007F:{int(port.read_text()):04X} 00000000:0000 0A"
        assert wanted in Path("/proc/net/tcp").read_text()
    end_group(process)


def test_damaged_generation_is_refused_and_its_restart_does_not_hang(real: Run) -> None:
    process = real.spawn(real.driver.wrap(["/bin/sleep", "60"]))
    generation = real.generation(1)
    poll((real.folder / "dir" / "dmtcp" / "images").exists)
    poll(lambda: runs(real), what="the program under DMTCP")
    assert real.driver.checkpoint(generation, process.pid).ok
    end_group(process)
    (image,) = generation.glob("ckpt_*.dmtcp")
    os.truncate(image, image.stat().st_size // 2)
    assert "not as it was saved" in real.driver.verify(generation).reason
    real.env["CLEARWAY_DMTCP_RESTART_S"] = "4"
    assert real.spawn(real.driver.restart(generation, ["/bin/sleep", "60"])).wait(120) != 0
    poll(lambda: real.told().startswith("ok=no"), what="the refusal")


def runs(run: Run) -> bool:
    """Whether the program is there and runs: while it starts, the coordinator counts it and says RUNNING=no."""
    port = run.folder / "state" / "dmtcp" / "port"
    if not port.exists():
        return False
    command = ["dmtcp_command", "-p", port.read_text().strip(), "-s"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    return {"NUM_PEERS=1", "RUNNING=yes"} <= set(said.split())


def test_coordinator_killed(real: Run) -> None:
    process = real.spawn(real.driver.wrap(["/bin/sleep", "60"]))
    poll(lambda: runs(real), what="the program under DMTCP")
    os.kill(coordinator(real), signal.SIGKILL)
    assert not real.driver.checkpoint(real.generation(1), process.pid).ok
    end_group(process)


def test_end_ends_a_coordinator_that_does_not_answer(real: Run) -> None:
    process = real.spawn(real.driver.wrap(["/bin/sleep", "60"]))
    poll(lambda: runs(real), what="the program under DMTCP")
    pid = coordinator(real)
    (real.folder / "state" / "dmtcp" / "port").unlink()  # so that nobody can ask it
    real.driver.end()
    poll(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])
    end_group(process)


def coordinator(run: Run) -> int:
    mark = f"CLEARWAY_STATE={run.folder}/state".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (path / "comm").read_text().startswith("dmtcp_coor"):
                found += [path.name] * (mark in (path / "environ").read_bytes().split(b"\0"))
    (pid,) = map(int, found)
    return pid


def test_programs_that_cannot_be_saved_are_named(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("dmtcp_launch", "dmtcp_coordinator", "dmtcp_command", "dmtcp_restart", "apptainer"):
        (tools / name).write_text("#!/bin/sh\necho 'dmtcp_launch (DMTCP) 0.0'\n")
        (tools / name).chmod(0o755)
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    setuid = tmp_path / "setuid"
    shutil.copy("/bin/sleep", setuid)
    setuid.chmod(0o4755)
    static = tmp_path / "static"
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    static.write_bytes(bytes(header))
    static.chmod(0o755)
    linked = tmp_path / "linked"
    shutil.copy("/bin/sleep", linked)
    (tools / "ldd").write_text('#!/bin/sh\ncase $1 in *linked) echo "\tlibmpich.so.12 => /usr/lib/x" ;; esac\n')
    (tools / "ldd").chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    driver = Dmtcp(path)
    for program in (["/bin/sleep", "1"], [str(script)], ["srun", "-n", "4", "--", "/bin/sleep", "1"]):
        probe = driver.probe(program)
        assert probe.ok, probe.reason
        assert probe.version == "0.0"
    for program, reason in (
        ([str(setuid)], "setuid"),
        ([str(static)], "statically linked"),
        (["apptainer", "run"], "container"),
        (["srun", "-n", "4", "/bin/sleep"], "-- is missing"),
        (["no-such-program"], "not found"),
        ([str(linked)], "uses MPI (libmpich.so.12)"),
        (["srun", "--mpi=pmi2", "-n", "4", "--", str(linked)], "uses MPI"),
        (["/usr/bin/mpiexec.hydra", "-n", "4", str(linked)], "starts an MPI program"),
    ):
        probe = driver.probe(program)
        assert not probe.ok
        assert reason in probe.reason
    assert "not on PATH" in Dmtcp({"PATH": "/usr/bin:/bin"}).probe().reason
    mpiexec = tools / "mpiexec"
    mpiexec.write_text("#!/bin/sh\n")
    mpiexec.chmod(0o755)
    for programs, nodes, version, able in (
        ([["mpiexec", "-n", "4", str(linked)], [str(linked)]], "1", "4.2.0", True),
        ([["mpiexec", "-n", "4", str(linked)], [str(linked)]], "1", "5.0", False),
        ([["mpiexec", "-n", "4", str(linked)], [str(linked)]], "2", "4.2.0", False),
        ([["srun", "--", str(linked)]], "1", "4.2.0", False),
    ):
        (tools / "dmtcp_launch").write_text(f"#!/bin/sh\necho 'dmtcp_launch (DMTCP) {version}'\n")
        on_one = Dmtcp({**path, "CLEARWAY_DMTCP_MPI": "one-node", "SLURM_JOB_NUM_NODES": nodes})
        assert [on_one.probe(program).ok for program in programs] == [able] * len(programs)


@pytest.mark.parametrize(
    ("libc", "linux", "settings", "able"),
    [
        ("glibc 2.41", "6.18.5-amd64", {}, True),
        ("glibc 2.42", "6.12.90", {}, True),
        ("glibc 2.42", "6.13.0-1", {}, False),
        ("glibc 3.0", "7.0", {}, False),
        ("glibc 2.43", "6.18", {"CLEARWAY_DMTCP_GUARDS": "skipped"}, True),
        ("", "6.18", {}, True),  # another library, or nobody who says which
    ],
)
def test_guard_pages_that_cannot_be_saved_are_known_before(
    tmp_path: Path, libc: str, linux: str, settings: dict[str, str], able: bool
) -> None:
    names = ("dmtcp_launch", "dmtcp_coordinator", "dmtcp_command", "dmtcp_restart")
    tools = {"getconf": libc, "uname": linux} | dict.fromkeys(names, "dmtcp_launch (DMTCP) 0.0")
    for name, says in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / name).chmod(0o755)
    probe = Dmtcp({"PATH": f"{tmp_path}:{os.environ['PATH']}", **settings}).probe(["/bin/sleep", "1"])
    assert probe.ok == able
    assert able or "guard pages" in probe.reason


@pytest.mark.parametrize(
    ("program", "settings", "warned"),
    [
        ("python3", {"OPENBLAS_NUM_THREADS": "4"}, True),
        (PYTHON, {"OPENBLAS_NUM_THREADS": "4"}, True),
        ("script", {"OMP_NUM_THREADS": "4"}, True),  # its first line says env python3
        ("python3", {"OPENBLAS_NUM_THREADS": "1"}, False),
        ("python3", {"OMP_NUM_THREADS": "1"}, False),
        ("python3", {"OPENBLAS_NUM_THREADS": "4", "NUMPY": "no"}, False),
        ("sleep", {"OPENBLAS_NUM_THREADS": "4"}, False),
        ("linked", {"OPENBLAS_NUM_THREADS": "4"}, True),
    ],
)
def test_threads_of_openblas_are_warned_of(
    tmp_path: Path, program: str, settings: dict[str, str], warned: bool
) -> None:
    for name in ("dmtcp_launch", "dmtcp_coordinator", "dmtcp_command", "dmtcp_restart"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'dmtcp_launch (DMTCP) 0.0'\n")
    (tmp_path / "python3").write_text('#!/bin/sh\n[ "${NUMPY:-yes}" = yes ]\n')
    (tmp_path / "ldd").write_text('#!/bin/sh\ncase $1 in *linked) echo "libopenblas.so.0 => /usr/lib/x";; esac\n')
    (tmp_path / "script").write_text("#!/usr/bin/env python3\n")
    shutil.copy("/bin/sleep", tmp_path / "linked")
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    env |= {"PATH": f"{tmp_path}:{env['PATH']}", **settings}
    command = ["sh", str(Dmtcp().driver), "probe", "--", program]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert ("warning=" in said) == warned, said


def test_a_program_that_starts_others_beside_openblas(real: Run) -> None:
    """With the setting that the warning names; without it both versions hang in the fork."""
    code = "import numpy, subprocess, sys; subprocess.run(['true']); numpy.ones(9) @ numpy.ones(9); sys.exit(5)"
    assert real.spawn(real.driver.wrap([PYTHON, "-c", code])).wait(240) == 5
