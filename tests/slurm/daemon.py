"""The real daemon beside a real cluster: a process of its own, a database of its own, REST on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import httpx

from clearway.api.logins import digest_of
from clearway.cli import launcher
from clearway.config.configuration import load_config
from clearway.model.operations import Eviction
from clearway.store.repository import Store
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import SLACK

BACKEND = os.environ.get("CLEARWAY_BACKEND", "cli")

MOST_REPEATED = 20  # steps of a second, from a checkpoint until the launcher looks; on a quiet machine one at most

# A program that computes in steps, saves itself between two of them when it gets USR1, and goes on from there.
# A step takes a second until a test lets it hurry: it lasts for as long as the test needs it, on any machine. So does
# saving, while there is a file FILE.hold.
STEPPER = """\
import os, signal, sys, time
steps, state = int(sys.argv[1]), sys.argv[2]
wanted = False
def ask(*_):
    global wanted
    wanted = True
signal.signal(signal.SIGUSR1, ask)
done, value = 0, 7
if os.path.exists(state):
    done, value = map(int, open(state).read().split())
while done < steps:
    end = time.monotonic() + 1.0
    while time.monotonic() < end and not os.path.exists(state + ".hurry"):
        time.sleep(0.02)
    done, value = done + 1, (value * 31 + done) % 1000003
    with open(state + ".log", "a") as log:
        log.write(f"{done}\\n")
    if wanted:
        wanted = False
        while os.path.exists(state + ".hold"):
            time.sleep(0.02)
        with open(state + ".new", "w") as out:
            out.write(f"{done} {value}")
        os.rename(state + ".new", state)
with open(state + ".result", "w") as out:
    out.write(str(value))
"""


def expected_result(steps: int) -> int:
    """What an undisturbed run of STEPPER ends with."""
    value = 7
    for done in range(steps):
        value = (value * 31 + done) % 1_000_003
    return value


def result_of(cluster: SlurmCluster, name: str) -> int:
    """Let STEPPER hurry to its end; what it ended with. ``name`` is that of its file, in the cluster's folder."""
    (cluster.work / f"{name}.hurry").touch()
    result = cluster.work / f"{name}.result"
    cluster.wait_for(lambda: result.exists() and result.read_text(), 90, f"the result of {name}")
    return int(result.read_text())


def check_result(cluster: SlurmCluster, job_id: str, steps: int, away_s: float = 0.0) -> None:
    """Right result, and what was saved is not done twice: on a busy machine a step ends before the program is held.

    ``away_s``: so long there was no daemon. The launcher holds a program for twenty seconds, and then lets it go on.
    """
    state = cluster.work / f"state.{job_id}"
    assert result_of(cluster, state.name) == expected_result(steps)
    done = [int(line) for line in Path(f"{state}.log").read_text().split()]
    assert sorted(set(done)) == list(range(1, steps + 1))
    went_back_to = [later for earlier, later in pairwise(done) if later <= earlier]
    assert not went_back_to or went_back_to == [int(state.read_text().split()[0]) + 1]
    assert len(done) <= steps + MOST_REPEATED + away_s


def slurm_settings(slurm_conf: Path) -> str:
    rest = f'\nrest_url = "unix:{slurm_conf.parent}/rest/socket"' if BACKEND == "rest" else ""
    return f'backend = "{BACKEND}"\nconf = "{slurm_conf}"{rest}'


def config_text(folder: Path, slurm_conf: Path, max_delay_s: int = 60, **changes: str) -> str:
    """TOML; ``changes`` replace whole sections by name, or add to them.

    A quiet machine serves an urgent job in three to six seconds. Where a delay that is over would change the plan, and
    the test does not look at that, ``max_delay_s`` is longer.
    """
    sections = {
        "daemon": 'mode = "automatic"\npoll_interval = 1\nactive_interval = 0.25',
        "slurm": slurm_settings(slurm_conf),
        "store": f'url = "sqlite:///{folder}/clearway.sqlite"',
        "api": f'port = 0\ntoken_file = "{folder}/tokens"',
        "candidates": 'min_runtime = 1\nprotected_users = ["cwbob"]\nspare_before_end = "80s"',
        "costs": "checkpoint_overhead = 3",
        "execution": "kill_allowance = 12",
    } | changes
    rule = f'[[preemptors]]\nname = "urgent"\npartition = ["urgent"]\nmax_delay = "{max_delay_s}s"\n'
    return rule + "".join(f"\n[{name}]\n{keys}\n" for name, keys in sections.items())


