"""What `clearway doctor` says of the file by which job_submit.lua wakes the daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clearway.config.configuration import parse_config
from clearway.doctor.case import Asked, Case, Result, State
from clearway.doctor.daemon_checks import wake_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "slurmctld"
    made.mkdir(mode=0o755)
    return made


def examined(file: Path | None) -> Result | None:
    text = "" if file is None else f'[daemon]\nwake_file = "{file}"\n'
    return wake_file(Case(parse_config(f'{text}[[preemptors]]\nqos = ["urgent"]\n', "site.toml"), Asked(), "root"))


def told(file: Path) -> tuple[State, str]:
    found = examined(file)
    assert found is not None
    return found.state, found.what


def test_nothing_is_said_where_there_is_none() -> None:
    assert examined(None) is None


def test_a_file_that_is_to_come_and_one_that_was_written(folder: Path) -> None:
    file = folder / "wake"
    why = "no urgent job has been submitted, or job_submit.lua does not name it"
    assert told(file) == (State.OK, f"{file} is not there yet: {why}")
    file.write_text("1")
    os.utime(file, (0, 0))
    assert told(file) == (State.OK, f"{file} was written last at 1970-01-01 00:00:00 UTC")


def test_a_folder_that_is_not_there(folder: Path) -> None:
    state, what = told(folder / "none" / "wake")
    assert (state, what.partition(";")[0]) == (State.FAULT, f"{folder}/none: No such file or directory")


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_to(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    state, what = told(folder / "wake")
    assert (state, f"mode {mode:04o}" in what) == (State.FAULT, True)


def test_what_slurmctld_could_wait_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(folder / "elsewhere")
    for name in ("pipe", "link"):
        state, what = told(folder / name)
        assert (state, what.partition(":")[0]) == (State.FAULT, f"{folder / name} is no ordinary file")
