"""The wheel and the sdist, as pip installs them: an environment of its own, an empty folder, nothing of this tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from clearway.cli import launcher
from clearway.store.migrate import HEAD

ROOT = Path(__file__).parents[2]


def run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CLEARWAY"))}
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=600)


def good(command: Sequence[str | Path], folder: Path) -> str:
    done = run(command, folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both; the wheel is made from the unpacked sdist, which must hold all that it takes."""
    folder = tmp_path_factory.mktemp("built")
    good([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], ROOT)
    (folder / "source").mkdir()
    good(["tar", "-xzf", next(folder.glob("*.tar.gz"))], folder / "source")
    source = next((folder / "source").iterdir())
    good([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], source)
    return folder


@pytest.fixture(scope="module")
def program(built: Path) -> Path:
    """``clearway`` of an environment that the wheel alone was installed into."""
    environment = built / "environment"
    good([sys.executable, "-m", "venv", environment], built)
    wheel = next(built.glob("*.whl"))
    good([environment / "bin/pip", "install", "-q", "-c", ROOT / "tests/requirements.lock", wheel], built)
    return environment / "bin/clearway"


def test_the_demo_makes_room(program: Path, tmp_path: Path) -> None:
    said = good([program, "simulate-cluster", "--once"], tmp_path)
    assert "before its deadline" in said
    assert list(tmp_path.iterdir()) == []


def test_the_database_is_made_and_the_page_served(program: Path, tmp_path: Path) -> None:
    code = f"""
from clearway.store.database import open_database
from clearway.store.migrate import current_revision, upgrade
from clearway.web.page import shipped
database = open_database("sqlite:///{tmp_path}/new.sqlite")
upgrade(database)
print(current_revision(database), len(shipped()), "index.html" in shipped())
"""
    pages = [file for file in (ROOT / "daemon/clearway/web/static").rglob("*") if file.is_file()]
    said = good([program.with_name("python"), "-c", code], tmp_path)
    assert said.split() == [HEAD, str(len(pages)), "True"]


def test_it_brings_what_a_site_installs(program: Path, tmp_path: Path) -> None:
    good([program, "files", tmp_path / "files"], tmp_path)
    found = {str(file.relative_to(tmp_path / "files")) for file in (tmp_path / "files").rglob("*") if file.is_file()}
    for name in ("clearway.toml", "systemd/clearway.service", "systemd/clearway.sysusers", "systemd/clearway.tmpfiles"):
        assert (tmp_path / "files" / name).read_bytes() == (ROOT / "deploy" / name).read_bytes()
    assert found >= {"grafana/clearway.json", "prometheus/clearway.rules.yml", "slurm/job_submit.lua"}
    assert not any(name.endswith((".py", ".test.yml")) for name in found)
    in_tree = tmp_path / "tree"  # which installs the same from a checkout
    launcher.install_files(in_tree)
    assert found == {str(file.relative_to(in_tree)) for file in in_tree.rglob("*") if file.is_file()}
    assert "clearway-run" in good([program, "launcher", tmp_path / "bin"], tmp_path)
    example = tmp_path / "files/clearway.toml"
    example.write_text(
        example.read_text().replace('#url = "sqlite:////var/lib/clearway', f'url = "sqlite:///{tmp_path}')
    )
    checked = good([program, "check-config", example], tmp_path)
    assert "observe mode" in checked


def test_what_is_missing_is_named_as_an_index_knows_it(program: Path, tmp_path: Path) -> None:
    config = tmp_path / "clearway.toml"
    config.write_text('[store]\nurl = "mariadb://a:b@localhost/c"\n[[preemptors]]\nqos = ["urgent"]\n')
    config.chmod(0o600)
    done = run([program, "evictions", "list", "--config", config], tmp_path)
    assert done.returncode != 0
    assert f"install 'pymysql>=1.1' into Clearway's environment {program.parents[1]}" in " ".join(done.stderr.split())
