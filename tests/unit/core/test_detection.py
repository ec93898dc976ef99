"""Who is urgent, by when, and what Clearway leaves to Slurm."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from clearway.config.configuration import PreemptorRule
from clearway.eligibility.urgent import matching_rule
from clearway.model.cluster import Job, JobState, wanted_features
from clearway.model.plan import Obstacle, ObstacleCode
from clearway.model.site import Topology
from clearway.preemption.detection import imagined, preemptors, tasks_at_once, usual_partition
from tests.builders import NOW, after, job, node, snapshot, urgent_job

ANY = PreemptorRule(qos=("urgent",))


@pytest.mark.parametrize(
    ("condition", "fits", "fits_not"),
    [
        pytest.param({"partition": ["a", "b"]}, {"partitions": ("x", "b")}, {"partitions": ("x",)}, id="partition"),
        pytest.param({"qos": ["a"]}, {"qos": "a"}, {"qos": "aa"}, id="qos"),
        pytest.param({"account": ["a"]}, {"account": "a"}, {"account": ""}, id="account"),
        pytest.param({"user": ["a"]}, {"user": "a"}, {"user": "A"}, id="user"),
        pytest.param({"job_name": ["b", "a-*"]}, {"name": "a-7"}, {"name": "ba-7"}, id="name with *"),
        pytest.param({"job_name": ["a?"]}, {"name": "ab"}, {"name": "abc"}, id="name with ?"),
        pytest.param(
            {"comment": True}, {"comment": "clearway:max_delay=5m"}, {"comment": "max_delay=5m"}, id="comment"
        ),
        pytest.param(
            {"comment": True},
            {"comment": "x clearway:max_delay=0"},
            {"comment": "clearway:checkpoint=signal"},
            id="comment without max_delay",
        ),
        pytest.param(
            {"comment": True},
            {"comment": "clearway:max_delay=1"},
            {"comment": "clearway:max_delay=1,max_dely=2"},
            id="comment that cannot be read",
        ),
    ],
)
def test_each_condition(condition: dict[str, Any], fits: dict[str, Any], fits_not: dict[str, Any]) -> None:
    rule = PreemptorRule.model_validate({"partition": ["x", "batch", "urgent"]} | condition)
    assert matching_rule(urgent_job(**fits), [rule]) is rule
    assert matching_rule(urgent_job(**fits_not), [rule]) is None


CONDITIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "partition": ({"partitions": ("p",)}, {"partitions": ("q",)}),
    "qos": ({"qos": "q"}, {"qos": "normal"}),
    "account": ({"account": "a"}, {"account": "b"}),
    "user": ({"user": "u"}, {"user": "v"}),
    "job_name": ({"name": "n-1"}, {"name": "m-1"}),
    "comment": ({"comment": "clearway:max_delay=1m"}, {"comment": ""}),
}
ALL = PreemptorRule(
    partition=("p",), qos=("q",), account=("a",), user=("u",), job_name=("n-*",), comment=True, max_delay=9.0
)


@pytest.mark.parametrize("missing", [None, *CONDITIONS])
def test_all_conditions_must_hold(missing: str | None) -> None:
    fields: dict[str, Any] = {}
    for name, (fits, fits_not) in CONDITIONS.items():
        fields |= fits_not if name == missing else fits
    assert (matching_rule(urgent_job(**fields), [ALL]) is ALL) == (missing is None)


def test_the_first_rule_that_fits_counts() -> None:
    rules = [PreemptorRule(user=("other",)), PreemptorRule(user=("bob",), max_delay=60), ANY]
    (found,) = preemptors(snapshot([urgent_job()]), rules)
    assert (found.rule, found.max_delay_s) == ("rule 2", 60)
    (found,) = preemptors(snapshot([urgent_job()]), [PreemptorRule(name="beam", qos=("urgent",))])
    assert found.rule == "beam"
    assert preemptors(snapshot([urgent_job()]), []) == ()


@pytest.mark.parametrize(
    ("fields", "max_delay_s", "deadline_s"),
    [
        pytest.param({}, 600, 540, id="the rule's delay, since it was submitted"),
        pytest.param({"comment": "clearway:max_delay=2m"}, 120, 60, id="its own, shorter"),
        pytest.param({"comment": "clearway:max_delay=2h"}, 7_200, 7_140, id="its own, longer"),
        pytest.param({"comment": "clearway:max_delay=0"}, 0, -60, id="none at all"),
        pytest.param({"comment": "clearway:max_delay=never"}, 600, 540, id="one that cannot be read"),
        pytest.param({"eligible_time": after(-10)}, 600, 590, id="since it was eligible"),
        pytest.param({"eligible_time": after(-100)}, 600, 540, id="not before it was submitted"),
        pytest.param({"eligible_time": None}, 600, 540, id="no eligible time"),
    ],
)
def test_deadlines(fields: dict[str, Any], max_delay_s: float, deadline_s: float) -> None:
    (found,) = preemptors(snapshot([urgent_job(**fields)]), [ANY])
    assert (found.max_delay_s, found.deadline) == (max_delay_s, after(deadline_s))


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.PENDING])
def test_only_pending_jobs_are_preemptors(state: JobState) -> None:
    assert preemptors(snapshot([job(state=state, qos="urgent")]), [ANY]) == ()


@pytest.mark.parametrize(
    ("fields", "obstacle"),
    [
        pytest.param({"reason": "None"}, "", id="no reason yet"),
        pytest.param({"reason": ""}, "", id="an empty reason"),
        pytest.param({"reason": "Priority"}, "", id="priority"),
        pytest.param({"reason": "ReqNodeNotAvail, UnavailableNodes:n1"}, "", id="nodes that are down"),
        pytest.param({"reason": "Req_Node_Not_Avail"}, "", id="written otherwise"),
        pytest.param({"features": "big&fast"}, "", id="features"),
        pytest.param({"priority": 0}, "it is held", id="held"),
        pytest.param({"reason": "Dependency"}, "does not wait for nodes (reason Dependency)", id="dependency"),
        pytest.param({"reason": "BeginTime"}, "reason BeginTime", id="begin time"),
        pytest.param(
            {"dependency": "afterok:7(unfulfilled)"}, "waits for other jobs", id="a dependency, just submitted"
        ),
        pytest.param({"eligible_time": after(60)}, "not to start before 2026-03-02 12:01:00", id="a later time"),
        pytest.param({"reason": "QOSMaxCpuPerJobLimit"}, "reason QOSMaxCpuPerJobLimit", id="its own limit"),
        pytest.param({"reason": "PartitionTimeLimit"}, "reason PartitionTimeLimit", id="the partition's limit"),
        pytest.param({"reason": "QOSMaxJobsPerUserLimit"}, "", id="a limit that may be lifted"),
        pytest.param({"reason": "AssocGrpNodeLimit"}, "", id="an account's limit that may be lifted"),
        pytest.param({"reason": "launch failed requeued held"}, "reason launch failed", id="failed before"),
        pytest.param({"pending_tasks": 2}, "", id="array"),
        pytest.param({"pending_tasks": 2, "reason": "Resources,BeginTime"}, "", id="array of which one task waits"),
        pytest.param({"pending_tasks": 2, "reason": "JobArrayTaskLimit"}, "JobArrayTaskLimit", id="array at its limit"),
        pytest.param(
            {"pending_tasks": 2, "dependency": "aftercorr:9_*(unfulfilled)"}, "waits for another job's", id="aftercorr"
        ),
        pytest.param({"het_job_id": "900", "het_job_offset": 0}, "", id="heterogeneous"),
        pytest.param({"het_job_id": "899", "het_job_offset": 1}, "not all components", id="one of two components"),
        pytest.param({"gres": "gres:gpu:a100:2", "gpus": (("a100", 2),)}, "", id="GPUs per node"),
        pytest.param({"gres": "gres:gpu:3", "gpus": None}, "cannot be told from gres:gpu:3", id="GPUs per job"),
        pytest.param({"gres": "gres:nic:1"}, "cannot be told from gres:nic:1", id="other gres"),
        pytest.param({"licenses": "abaqus:5,matlab@flex"}, "", id="licenses"),
        pytest.param({"licenses": "abaqus:5", "reason": "Licenses"}, "", id="it waits for licenses"),
        pytest.param({"licenses": "abaqus:5|matlab"}, "one of several licenses (abaqus:5|matlab)", id="either license"),
        pytest.param({"required_nodes": ("n1", "n2")}, "", id="required nodes"),
        pytest.param({"required_nodes": ("n1", "n2", "n3")}, "3 certain nodes, but for fewer", id="too many"),
        pytest.param({"contiguous": True}, "", id="contiguous"),
        pytest.param({"switches": 1}, "is not known: it has not been read", id="unknown switches"),
        pytest.param({"switches": 2, "num_nodes": 3}, "few leaf switches, and which", id="unknown switches of three"),
        pytest.param({"switches": 2, "num_nodes": 2}, "", id="no more switches than nodes"),
        pytest.param({"features": "big|fast"}, "", id="either feature"),
        pytest.param({"features": "(big|fast)&[rack1|rack2]"}, "", id="all of one rack"),
        pytest.param({"features": "[rack1*2&rack2*2]"}, "counts of features", id="counted features"),
        pytest.param({"features": "!big"}, "counts of features and !", id="not that feature"),
        pytest.param({"reservation": "maintenance"}, "the reservation maintenance", id="somebody's reservation"),
        pytest.param({"reservation": "clearway_7"}, "", id="its own placement"),
        pytest.param({"reservation": "clearway_8"}, "the reservation clearway_8", id="another placement"),
    ],
)
def test_obstacles(fields: dict[str, Any], obstacle: str) -> None:
    (found,) = preemptors(snapshot([urgent_job(**fields)]), [ANY], frozenset({"clearway_7"}))
    assert (obstacle in found.obstacle.why) if found.obstacle else not obstacle


@pytest.mark.parametrize(
    ("fields", "running", "tasks"),
    [
        ({}, 0, 4),
        ({"array_limit": 3}, 0, 3),
        ({"array_limit": 3}, 2, 1),
        ({"num_nodes": 4}, 0, 2),  # of eight nodes
        ({"contiguous": True}, 0, 1),
        ({"required_nodes": ("n1",)}, 0, 1),
        ({"reason": "Resources,BeginTime"}, 0, 1),  # how many wait for nodes is not told
        ({"pending_tasks": 1}, 0, 1),
    ],
)
def test_tasks_at_once(fields: dict[str, Any], running: int, tasks: int) -> None:
    array = urgent_job(**({"nodes": 1, "pending_tasks": 4, "array_job_id": "900"} | fields))
    others = [job(number, array_job_id="900", array_task_id=number) for number in range(running)]
    seen = snapshot([array, *others, job(50)], idle=7 - running)
    assert tasks_at_once(array, seen) == tasks
    (found,) = preemptors(seen, [ANY])
    assert (found.tasks, found.nodes, found.obstacle) == (tasks, tasks * array.num_nodes, None)


def test_an_array_at_its_limit_is_left_to_slurm() -> None:
    array = urgent_job(nodes=1, pending_tasks=4, array_job_id="900", array_limit=1)
    (found,) = preemptors(snapshot([array, job(5, array_job_id="900", array_task_id=5)]), [ANY])
    assert found.obstacle == Obstacle(ObstacleCode.ARRAY, "as many tasks of its array run as may at once")


def het_job(count: int, **fields: Any) -> list[Job]:
    return [
        urgent_job(900 + n, 1, het_job_id="900", het_job_offset=n, **(fields if n == count - 1 else {}))
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "fields", "obstacle"),
    [
        (2, {}, ""),
        (8, {}, ""),
        (9, {}, "9 components; at most 8"),
        (2, {"qos": "normal"}, "not all components"),
        (2, {"state": JobState.RUNNING, "nodes": ("n1",)}, "not all components"),
        (2, {"licenses": "abaqus|matlab"}, "component 900+1: it asks for one of several licenses"),
    ],
)
def test_the_components_of_a_heterogeneous_job_are_urgent_together(
    count: int, fields: dict[str, Any], obstacle: str
) -> None:
    jobs = het_job(count)
    jobs[-1] = replace(jobs[-1], **fields)
    found = preemptors(snapshot(jobs), [ANY])
    (first,) = (each for each in found if each.job.job_id == "900")
    assert first.components == tuple(each.job_id for each in jobs)
    assert (obstacle in first.obstacle.why) if first.obstacle else not obstacle


def test_components_have_the_earliest_of_their_deadlines() -> None:
    jobs = het_job(2, comment="clearway:max_delay=1m")
    alone = preemptors(snapshot([replace(each, het_job_id=None, het_job_offset=None) for each in jobs]), [ANY])
    together = preemptors(snapshot(jobs), [ANY])
    assert len({each.deadline for each in alone}) == 2
    assert {each.deadline for each in together} == {min(each.deadline for each in alone)}


def test_few_leaf_switches_are_no_obstacle_where_the_switches_are_known() -> None:
    known = Topology({"n1": "leaf1"}, unknown="")
    for switches in (1, 2):
        asked = urgent_job(switches=switches, num_nodes=3)
        (found,) = preemptors(snapshot([asked], topology=known), [ANY])
        assert found.obstacle is None


def test_the_most_pressing_comes_first_and_ties_go_to_the_job_id() -> None:
    jobs = [
        urgent_job("11", comment="clearway:max_delay=5m"),
        urgent_job("9"),
        urgent_job("10"),
        urgent_job("12", comment="clearway:max_delay=1m"),
    ]
    seen = snapshot(jobs)
    before = copy.deepcopy(seen)
    found = [preemptor.job.job_id for preemptor in preemptors(seen, [ANY])]
    assert found == ["12", "11", "10", "9"]
    assert found == [p.job.job_id for p in preemptors(snapshot(jobs[::-1]), [ANY])]
    assert seen == before


@pytest.mark.parametrize(("text", "names"), [("", set()), ("a", {"a"}), ("a&b", {"a", "b"}), ("&a", {"a"})])
def test_wanted_features(text: str, names: set[str]) -> None:
    assert wanted_features(urgent_job(features=text)) == names


def test_an_imagined_preemptor_has_no_obstacle() -> None:
    found = imagined(4, 300, ("batch",), NOW)
    assert (found.job.num_nodes, found.deadline, found.obstacle) == (4, after(300), None)


def test_the_usual_partition() -> None:
    nodes = [node("a", partitions=("x", "all")), node("b", partitions=("all",)), node("c", partitions=("x",))]
    assert usual_partition(snapshot(nodes=nodes), [PreemptorRule(partition=("urgent", "x"))]) == "urgent"
    assert usual_partition(snapshot(nodes=nodes), [ANY]) == "x", "of equally large ones always the same"
    assert usual_partition(snapshot(nodes=[]), []) == ""
