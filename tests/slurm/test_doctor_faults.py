"""Each fault that is planted at a real Slurm, or beside it, is found by `clearway doctor`, with what to do about it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy import text

from clearway.cli import launcher
from clearway.doctor import case
from clearway.model.records import PAUSED
from clearway.model.requests import RequestKind
from clearway.store.database import open_database
from clearway.store.repository import Store
from tests.slurm.doctor_scene import Scene, free_port, look
from tests.slurm.machine import SLACK, stop_process

pytestmark = pytest.mark.one_slurm


# ---- faults of what is beside Slurm, and of its state --------------------------------------------------------------


def config(before: str = "", after: str = "") -> Callable[[Scene], None]:
    return lambda scene: scene.configure(before, after)


def options(*given: str) -> Callable[[Scene], None]:
    return lambda scene: scene.options.extend(given)


def no_controller(scene: Scene) -> None:
    scene.cluster.stop_controller()
    scene.undo.callback(scene.cluster.start_controller)


def no_slurmdbd(scene: Scene) -> None:
    scene.cluster.end("slurmdbd")
    scene.undo.callback(scene.cluster.start_slurmdbd)


def no_munge(scene: Scene) -> None:
    scene.cluster.end("munged")
    scene.undo.callback(scene.cluster.start_munge)


def no_database_of_slurmdbd(scene: Scene) -> None:
    scene.undo.callback(scene.cluster.start_slurmdbd)  # it may have ended for want of one
    scene.undo.callback(scene.cluster.end, "slurmdbd")
    scene.undo.callback(scene.cluster.start_mariadb)
    scene.cluster.end("mariadbd")


def hung(name: str) -> Callable[[Scene], None]:
    """A daemon of Slurm's that takes connections and says nothing."""

    def plant(scene: Scene) -> None:
        scene.configure("[slurm]\n", "[slurm]\ntimeout = 6\n")
        pid = scene.cluster.pid_of(name)
        scene.undo.callback(os.kill, pid, signal.SIGCONT)
        stop_process(pid)

    return plant


def no_nodes(scene: Scene) -> None:
    scene.cluster.run("scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=test")
    scene.undo.callback(scene.cluster.reset)


def no_node_for_the_job(scene: Scene) -> None:
    no_nodes(scene)
    scene.options += ["--job"]


def urgent_down(scene: Scene) -> None:
    scene.cluster.run("scontrol", "update", "PartitionName=urgent", "State=DOWN")
    scene.undo.callback(scene.cluster.run, "scontrol", "update", "PartitionName=urgent", "State=UP")


def server(kind: str) -> Callable[[Scene], None]:
    """A database server that is down."""

    def plant(scene: Scene) -> None:
        url = f"{kind}://clearway@127.0.0.1:{free_port()}/clearway"
        scene.configure(f"sqlite:///{scene.folder}/clearway.sqlite", url)

    return plant


def database_of(revision: str) -> Callable[[Scene], None]:
    def plant(scene: Scene) -> None:
        opened = open_database(scene.database())
        with opened.writing() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
        opened.engine.dispose()

    return plant


def damaged_database(scene: Scene) -> None:
    (scene.folder / "clearway.sqlite").write_bytes(b"not a database" * 1_000)


def small_disk(scene: Scene, options: str = "size=1m") -> Path:
    disk = scene.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)
    scene.undo.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
    return disk


def full_disk(scene: Scene) -> None:
    disk = small_disk(scene)
    shutil.copyfile(scene.empty_database, disk / "clearway.sqlite")
    fill(disk)
    scene.configure("/clearway.sqlite", "/disk/clearway.sqlite")


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "other").write_bytes(bytes(2**21))


def read_only_disk(scene: Scene) -> None:
    disk = small_disk(scene)
    shutil.copyfile(scene.empty_database, disk / "clearway.sqlite")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    scene.configure("/clearway.sqlite", "/disk/clearway.sqlite")


def full_disk_for_checkpoints(scene: Scene) -> None:
    disk = small_disk(scene)
    fill(disk)
    scene.options += ["--checkpoints", str(disk)]


def taken_port(scene: Scene) -> None:
    """By a web server that is none of ours."""
    server = scene.undo.enter_context(ThreadingHTTPServer(("127.0.0.1", scene.port), BaseHTTPRequestHandler))
    scene.undo.callback(server.shutdown)
    threading.Thread(target=server.serve_forever, args=[0.05]).start()


def ended_tokens(scene: Scene) -> None:
    file = scene.folder / "tokens"
    file.touch(0o600)
    file.write_text(f"ann operator 2020-01-01T00:00:00Z sha256:{64 * '0'}\n")
    scene.configure("[api]\n", f'[api]\ntoken_file = "{file}"\n')


def open_tokens(scene: Scene) -> None:
    ended_tokens(scene)
    (scene.folder / "tokens").chmod(0o644)


def halt_file(scene: Scene) -> None:
    (scene.folder / "halt").touch()


def halted(scene: Scene) -> None:
    """By a request that no daemon has seen yet."""
    store = Store(scene.database())
    store.add_request(RequestKind.HALT, None, "ann", datetime.now(UTC))
    store.close()


