"""`clearway init` and `clearway doctor` on a real Slurm: no alarm at a healthy site, and a line for each fault.

Two small clusters, whose slurm.conf never changes while they run: one as it should be, and one whose configuration has
every fault of its kind. (From Slurm 24.11 on, slurmd takes `scontrol reconfigure` by starting itself anew, and one that
comes right after another may end it.)
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from clearway.cli import init, launcher
from clearway.cli.app import app
from clearway.config.configuration import load_config
from clearway.doctor import node_checks, slurm_checks
from clearway.doctor.case import Asked, Case
from clearway.doctor.examination import examine
from clearway.doctor.finding import Finding
from clearway.model.requests import RequestKind
from clearway.store.base import PAUSED
from clearway.store.database import open_database
from clearway.store.repository import SqlStore
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail, skip_without_accounting
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import missing_requirements
from tests.slurm.test_service_user import as_service_user

pytestmark = pytest.mark.one_slurm

CONFIG = """\
[daemon]
poll_interval = 1
halt_file = "{state}/halt"
[slurm]
conf = "{conf}"
[store]
url = "sqlite:///{state}/clearway.sqlite"
[api]
port = {port}
[[preemptors]]
name = "urgent"
partition = ["urgent"]
"""
BAD = ("fault", "advice")
ODD_CONF = [
    "KillWait=30",
    "Epilog=/bin/true",
    "JobRequeue=0",
    "PreemptExemptTime=00:10:00",
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PartitionName=hot Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9",
]


@dataclass
class Scene:
    """A configuration of its own beside a cluster. What ``undo`` holds is done when the test ends."""

    cluster: SlurmCluster
    folder: Path
    port: int
    undo: ExitStack
    empty_database: Path
    options: list[str] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "clearway.toml"

    def configure(self, before: str = "", after: str = "") -> None:
        text = CONFIG.format(state=self.folder, conf=self.cluster.conf, port=self.port)
        assert before in text
        self.file.write_text(text.replace(before, after) if before else text + after)

    def database(self) -> str:
        """The URL of one that the daemon has made its tables in."""
        shutil.copyfile(self.empty_database, self.folder / "clearway.sqlite")
        return f"sqlite:///{self.folder}/clearway.sqlite"

    def ask(self) -> dict[str, Any]:
        """What the doctor says as JSON; its exit status fits."""
        said = run("doctor", "-c", self.file, "-o", "json", *self.options)
        answer = dict(json.loads(said.stdout))
        assert said.exit_code == (0 if answer["good"] else 1)
        return answer

    def alarms(self) -> dict[str, tuple[str, str]]:
        """By the name of the check: the state and all that is said of it."""
        found = self.ask()["findings"]
        return {f["check"]: (f["state"], f"{f['what']} -> {f['remedy']}") for f in found if f["state"] in BAD}


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmCluster]:
    skip_without_accounting()
    with SlurmCluster(nodes=2, accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def odd_site() -> Iterator[SlurmCluster]:
    """Without slurmdbd."""
    if reason := missing_requirements():
        skip_or_fail(reason)
    with SlurmCluster(nodes=1, extra_conf=ODD_CONF) as cluster:
        yield cluster


def made(
    cluster: SlurmCluster, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    with ExitStack() as undo:
        scene = Scene(cluster, cluster.work / tmp_path.name, free_port(), undo, empty_database)
        scene.folder.mkdir()
        scene.folder.chmod(0o777)
        scene.configure()
        yield scene


@pytest.fixture
def scene(site: SlurmCluster, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield from made(site, tmp_path, empty_database, monkeypatch)


@pytest.fixture
def odd_scene(
    odd_site: SlurmCluster, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    yield from made(odd_site, tmp_path, empty_database, monkeypatch)


def test_a_healthy_site_gives_no_alarm(scene: Scene) -> None:
    bin_ = scene.cluster.work / "bin"
    launcher.install(bin_)
    scene.options = ["--job", "--launcher", str(bin_ / "clearway-run"), "--checkpoints", "/tmp"]
    answer = scene.ask()
    told = {each["check"]: each for each in answer["findings"]}
    assert {name: each["what"] for name, each in told.items() if each["state"] in BAD and name != "disk"} == {}
    for name in ("launcher", "checkpointers", "rights", "slurmdbd", "clock"):
        assert told[name]["state"] == "ok"
    assert "application" in told["checkpointers"]["what"]
    assert not list(scene.folder.glob("*.sqlite*")), "looking makes no database"
    assert scene.cluster.run("squeue", "-h").stdout == ""
    assert scene.cluster.scontrol_reservations() == []


def test_the_page_is_one_page(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    said = run("doctor", "-c", scene.file)
    assert said.exit_code == 0
    assert len(said.stdout.splitlines()) <= 40
    assert max(map(len, said.stdout.splitlines())) <= 100
    assert "Everything that must hold holds" in said.stdout


def test_what_init_writes_is_accepted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "_MOST_MIB", 16)
    file = scene.folder / "first.toml"
    said = run("init", file, "--slurm-conf", scene.cluster.conf, "--state", scene.folder, "--measure", scene.folder)
    assert said.exit_code == 0, said.output
    assert run("check-config", file).exit_code == 0
    text = file.read_text()
    assert 'mode = "observe"' in text
    assert 'partition = ["urgent"]' in text
    assert 'kill_allowance = "10s"' in text  # the cluster's KillWait of 5 s, and 5 s
    assert "not measured" not in text
    scene.file.write_text(text)
    assert scene.alarms().keys() <= {"port"}, "what init writes, doctor finds good"
    again = run("init", file)
    assert (again.exit_code, file.read_text()) == (1, text), "a file that is there stays"


def test_what_init_writes_for_a_slurm_with_habits(odd_scene: Scene) -> None:
    """What the configuration can answer it answers; what is Slurm's own, doctor tells."""
    said = run("init", odd_scene.file, "--replace", "--slurm-conf", odd_scene.cluster.conf, "--state", odd_scene.folder)
    assert said.exit_code == 0, said.output
    text = odd_scene.file.read_text()
    assert 'kill_allowance = "45s"' in text  # KillWait, 5 s, and 10 s for the epilog
    assert 'min_runtime = "10m00s"' in text
    assert "hot preempts batch, urgent" in text
    assert odd_scene.alarms().keys() <= {"requeue", "port"}


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


