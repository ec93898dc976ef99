"""``clearway token``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.api.logins import Tokens
from clearway.cli.app import app
from clearway.model.requests import Identity, Role


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "clearway.toml"
    path.write_text(f'[api]\ntoken_file = "{tmp_path}/tokens"\n')
    return path


def made(config: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["token", *arguments, "--config", str(config)])
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_token_is_printed_once_and_only_its_hash_is_kept(config: Path) -> None:
    file = config.with_name("tokens")
    first = made(config, "ann", "--role", "operator")
    file.write_text(file.read_text().rstrip("\n"))  # as some editors leave it
    second = made(config, "grafana", "--role", "viewer", "--valid", "0")
    assert file.stat().st_mode & 0o777 == 0o600
    assert first not in file.read_text()
    tokens = Tokens(file)
    ann, grafana = tokens.find(first), tokens.find(second)
    assert ann is not None
    assert grafana is not None
    assert ann.identity == Identity("ann", Role.OPERATOR)
    assert ann.end is not None
    assert timedelta(days=89) < ann.end - datetime.now(UTC) <= timedelta(days=90)
    assert (grafana.identity, grafana.end) == (Identity("grafana", Role.VIEWER), None)


@pytest.mark.parametrize(
    "arguments",
    [
        ["ann"],
        ["ann", "--role", "king"],
        ["a b", "--role", "viewer"],
        ["", "--role", "viewer"],
        ["ann", "--role", "viewer", "--valid", "soon"],
        ["ann", "--role", "viewer", "--valid", "4000d"],
    ],
)
def test_what_is_refused_leaves_no_file(config: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["token", *arguments, "--config", str(config)])
    assert result.exit_code == 2
    assert not config.with_name("tokens").exists()


def test_a_file_that_the_daemon_would_refuse_gets_no_token(config: Path) -> None:
    file = config.with_name("tokens")
    file.write_text("")
    file.chmod(0o644)
    result = CliRunner().invoke(app, ["token", "ann", "--role", "viewer", "--config", str(config)])
    assert result.exit_code == 1
    assert file.read_text() == ""


def test_without_a_token_file_there_is_no_token(config: Path) -> None:
    config.write_text("")
    result = CliRunner().invoke(app, ["token", "ann", "--role", "viewer", "--config", str(config)])
    assert result.exit_code == 1
