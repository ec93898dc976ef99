"""A database or a backup of a state before the first release: each command says so in one line and changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.store import backup
from clearway.store.database import open_database
from clearway.store.repository import Store
from tests.builders import NOW

runner = CliRunner()
WHY = "its schema has revision 0017, of a state before the first release, and is not migrated: put it aside"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder with such a database, a backup of it, and the configuration."""
    file = tmp_path / "clearway.sqlite"
    Store(f"sqlite:///{file}").close()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0017'")
    database = open_database(f"sqlite:///{file}")
    backup._write(database, tmp_path / "old.gz", NOW)
    database.engine.dispose()
    (tmp_path / "clearway.toml").write_text(f'[store]\nurl = "sqlite:///{file}"\n[slurm]\nbackend = "cli"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "of"),
    [
        ("serve", "clearway.sqlite"),
        ("evictions list", "clearway.sqlite"),
        ("pause", "clearway.sqlite"),
        ("leaders", "clearway.sqlite"),
        ("backup FOLDER/new.gz", "clearway.sqlite"),
        ("verify", "clearway.sqlite"),
        ("verify FOLDER/old.gz", "old.gz"),
        ("restore FOLDER/old.gz --force", "old.gz"),
    ],
)
def test_it_is_refused_in_one_line(old: Path, asked: str, of: str) -> None:
    before = content(old)
    words = [word.replace("FOLDER", str(old)) for word in asked.split()]
    result = runner.invoke(app, [*words, "--config", str(old / "clearway.toml")])
    assert result.exit_code == 1
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("clearway: ")]
    assert line.partition(": its schema")[0].endswith(of)
    assert WHY in line
    assert content(old) == before


def content(folder: Path) -> tuple[set[str], list[str]]:
    """The files but those that SQLite has beside its own, and the database."""
    with sqlite3.connect(folder / "clearway.sqlite") as connection:
        rows = list(connection.iterdump())
    return {file.name for file in folder.iterdir() if not file.name.startswith("clearway.sqlite-")}, rows