def newer_database(scene: Scene) -> None:
    opened = open_database(scene.database())
    with opened.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    opened.engine.dispose()


def damaged_database(scene: Scene) -> None:
    (scene.folder / "clearway.sqlite").write_bytes(b"not a database" * 1_000)


def full_disk(scene: Scene) -> None:
    disk = scene.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    scene.undo.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
    shutil.copyfile(scene.empty_database, disk / "clearway.sqlite")
    with pytest.raises(OSError, match="No space left"):
        (disk / "other").write_bytes(bytes(2**21))
    scene.configure("/clearway.sqlite", "/disk/clearway.sqlite")


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
    store = SqlStore(scene.database())
    store.add_request(RequestKind.HALT, None, "ann", datetime.now(UTC))
    store.close()


def paused(scene: Scene) -> None:
    """As a database is after `clearway restore`."""
    store = SqlStore(scene.database())
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
    "no node takes jobs": (no_nodes, "nodes", "fault", "sinfo -R"),
    "the urgent partition is down": (urgent_down, "names", "advice", "State=UP"),
    "a rule names a partition that is not": (config('["urgent"]', '["urgnt"]'), "names", "fault", "batch, urgent"),
    "a rule names a QoS that is not": (config("", 'qos = ["fast"]\n'), "names", "fault", "it has: normal"),
    "no rule": (config('[[preemptors]]\nname = "urgent"\npartition = ["urgent"]\n'), "names", "fault", "clearway init"),
    "a newer database": (newer_database, "database", "fault", "newer Clearway"),
    "a damaged database": (damaged_database, "database", "fault", "clearway restore"),
    "no folder for the database": (config("/clearway.sqlite", "/none/x.sqlite"), "database", "fault", "install -d"),
    "PostgreSQL is down": (server("postgresql"), "database", "fault", "start the server"),
    "MariaDB is down": (server("mariadb"), "database", "fault", "start the server"),
    "the disk is full": (full_disk, "its disk", "fault", "make room"),
    "the port is taken": (taken_port, "port", "fault", "api.port"),
    "all tokens have ended": (ended_tokens, "tokens", "fault", "clearway token"),
    "the token file is open": (open_tokens, "token file", "fault", "mode 0644"),
    "the stop switch is on": (halt_file, "stop switch", "fault", "rm "),
    "a halt in the database": (halted, "stop switch", "fault", "by ann (clearway unhalt)"),
    "a pause in the database": (paused, "stop switch", "advice", "clearway resume"),
    "no Prometheus": (options("--prometheus", "http://127.0.0.1:9"), "Prometheus", "fault", "--prometheus"),
    "no node for the job": (no_node_for_the_job, "launcher", "fault", "free a node"),
    "no launcher": (options("--job", "--launcher", "/none/clearway-run"), "launcher", "fault", "clearway launcher"),
    "another launcher": (other_launcher, "launcher", "advice", "clearway launcher"),
    "no folder for checkpoints": (options("--checkpoints", "/none"), "disk", "fault", "every node mounts"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_what_to_do(scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "WAIT_S", 10.0 if name != "no node for the job" else 1.0)
    plant, check, state, says = FAULTS[name]
    plant(scene)
    look(scene.alarms(), check, state, says)


def look(found: dict[str, tuple[str, str]], check: str, state: str, says: str) -> None:
    assert check in found, found
    assert found[check][0] == state
    assert says in found[check][1]
    assert "-> " in found[check][1]
    assert not found[check][1].endswith("-> ")


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


# ---- clocks, rights, and a daemon that runs -------------------------------------------------------------------------


def test_clocks_that_are_apart(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "now", staticmethod(lambda: datetime.now(UTC) + timedelta(minutes=5)))
    state, says = scene.alarms()["clock"]
    assert state == "fault"
    assert "+300 s" in says or "+299 s" in says or "+301 s" in says
    assert "chrony" in says


def test_the_clock_of_a_node(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm tells no node's clock; the job of --job does."""
    bin_ = scene.folder / "bin"
    launcher.install(bin_)
    (bin_ / "date").write_text("#!/bin/sh\necho $(($(/bin/date +%s) - 600))\n")
    (bin_ / "date").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")  # srun hands it on to the job
    scene.options = ["--job"]
    found = [each for each in scene.ask()["findings"] if each["state"] in BAD]
    assert [(each["area"], each["check"], each["state"]) for each in found] == [("Nodes", "clock", "fault")]
    assert "chrony" not in found[0]["what"]
    assert "chrony" in found[0]["remedy"]


def test_one_fault_is_one_line(scene: Scene) -> None:
    """A server that is silent is waited for once, and what depends on it is not tried."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://clearway@127.0.0.1:{silent.getsockname()[1]}/clearway?connect_timeout=2"
        scene.configure(f"sqlite:///{scene.folder}/clearway.sqlite", url)
        found = scene.ask()["findings"]
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
    states = {each["check"]: each["state"] for each in found if each["area"] == "Daemon"}
    assert states.pop("database") == "fault"
    assert states.pop("its clock") == states.pop("stop switch") == states.pop("Prometheus") == "untried"
    assert set(states.values()) == {"ok"}


def test_a_daemon_that_runs(scene: Scene) -> None:
    """It is asked itself: paused, halted, and in another mode than its file says."""
    with RunningDaemon(scene.cluster, scene.folder, config=scene.file.read_text()) as daemon:
        assert scene.alarms() == {}
        scene.configure("[daemon]\n", '[daemon]\nmode = "approve"\n')
        look(scene.alarms(), "stop switch", "advice", "systemctl reload clearway")
        run("pause", "-c", scene.file)
        daemon.wait_for(lambda: daemon.get("/health").json()["paused"], 30, "a pause")
        look(scene.alarms(), "stop switch", "advice", "clearway resume")
        run("halt", "-c", scene.file)
        daemon.wait_for(lambda: daemon.get("/health").json()["halted"], 30, "a halt")
        look(scene.alarms(), "stop switch", "fault", "clearway unhalt")
    look(scene.alarms(), "stop switch", "fault", "clearway unhalt")  # its database still says so


def test_rights_of_an_ordinary_user(odd_scene: Scene) -> None:
    """Without slurmdbd none has rights but root and SlurmUser; asking changes nothing."""
    told = as_service_user(lambda: rights(odd_scene.file))
    assert told[0] == "fault"
    assert "User=slurm" in told[1]


def test_rights_with_slurmdbd(scene: Scene) -> None:
    assert as_service_user(lambda: rights(scene.file))[0] == "ok"
    scene.undo.callback(scene.cluster.set_admin_level, "cwdaemon", "Operator")
    scene.cluster.set_admin_level("cwdaemon", "None")
    state, remedy = as_service_user(lambda: rights(scene.file))
    assert state == "fault"
    assert "AdminLevel=Operator" in remedy


def rights(file: Path) -> tuple[str, str]:
    found = slurm_checks.rights(Case(load_config(file), Asked(), "cwdaemon"))
    return found.state.value, found.remedy


def examined(file: Path) -> list[Finding]:
    return list(examine(Case(load_config(file), Asked(), "cwdaemon")))


def test_a_closed_folder_is_one_fault(scene: Scene) -> None:
    """Asked by a user who may not look into the daemon's folder: no traceback, and no second word on it."""
    scene.folder.chmod(0o711)
    found = as_service_user(lambda: [(e.check, e.state.value) for e in examined(scene.file) if e.check == "database"])
    assert found == [("database", "fault")]
