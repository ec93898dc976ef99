"""Health, liveness, readiness, metrics, and the document that describes it all."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from clearway.api import reading_routes
from tests.unit.api.conftest import ApiWorld


def test_before_the_first_cycle(api: ApiWorld) -> None:
    assert api.client.get("/health").json()["status"] == "starting"
    assert api.client.get("/liveness").status_code == 200, "a daemon that has just started is alive"
    assert api.client.get("/readiness").status_code == 503


def test_after_a_cycle(api: ApiWorld) -> None:
    api.tick()
    for path in ("/health", "/liveness", "/readiness"):
        answer = api.client.get(path)
        assert answer.status_code == 200
        assert answer.json()["status"] == "ok"


def test_a_loop_that_stands_still_is_not_alive(api: ApiWorld) -> None:
    api.tick()
    api.clock.advance(59)
    assert api.client.get("/liveness").status_code == 200
    api.clock.advance(2)
    answer = api.client.get("/liveness")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "no cycle has succeeded for 61 s (stale after 60 s)"
    health = api.client.get("/health")
    assert health.status_code == 200
    assert health.json()["status"] == "stale"
    api.tick()
    assert api.client.get("/liveness").status_code == 200


def metrics_of(api: ApiWorld) -> list[str]:
    text: str = api.client.get("/metrics").text
    return text.splitlines()


def test_the_leader_is_the_one_whose_lease_lasts(api: ApiWorld) -> None:
    assert api.client.get("/leader").status_code == 503
    api.tick()
    assert api.client.get("/leader").status_code == 200
    api.clock.advance(11)
    assert api.client.get("/leader").status_code == 503, "it has not renewed its lease"
    assert api.client.get("/health").json()["standby"] is True
    told = api.client.get("/readiness")
    assert (told.status_code, told.json()["detail"]) == (503, reading_routes.LEASE_OVER)
    assert api.client.get("/api/v1/status").json()["running"] is False
    assert "clearway_standby 1.0" in metrics_of(api)
    assert "clearway_lease_epoch 0.0" in metrics_of(api)
    api.tick()
    assert api.client.get("/leader").status_code == 200
    assert "clearway_standby 0.0" in metrics_of(api)
    assert api.client.get("/api/v1/status").json()["running"] is True
    answer = api.client.get("/api/v1/leaders")
    assert [(each["epoch"], each["owner"]) for each in answer.json()["items"]] == [(1, "clearway")]


def test_metrics_are_prometheus_text(api: ApiWorld) -> None:
    api.tick()
    answer = api.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"clearway_cycles", "clearway_waiting_preemptors", "process_resident_memory_bytes"} <= families


def _properties(schema: Any, where: str) -> list[tuple[str, str, Any]]:
    return [(where, name, value) for name, value in schema.get("properties", {}).items()]


def test_the_document_describes_every_operation_and_every_number(api: ApiWorld) -> None:
    document = api.client.get("/api/v1/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description"), f"{method} {path} has no description"
    plain = {"user", "name", "job_id", "display_id", "eviction_id", "request_id", "step_id", "revision", "version"}
    plain |= {
        "finished_at",
        "created_at",
        "state",
        "state_since",
        "submit_time",
        "made_at",
        "action",
        "chosen",
        "curve",
    }
    plain |= {"plan", "preemptions", "nodes", "budget", "mode", "placement", "partition", "detail", "intended_at"}
    plain |= {"backend", "paused", "standby", "health", "cluster", "kind"}
    schemas = {
        name: schema
        for name, schema in document["components"]["schemas"].items()
        if name not in ("HTTPValidationError", "ValidationError")
    }
    for where, name, value in (p for n, schema in schemas.items() for p in _properties(schema, n)):
        assert value.get("description") or name in plain, f"{where}.{name} has no description"
        number = "number" in str(value.get("type", value.get("anyOf", "")))
        if number and name != "max_delay":
            units = ("_s", "_node_s", "_limit", "_ratio", "share_within")  # the last two have none
            assert name.endswith(units), f"{where}.{name}: no unit in its name"


def test_no_page_that_loads_scripts_from_elsewhere(api: ApiWorld) -> None:
    for path in ("/docs", "/redoc"):
        assert api.client.get(path).status_code == 404
