"""Who hears a request: the processes that catch the signal, wherever they stand below the program, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from clearway.model.claims import CheckpointHow, SaveState
from tests.integration.bench import Bench, poll, processes_with

# Saves itself on the signal, once it may listen; what it hears it writes down. With "deaf" it listens no more.
SAVER = """\
import os, signal, sys, time
name, folder = sys.argv[1], os.environ["FOLDER"]
def mark(what):
    with open(f"{folder}/{what}.{name}", "a") as log:
        log.write("x")
def save(*_):
    mark("heard")
    with open(f"{folder}/ck.{name}", "w") as out:
        out.write("saved")
    os.rename(f"{folder}/ck.{name}", f"{folder}/ck")
signal.signal(signal.SIGUSR1, save)
if "fork" in sys.argv and os.fork() == 0:
    name += ".fork"
mark("ready")
while not os.path.exists(f"{folder}/stop"):
    if os.path.exists(f"{folder}/deaf") and signal.getsignal(signal.SIGUSR1) is save:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    elif not os.path.exists(f"{folder}/deaf") and signal.getsignal(signal.SIGUSR1) is not save:
        signal.signal(signal.SIGUSR1, save)
    time.sleep(0.02)
sys.exit(7)
"""
PYTHON = "/usr/bin/python3"
FORMS = {
    "the program itself": f'exec {PYTHON} "$FOLDER/saver.py" one',
    "below a shell": f'{PYTHON} "$FOLDER/saver.py" one; exit $?',
    "in a pipe": f'set -o pipefail; {PYTHON} "$FOLDER/saver.py" one | cat',
    "below sh -c": f"""sh -c '{PYTHON} "$FOLDER/saver.py" one; exit $?'""",
    "below a starter in Python": f"""
        cat >"$FOLDER/starter.py" <<'END'
        import subprocess, sys
        sys.exit(subprocess.run(sys.argv[1:]).returncode)
        END
        sed -i 's/^ *//' "$FOLDER/starter.py"
        {PYTHON} "$FOLDER/starter.py" {PYTHON} "$FOLDER/saver.py" one""",
    "in a session of its own": f'setsid --wait {PYTHON} "$FOLDER/saver.py" one',
    "beside others that do not": f'sleep 300 & {PYTHON} "$FOLDER/saver.py" one; code=$?; kill $!; exit $code',
}


@pytest.fixture(autouse=True)
def _saver(bench: Bench) -> None:
    (bench.folder / "saver.py").write_text(SAVER)


@pytest.mark.fault(
    "dash 0.5.12 blocks signals while it starts a command: some jobs did not offer to save themselves on Debian 13.",
    found_by="trial",
)
def test_a_launcher_looks_at_its_own_signals_without_starting_anything(bench: Bench) -> None:
    # dash 0.5.12 blocks all signals while it starts a command: a sed that read its mask saw that, 4 times in 1,500.
    start = Path("plugins/slurm/clearway-start").resolve()
    script = f". {start}; hears_itself USR1 && exit 3; trap : USR1; hears_itself USR1 || exit 4"
    assert subprocess.run([f"/bin/{bench.shell}", "-c", script], env={"PATH": ""}, check=False).returncode == 0


class Job:
    def __init__(self, bench: Bench, program: str, *options: str, **more: str) -> None:
        self.bench, self.folder = bench, bench.folder
        wanted = ("--hold", "0", "--checkpoint-file", f"{bench.folder}/ck", *options)
        self.step = bench.start(*wanted, program=program, **more)
        self.pid = bench.launcher_pid()

    def offers(self) -> CheckpointHow | None:
        return self.bench.claims().checkpoint

    def ask(self, state: SaveState) -> None:
        last = self.bench.claims().asked
        poll(lambda: last is None or time.time() >= last.timestamp() + 1)  # asked is told in whole seconds
        os.kill(self.pid, signal.SIGUSR1)
        poll(lambda: (claims := self.bench.claims()).state is state and claims.asked != last)

    def marks(self, what: str) -> dict[str, int]:
        return {path.name.split(".", 1)[1]: path.stat().st_size for path in self.folder.glob(f"{what}.*")}

    def end(self) -> tuple[int, str]:
        (self.folder / "stop").touch()
        _, said = self.step.communicate(timeout=60)
        return self.step.returncode, said


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.fault(
    "A request for a checkpoint ended shell scripts and `torchrun`, which do not catch the signal, around the program.",
    found_by="trial",
)
def test_the_process_that_catches_it_hears_it_wherever_it_stands(bench: Bench, form: str) -> None:
    job = Job(bench, FORMS[form])
    poll(lambda: job.offers() is CheckpointHow.SIGNAL)
    job.ask(SaveState.SAVED)
    assert job.marks("heard") == {"one": 1}
    code, said = job.end()
    assert code == 7, said


def test_nobody_catches_it(bench: Bench) -> None:
    """No offer is made, it is said once, and a request that comes all the same harms nobody."""
    job = Job(bench, 'touch "$FOLDER/ready.none"; while [ ! -e "$FOLDER/stop" ]; do sleep 0.05; done; exit 7')
    poll(lambda: bench.claims().checkpoint is not None, 30)
    assert job.offers() is CheckpointHow.NONE
    for _ in range(2):
        job.ask(SaveState.FAILED)
    assert job.offers() is CheckpointHow.NONE
    code, said = job.end()
    assert code == 7, said
    assert said.count("no process of the program catches USR1") == 3, said
    assert said.count("does not offer to save itself") == 1


def test_one_that_saves_itself_at_its_own_pace_and_hears_nothing_offers_that(bench: Bench) -> None:
    program = """
        while [ ! -e "$FOLDER/stop" ]; do sleep 0.5; echo > "$FOLDER/ck.new"; mv "$FOLDER/ck.new" "$FOLDER/ck"; done
    """
    job = Job(bench, program, "--interval", "1")
    poll(lambda: (bench.claims().generation or 0) >= 2)
    poll(lambda: job.offers() is CheckpointHow.INTERVAL)
    assert bench.claims().interval_s == 1
    assert job.end()[0] == 0


def test_the_offer_follows_what_the_program_does(bench: Bench) -> None:
    job = Job(bench, FORMS["below a shell"])
    poll(lambda: job.offers() is CheckpointHow.SIGNAL)
    (bench.folder / "deaf").touch()
    time.sleep(0.2)  # ten of its rounds
    job.ask(SaveState.FAILED)
    poll(lambda: job.offers() is CheckpointHow.NONE)
    assert not job.marks("heard")
    (bench.folder / "deaf").unlink()
    poll(lambda: job.offers() is CheckpointHow.SIGNAL, 30)
    job.ask(SaveState.SAVED)
    code, said = job.end()
    assert code == 7, said


def test_one_that_begins_slowly_is_waited_for(bench: Bench) -> None:
    """Asked before it listens: within two seconds it may."""
    job = Job(
        bench, 'touch "$FOLDER/begun"; until [ -e "$FOLDER/listen" ]; do sleep 0.02; done; ' + FORMS["below a shell"]
    )
    poll((bench.folder / "begun").exists)
    os.kill(job.pid, signal.SIGUSR1)
    poll(lambda: "state=saving" in bench.comment)
    (bench.folder / "listen").touch()
    poll(lambda: bench.claims().state is SaveState.SAVED)
    poll(lambda: job.offers() is CheckpointHow.SIGNAL)
    assert job.end()[0] == 7


def test_all_that_catch_it_hear_it_but_a_fork_that_inherited_the_handler(bench: Bench) -> None:
    """A shell's trap waits for what the shell runs; two forks of one program would write the same file."""
    program = f'trap "echo trapped >>\\"$FOLDER/heard.shell\\"" USR1; {PYTHON} "$FOLDER/saver.py" one fork & \
        {PYTHON} "$FOLDER/saver.py" two; wait %1; exit $?'
    job = Job(bench, program)
    poll(lambda: set(job.marks("ready")) == {"one", "one.fork", "two"})
    poll(lambda: job.offers() is CheckpointHow.SIGNAL)
    job.ask(SaveState.SAVED)
    poll(lambda: job.marks("heard") == {"one": 1, "two": 1})
    (bench.folder / "ck").unlink()
    code, said = job.end()
    assert code == 7, said
    assert job.marks("heard") == {"one": 1, "two": 1, "shell": len("trapped\n")}