def paused(scene: Scene) -> None:
    """As a database is after `clearway restore`."""
    store = Store(scene.database())
    store.set_value(PAUSED, value=True)
    store.close()


def other_launcher(scene: Scene) -> None:
    bin_ = scene.folder / "bin"
    launcher.install(bin_)
    (bin_ / "clearway-run").write_text("#!/bin/sh\nexit 0\n")
    scene.options += ["--job", "--launcher", str(bin_ / "clearway-run")]


FAULTS: Mapping[str, tuple[Callable[[Scene], None], str, str, str]] = {
    "slurmctld is down": (no_controller, "answers", "fault", "scontrol ping"),
    "slurmdbd is down": (no_slurmdbd, "slurmdbd", "fault", "systemctl status slurmdbd"),
    "slurmctld hangs": (hung("slurmctld"), "answers", "fault", "scontrol ping"),
    "slurmdbd hangs": (hung("slurmdbd"), "slurmdbd", "fault", "systemctl status slurmdbd"),
    "slurmdbd has no database": (no_database_of_slurmdbd, "slurmdbd", "fault", "MariaDB"),
    "munge is down": (no_munge, "answers", "fault", "munge"),
    "no node takes jobs": (no_nodes, "nodes", "fault", "sinfo -R"),
    "the urgent partition is down": (urgent_down, "names", "advice", "State=UP"),
    "a rule names a partition that is not": (config('["urgent"]', '["urgnt"]'), "names", "fault", "batch, urgent"),
    "a rule names a QoS that is not": (config("", 'qos = ["fast"]\n'), "names", "fault", "it has: normal"),
    "no rule": (config('[[preemptors]]\nname = "urgent"\npartition = ["urgent"]\n'), "names", "fault", "clearway init"),
    "a newer database": (database_of("9999"), "database", "fault", "newer version"),
    "an old database": (database_of("0017"), "database", "fault", "begin with an empty database"),
    "a damaged database": (damaged_database, "database", "fault", "clearway restore"),
    "no folder for the database": (config("/clearway.sqlite", "/none/x.sqlite"), "database", "fault", "install -d"),
    "PostgreSQL is down": (server("postgresql"), "database", "fault", "start the server"),
    "MariaDB is down": (server("mariadb"), "database", "fault", "start the server"),
    "the disk is full": (full_disk, "its disk", "fault", "make room"),
    "the disk is read-only": (read_only_disk, "database", "fault", "clearway.sqlite"),
    "the port is taken": (taken_port, "port", "fault", "api.port"),
    "all tokens have ended": (ended_tokens, "tokens", "fault", "clearway token"),
    "the token file is open": (open_tokens, "token file", "fault", "mode 0644"),
    "the stop switch is on": (halt_file, "stop switch", "fault", "rm "),
    "a halt in the database": (halted, "stop switch", "fault", "by ann (clearway unhalt)"),
    "a pause in the database": (paused, "stop switch", "advice", "clearway resume"),
    "no calendar": (config("", '[promises]\ncalendar = "/none/x.ics"\n'), "calendar", "fault", "put it right"),
    "no Prometheus": (options("--prometheus", "http://127.0.0.1:9"), "Prometheus", "fault", "--prometheus"),
    "no node for the job": (no_node_for_the_job, "launcher", "fault", "free a node"),
    "no launcher": (options("--job", "--launcher", "/none/clearway-run"), "launcher", "fault", "clearway launcher"),
    "another launcher": (other_launcher, "launcher", "advice", "clearway launcher"),
    "no folder for checkpoints": (options("--checkpoints", "/none"), "disk", "fault", "every node mounts"),
    "a full disk for checkpoints": (full_disk_for_checkpoints, "disk", "fault", "make room"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_what_to_do(scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "WAIT_S", 10.0 * SLACK if name != "no node for the job" else 1.0)
    plant, check, state, says = FAULTS[name]
    plant(scene)
    look(scene.alarms(), check, state, says)


# ---- faults of slurm.conf -------------------------------------------------------------------------------------------

ODD: Mapping[str, tuple[Callable[[Scene], None], str, str, str]] = {
    "KillWait is longer": (config(), "KillWait", "fault", 'kill_allowance = "35s"'),
    "an epilog": (config("", '[execution]\nkill_allowance = "33s"\n'), "KillWait", "advice", "epilog"),
    "PreemptExemptTime is longer": (config(), "exempt time", "advice", 'min_runtime = "10m00s"'),
    "jobs are not requeued": (config(), "requeue", "fault", "JobRequeue=1"),
    "Slurm preempts by itself": (config('["urgent"]', '["hot"]'), "preemption", "advice", "PreemptMode=OFF"),
    "a QoS without slurmdbd": (config("", 'qos = ["fast"]\n'), "names", "fault", "no QoS fast"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_fault_of_slurm_conf_is_found_with_what_to_do(odd_scene: Scene, name: str) -> None:
    plant, check, state, says = ODD[name]
    plant(odd_scene)
    look(odd_scene.alarms(), check, state, says)
