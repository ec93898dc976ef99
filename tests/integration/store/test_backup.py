"""A backup is whole, and can be restored on any of the three databases; what would do harm is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from clearway.execution.progress import fresh_operation
from clearway.model.errors import SchemaError, StoreError
from clearway.model.operations import Drain
from clearway.model.operations import EvictionState as E
from clearway.model.orders import DrainOrder
from clearway.model.plan import DrainPlan, OperationPlan
from clearway.model.requests import RequestKind
from clearway.store import backup, migrate
from clearway.store.backup import faults
from clearway.store.database import Database, open_database
from clearway.store.repository import Store
from tests.builders import NOW, eviction, plan
from tests.integration.daemon import running_here

HOSTILE = "line\nbreak \x1b[31m \N{GRINNING FACE} '\"\\ \u2028"
SETTLED = ("leases", "kept_values", "audit", "audit_head")  # what a restore changes


@contextmanager
def opened(url: str) -> Iterator[Database]:
    database = open_database(url)
    yield database
    database.engine.dispose()


def fill(url: str) -> tuple[Any, ...]:
    """Operations of two kinds, one of them open; a step, an event, a request that was handled, a value."""
    store = Store(url)
    common = {each.name: getattr(plan(), each.name) for each in fields(OperationPlan)}
    order = DrainOrder(nodes=("n1",), actor="olga", request_id=1, reason=HOSTILE, begin_at=NOW, force=True)
    drained = fresh_operation(Drain, DrainPlan(**common, order=order), "approve", E.CANCELLED, NOW)
    stored = store.create_eviction(eviction()), store.create_eviction(drained)
    step = store.begin_step(1, "101", "requeue", NOW, HOSTILE)
    store.finish_step(step, NOW + timedelta(microseconds=1), "ok")
    store.add_event(2, None, NOW, HOSTILE)
    store.add_request(RequestKind.PAUSE, None, "olga", NOW)
    store.set_value("other", {"a": [1, None, HOSTILE]})
    store.close()
    return stored


def content(file: Path) -> list[dict[str, Any]]:
    """Its rows, but for what every restore changes."""
    entries = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    return [entry for entry in entries if "row" in entry and entry["table"] not in (*SETTLED, "requests")]


def test_a_backup_is_restored_on_each_kind_of_database(database_url: str, tmp_path: Path) -> None:
    first, again = tmp_path / "first.gz", tmp_path / "again.gz"
    stored = fill(f"sqlite:///{tmp_path}/origin.sqlite")
    with opened(f"sqlite:///{tmp_path}/origin.sqlite") as origin, opened(database_url) as target:
        made = backup.write(origin, first, NOW)
        assert backup.read(first) == made
        assert first.stat().st_mode & 0o777 == 0o600
        assert backup.restore(target, first, NOW, actor="root") is None, "there was nothing before"
        assert faults(target) == []
        backup.write(target, again, NOW)
    assert content(first) == content(again)
    store = Store(database_url)
    assert store.get_value("paused") is True, "the cluster has gone on: nothing begins by itself"
    assert store.pending_requests() == ()
    assert [store.eviction(each.eviction_id) for each in stored] == list(stored)
    assert store.create_eviction(eviction()).eviction_id > backup.GAP, "as numbers after the backup were given out"
    (entry, *_) = store.audit_trail(limit=1)
    assert entry.document()["about"]["sha256"] == made.sha256
    assert store.take_lease("host:1", NOW, 10).owner == "host:1"
    store.close()


def test_what_was_there_before_is_kept_and_can_be_restored(database_url: str, tmp_path: Path) -> None:
    empty, full = tmp_path / "empty.gz", tmp_path / "full.gz"
    Store(database_url).close()
    with opened(database_url) as database:
        backup.write(database, empty, NOW)
        fill(database_url)
        backup.write(database, full, NOW)
        with pytest.raises(StoreError, match=r"1 operation\(s\) of this database have not ended"):
            backup.restore(database, empty, NOW, actor="root")
        replaced = backup.restore(database, empty, NOW, actor="root", force=True)
        assert replaced is not None
        assert content(replaced) == content(full)
        backup.restore(database, replaced, NOW + timedelta(hours=1), actor="root")
        assert faults(database) == []
        backup.write(database, tmp_path / "back.gz", NOW)
    assert content(tmp_path / "back.gz") == content(full)


def test_nothing_is_restored_under_a_leader(database_url: str, tmp_path: Path) -> None:
    file, store = tmp_path / "file.gz", Store(database_url)
    with opened(database_url) as database:
        backup.write(database, file, NOW)
        assert store.take_lease("host:etc", NOW, 3_600).owner == "host:etc"
        with pytest.raises(StoreError, match="host:etc leads with this database until"):
            backup.restore(database, file, NOW, actor="root", force=True)
        store.release_lease(NOW)
        backup.restore(database, file, NOW, actor="root")
    store.close()


@pytest.mark.parametrize("harm", ["cut off", "changed", "a row less", "no gzip", "another program's"])
def test_a_file_that_was_harmed_changes_nothing(tmp_path: Path, harm: str) -> None:
    url, file = f"sqlite:///{tmp_path}/site.sqlite", tmp_path / "file.gz"
    fill(url)
    with opened(url) as database:
        backup.write(database, file, NOW)
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        match harm:
            case "cut off":
                file.write_bytes(file.read_bytes()[:-40])
            case "changed":
                file.write_bytes(gzip.compress(b"".join(lines).replace(b"olga", b"mara")))
            case "a row less":
                file.write_bytes(gzip.compress(b"".join(lines[:3] + lines[4:])))
            case "no gzip":
                file.write_bytes(b"".join(lines))
            case _:
                file.write_bytes(gzip.compress(b'{"table": 1}\n[]\n'))
        with pytest.raises(StoreError, match=r"file\.gz: (cannot be read|was changed|is not whole|is no backup)"):
            backup.restore(database, file, NOW, actor="root", force=True)
        assert faults(database) == []
    assert len(Store(url).evictions()) == 2


def test_a_restore_that_fails_half_way_changes_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB cannot take back that tables were made anew: there the file of what was before is restored."""
    fill(database_url)

    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    with opened(database_url) as database:
        backup.write(database, tmp_path / "file.gz", NOW)
        monkeypatch.setattr(backup, "_settle", fail)
        with pytest.raises(StoreError, match="the disk is full"):
            backup.restore(database, tmp_path / "file.gz", NOW, actor="root", force=True)
        monkeypatch.undo()
        if database.engine.dialect.name == "mariadb":
            (replaced,) = tmp_path.glob("*.replaced-*")
            backup.restore(database, replaced, NOW + timedelta(hours=1), actor="root", force=True)
        assert faults(database) == []
    assert len(Store(database_url).evictions()) == 2