WAITS = """\
import os, signal, subprocess, sys, threading, time
folder = os.environ["FOLDER"]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
helper = subprocess.Popen(["sleep", "300"])  # it inherits that
def save():
    with open(f"{folder}/heard.one", "a") as log:
        log.write("x")
    open(f"{folder}/ck.new", "w").close()
    os.rename(f"{folder}/ck.new", f"{folder}/ck")
def waits():
    while True:
        signal.sigwait([signal.SIGUSR1])
        save()
if "thread" in sys.argv:
    threading.Thread(target=waits, daemon=True).start()
while not os.path.exists(f"{folder}/stop"):
    if "thread" not in sys.argv and signal.SIGUSR1 in signal.sigpending():
        signal.sigwait([signal.SIGUSR1])
        save()
    time.sleep(0.02)
pending = [line for line in open(f"/proc/{helper.pid}/status") if line.startswith("ShdPnd")]
helper.kill()
os._exit(7 if int(pending[0].split()[1], 16) == 0 else 8)
"""


@pytest.mark.parametrize("how", ["thread", "looks"])
def test_one_that_blocks_the_signal_and_waits_for_it_hears_it(bench: Bench, how: str) -> None:
    (bench.folder / "waits.py").write_text(WAITS)
    job = Job(bench, f'{PYTHON} "$FOLDER/waits.py" {how}; exit $?')
    poll(lambda: job.offers() is CheckpointHow.SIGNAL)
    job.ask(SaveState.SAVED)
    assert job.marks("heard") == {"one": 1}
    assert job.end()[0] == 7


