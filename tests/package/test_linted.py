"""What cannot be run here (other containers, other systems) is read by its own tools."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.package.conftest import PACKAGING, ROOT

ANSIBLE = ROOT / "deploy/ansible"
SCRIPTS = [*(ROOT / PACKAGING / name for name in ("build-deb", "build-rpm", "fill")), ROOT / "deploy/container/start"]


def good(command: list[str | Path], folder: Path = ROOT, **more: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | more, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts(script: Path) -> None:
    good(["shellcheck", script])


@pytest.mark.parametrize("name", ["preinst", "postinst", "prerm", "postrm"])
def test_scripts_of_the_debian_package(name: str, tmp_path: Path) -> None:
    functions = (ROOT / PACKAGING / "functions.sh").read_text()
    script = tmp_path / name
    script.write_text((ROOT / PACKAGING / "debian" / name).read_text().replace("#FUNCTIONS#\n", functions))
    good(["shellcheck", "-s", "sh", "-S", "warning", script])


def test_the_role() -> None:
    good(["ansible-playbook", "-i", "localhost,", "--syntax-check", "site.yml"], ANSIBLE)
    good(["ansible-lint", "--offline", "--strict", "--profile", "production", "--nocolor"], ANSIBLE)


def test_the_compose_file() -> None:
    """The four services with the file's own schema, and every file that is mounted is there."""
    said = good(["docker-compose", "-f", "deploy/container/compose.yaml", "config"])
    assert all(f"\n  {service}:\n" in said for service in ("slurm", "clearway", "prometheus", "grafana"))
    mounted = [line.split()[1].split(":")[0] for line in said.splitlines() if line.strip().startswith("- /")]
    assert len(mounted) == 4
    assert all(Path(path).exists() for path in mounted), mounted
