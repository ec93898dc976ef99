"""What a program is seen to run before it is put under a checkpointer, and what is looked at when it is saved."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clearway.model.claims import CheckpointHow, Restart, SaveState
from clearway_checkpoint.criu import Criu
from clearway_checkpoint.dmtcp import Dmtcp
from tests.integration.bench import LAUNCHER, SHELLS, Bench, poll
from tests.integration.stand_in import install_dmtcp
from tests.integration.test_dmtcp import Run as DriverRun
from tests.integration.test_dmtcp import end_group, real  # noqa: F401 - a fixture
from tests.integration.test_restart_endings import Job

TOOLS = ("dmtcp_launch", "dmtcp_coordinator", "dmtcp_command", "dmtcp_restart")
DRIVERS = {"dmtcp": Dmtcp().driver, "criu": Criu().driver}
one_shell = pytest.mark.parametrize("bench", SHELLS[:1], indirect=True)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with stand-ins, in which a python3 has numpy (unless NUMPY=no), on two processors."""
    stand_ins = dict.fromkeys(TOOLS, "echo 'dmtcp_launch (DMTCP) 4.2.0'")
    stand_ins |= {
        "python3": '[ "${NUMPY:-yes}" = yes ]',
        "cc": 'while [ "$1" != -o ]; do shift; done; echo library >"$2"',
        "nproc": 'echo "${PROCESSORS:-2}"',
        "ldd": 'case $1 in *linked) echo "libopenblas.so.0 => /usr/lib/x";; *mpi) echo "\tlibmpi.so.40 => /x";; esac',
        "launch": "exec srun hostname",  # on PATH, as a site's wrapper is
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
    for name in ("linked", "with_mpi", "plain"):
        shutil.copy("/bin/sleep", tmp_path / name)
    static = bytearray(64)
    static[:6] = b"\x7fELF\x02\x01"
    (tmp_path / "static").write_bytes(bytes(static))
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    return tmp_path


def probed(site: Path, script: str, *, mode: str = "site", driver: str = "dmtcp", **environment: str) -> str:
    """What a driver answers to the launcher: ``mode`` site is a script that its user has not put under it."""
    job = site / "clearway-site of all" / "slurm_script"
    job.parent.mkdir(exist_ok=True)
    job.write_text(f"#!/bin/bash\n/usr/local/bin/clearway-run\n{script}\n")
    job.chmod(0o755)
    shutil.rmtree(site / "state", ignore_errors=True)
    (site / "state").mkdir()
    commands = LAUNCHER.with_name("clearway-commands")
    code = f'state=state script=$1; shift; . {commands}; gather "$@"; exec sh {DRIVERS[driver]} probe -- "$@"'
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    env |= {"PATH": f"{site}:{env['PATH']}", "CLEARWAY_STATE": f"{site}/state", "CLEARWAY_CRIU_HELPER": "/bin/true"}
    command = [SHELLS[0], "-uc", code, "sh", "yes" if mode == "site" else "", str(job)]
    done = subprocess.run(command, env=env | environment, cwd=site, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


SRUN = {
    "plain": "srun -n 2 ./plain",
    "by its path": "/usr/bin/srun ./plain",
    "exec": "exec srun ./plain",
    "in a function": "step() {\n  srun ./plain\n}\nstep",
    "in a variable": 'LAUNCH="srun -n 2"\n$LAUNCH ./plain',
    "in a sourced file": ". ./inner.sh",
    "two scripts below": "bash outer.sh",
    "behind a variable": '"$HERE/inner.sh"',
    "a site's wrapper": "launch",
    "a file with a name like ours": "./clearway-own.sh",
    "in a here-document": "bash <<END\nsrun ./plain\nEND",
    "from Python": "python3 starts.py",
    "from a module of Python": "python3 uses.py",
}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("script", SRUN.values(), ids=SRUN)
@pytest.mark.fault("A script that calls `srun` was put under DMTCP, which cannot save it.", found_by="trial")
def test_a_script_that_calls_srun_is_refused(site: Path, script: str, driver: str) -> None:
    (site / "inner.sh").write_text("srun ./plain\n")
    (site / "outer.sh").write_text("cd /\n. inner.sh\n")
    (site / "starts.py").write_text("import os\nos.system('srun ./plain')\n")
    (site / "uses.py").write_text("import starts\n")
    (site / "clearway-own.sh").write_text("srun ./plain\n")
    for mode in ("site", "by hand"):
        said = probed(site, script, mode=mode, driver=driver, NUMPY="no")
        assert "ok=no" in said
        assert "it runs srun, and " in said, said
        assert "let the program save itself" in said


def test_what_else_dmtcp_cannot_save_is_refused_within_a_script(site: Path) -> None:
    for script, reason in (
        ("mpirun -n 4 ./plain", "starts an MPI program"),
        ("./with_mpi", "uses MPI"),
        ("podman run x", "starts a container"),
        ("echo a | ./static", "statically linked"),
    ):
        said = probed(site, script, mode="by hand")
        assert "ok=no" in said
        assert reason in said, said
    assert "ok=yes" in probed(site, "mpirun -n 4 ./with_mpi", CLEARWAY_DMTCP_MPI="one-node", SLURM_JOB_NUM_NODES="1")


HARMLESS = {
    "pipes": "for i in 1 2; do sleep 1; done | tee log | awk '{ print }'",
    "srun in a comment": "# srun would not do\n  # nor here: srun\nsleep 5",
    "another word": "echo srunner my_srun",
    "the submitting of others": "sbatch next.sh; scontrol show job 1",
    "numpy that starts nothing": "python3 -u sums.py 3 > out",
    "numpy in a line": "python3 -c 'import numpy; print(numpy.ones(3))'",
    "numpy in a here-document": "python3 - <<END\nimport numpy as np, sys\nEND",
    "one thread": "export OMP_NUM_THREADS=4 OPENBLAS_NUM_THREADS=1 # here\npython3 starts.py",
}


@pytest.mark.parametrize("script", HARMLESS.values(), ids=HARMLESS)
def test_what_can_be_saved_is_not_refused(site: Path, script: str) -> None:
    (site / "sums.py").write_text("import sys, os.path as p\nfrom numpy import linalg as l, ones\nprint(ones(3))\n")
    (site / "starts.py").write_text("import numpy, subprocess\nsubprocess.run(['true'])\n")
    for mode in ("site", "by hand"):
        said = probed(site, script, mode=mode)
        assert "ok=yes" in said, said
        assert "warning=" not in said


MAY_HANG = {
    "a program is started": "python3 starts.py",
    "a pool": "python3 pool.py",
    "what is imported is not known": "python3 science.py",
    "a module": "python3 -m sums",
    "a file that is not there": "cd /elsewhere && python3 absent.py",
    "from a line": "python3 -c 'import numpy, subprocess'",
    "a variable's Python": "$PY starts.py",
    "from a pipe": "make_code | python3",
    "one thread for one command": "OPENBLAS_NUM_THREADS=1 python3 starts.py; python3 starts.py",
    "one thread, perhaps": "[ -z $X ] || export OPENBLAS_NUM_THREADS=1\npython3 starts.py",
    "eleven threads": "export OPENBLAS_NUM_THREADS=11\npython3 starts.py",
    "another variable": "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=2\npython3 starts.py",
    "R": "Rscript model.R",
    "R itself": "R --no-save < model.R",
    "julia": "julia -t 2 model.jl",
    "a program with OpenBLAS": "./linked 3",
}


@pytest.mark.parametrize("script", MAY_HANG.values(), ids=MAY_HANG)
def test_what_dmtcp_may_hang_is_not_put_under_it_without_its_users_word(site: Path, script: str) -> None:
    """OpenBLAS waits for the end of its threads before a fork, and under DMTCP they do not end then."""
    (site / "sums.py").write_text("import numpy\n")
    (site / "starts.py").write_text("import numpy, subprocess\nsubprocess.run(['true'])\n")
    (site / "pool.py").write_text("import numpy\nfrom multiprocessing import Pool\n")
    (site / "science.py").write_text("import scipy\n")
    said = probed(site, script)
    assert "ok=no" in said
    assert "hangs under DMTCP when it starts another program: write export OPENBLAS_NUM_THREADS=1" in said, said
    by_hand = probed(site, script, mode="by hand")
    assert "ok=yes" in by_hand
    assert "warning=" in by_hand
    assert "ok=yes" in probed(site, script, PROCESSORS="1"), "OpenBLAS has no threads on one processor"


def test_a_python_without_numpy_may_start_what_it_likes(site: Path) -> None:
    (site / "starts.py").write_text("import subprocess\nsubprocess.run(['true'])\n")
    assert "ok=yes" in probed(site, "python3 starts.py", NUMPY="no")
    said = probed(site, "module load python\npython3 starts.py", NUMPY="no")
    assert "ok=no" in said, "which Python that is, is not known before"


def test_reading_has_an_end(site: Path) -> None:
    """Scripts that name each other, many, and large ones: what was not read is not taken for harmless."""
    for number in range(100):
        (site / f"part{number}.sh").write_text(f"bash part{(number + 1) % 100}.sh\n")
    assert "ok=yes" in probed(site, "bash part0.sh")
    assert "ok=no" in probed(site, "bash part0.sh; python3 -c 'import numpy'")
    (site / "large.txt").write_text("word\n" * 100_000)
    assert "ok=no" in probed(site, "python3 -c 'import numpy' < large.txt")
    assert "ok=yes" in probed(site, "cat < large.txt")


# -- the launcher ----------------------------------------------------------------------------------------------


def stand_ins(bench: Bench) -> None:
    install_dmtcp(bench.folder)
    (bench.folder / "srun").write_text("#!/bin/sh\nwhile :; do sleep 1; done\n")
    (bench.folder / "srun").chmod(0o755)


@pytest.mark.parametrize("options", [(), ("--try", "1")], ids=["run", "try"])
def test_one_line_says_why_and_the_program_runs_as_it_is(bench: Bench, options: tuple[str, ...]) -> None:
    stand_ins(bench)
    (bench.folder / "generations").mkdir()
    where = ("--checkpointer", "dmtcp", "--dir", str(bench.folder / "generations"))
    program = 'echo ran >>"$FOLDER/ran"\n[ -n "$FOLDER" ] || srun x\nexit 42'
    step = bench.start(*options, *where, program=program, VERSION="4.2.0")
    _, said = step.communicate(timeout=120)
    assert said.count("\n") == 1
    assert ("this program cannot be saved here: " if options else "this job runs without checkpoints: ") in said
    assert "it runs srun, and DMTCP cannot save its connections to Slurm: write exec clearway-run" in said
    assert step.returncode == (1 if options else 42)
    assert (bench.folder / "ran").exists() == (not options)
    if not options:
        assert bench.claims().checkpoint is CheckpointHow.NONE


@one_shell
@pytest.mark.fault("A job offered to be saved before it had been looked whether it can be.", found_by="trial")
def test_an_srun_that_no_text_names_is_found_before_the_job_offers_to_be_saved(bench: Bench) -> None:
    stand_ins(bench)
    program = """
        name=run
        "s$name" &
        touch "$FOLDER/up"
        while [ ! -e "$FOLDER/stop" ]; do sleep 0.05; done
        kill $!
        exit 42
    """
    where = ("--checkpointer", "dmtcp", "--dir", str(bench.folder / "generations"))
    step = bench.start(*where, program=program, VERSION="4.2.0")
    pid = bench.launcher_pid()
    poll(lambda: "clearway:" in bench.comment and (bench.folder / "up").exists())
    assert bench.claims().checkpoint is CheckpointHow.NONE
    os.kill(pid, signal.SIGUSR1)  # asked all the same, as by hand
    poll(lambda: bench.claims().state is SaveState.FAILED)
    assert bench.claims().checkpoint is CheckpointHow.NONE
    (bench.folder / "stop").touch()
    _, said = step.communicate(timeout=120)
    assert "no checkpoint: srun runs in it, and DMTCP cannot save its connections to Slurm" in said
    assert step.returncode == 42, "the program was not harmed"


WAITS = """
    echo start >> "$FOLDER/starts"
    read -r word <"$FOLDER/fifo"
    while [ ! -e "$FOLDER/stop" ]; do sleep 0.05; done
    exit 42
"""


@one_shell
@pytest.mark.fault("A restart was told to be good before the program had computed anything.", found_by="trial")
def test_a_restart_counts_once_the_program_computes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """That its processes run, a checkpointer says of one that stands still for ever, too."""
    os.mkfifo(bench.folder / "fifo")
    job = Job.__new__(Job)
    job.bench, job.folder = bench, bench.folder
    stand_ins(bench)
    monkeypatch.setenv("VERSION", "4.2.0")
    job.run(WAITS)
    poll((bench.folder / "starts").exists)
    job.save(1)
    (bench.folder / "stop").touch()
    (bench.folder / "fifo").write_text("go\n")
    job.ends()
    (bench.folder / "stop").unlink()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    job.run(WAITS)
    poll(lambda: bool(list(bench.folder.glob("clearway-run.*/restarted"))))
    (told,) = bench.folder.glob("clearway-run.*/restarted")
    assert told.read_text() == "ok=yes\n"
    poll(lambda: time.time() > told.stat().st_mtime + 4)
    assert bench.claims().restart is None
    (bench.folder / "fifo").write_text("go\n")
    poll(lambda: bench.claims().restart is Restart.OK)
    (bench.folder / "stop").touch()
    assert job.ends()[0] == 42


@one_shell
@pytest.mark.fault(
    "A saved job whose output had come to name srun was not restarted: it began anew, without checkpoints.",
    found_by="trial",
)
def test_what_could_be_saved_is_restarted_whatever_its_folder_holds_now(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script names a file that it writes; by its next run that file has a line of srun's."""
    monkeypatch.setenv("CLEARWAY_DMTCP_GUARDS", "skipped")
    monkeypatch.setenv("SLURM_SUBMIT_DIR", str(bench.folder))
    job = Job(bench, "4.2.0")
    poll((job.folder / "starts").exists)
    job.save(1)
    os.kill(job.pid, signal.SIGTERM)
    job.ends()
    (job.folder / "starts").write_text("start\nsrun: got SIGCONT\n")
    job.run()
    poll(lambda: bench.claims().restart is Restart.OK)
    (job.folder / "stop").touch()
    code, said = job.ends()
    assert f"restarting from {job.folder}/generations/generation-000001" in said
    assert "runs without checkpoints" not in said
    assert code == 42


@pytest.mark.parametrize("to", ["1", "2"])
def test_what_a_job_prints_is_not_read_as_a_program(site: Path, to: str) -> None:
    (site / "said").write_text("srun: got SIGCONT\n")
    (site / "state").mkdir()
    code = f"state=state script=; . {LAUNCHER.with_name('clearway-commands')}; gather ./plain said"
    for mine in (False, True):
        after = f" {to}>>said" if mine else ""
        subprocess.run([SHELLS[0], "-uc", f"{{ {code}; }}{after}"], cwd=site, check=True)
        assert ("srun" in (site / "state" / "text").read_text()) is not mine


# -- the real DMTCP --------------------------------------------------------------------------------------------

TALKS = """\
import os, socket, sys, time
if sys.argv[1] == "itself":
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
else:
    port = int(sys.argv[1])
near = socket.create_connection(("127.0.0.1", port))
far = server.accept()[0] if sys.argv[1] == "itself" else near
while True:
    near.sendall(b"x")
    far.recv(1)
    with open("said", "a") as said:
        said.write("x\\n")
    time.sleep(0.05)
"""
ECHOES = (
    "import socket\nl = socket.create_server(('127.0.0.1', 0))\nprint(l.getsockname()[1], flush=True)\n"
    "c = l.accept()[0]\nwhile d := c.recv(9): c.sendall(d)\n"
)


@pytest.mark.parametrize("to", ["itself", "another"])
def test_a_connection_to_outside_is_refused_and_harms_nothing(real: DriverRun, to: str) -> None:  # noqa: F811
    """DMTCP's restart of such a program fails. One that is connected to itself comes back."""
    (real.folder / "talks.py").write_text(TALKS)
    other = subprocess.Popen([sys.executable, "-c", ECHOES], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    port = other.stdout.readline().strip()
    said = real.folder / "said"
    code = f"cd {real.folder} && exec {sys.executable} talks.py {port if to == 'another' else to}"
    process = real.spawn(real.driver.wrap(["/bin/sh", "-c", code]))

    def goes_on() -> Callable[[], bool]:
        before = len(said.read_text()) if said.exists() else 0
        return lambda: said.exists() and len(said.read_text()) > before

    try:
        poll(goes_on())
        saved = real.driver.checkpoint(real.generation(1), process.pid)
        poll(goes_on())
        if to == "another":
            assert f"it has a TCP connection to port {port}, outside of itself" in saved.reason
        else:
            assert saved.ok, saved.reason
    finally:
        end_group(process)
        other.kill()
        other.communicate()