class RunningDaemon:
    """``with RunningDaemon(cluster, folder) as daemon``; killed with SIGKILL it leaves database and cluster behind.

    ``env`` is added to its environment.
    """

    token = "a-token-for-the-tests-0123456789"
    authorized: ClassVar = {"Authorization": f"Bearer {token}"}

    def __init__(
        self,
        cluster: SlurmCluster,
        folder: Path,
        *,
        config: str | None = None,
        kill_at: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster, self.folder = cluster, folder
        folder.mkdir(exist_ok=True)
        self.config = folder / "clearway.toml"
        self.config.write_text(config if config is not None else config_text(folder, cluster.conf))
        tokens = folder / "tokens"
        tokens.write_text(f"tester admin never {digest_of(self.token)}\n")
        tokens.chmod(0o600)
        self.log = folder / "daemon.log"
        self._kill_at = kill_at
        self._env = {**cluster.env, "PYTHONPATH": os.pathsep.join(sys.path)} | dict(env or {})

    def __enter__(self) -> Self:
        script = Path(__file__).with_name("killed_daemon.py")
        arguments = [sys.executable, str(script), str(self.config), self._kill_at]
        with self.log.open("ab") as log:
            self._offset = log.tell()  # before it starts: it may have said where it listens when we look again
            self.process = subprocess.Popen(arguments, stderr=log, stdout=log, env=self._env)
        if not self._kill_at:
            try:
                self.wait_ready()
            except BaseException as error:
                self.__exit__(type(error), error, None)  # else it would go on beside the next test
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            error.add_note(self.log.read_text()[-6_000:])
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30 * SLACK)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def wait_ready(self) -> None:
        self.wait_for(self.address, 60, "the daemon to listen")
        self.wait_for(lambda: self.get("/readiness").status_code == 200, 60, "the daemon to be ready")

    def address(self) -> str | None:
        written = self.log.read_bytes()[self._offset :].decode(errors="replace")
        whole = written.rpartition("\n")[0].splitlines()  # the last line may be half-written
        lines = [line for line in whole if " serving " in line]
        return lines[-1].partition("address=")[2].split()[0].strip('"') if lines else None

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.address()}{path}", headers=self.authorized, timeout=20 * SLACK)

    def post(self, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        return httpx.post(f"{self.address()}{path}", json=body, headers=self.authorized, timeout=20 * SLACK)

    def store(self) -> Store:
        return Store(load_config(self.config).store.url)

    def evictions(self) -> tuple[Eviction, ...]:
        store = self.store()
        try:
            return store.evictions()
        finally:
            store.close()

    def wait_for(self, done: Callable[[], Any], timeout: float, what: str) -> Any:
        end = time.monotonic() + timeout * SLACK
        while not (value := done()):
            assert self.process.poll() is None or self._kill_at, f"the daemon died: {self.log.read_text()[-3_000:]}"
            assert time.monotonic() < end, (
                f"not within {timeout * SLACK:g} s: {what}\n{self.cluster.run('squeue').stdout}"
            )
            time.sleep(0.1)
        return value


def install_programs(cluster: SlurmCluster) -> None:
    """The launcher and the stepping program, where every user and node can read them."""
    launcher.install(cluster.work)
    (cluster.work / "stepper.py").write_text(STEPPER)


def saver_script(cluster: SlurmCluster, steps: int) -> str:
    """A job that saves itself on the daemon's signal; its files are named after the job and array task."""
    return textwrap.dedent(f"""\
        #!/bin/bash
        state={cluster.work}/state.$SLURM_JOB_ID
        exec {cluster.work}/clearway-run --checkpoint-file "$state" -- \\
            python3 {cluster.work}/stepper.py {steps} "$state"
        """)


def show(value: Any) -> str:
    return json.dumps(value, indent=1, default=str)
