"""Whether a plan may be carried out: budgets, time, and the cluster as it is now."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from clearway.config.access import BudgetConfig
from clearway.config.configuration import Config
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.plan import Plan
from clearway.model.problem import Action
from clearway.model.records import Usage
from clearway.preemption.validation import over_budget, plan_aged, plan_misfit
from tests.builders import NODE_CPUS, NOW, after, job, node, plan, snapshot, urgent_job

CONFIG = Config.model_validate({"preemptors": [{"qos": ["urgent"]}]})


def two_killed() -> Plan:  # each an hour old: 7,200 node-seconds
    return plan(urgent_job(), [job("1"), job("2")])


@pytest.mark.parametrize(
    ("budget", "usage", "text"),
    [
        pytest.param({}, Usage(999, 1e9), "", id="no limits"),
        pytest.param({"jobs_per_hour": 2}, Usage(), "", id="just so many jobs"),
        pytest.param({"jobs_per_hour": 2}, Usage(jobs=1), "3 jobs would be preempted", id="one before"),
        pytest.param({"jobs_per_hour": 0}, Usage(), "0 are allowed", id="none allowed"),
        pytest.param({"lost_node_hours_per_hour": 2}, Usage(), "", id="just so much work"),
        pytest.param({"lost_node_hours_per_hour": 2}, Usage(lost_node_s=360), "2.1 node-hours", id="lost some before"),
        pytest.param({"lost_node_hours_per_hour": 0}, Usage(), "0 are allowed", id="nothing may be lost"),
    ],
)
def test_budgets(budget: dict[str, Any], usage: Usage, text: str) -> None:
    found = over_budget(two_killed(), usage, BudgetConfig.model_validate(budget))
    assert (text in found) if text else not found


def test_jobs_that_end_by_themselves_cost_nothing() -> None:
    ends = plan(urgent_job(), [job("1"), job("2")], Action.END)
    assert not over_budget(ends, Usage(), BudgetConfig(jobs_per_hour=0, lost_node_hours_per_hour=0))


URGENT = urgent_job()
ONE, TWO = job("101", ["a"]), job("102", ["b"])
NODES = (node("a", alloc_cpus=NODE_CPUS), node("b", alloc_cpus=NODE_CPUS), node("c"))


def changed(*jobs: Job, nodes: Sequence[Node] = NODES) -> ClusterSnapshot:
    return snapshot(jobs, nodes)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param(changed(URGENT, ONE, TWO), "", id="as planned"),
        pytest.param(changed(URGENT, ONE, TWO, job("103", ["c"])), "", id="something else elsewhere"),
        pytest.param(changed(replace(URGENT, reason="Priority", priority=5), ONE, TWO), "", id="other reason"),
        pytest.param(changed(ONE, TWO), "does not wait any more", id="the urgent job is gone"),
        pytest.param(changed(replace(URGENT, state=JobState.RUNNING), ONE, TWO), "does not wait", id="it runs"),
        pytest.param(changed(replace(URGENT, state=JobState.UNKNOWN), ONE, TWO), "does not wait", id="who knows"),
        pytest.param(changed(replace(URGENT, priority=0), ONE, TWO), "is held", id="it is held"),
        pytest.param(changed(replace(URGENT, num_nodes=3), ONE, TWO), "was changed", id="asks for more nodes"),
        pytest.param(changed(replace(URGENT, partitions=("x",)), ONE, TWO), "was changed", id="in another partition"),
        pytest.param(changed(replace(URGENT, features="big"), ONE, TWO), "was changed", id="for other nodes"),
        pytest.param(changed(replace(URGENT, comment="clearway:max_delay=1"), ONE, TWO), "was changed", id="sooner"),
        pytest.param(changed(URGENT, TWO), "job 101 is not in the run", id="a preemptee is gone"),
        pytest.param(changed(URGENT, replace(ONE, restart_count=1), TWO), "is not in the run", id="runs again"),
        pytest.param(changed(URGENT, replace(ONE, start_time=NOW), TWO), "is not in the run", id="started again"),
        pytest.param(changed(URGENT, replace(ONE, nodes=("c",)), TWO), "is not in the run", id="on other nodes"),
        pytest.param(changed(URGENT, replace(ONE, state=JobState.SUSPENDED), TWO), "101 is suspended", id="suspended"),
        pytest.param(changed(URGENT, ONE, replace(TWO, state=JobState.COMPLETING)), "102 is completing", id="leaving"),
        pytest.param(
            changed(URGENT, ONE, TWO, nodes=[*NODES[1:], node("a", available=False)]), "node a is not", id="node fails"
        ),
        pytest.param(changed(URGENT, ONE, TWO, nodes=NODES[1:]), "node a is not available", id="node is gone"),
        pytest.param(changed(URGENT, ONE, TWO, job("103", ["b"])), "job 103 holds node b", id="a job beside it"),
        pytest.param(changed(URGENT, ONE, TWO, job("103", ["b"], JobState.COMPLETING)), "", id="one that goes"),
    ],
)
def test_whether_a_plan_still_fits(seen: ClusterSnapshot, why: str) -> None:
    made = plan(URGENT, [ONE, TWO])
    before = copy.deepcopy(made)
    found = plan_misfit(made, seen, config=CONFIG)
    assert (why in found) if why else not found
    assert made == before


def test_a_plan_ages() -> None:
    made = plan(URGENT, [ONE, TWO])  # acts at once, within 600 s
    assert not plan_aged(made, after(660))
    assert plan_aged(made, after(661))
    slow = replace(made, chosen=replace(made.chosen, max_delay_s=600))
    assert plan_aged(slow, after(61))
    assert not plan_aged(slow, after(60))


@pytest.mark.parametrize(
    ("how", "last", "fits"),
    [("interval", -1, True), ("interval", 30, False), ("signal", 30, True)],
    ids=["saved before", "its pace came before the approval", "is asked all the same"],
)
def test_a_plan_that_waited_does_not_count_on_a_checkpoint_that_came_meanwhile(how: str, last: int, fits: bool) -> None:
    said = f"clearway:checkpoint={how}" + (",interval=3600" if how == "interval" else "")
    made = plan(URGENT, [replace(ONE, comment=said), TWO], Action.APP_CHECKPOINT)
    since = replace(ONE, comment=f"{said},last={int(after(last).timestamp())}")
    seen = replace(changed(URGENT, since, TWO), taken_at=after(60))
    assert (not plan_misfit(made, seen)) is fits