def test_a_command_is_asked_whoever_catches_what(bench: Bench) -> None:
    program = 'while [ ! -e "$FOLDER/stop" ]; do sleep 0.05; done; exit 7'
    (bench.folder / "can-save").touch()
    step = bench.start("--hold", "0", "--checkpoint-command", 'test -e "$FOLDER/can-save"', program=program)
    pid = bench.launcher_pid()
    poll(lambda: "clearway:max_delay=5m," in bench.comment)
    assert bench.claims().checkpoint is CheckpointHow.SIGNAL
    os.kill(pid, signal.SIGUSR1)
    poll(lambda: bench.claims().state is SaveState.SAVED)
    (bench.folder / "stop").touch()
    assert step.wait(timeout=60) == 7


# Behaves as srun does: waits for the signal, which it blocks, and passes it to each process of its tasks; these are no
# descendants of it, and know their step by its variable.
SRUN = """\
#!/usr/bin/python3
import os, signal, subprocess, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
tasks = []
for rank in "01":
    # Orphans, as children of slurmstepd are to the program.
    env = os.environ | {"SLURM_STEP_ID": "0", "SLURM_PROCID": rank}
    script = f'"$@" {rank} & echo $! >"$FOLDER/task{rank}"; exit 0'
    unblocked = lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    subprocess.run(["sh", "-c", script, "sh", *sys.argv[1:]], env=env, preexec_fn=unblocked)
    tasks.append(int(open(os.environ["FOLDER"] + f"/task{rank}").read()))
def below(pid):
    kids = open(f"/proc/{pid}/task/{pid}/children").read().split()
    return [pid] + [each for kid in kids for each in below(int(kid))]
def runs(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
while any(map(runs, tasks)):
    heard = signal.sigtimedwait([signal.SIGUSR1], 0.05)
    if heard and heard.si_signo == signal.SIGUSR1:  # stopped and continued, it returns something else
        open(os.environ["FOLDER"] + "/heard.srun", "a").write("x")
        for pid in [each for task in tasks if runs(task) for each in below(task)]:
            os.kill(pid, signal.SIGUSR1)
sys.exit(0 if os.path.exists(os.environ["FOLDER"] + "/stop") else 9)
"""