@pytest.mark.parametrize("revision", ["9999", "0017"])
def test_what_another_clearway_made_is_refused(tmp_path: Path, revision: str) -> None:
    url, at = f"sqlite:///{tmp_path}/site.sqlite", f"its schema has revision {revision}, "
    fill(url)
    with opened(url) as database:
        with database.writing() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
        with pytest.raises(SchemaError, match=f"^database .*site.sqlite: {at}"):
            backup.write(database, tmp_path / "file.gz", NOW)
        assert not (tmp_path / "file.gz").exists()
        with pytest.raises(SchemaError, match=at):
            faults(database)
        backup._write(database, tmp_path / "file.gz", NOW)
    with opened(f"sqlite:///{tmp_path}/new.sqlite") as new:
        with pytest.raises(SchemaError, match=f"^{tmp_path}/file.gz: {at}"):
            backup.restore(new, tmp_path / "file.gz", NOW, actor="root")
        assert migrate.current_revision(new) is None


def test_a_backup_replaces_a_database_of_another_clearway(tmp_path: Path) -> None:
    """So leads the way back from a newer version; what was there is in a file that the newer one can read."""
    url = f"sqlite:///{tmp_path}/site.sqlite"
    fill(url)
    with opened(url) as database:
        backup.write(database, tmp_path / "file.gz", NOW)
        with database.writing() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        replaced = backup.restore(database, tmp_path / "file.gz", NOW, actor="root", force=True)
        assert replaced is not None
        assert backup.read(replaced).revision == "9999"
        assert faults(database) == []


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("DELETE FROM plans WHERE eviction_id = 1", "Eviction 1 has no plan of its revision"),
        ("UPDATE plans SET document = '{' WHERE eviction_id = 2", "Eviction 2 cannot be read"),
        ("UPDATE steps SET eviction_id = 77", "2 row(s) of steps refer to evictions that are not there"),
        ("UPDATE audit SET entry = '{}' WHERE sequence = 1", "The audit trail is broken: entry 1 was changed"),
        ("DROP TABLE steps", "The table steps is missing"),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, harm: str, told: str) -> None:
    url = f"sqlite:///{tmp_path}/site.sqlite"
    fill(url)
    with opened(url) as database:
        assert faults(database) == []
        with database.engine.connect() as connection:  # without the writer's transaction, as the pragma asks
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.exec_driver_sql(harm)
        assert any(told in fault for fault in faults(database)), faults(database)


def test_backups_of_a_running_daemon(tmp_path: Path) -> None:
    """It goes on writing, and each file shows one moment."""
    with running_here(tmp_path) as (simulated, _), opened(f"sqlite:///{tmp_path}/clearway.sqlite") as database:
        simulated.submit_urgent(2, work_s=600)
        for number in range(8):
            file = tmp_path / f"{number}.gz"
            backup.write(database, file, NOW)
            with opened(f"sqlite:///{tmp_path}/{number}.sqlite") as copy:
                backup.restore(copy, file, NOW, actor="root")
                assert faults(copy) == []
