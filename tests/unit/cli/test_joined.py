"""Commands of a package beside the daemon: they join by an entry point, and one line says what a missing one needs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest
import typer
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.config import plugins

runner = CliRunner()
sky = typer.Typer()


@sky.command()
def weather() -> None:
    """Whether it rains."""
    typer.echo("it does not")


def installed(monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    """So many packages beside the daemon, and no others."""
    known = EntryPoints(EntryPoint(name, where, plugins.COMMANDS) for name, where in commands.items())
    monkeypatch.setattr(plugins, "entry_points", known.select)


def test_the_lab_joins() -> None:
    listed = runner.invoke(app, ["--help"])
    assert listed.exit_code == 0
    assert any(line.split()[:2] == ["lab", "Study"] for line in listed.stdout.splitlines()), listed.stdout
    below = runner.invoke(app, ["lab", "--help"])
    assert {"experiment", "simulate"} <= {line.split()[0] for line in below.stdout.splitlines() if line.strip()}


def test_any_package_may_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sky_of_a_test", sys.modules[__name__])
    installed(monkeypatch, sky="sky_of_a_test:sky")
    assert runner.invoke(app, ["sky"]).stdout == "it does not\n"
    assert any(line.split()[:2] == ["sky", "Whether"] for line in runner.invoke(app, ["--help"]).stdout.splitlines())


@pytest.mark.parametrize("there", [{}, {"lab": "a_package_that_is_not_there:app"}])
@pytest.mark.parametrize("asked", [["lab"], ["lab", "--help"], ["lab", "simulate", "trace.swf", "--nodes", "4"]])
def test_a_missing_lab_is_one_line(monkeypatch: pytest.MonkeyPatch, there: dict[str, str], asked: list[str]) -> None:
    installed(monkeypatch, **there)
    result = runner.invoke(app, asked)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("clearway: lab is not installed: install ")
    assert result.stderr.endswith("(pip install 'clearway[lab]')\n")
    assert result.stderr.count("\n") == 1


def test_what_is_no_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    result = runner.invoke(app, ["laboratory"])
    assert result.exit_code == 2
    assert "No such command 'laboratory'" in result.stderr


def test_the_daemons_commands_load_none_of_it() -> None:
    code = (
        "import sys\nfrom clearway.cli.app import app\n"
        "sys.argv = ['clearway', '--version']\n"
        "try: app()\nexcept SystemExit: pass\n"
        "assert not [name for name in sys.modules if name.startswith('clearway_lab')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
