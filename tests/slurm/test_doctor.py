"""`clearway init` and `clearway doctor` on a real Slurm: no alarm at a healthy site; clocks, rights, a live daemon."""

from __future__ import annotations

import os
import re
import signal
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clearway.cli import administration, launcher
from clearway.config.configuration import load_config
from clearway.doctor import slurm_checks
from clearway.doctor.case import Asked, Case, Finding
from clearway.doctor.examination import examine
from tests.slurm.daemon import RunningDaemon
from tests.slurm.doctor_scene import BAD, Scene, look, run
from tests.slurm.machine import SLACK, stop_process
from tests.slurm.test_service_user import as_service_user

pytestmark = pytest.mark.one_slurm


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
    # The short job has ended; slurmd may need a moment to clean up behind it (COMPLETING).
    scene.cluster.wait_for(lambda: scene.cluster.run("squeue", "-h").stdout == "", what="no job is left")
    assert scene.cluster.scontrol_reservations() == []


def test_the_page_is_one_page(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    said = run("doctor", "-c", scene.file)
    assert said.exit_code == 0
    assert len(said.stdout.splitlines()) <= 40
    assert max(map(len, said.stdout.splitlines())) <= 100
    assert "Everything that must hold holds" in said.stdout


def test_what_init_writes_is_accepted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "_MOST_MIB", 16)
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


# ---- clocks, rights, and a daemon that runs -------------------------------------------------------------------------


def test_clocks_that_are_apart(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "now", staticmethod(lambda: datetime.now(UTC) + timedelta(minutes=5)))
    state, says = scene.alarms()["clock"]
    assert state == "fault"
    # Its answer takes a while to come, and Slurm tells whole seconds.
    found = re.search(r"\+(\d+) s", says)
    assert found is not None, says
    assert 300 - 10 * SLACK < int(found[1]) <= 301
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
    untried = {"its cluster", "its clock", "stop switch", "Prometheus"}
    assert {states.pop(check) for check in untried} == {"untried"}
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


@pytest.mark.fault("`clearway doctor` took a daemon that hangs for another program on its port.", found_by="trial")
def test_a_daemon_that_hangs(scene: Scene) -> None:
    """It holds its port and says nothing; the other checks go on, by its database."""
    with RunningDaemon(scene.cluster, scene.folder, config=scene.file.read_text()) as daemon:
        stop_process(daemon.process.pid)
        try:
            alarms = scene.alarms()
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert alarms.keys() == {"port"}
        look(alarms, "port", "fault", "systemctl restart clearway")
        assert scene.alarms() == {}, "it goes on"


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
