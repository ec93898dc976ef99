"""``clearway launcher``: from a source tree and from a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli import launcher
from clearway.cli.app import app
from clearway.model.errors import ConfigError

ROOT = Path(__file__).parents[3]


def runs(folder: Path) -> int:
    command = [folder / "clearway-run", "--checkpoint-file", "x", "--", "sh", "-c", "exit 5"]
    env = {"PATH": os.environ["PATH"]}  # no CLEARWAY_CHECKPOINTERS: the drivers beside it are found
    return subprocess.run(command, env=env, timeout=240, check=False, capture_output=True).returncode


def test_an_administrator_gets_launcher_and_drivers(tmp_path: Path) -> None:
    for _ in range(2):  # an update is the same command
        result = CliRunner().invoke(app, ["launcher", str(tmp_path / "bin")])
        assert result.exit_code == 0, result.output
    parts = ROOT / "plugins/clearway_checkpoint"
    drivers = [*sorted(path.name for path in parts.glob("*.sh")), *sorted(path.name for path in parts.glob("*.c"))]
    assert sorted(path.name for path in (tmp_path / "bin/checkpointers").iterdir()) == sorted(drivers)
    names = [*launcher.LAUNCHER, launcher.ROOT_HELPER, *(f"checkpointers/{name}" for name in drivers)]
    assert result.output.splitlines()[: len(names)] == [str(tmp_path / "bin" / name) for name in names]
    assert "root must own it" in result.output
    assert runs(tmp_path / "bin") == 5


def test_the_root_helper_is_refused_where_others_can_write_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: only root runs the helper")
    launcher.install(tmp_path)
    helper = tmp_path / "clearway-criu"
    assert helper.stat().st_mode & 0o7777 == 0o755

    def answer() -> str:
        return subprocess.run([helper, "restore", "no", "image"], check=False, capture_output=True, text=True).stdout

    assert "must be root's" not in answer()
    helper.chmod(0o775)
    assert answer() == f"ok=no\nreason={helper} must be root's, and no other user may write to it\n"
    helper.chmod(0o755)
    os.chown(helper, 1, 0)
    assert "must be root's" in answer()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["launcher", str(tmp_path / "file")])
    assert result.exit_code == 1
    assert "cannot install the launcher" in result.output


def test_from_a_wheel(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, timeout=240, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    for folder in ("clearway/cli/templates", "clearway_lab/studies/templates"):
        templates = {file.name for file in (tmp_path / "site" / folder).iterdir()}
        assert templates == {file.name for file in (ROOT / "daemon" / folder).iterdir()}
    page = ROOT / "daemon/clearway/web/static"
    wanted = {file.relative_to(page) for file in page.rglob("*") if file.is_file()}
    shipped = tmp_path / "site/clearway/web/static"
    assert {file.relative_to(shipped) for file in shipped.rglob("*") if file.is_file()} == wanted
    launcher.install(tmp_path / "bin", tmp_path / "site" / "clearway_checkpoint")
    assert runs(tmp_path / "bin") == 5
    (tmp_path / "bin" / "clearway-generations").unlink()
    assert runs(tmp_path / "bin") == 64
    assert (tmp_path / "bin" / "clearway-criu").read_text().startswith("#!/bin/sh")


def test_an_installation_without_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no clearway-run"):
        launcher.install(tmp_path, tmp_path / "nowhere")
