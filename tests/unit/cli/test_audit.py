"""``clearway audit``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import text
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.model.audit import Audited, AuditKind
from clearway.store.repository import Store
from tests.builders import NOW


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    (tmp_path / "clearway.toml").write_text(f'[store]\nurl = "{url}"\n[api]\ntoken_file = "{tmp_path}/tokens"\n')
    made = Store(url)
    for number in range(150):
        kind = AuditKind.REQUEST if number % 2 else AuditKind.REFUSED
        made.audit(Audited(at=NOW, actor=f"user{number % 3}", kind=kind, about={"why": f"\x1b[31m{number}"}))
    yield made
    made.close()


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--config", str(folder / "clearway.toml")])


def test_entries_newest_first(store: Store, tmp_path: Path) -> None:
    lines = run(tmp_path, "audit", "--limit", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["150", "149"]
    assert "\x1b" not in "".join(lines)
    found = json.loads(run(tmp_path, "audit", "--kind", "refused", "--actor", "user1", "-o", "json").stdout)["items"]
    assert len(found) == 25
    assert {(entry["kind"], entry["actor"]) for entry in found} == {("refused", "user1")}
    assert found[0]["hash"] == {row.sequence: row.hash for row in store.audit_trail(limit=200)}[found[0]["sequence"]]


def test_verify(store: Store, tmp_path: Path) -> None:
    head = store.check_audit().head
    good = run(tmp_path, "audit", "--verify")
    assert (good.exit_code, head in good.stdout) == (0, True)
    assert run(tmp_path, "audit", "--verify", "--noted", head).exit_code == 0
    assert run(tmp_path, "audit", "--verify", "--noted", "0" * 64).exit_code == 1
    assert run(tmp_path, "audit", "--noted", head).exit_code == 2
    with store._database.writing() as connection:
        connection.execute(text("DELETE FROM audit WHERE sequence = 70"))
    broken = run(tmp_path, "audit", "--verify")
    assert broken.exit_code == 1
    assert "audit trail: entry 70 is missing; 69 entries before are good" in broken.stderr
    told = json.loads(run(tmp_path, "audit", "--verify", "-o", "json").stdout)
    assert (told["intact"], told["entries"]) == (False, 69)


def test_a_new_token_is_recorded_without_its_hash(store: Store, tmp_path: Path) -> None:
    token = run(tmp_path, "token", "ci", "--role", "admin", "--valid", "0").stdout.strip()
    document = store.audit_trail(limit=1)[0].document()
    assert (document["kind"], document["about"]) == ("token", {"token": "ci admin never"})
    assert token not in str(document)
