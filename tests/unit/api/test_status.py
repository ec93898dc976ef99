"""``GET /api/v1/status``: the daemon as its database knows it."""

from __future__ import annotations

import pytest

from tests.simulation.world import config
from tests.unit.api.conftest import ApiWorld
from tests.unit.api.test_sight import Busy, busy

__all__ = ["busy"]


def status(api: ApiWorld) -> dict[str, object]:
    answer = api.client.get("/api/v1/status")
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_before_the_first_cycle_no_daemon_leads(api: ApiWorld) -> None:
    found = status(api)
    assert (found["running"], found["not_running_since"], found["mode"]) == (False, None, None)


def test_running_and_gone(api: ApiWorld) -> None:
    api.fill()
    urgent = api.urgent(9)
    api.tick()
    found = status(api)
    assert (found["running"], found["mode"], found["backend"]) == (True, "automatic", "simulated")
    (waiting,) = found["waiting"]  # type: ignore[misc]
    assert (waiting["job_id"], waiting["left_s"]) == (urgent, pytest.approx(59.5))
    beat = found["last_heartbeat"]
    api.clock.advance(11)
    found = status(api)
    assert (found["running"], found["not_running_since"], found["leader"]) == (False, beat, None)
    assert found["heartbeat_age_s"] == pytest.approx(11)


def test_another_mode_is_told_after_the_next_cycle(api: ApiWorld) -> None:
    api.tick()
    api.loop.reconfigure(config("observe", access={"public": "reading"}))
    api.tick()
    assert status(api)["mode"] == "observe"


def test_nothing_is_written_while_nothing_changes(api: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    api.fill()
    api.urgent(9)
    api.tick()
    written: list[object] = []
    monkeypatch.setattr(type(api.store), "set_value", lambda *_: written.append(1))
    for _ in range(10):
        api.tick(0.1)
    assert len(written) <= 1


def test_users_are_told_of_their_own_jobs_alone(busy: Busy) -> None:
    told = {user: busy.get(user, "status").json() for user in ("user1", "user5", "ursula", "olga")}
    assert busy.slurm.private, "else every user sees every job"
    for user, sees in {"user1": 1, "user5": 0, "ursula": 1, "olga": 1}.items():
        assert len(told[user]["open_evictions"]) == len(told[user]["waiting"]) == sees, user
        assert told[user]["running"] is True
    assert told["user1"]["waiting"][0]["why"] == ""
