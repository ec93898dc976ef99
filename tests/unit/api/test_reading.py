"""What the API answers about the cluster and about evictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.api import context
from clearway.model.cluster import ClusterSnapshot, JobState, Skipped
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from tests.simulation import load
from tests.simulation.world import SAVES, config
from tests.unit.api.conftest import ApiWorld


def test_the_cluster_in_numbers(api: ApiWorld) -> None:
    for n in (1, 2, 3):
        api.submit(on=(f"n{n}",))
    api.submit(num_nodes=99)
    api.tick()

    body = api.client.get("/api/v1/cluster").json()

    assert body["nodes"] == {"total": 8, "available": 8, "free": 5, "occupied": 3, "unavailable": 0, "reserved": 0}
    assert body["jobs"] == {"pending": 1, "running": 3}
    assert (body["mode"], body["backend"], body["paused"], body["standby"]) == ("automatic", "simulated", False, False)


def test_what_could_not_be_read_is_told_and_bounded(api: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    api.submit(on=("n1",), comment="clearway:last=yesterday")
    bad = tuple(Skipped("job", f"{n}\n<script>", "State=WEIRD") for n in range(80))
    original = api.backend.snapshot

    def snapshot() -> ClusterSnapshot:
        return replace(original(), skipped=bad)

    monkeypatch.setattr(api.backend, "snapshot", snapshot)
    api.tick()

    body = api.client.get("/api/v1/cluster").json()

    assert body["skipped_records"] == 80
    assert len(body["skipped"]) == 50
    assert body["skipped"][0] == {"kind": "job", "ident": "0\n<script>", "why": "State=WEIRD"}
    assert body["unreadable_claims"] == 1


def test_waiting_preemptors_with_deadline_and_why(api: ApiWorld) -> None:
    api.fill()
    urgent = api.urgent(2)
    api.clock.advance(1)
    api.urgent(9)
    api.tick()

    items = api.client.get("/api/v1/preemptors").json()["items"]

    assert [item["nodes"] for item in items] == [2, 9]
    assert items[0]["job_id"] == urgent
    assert items[0]["eviction_id"] == 1
    assert items[0]["max_delay_s"] == 60
    assert items[0]["left_s"] == pytest.approx(58.5)
    assert items[1]["eviction_id"] is None
    assert items[1]["why"]


def test_an_eviction_from_plan_to_end(api: ApiWorld) -> None:
    jobs = api.fill()
    saver = api.submit(Program(save_s=3.0), on=(), comment=SAVES)
    api.urgent(2, work_s=20)
    api.tick()

    (summary,) = api.client.get("/api/v1/evictions").json()["items"]
    assert summary["eviction_id"] == 1
    assert summary["state"] == "preempting"
    assert summary["started_at"] is None
    assert summary["time_to_start_s"] is None

    api.run_until(api.settled)
    body = api.client.get("/api/v1/evictions/1").json()
    assert body["state"] == "completed"
    assert 0 <= body["time_to_start_s"] < 60
    assert body["start_margin_s"] == pytest.approx(60 - body["time_to_start_s"], abs=1.0)
    assert body["actual_lost_work_node_s"] == pytest.approx(body["predicted_lost_work_node_s"], abs=5.0)
    assert [p["job_id"] for p in body["preemptions"]] == jobs[:2]
    assert all(p["returned_at"] for p in body["preemptions"])
    assert body["preemptions"][0]["nodes"] == "n1"
    assert body["plan"]["placement_nodes"] == "n[1-2]"
    assert body["plan"]["jobs_by_choice"] == {"chosen": 2, "spared": 6, "exempt": 0}
    reasons = api.client.get("/api/v1/evictions/1/verdicts").json()["items"]
    assert [each["choice"] for each in reasons] == ["chosen"] * 2 + ["spared"] * 6
    verdicts = {verdict["job_id"]: verdict["choice"] for verdict in reasons}
    assert verdicts == {job_id: "chosen" if job_id in jobs[:2] else "spared" for job_id in jobs}
    assert saver not in verdicts
    points = body["plan"]["curve"]["points"]
    assert points[0]["max_delay_s"] == 0
    assert [point["feasible"] for point in points] == [True] * len(points)
    assert [point["preemptees"] for point in points] == [2] * len(points)

    steps = api.client.get("/api/v1/evictions/1/steps").json()["items"]
    done = [step["kind"] for step in steps if step["kind"] != "event"]
    assert done[:4] == ["create_placement", "attach", "requeue", "requeue"]
    assert done.count("delete_placement") == 1
    assert {step["result"] for step in steps} == {"ok"}
    assert len(api.client.get("/api/v1/evictions/1/plans").json()["items"]) == 1


def test_an_eviction_on_a_large_site_is_a_small_answer(make_api: Callable[..., ApiWorld]) -> None:
    """It had 336 kB: the name of each node, the jobs of each point of the curve, and a sentence for each job."""
    urgent = {"partition": ["urgent"], "max_delay": "5m"}
    api = make_api(config=config("approve", preemptors=[urgent]), node_count=0)
    api.cluster.add_nodes(load.nodes())
    load.fill(api.cluster)
    load.urgent(api.cluster)
    api.tick()

    answer = api.client.get("/api/v1/evictions/1")

    assert sum(answer.json()["plan"]["jobs_by_choice"].values()) == load.RUNNING
    assert len(answer.content) < 32_000
    pages = [
        api.client.get("/api/v1/evictions/1/verdicts", params={"limit": 600, "offset": offset}).json()
        for offset in (0, 600)
    ]
    assert [len(page["items"]) for page in pages] == [600, load.RUNNING - 600]
    assert [page["next_offset"] for page in pages] == [600, None]
    assert len({each["job_id"] for page in pages for each in page["items"]}) == load.RUNNING


def test_evictions_by_state_and_page(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config("observe"))
    api.fill()
    for _ in range(3):
        api.urgent(2)
    api.tick()
    get = api.client.get

    assert [item["eviction_id"] for item in get("/api/v1/evictions").json()["items"]] == [3, 2, 1]
    first = get("/api/v1/evictions", params={"limit": 2}).json()
    assert [item["eviction_id"] for item in first["items"]] == [3, 2]
    rest = get("/api/v1/evictions", params={"limit": 2, "offset": first["next_offset"]}).json()
    assert [item["eviction_id"] for item in rest["items"]] == [1]
    assert rest["next_offset"] is None
    counts = {
        state: len(get("/api/v1/evictions", params={"state": state}).json()["items"])
        for state in ("planned", "active", "past", "proposed")
    }
    assert counts == {"planned": 3, "active": 0, "past": 0, "proposed": 3}


@pytest.mark.parametrize("state", list(EvictionState))
def test_every_state_can_be_asked_for(api: ApiWorld, state: EvictionState) -> None:
    assert api.client.get("/api/v1/evictions", params={"state": state.value}).status_code == 200


def test_reading_changes_nothing(api: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "LONGEST_S", 0.1)  # the stream ends after that
    jobs = api.fill()
    api.tick()
    for path in api.app.openapi()["paths"]:
        api.client.get(path.replace("{eviction_id}", "1").replace("{request_id}", "1"))
    api.tick()

    assert all(api.state(job_id) is JobState.RUNNING for job_id in jobs)
    assert api.store.evictions() == ()
    assert api.store.pending_requests() == ()


def test_an_eviction_is_explained_once_there_was_time(api: ApiWorld) -> None:
    api.fill()
    api.urgent(2)
    api.tick()
    early = api.client.get("/api/v1/evictions/1/explanation")
    assert (early.status_code, early.json()["detail"]) == (404, "eviction 1 is not explained yet")
    assert api.client.get("/api/v1/evictions/9/explanation").json()["detail"] == "no eviction 9"

    api.loop.explain(float("inf"))
    body = api.client.get("/api/v1/evictions/1/explanation").json()
    # Eight jobs of one node have run for 100, 200 ... 800 s; the two youngest go.
    by_job = {each["job_id"]: each for each in body["alternatives"]}
    assert [by_job[job_id]["choice"] for job_id in ("1", "2", "3")] == ["chosen", "chosen", "spared"]
    assert [by_job[job_id]["more_lost_work_node_s"] for job_id in ("1", "2", "3", "8")] == [200, 100, 100, 600]
    assert {each["rule"]: each["more_lost_work_node_s"] for each in body["rules"]} == {
        "slurm-default": 0,
        "youngest-first": 0,
        "youngest-prune": 0,
        "loss-per-node-prune": 0,
    }
    assert body["complete"]
    text = api.client.get("/metrics").text
    lost = body["cost"]["lost_work_node_s"]
    assert f'clearway_rule_lost_work_node_seconds_total{{rule="clearway"}} {lost}' in text
    assert f'clearway_rule_lost_work_node_seconds_total{{rule="slurm-default"}} {lost}' in text
    assert 'clearway_rule_infeasible_total{rule="slurm-default"} 0.0' in text


def test_plans_made_together_say_so_and_rules_are_not_charged_with_each_of_them(api: ApiWorld) -> None:
    api.fill()
    first, second = api.urgent(1), api.urgent(1)
    api.tick()
    api.loop.explain(float("inf"))
    told = [api.client.get(f"/api/v1/evictions/{number}").json() for number in (1, 2)]
    assert {each["job_id"]: each["plan"]["together"] for each in told} == {first: [second], second: [first]}
    assert api.client.get("/api/v1/evictions/2/explanation").json()["complete"]
    assert 'clearway_rule_lost_work_node_seconds_total{rule="slurm-default"} 0.0' in api.client.get("/metrics").text
