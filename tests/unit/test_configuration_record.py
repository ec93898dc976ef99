"""What the audit trail has of the configuration: every change with old and new values, and no secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearway.api.logins import new_token
from clearway.config.configuration import Config
from clearway.model.requests import Role
from clearway.service.server import ConfigurationRecord, flat
from clearway.store.repository import Store
from tests.builders import NOW, ManualClock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield made
    made.close()


def changes(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = store.audit_trail(limit=1)[0].document()["about"]["changes"]
    return found


def test_old_and_new_values(store: Store) -> None:
    record = ConfigurationRecord(store, ManualClock(NOW), "host:/etc/clearway.toml")
    record.started(Config.model_validate({"daemon": {"mode": "approve"}}), ())
    assert changes(store) == {"daemon.mode": ["observe", "approve"]}
    rules = [{"partition": ["urgent"]}]
    now = Config.model_validate({"daemon": {"mode": "automatic"}, "preemptors": rules, "access": {"admins": ["ann"]}})
    token, entry = new_token("ci", Role.OPERATOR, None)
    record.changed(now, (entry,))
    found = changes(store)
    assert found["daemon.mode"] == ["approve", "automatic"]
    assert found["access.admins"] == [[], ["ann"]]
    assert found["preemptors"][1][0]["partition"] == ["urgent"]
    (name,) = (key for key in found if key.startswith("token "))
    assert found[name] == [None, "ci operator never"]
    assert token not in str(found)
    assert entry.digest not in str(found)


def test_a_change_while_the_daemon_did_not_run_shows_at_the_next_start(store: Store) -> None:
    first = ConfigurationRecord(store, ManualClock(NOW), "host:a")
    first.started(Config(), ())
    again = ConfigurationRecord(store, ManualClock(NOW), "host:a")
    again.started(Config.model_validate({"budget": {"jobs_per_hour": 9}}), ())
    assert changes(store) == {"budget.jobs_per_hour": [None, 9]}
    again.started(Config.model_validate({"budget": {"jobs_per_hour": 9}}), ())
    assert changes(store) == {}
    ConfigurationRecord(store, ManualClock(NOW), "host:b").started(Config(), ())
    assert changes(store) == {}, "another daemon has a configuration of its own"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////var/lib/clearway/clearway.sqlite", "sqlite:////var/lib/clearway/clearway.sqlite"),
        ("postgresql://cw:se:c@ret@db/cw", "postgresql://cw:***@db/cw"),
        ("mariadb://cw@db/cw?password=secret", "mariadb://cw@db/cw"),
    ],
)
def test_no_password(url: str, shown: str) -> None:
    assert flat(Config.model_validate({"store": {"url": url}}), ())["store.url"] == shown


def test_a_standby_records_its_configuration_as_well(store: Store, tmp_path: Path) -> None:
    leader = Store(f"sqlite:///{tmp_path}/store.sqlite")
    leader.take_lease("leader", NOW, 60)
    assert store.take_lease("standby", NOW, 60).owner == "leader"
    record = ConfigurationRecord(store, ManualClock(NOW), "standby")
    record.started(Config(), ())
    record.changed(Config.model_validate({"daemon": {"mode": "approve"}}), ())
    assert changes(store) == {"daemon.mode": ["observe", "approve"]}
    record.refused("daemon.mode: nonsense")
    assert store.check_audit().intact
    leader.close()
