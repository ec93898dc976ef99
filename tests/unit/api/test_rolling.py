"""Rolling drains over REST: ordered, read, cancelled, and asked about."""

from __future__ import annotations

from typing import Any

from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES
from tests.unit.api.conftest import AUTHORIZED, ApiWorld

DRAINS = "/api/v1/drains"
ROLLING = "/api/v1/rolling-drains"


def operate(api: ApiWorld) -> None:
    """The token's user may drain."""
    settings = api.config.model_copy(update={"drain": api.config.drain.model_copy(update={"operators": ("ann",)})})
    api.loop.reconfigure(settings)


def order(api: ApiWorld, **fields: Any) -> int:
    asked = api.client.post(DRAINS, headers=AUTHORIZED, json=fields)
    assert asked.status_code == 202, asked.text
    api.tick()
    handled = api.client.get(f"/api/v1/requests/{asked.json()['request_id']}").json()
    assert handled["rolling_id"], handled["result"]
    return int(handled["rolling_id"])


def test_ordered_read_and_cancelled(api: ApiWorld) -> None:
    operate(api)
    number = order(api, nodes="n[1-4]", rolling=2, reason="new kernel")
    api.tick()
    api.tick()
    found = api.client.get(f"{ROLLING}/{number}").json()
    assert (found["actor"], found["reason"], found["at_once"]) == ("ann", "new kernel", 2)
    assert [turn["state"] for turn in found["turns"]] == ["away", "away", "waiting", "waiting"]
    drain = api.client.get(f"/api/v1/evictions/{found['turns'][0]['drain_id']}").json()["drain"]
    assert (drain["nodes"], drain["rolling_id"]) == ("n[1-2]", number)
    assert api.client.get(ROLLING).json() == {"items": [found], "next_offset": None}
    assert api.client.post(f"{ROLLING}/{number}/cancel").status_code == 401
    asked = api.client.post(f"{ROLLING}/{number}/cancel", headers=AUTHORIZED)
    assert (asked.status_code, asked.json()["rolling_id"]) == (202, number)
    api.tick()
    found = api.client.get(f"{ROLLING}/{number}").json()
    assert found["state"] == "cancelled"
    assert [turn["state"] for turn in found["turns"]] == ["away", "away", "skipped", "skipped"]


def metrics(api: ApiWorld) -> dict[str, float]:
    """Of rolling drains, without the prefix that all of them have."""
    lines = [line for line in api.client.get("/metrics").text.splitlines() if line.startswith("clearway_rolling_drain")]
    pairs = [line.rsplit(" ", 1) for line in lines]
    return {name.removeprefix("clearway_rolling_drain_"): float(value) for name, value in pairs}


def test_standing_still_and_skipping_are_counted(api: ApiWorld) -> None:
    operate(api)
    api.submit(on=("n2",), ran_s=100, user="bob")  # cannot save itself
    api.tick()
    assert metrics(api) == dict.fromkeys(metrics(api), 0.0)
    number = order(api, nodes="n[1-3]", rolling=1)
    api.run_until(lambda: metrics(api)['nodes{state="away"}'] == 1, 30)
    began = api.client.get(f"{ROLLING}/{number}").json()
    assert began["progressed_at"] > began["created_at"]
    api.tick(300)
    counted = metrics(api)
    assert counted["standstill_seconds"] == 300
    assert (counted['nodes{state="waiting"}'], counted["skipped_nodes_total"]) == (2, 0)
    assert "clearway_open_rolling_drains 1.0" in api.client.get("/metrics").text
    api.client.post("/api/v1/undrains", headers=AUTHORIZED, json={"nodes": "n1"})
    api.run_until(lambda: metrics(api)['nodes{state="away"}'] == 1 == metrics(api)["skipped_nodes_total"], 30)
    counted = metrics(api)
    assert counted["standstill_seconds"] < 30
    assert [counted[f'nodes{{state="{state}"}}'] for state in ("over", "skipped", "away")] == [1, 1, 1]
    api.client.post("/api/v1/undrains", headers=AUTHORIZED, json={"nodes": "n3"})
    api.run_until(lambda: "clearway_open_rolling_drains 0.0" in api.client.get("/metrics").text, 30)
    assert metrics(api) == dict.fromkeys(metrics(api), 0.0) | {"skipped_nodes_total": 1.0}


def test_what_somebody_decides_is_no_failure(api: ApiWorld) -> None:
    operate(api)
    number = order(api, nodes="n[1-4]", rolling=1)
    api.tick()
    api.client.post(f"{ROLLING}/{number}/cancel", headers=AUTHORIZED)
    api.run_until(lambda: api.client.get(f"{ROLLING}/{number}").json()["state"] == "cancelled", 30)
    assert metrics(api)["skipped_nodes_total"] == 0


def test_what_is_not_there_or_makes_no_sense(api: ApiWorld) -> None:
    api.tick()
    assert api.client.get(f"{ROLLING}/7").status_code == 404
    assert api.client.post(f"{ROLLING}/7/cancel", headers=AUTHORIZED).status_code == 404
    wrong = {"nodes": "n1", "rolling": 0}
    assert api.client.post(DRAINS, headers=AUTHORIZED, json=wrong).status_code == 422
    late = {"nodes": "n1", "rolling": 1, "deadline": "2030-01-01T00:00:00Z"}
    assert "no deadline" in api.client.post(DRAINS, headers=AUTHORIZED, json=late).json()["detail"]
    assert api.client.post(f"{DRAINS}/what-if", json={"nodes": "n1", "rolling": 1}).status_code == 422
    assert api.client.post(f"{ROLLING}/what-if", json={"nodes": "x1"}).status_code == 422


def test_what_if_tells_the_batches_and_who_is_in_the_way(api: ApiWorld) -> None:
    for number in (1, 2, 4, 5, 6):
        api.submit(Program(save_s=2.0), on=(f"n{number}",), ran_s=100, comment=SAVES)
    deaf = api.submit(on=("n3",), ran_s=100, user="bob")
    api.by_hand.drain("n8", "bad disk")
    api.tick()
    told = api.client.post(f"{ROLLING}/what-if", json={"nodes": "n[1-8]", "rolling": 3}).json()
    assert [(batch["nodes"], batch["jobs"]) for batch in told["batches"]] == [("n[1-2,4]", 3), ("n[5-7]", 2)]
    assert all(batch["checkpoint_s"] > 0 for batch in told["batches"])
    assert told["skipped"] == {
        "n3": f"1 job(s) in the way: job {deaf} of bob: it cannot save itself",
        "n8": "node n8 already has a reason: bad disk",
    }
    assert not api.store.rolling_drains()


def test_what_if_of_a_time_that_has_passed(api: ApiWorld) -> None:
    """As the request itself would be answered."""
    api.tick()
    for path in (f"{DRAINS}/what-if", f"{ROLLING}/what-if"):
        told = api.client.post(path, json={"nodes": "n1", "at": "2001-02-03T04:05:06Z"})
        assert (told.status_code, told.json()["detail"]) == (422, "its beginning, 2001-02-03 04:05:06 UTC, has passed")
