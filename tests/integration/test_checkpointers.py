"""The conformance suite over every registered checkpointer that has a driver."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway.config import plugins
from clearway.model.errors import ConfigError
from clearway_checkpoint.application import Application
from tests.contract.checkpointer_conformance import CheckpointerConformance, Trial, poll


@pytest.fixture(params=plugins.names(plugins.CHECKPOINTERS))
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    try:
        checkpointer = plugins.load(plugins.CHECKPOINTERS, request.param)
    except ConfigError as error:
        pytest.skip(str(error))
    if not hasattr(checkpointer, "driver"):
        pytest.skip("has no driver: the daemon does this itself")
    folders = {"CLEARWAY_STATE": tmp_path / "state", "CLEARWAY_DIR": tmp_path / "generations"}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    environment = {name: str(path) for name, path in folders.items()}
    environment["CLEARWAY_APPLICATION_FILE"] = str(tmp_path / "own-state")
    trial = Trial(checkpointer(environment, checkpoint_limit_s=60.0), environment, tmp_path)
    yield trial
    (tmp_path / "stop").touch()
    trial.checkpointer.end()


@pytest.fixture
def able(trial: Trial) -> Trial:
    probe = trial.checkpointer.probe()
    if not probe.ok:
        pytest.skip(f"{trial.checkpointer.name}: {probe.reason}")
    return trial


class TestCheckpointers(CheckpointerConformance):
    """Runs all of it."""


@pytest.mark.fault("A program that DMTCP had failed to save stood still for good.", found_by="real cluster")
def test_a_program_does_not_stand_still_after_a_checkpoint_that_failed(tmp_path: Path) -> None:
    environment = {"CLEARWAY_STATE": str(tmp_path), "CLEARWAY_DIR": str(tmp_path)}
    environment |= {
        "CLEARWAY_APPLICATION_COMMAND": "true",
        "CLEARWAY_APPLICATION_FILE": str(tmp_path / "never-written"),
    }
    generation = tmp_path / "generation-000001"
    generation.mkdir()
    program = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        saved = Application(environment, checkpoint_limit_s=20.0).checkpoint(generation, program.pid)
        assert not saved.ok
        assert saved.reason.startswith("there is no ")
        stat = Path(f"/proc/{program.pid}/stat")
        poll(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", "the program to go on")
    finally:
        program.kill()
        program.wait()


# Saves itself within a millisecond of being asked, which is within one step of the clock that files are stamped by.
AT_ONCE = """\
import os, signal, sys
path, times = sys.argv[1], 0
def save(*_):
    global times
    times += 1
    file = os.open(path + ".new", os.O_CREAT | os.O_WRONLY)  # a file that is looked at would be stamped more exactly
    os.write(file, str(times).encode())
    os.close(file)
    os.rename(path + ".new", path)
signal.signal(signal.SIGUSR1, save)
open(path + ".ready", "w").close()
while True:
    signal.pause()
"""


def test_a_program_that_saves_itself_at_once_is_seen_to_have_done_so(tmp_path: Path) -> None:
    own = tmp_path / "own-state"
    environment = {"CLEARWAY_STATE": str(tmp_path), "CLEARWAY_APPLICATION_FILE": str(own)}
    program = subprocess.Popen([sys.executable, "-c", AT_ONCE, str(own)], start_new_session=True)
    try:
        poll(Path(f"{own}.ready").exists, "the program")
        for number in range(1, 31):
            generation = tmp_path / f"generation-{number}"
            generation.mkdir()
            saved = Application(environment, checkpoint_limit_s=60.0).checkpoint(generation, program.pid)
            assert saved.ok, saved.reason
            assert own.read_text() == str(number)
            program.send_signal(signal.SIGCONT)
    finally:
        program.kill()
        program.wait()
    assert not list(tmp_path.glob("asked.*"))
