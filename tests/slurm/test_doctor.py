"""`clearway init` and `clearway doctor` on a real Slurm: no alarm at a healthy site, and a line for each fault."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clearway.cli import launcher
from clearway.cli.app import app
from clearway.config.configuration import load_config
from clearway.doctor import slurm_checks
from clearway.doctor.case import Asked, Case
from clearway.doctor.examination import examine
from clearway.doctor.finding import Finding
from clearway.store.database import open_database
from clearway.store.repository import SqlStore
from tests.slurm.client import SlurmClient
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.machine import missing_requirements
from tests.slurm.test_service_user import as_service_user

# From Slurm 24.11 on, slurmd takes a reconfiguration by starting itself anew, and one of many may end with it: there
# these are tried in --full.
pytestmark = pytest.mark.one_slurm

CONFIG = """\
[daemon]
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


@dataclass
class Scene:
    cluster: SlurmCluster
    folder: Path
    port: int
    options: list[str] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "clearway.toml"

    def configure(self, before: str = "", after: str = "") -> None:
        text = CONFIG.format(state=self.folder, conf=self.cluster.conf, port=self.port)
        assert before in text
        self.file.write_text(text.replace(before, after) if before else text + after)

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


BAD = ("fault", "advice")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def scene(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(cluster, cluster.work / tmp_path.name, free_port())
    made.folder.mkdir()
    made.folder.chmod(0o777)
    made.configure()
    yield made
    cluster.run("scontrol", "reconfigure")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_healthy_site_gives_no_alarm(scene: Scene) -> None:
    bin_ = scene.cluster.work / "bin"
    launcher.install(bin_)
    scene.options = ["--job", "--launcher", str(bin_ / "clearway-run"), "--checkpoints", "/tmp"]
    answer = scene.ask()
    told = {each["check"]: each for each in answer["findings"]}
    assert {name: each["what"] for name, each in told.items() if each["state"] in BAD and name != "disk"} == {}
    assert told["launcher"]["state"] == told["checkpointers"]["state"] == told["rights"]["state"] == "ok"
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


def test_what_init_writes_is_accepted(scene: Scene) -> None:
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


# ---- faults ------------------------------------------------------------------------------------------------------


def slurm_conf(*lines: str) -> Callable[[Scene], None]:
    """Other lines of slurm.conf, as a site would write them; slurmctld is told."""

    def plant(scene: Scene) -> None:
        kept = scene.cluster.conf.read_text()
        keys = {line.partition("=")[0] for line in lines}
        rest = [line for line in kept.splitlines() if line.partition("=")[0] not in keys]
        scene.cluster.conf.write_text("\n".join([*lines, *rest]) + "\n")
        try:
            scene.cluster.run("scontrol", "reconfigure")
            key, _, value = lines[0].partition("=")

            def shown() -> bool:
                return value in scene.cluster.run("scontrol", "show", "config").stdout.partition(key)[2][:80]

            scene.cluster.wait_for(shown, 30, f"{key} is {value}")
        finally:
            scene.cluster.conf.write_text(kept)  # the next reconfigure takes it back

    return plant


def config(before: str = "", after: str = "") -> Callable[[Scene], None]:
    return lambda scene: scene.configure(before, after)


def no_controller(scene: Scene) -> None:
    scene.cluster.stop_controller()


def no_nodes(scene: Scene) -> None:
    scene.cluster.run("scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=test")


def urgent_down(scene: Scene) -> None:
    scene.cluster.run("scontrol", "update", "PartitionName=urgent", "State=DOWN")


def newer_database(scene: Scene) -> None:
    url = f"sqlite:///{scene.folder}/clearway.sqlite"
    SqlStore(url).close()
    opened = open_database(url)
    with opened.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    opened.engine.dispose()


def damaged_database(scene: Scene) -> None:
    (scene.folder / "clearway.sqlite").write_bytes(b"not a database" * 1_000)


def taken_port(scene: Scene) -> None:
    held = socket.create_server(("127.0.0.1", scene.port))
    TO_CLOSE.append(held)


def ended_tokens(scene: Scene) -> None:
    file = scene.folder / "tokens"
    file.touch(0o600)
    file.write_text(f"ann operator 2020-01-01T00:00:00Z sha256:{64 * '0'}\n")
    scene.configure("[api]\n", f'[api]\ntoken_file = "{file}"\n')


def open_tokens(scene: Scene) -> None:
    ended_tokens(scene)
    (scene.folder / "tokens").chmod(0o644)


def halted(scene: Scene) -> None:
    (scene.folder / "halt").touch()


def options(*given: str) -> Callable[[Scene], None]:
    return lambda scene: scene.options.extend(given)


def other_launcher(scene: Scene) -> None:
    bin_ = scene.folder / "bin"
    launcher.install(bin_)
    (bin_ / "clearway-run").write_text("#!/bin/sh\nexit 0\n")
    scene.options += ["--job", "--launcher", str(bin_ / "clearway-run")]


TO_CLOSE: list[socket.socket] = []
FAULTS: Mapping[str, tuple[Callable[[Scene], None], str, str, str]] = {
    "slurmctld is down": (no_controller, "answers", "fault", "scontrol ping"),
    "no node takes jobs": (no_nodes, "nodes", "fault", "sinfo -R"),
    "the urgent partition is down": (urgent_down, "names", "advice", "State=UP"),
    "a rule names a partition that is not": (config('["urgent"]', '["urgnt"]'), "names", "fault", "batch, urgent"),
    "a QoS without slurmdbd": (config("", 'qos = ["fast"]\n'), "names", "fault", "no QoS fast"),
    "no rule": (config('[[preemptors]]\nname = "urgent"\npartition = ["urgent"]\n'), "names", "fault", "clearway init"),
    "KillWait is longer": (slurm_conf("KillWait=30"), "KillWait", "fault", 'kill_allowance = "35s"'),
    "an epilog": (slurm_conf("Epilog=/bin/true", "KillWait=8"), "KillWait", "advice", "epilog"),
    "PreemptExemptTime is longer": (
        slurm_conf("PreemptExemptTime=00:10:00"), "exempt time", "advice", 'min_runtime = "10m00s"'
    ),
    "jobs are not requeued": (slurm_conf("JobRequeue=0"), "requeue", "fault", "JobRequeue=1"),
    "a newer database": (newer_database, "database", "fault", "newer Clearway"),
    "a damaged database": (damaged_database, "database", "fault", "clearway restore"),
    "no folder for the database": (config("/clearway.sqlite", "/none/x.sqlite"), "database", "fault", "install -d"),
    "the port is taken": (taken_port, "port", "fault", "api.port"),
    "all tokens have ended": (ended_tokens, "tokens", "fault", "clearway token"),
    "the token file is open": (open_tokens, "token file", "fault", "mode 0644"),
    "the stop switch is on": (halted, "stop switch", "fault", "rm "),
    "no Prometheus": (options("--prometheus", "http://127.0.0.1:9"), "Prometheus", "fault", "--prometheus"),
    "no launcher": (options("--job", "--launcher", "/none/clearway-run"), "launcher", "fault", "clearway launcher"),
    "another launcher": (other_launcher, "launcher", "advice", "clearway launcher"),
    "no folder for checkpoints": (options("--checkpoints", "/none"), "disk", "fault", "every node mounts"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_what_to_do(scene: Scene, name: str) -> None:
    plant, check, state, says = FAULTS[name]
    try:
        plant(scene)
        found = scene.alarms()
    finally:
        while TO_CLOSE:
            TO_CLOSE.pop().close()
        if name == "the urgent partition is down":
            scene.cluster.run("scontrol", "update", "PartitionName=urgent", "State=UP")
        if not scene.cluster.controller_is_up():
            scene.cluster.start_controller()
    assert check in found, found
    assert found[check][0] == state
    assert says in found[check][1]
    assert "-> " in found[check][1]
    assert not found[check][1].endswith("-> ")


def test_a_slurm_that_preempts_by_itself(tmp_path: Path) -> None:
    conf = ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]
    conf += ["PartitionName=hot Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9"]
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    with SlurmCluster(nodes=1, extra_conf=conf) as cluster:
        scene = Scene(cluster, tmp_path, free_port())
        scene.configure('["urgent"]', '["hot"]')
        state, says = scene.alarms()["preemption"]
    assert state == "advice"
    assert "preempts batch, urgent for partition hot" in says
    assert "PreemptMode=OFF" in says


def test_clocks_that_are_apart(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "now", staticmethod(lambda: datetime.now(UTC) + timedelta(minutes=5)))
    state, says = scene.alarms()["clock"]
    assert state == "fault"
    assert "+300 s" in says or "+299 s" in says or "+301 s" in says
    assert "chrony" in says


def test_rights_of_an_ordinary_user(scene: Scene) -> None:
    """Without slurmdbd none has rights but root and SlurmUser; asking changes nothing."""
    told = as_service_user(lambda: scene_rights(scene.file))
    assert told[0] == "fault"
    assert "User=slurm" in told[1]


@pytest.mark.debian12("26.05's slurmdbd is not in every tree")
def test_rights_with_slurmdbd(accounting_cluster: SlurmCluster, tmp_path: Path) -> None:
    folder = accounting_cluster.work / tmp_path.name
    folder.mkdir()
    folder.chmod(0o777)
    file = folder / "clearway.toml"
    file.write_text(CONFIG.format(state=folder, conf=accounting_cluster.conf, port=free_port()))
    assert as_service_user(lambda: scene_rights(file))[0] == "ok"
    SlurmClient.run(accounting_cluster, "sacctmgr", "-i", "modify", "user", "cwdaemon", "set", "AdminLevel=None")
    try:
        state, remedy = as_service_user(lambda: scene_rights(file))
        assert state == "fault"
        assert "AdminLevel=Operator" in remedy
    finally:
        accounting_cluster.run("sacctmgr", "-i", "modify", "user", "cwdaemon", "set", "AdminLevel=Operator")


def examined(file: Path) -> list[Finding]:
    return list(examine(Case(load_config(file), Asked(), "cwdaemon")))


def scene_rights(file: Path) -> tuple[str, str]:
    from clearway.config.configuration import load_config
    from clearway.doctor.case import Asked

    found = slurm_checks.rights(Case(load_config(file), Asked(), "cwdaemon"))
    return found.state.value, found.remedy


def test_a_closed_folder_is_one_fault(scene: Scene) -> None:
    """Asked by a user who may not look into the daemon's folder: no traceback, and no second word on it."""
    scene.folder.chmod(0o711)
    found = as_service_user(lambda: [(e.check, e.state.value) for e in examined(scene.file) if e.check == "database"])
    assert found == [("database", "fault")]
