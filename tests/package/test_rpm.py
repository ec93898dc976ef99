"""The RPM as a file. It is built on Debian, whose Python 3.11 is at the same place; nothing of Red Hat is here."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.package.conftest import PACKAGING, ROOT, build_rpm


def ask(rpm: Path, *question: str) -> str:
    return subprocess.run(["rpm", "-qp", *question, rpm], capture_output=True, text=True, check=True).stdout


def test_the_spec_is_parsed_and_linted(tmp_path: Path) -> None:
    spec = tmp_path / "clearway.spec"
    spec.write_text(
        subprocess.run([ROOT / PACKAGING / "build-rpm", "--spec"], capture_output=True, text=True, check=True).stdout
    )
    assert "@" not in "".join(line for line in spec.read_text().splitlines() if line[:1].isupper()), "filled in"
    assert "#FUNCTIONS#" not in spec.read_text()
    subprocess.run(["rpmspec", "-P", spec], check=True, capture_output=True)
    said = subprocess.run(["rpmlint", spec], capture_output=True, text=True, check=False).stdout
    # Debian's rpmlint does not know that sysusers.d and tmpfiles.d are below /usr/lib on every system.
    errors = [line for line in said.splitlines() if " E: " in line and "hardcoded-library-path" not in line]
    assert errors == []


def test_built_twice_it_has_the_same_bytes(rpms: list[Path], tmp_path: Path) -> None:
    assert build_rpm(tmp_path, "--quick").read_bytes() == rpms[1].read_bytes()


def test_it_says_what_the_debian_package_says(rpms: list[Path]) -> None:
    control = (ROOT / PACKAGING / "debian/control").read_text()
    summary = control.partition("\nDescription: ")[2].partition("\n")[0]
    assert ask(rpms[1], "--qf", "%{SUMMARY}").lower() == summary.lower()
    paragraphs = ask(rpms[1], "--qf", "%{DESCRIPTION}").split()
    assert paragraphs == control.partition(f"{summary}\n")[2].replace("\n .\n", "\n").split()
    assert "python3.11" in ask(rpms[1], "--requires").split()
    assert ask(rpms[1], "--configfiles").split() == ["/etc/clearway/clearway.toml"]


def test_it_knows_only_the_place_where_it_will_be(rpms: list[Path], tmp_path: Path) -> None:
    subprocess.run(f"rpm2cpio {rpms[1]} | cpio -idm --quiet", shell=True, cwd=tmp_path, check=True)
    program = tmp_path / "opt/clearway"
    assert (program / "bin/clearway").read_text().splitlines()[0] == "#!/opt/clearway/bin/python"
    assert str((program / "bin/python3.11").readlink()) == "/usr/bin/python3.11"
    found = subprocess.run(["grep", "-rlI", "BUILDROOT", tmp_path], capture_output=True, text=True, check=False).stdout
    assert found == ""
    assert not list(program.rglob("__pycache__"))
