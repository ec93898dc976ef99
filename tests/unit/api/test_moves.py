"""Compaction and promotion over REST: asked about, asked for, read, explained and counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.moving_jobs import moving, serial
from tests.unit.api.conftest import AUTHORIZED, ApiWorld


@pytest.fixture
def api(make_api: Callable[..., ApiWorld]) -> ApiWorld:
    return make_api(config=moving(drain={"operators": ["ann"]}))


def ask(api: ApiWorld, path: str) -> tuple[str, int | None]:
    asked = api.client.post(f"/api/v1/{path}", headers=AUTHORIZED)
    assert asked.status_code == 202, asked.text
    api.tick()
    handled = api.client.get(f"/api/v1/requests/{asked.json()['request_id']}").json()
    return handled["result"], handled["eviction_id"]


def test_asked_about_asked_for_and_counted(api: ApiWorld) -> None:
    moves, stays = serial(api, "n1"), serial(api, "n3", cpus=2)
    api.tick()
    planned = api.client.post("/api/v1/compactions/what-if").json()
    assert planned["feasible"]
    assert [(a["job_id"], a["action"]) for a in planned["plan"]["chosen"]["actions"]] == [(moves, "app_checkpoint")]
    verdicts = {each["job_id"]: (each["choice"], each["code"]) for each in planned["plan"]["verdicts"]}
    assert verdicts == {moves: ("chosen", "compaction"), stays: ("spared", "no_gain")}
    assert not api.store.evictions()
    assert api.client.post("/api/v1/compactions").status_code == 401
    result, number = ask(api, "compactions")
    assert result == "compact 1: moving 1 job(s) off n1"
    api.run_until(api.settled)
    told = api.client.get(f"/api/v1/evictions/{number}").json()
    assert told["state"] == "completed"
    assert told["drain"]["move"]["moves"] == [{"job_id": moves, "source": "n1", "target": "n3", "processors": 1}]
    assert told["drain"]["move"]["gain_node_s"] > 2 * told["drain"]["move"]["cost_node_s"] > 0
    metrics = api.client.get("/metrics").text
    assert 'clearway_moved_jobs_total{kind="compaction"} 1.0' in metrics
    assert 'clearway_moved_jobs_total{kind="promotion"} 0.0' in metrics
    assert "clearway_compacted_nodes_total 1.0" in metrics
    assert f'gain_node_seconds_total{{kind="compaction"}} {told["drain"]["move"]["gain_node_s"]}' in metrics
    assert "clearway_nodes_emptied_total 0.0" in metrics
    api.loop.explainer.work(api.clock.now(), 5.0, lambda: True)
    assert api.client.get(f"/api/v1/evictions/{number}/explanation").status_code == 200


def test_nothing_to_move_says_why_each_job_stays(api: ApiWorld) -> None:
    stays = serial(api, "n1", save_s=None)
    api.tick()
    whys = {
        "compactions": "no move gains enough for what it costs",
        "promotions": "all nodes in question rank alike (promotion.order, else Slurm's Weight) "
        "and none is promotion.scarce",
    }
    for path, why in whys.items():
        planned = api.client.post(f"/api/v1/{path}/what-if").json()
        assert (planned["feasible"], planned["plan"]) == (False, None)
        assert planned["why"] == why
        assert [(each["job_id"], each["code"]) for each in planned["verdicts"]] == [(stays, "not_saved")]
        assert ask(api, path) == (f"refused: {why}", None)
