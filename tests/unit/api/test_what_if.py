"""What-if plans: the daemon's own decision, and no act."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearway.model.cluster import JobState
from clearway.simulation.jobs import Program
from clearway.slurm.parse.hostlist import expand
from tests.simulation.world import SAVES, config
from tests.unit.api.conftest import ApiWorld

WHAT_IF = "/api/v1/what-if"


def test_it_is_what_the_daemon_would_do(api: ApiWorld) -> None:
    api.fill()
    api.submit(Program(save_s=2.0), comment=SAVES)
    api.tick()

    answer = api.client.post(WHAT_IF, json={"nodes": 3, "max_delay": "1m", "partition": "urgent"}).json()
    api.urgent(3)
    api.tick(0.0)

    chosen = api.eviction().plan.chosen
    assert answer["feasible"] is True
    assert [action["job_id"] for action in answer["plan"]["chosen"]["actions"]] == [a.job_id for a in chosen.actions]
    assert answer["plan"]["chosen"]["lost_work_node_s"] == pytest.approx(chosen.lost_work_node_s)
    assert answer["curve"]["points"]
    assert {verdict["choice"] for verdict in answer["plan"]["verdicts"]} == {"chosen", "spared"}


def test_it_changes_nothing(api: ApiWorld) -> None:
    jobs = api.fill()
    api.tick()
    before = api.loop.report
    assert before is not None

    for nodes in (1, 4, 8):
        assert api.client.post(WHAT_IF, json={"nodes": nodes, "max_delay": 600}).status_code == 200
    after = api.tick(0.5)

    assert before.snapshot.nodes == after.snapshot.nodes
    assert all(api.state(job_id) is JobState.RUNNING for job_id in jobs)
    assert api.store.evictions() == ()
    assert api.store.pending_requests() == ()


def test_why_it_is_not_possible(api: ApiWorld) -> None:
    api.submit(on=("n1",), user="vip", requeueable=False)
    for n in range(2, 9):
        api.submit(on=(f"n{n}",), ran_s=100)
    api.tick()

    answer = api.client.post(WHAT_IF, json={"nodes": 8, "max_delay": 60}).json()

    assert answer["feasible"] is False
    assert "not enough" in answer["why"]
    assert answer["plan"] is None
    assert answer["curve"]["points"][-1]["feasible"] is False


def test_any_partition_when_none_is_named(api: ApiWorld) -> None:
    api.tick()
    answer = api.client.post(WHAT_IF, json={"nodes": 8, "max_delay": 0}).json()
    assert answer["feasible"] is True
    assert answer["plan"]["chosen"]["actions"] == []
    assert answer["plan"]["free_nodes"] == "n[1-8]"


def test_what_exceeds_the_budget_is_told(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config(budget={"jobs_per_hour": 1}))
    api.fill()
    api.tick()
    one = api.client.post(WHAT_IF, json={"nodes": 1, "max_delay": 60}).json()
    two = api.client.post(WHAT_IF, json={"nodes": 2, "max_delay": 60}).json()
    assert one["budget"] == ""
    assert two["budget"] == "2 jobs would be preempted within an hour, 1 are allowed"


def test_nodes_of_an_eviction_under_way_are_not_promised_twice(api: ApiWorld) -> None:
    api.fill()
    api.urgent(4)
    api.tick()
    under_way = set(api.eviction().plan.placement_nodes)

    answer = api.client.post(WHAT_IF, json={"nodes": 4, "max_delay": 60}).json()

    assert not under_way & set(expand(answer["plan"]["placement_nodes"]))


def test_a_job_as_it_would_be_submitted(api: ApiWorld) -> None:
    """Its rule, its delay and its number of nodes follow from what it asks for."""
    api.fill()
    api.tick()

    def asked(**question: object) -> dict[str, object]:
        answer = api.client.post(WHAT_IF, json=question)
        assert answer.status_code == 200, answer.text
        told: dict[str, object] = answer.json()
        return told

    urgent = asked(tasks=9, partition="urgent")
    assert (urgent["rule"], urgent["max_delay_s"], urgent["feasible"]) == ("rule 1", 60, True)
    plan = urgent["plan"]
    assert isinstance(plan, dict)
    assert plan["nodes_needed"] == 3, "nine processors on nodes of four"
    assert asked(nodes=2, partition="urgent", comment="clearway:max_delay=30s")["max_delay_s"] == 30
    ordinary = asked(nodes=2, partition="batch")
    assert (ordinary["rule"], ordinary["feasible"]) == ("", False)
    assert "no rule makes such a job urgent" in str(ordinary["why"])
    assert asked(nodes=2, partition="batch", max_delay=60)["feasible"] is True
    assert "counts of features and ! are not" in str(asked(nodes=2, max_delay=60, constraint="a*2")["why"])
    assert asked(nodes=1, max_delay=60, constraint="haswell")["feasible"] is False
    assert asked(nodes=1, max_delay=60, tasks=1, gpus={"": 1})["feasible"] is False
    for wrong in ({}, {"nodes": 99, "max_delay": 1}, {"nodes": 1, "tasks": -1}, {"tasks": 1, "gpus": {"a": 0}}):
        assert api.client.post(WHAT_IF, json=wrong).status_code == 422, wrong