@pytest.mark.parametrize("nodes", ["1", "2"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_tasks_of_srun(bench: Bench, nodes: str, *, wrapped: bool) -> None:
    """On one node each task that catches it is sent it; on several only srun can, which spares nobody."""
    srun = bench.folder / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    wrapper = bench.folder / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n{PYTHON} "$FOLDER/saver.py" "$1"\nexit $?\n')
    wrapper.chmod(0o755)
    task = str(wrapper) if wrapped else f"{PYTHON} {bench.folder}/saver.py"
    job = Job(bench, f"exec {srun} {task}", SLURM_JOB_NUM_NODES=nodes)
    poll(lambda: set(job.marks("ready")) == {"0", "1"})
    poll(lambda: bench.claims().checkpoint is not None, 30)
    if wrapped and nodes == "2":
        assert job.offers() is CheckpointHow.NONE
        job.ask(SaveState.FAILED)
        assert not job.marks("heard")
    else:
        poll(lambda: job.offers() is CheckpointHow.SIGNAL)
        job.ask(SaveState.SAVED)
        expected = {"0": 1, "1": 1} | ({"srun": 1} if nodes == "2" else {})
        poll(lambda: sum(job.marks("heard").values()) >= sum(expected.values()))
        assert job.marks("heard") == expected
    code, said = job.end()
    assert code == 0, said


BEGINS_DEAF = """trap '' USR1; exec "$@" """


@pytest.mark.parametrize("able", [True, False])
@pytest.mark.fault(
    "Under the launcher a program did not ignore the signals that it would have ignored without it.", found_by="trial"
)
def test_a_signal_that_was_ignored_before(bench: Bench, *, able: bool) -> None:
    """The launcher hears it all the same, where the node's env can do that; else it makes no offer, and says so."""
    if not able:
        env = bench.folder / "env"
        env.write_text('#!/bin/sh\n[ "$*" != "--default-signal=INT true" ] || exit 125\nexec /usr/bin/env "$@"\n')
        env.chmod(0o755)
    stepd = bench.folder / "slurmstepd"
    stepd.write_text(
        stepd.read_text().replace(
            '"$@"', f"sh -c '{BEGINS_DEAF.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}' sh \"$@\""
        )
    )
    program = f'sed -n "s/^SigIgn:.*\\(...\\)/\\1/p" /proc/$$/status >"$FOLDER/ignored"; {FORMS["the program itself"]}'
    job = Job(bench, program)
    poll(lambda: bench.claims().checkpoint is not None, 30)
    assert job.offers() is (CheckpointHow.SIGNAL if able else CheckpointHow.NONE)
    if able:
        job.ask(SaveState.SAVED)
        assert job.marks("heard") == {"one": 1}
    code, said = job.end()
    assert code == 7, said
    assert ("USR1 is ignored or blocked since before the launcher began" in said) is not able
    assert int((bench.folder / "ignored").read_text(), 16) & 1 << 9, "the program has what it would have had"


def test_a_program_is_interrupted_as_it_would_be_without_the_launcher(bench: Bench) -> None:
    """What a shell starts in the background ignores INT: Python would set up no KeyboardInterrupt."""
    program = f"""exec {PYTHON} -c '
import os, time
open(os.environ["FOLDER"] + "/ready", "w")
try:
    time.sleep(60)
except KeyboardInterrupt:
    os._exit(9)'"""
    step = bench.start("--checkpoint-file", f"{bench.folder}/ck", program=program)
    poll((bench.folder / "ready").exists)
    os.kill(bench.launcher_pid(), signal.SIGINT)
    assert step.wait(timeout=60) == 9


def test_a_process_of_another_user_is_nobodys_to_signal(bench: Bench) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    program = f'setpriv --reuid=65534 --clear-groups {PYTHON} -c "$OTHER"; exit $?'
    other = f"""
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
while not os.path.exists({str(bench.folder / "stop")!r}): time.sleep(0.02)
os._exit(7)"""
    bench.folder.chmod(0o755)
    job = Job(bench, program, OTHER=other)
    poll(lambda: bench.claims().checkpoint is not None, 30)
    assert job.offers() is CheckpointHow.NONE
    job.ask(SaveState.FAILED)
    for process in processes_with(f"FOLDER={bench.folder}".encode()):
        if (Path(f"/proc/{process}").stat().st_uid) == 65534:
            os.kill(process, signal.SIGTERM)  # it sees no folder of root's
    assert job.end()[0] == 128 + signal.SIGTERM
