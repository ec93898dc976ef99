"""Promotion: who rises to which node, and that it is worth it."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given, settings

from clearway.model.orders import JobMove
from clearway.relocation.moves import Host, Limits, MovePlan, Part, Resident, plan_promotion
from tests.unit.migration.small_clusters import Cluster, assert_nobody_is_lost, clusters, cost_node_s, limits, used

MANY = Limits(jobs=100)
HIGH, LOW, LOWER = Host("high", 16, rank=2), Host("low", 16, rank=1), Host("lower", 16)
GPU = Host("gpu", 16, rank=1, scarce=True)


def job(
    job_id: str, node: str, processors: int, remaining_s: float | None = 7_200, move_s: float | None = 60
) -> Resident:
    return Resident(job_id, (Part(node, processors),), remaining_s, move_s)


def standing(resident: Resident, host: Host) -> tuple[bool, int]:
    return (resident.needs_scarce or not host.scarce, host.rank)


def test_a_job_rises_to_the_best_node_with_room() -> None:
    plan = plan_promotion([LOW, HIGH, LOWER], [job("1", "lower", 8)], MANY)
    assert plan.moves == (JobMove("1", "lower", "high", 8),)
    assert plan.emptied == ("lower",)
    assert plan.gain_node_s == 8 / 16 * (7_200 - 60)
    assert plan.cost_node_s == 8 / 16 * 60
    full = job("2", "high", 9)
    assert plan_promotion([LOW, HIGH, LOWER], [job("1", "lower", 8), full], MANY).moves[0].target == "low"
    assert plan_promotion([LOW, HIGH], [job("1", "low", 8), full], MANY) == MovePlan()


def test_the_largest_gain_comes_first() -> None:
    residents = [job("1", "low", 4), job("2", "low", 6), job("3", "high", 10)]
    assert plan_promotion([LOW, HIGH], residents, MANY).moves == (JobMove("2", "low", "high", 6),)


def test_a_job_that_needs_no_scarce_node_leaves_it_and_one_that_does_stays() -> None:
    """Even for a node of lower rank."""
    assert plan_promotion([GPU, LOWER], [job("1", "gpu", 4)], MANY).moves == (JobMove("1", "gpu", "lower", 4),)
    needs = Resident("1", (Part("gpu", 4),), 7_200, 60, needs_scarce=True)
    assert plan_promotion([GPU, LOWER], [needs], MANY) == MovePlan()
    assert plan_promotion([GPU, LOWER], [job("1", "lower", 4)], MANY) == MovePlan()


def test_scarce_nodes_are_left_alone_where_others_are_as_good() -> None:
    needs = Resident("1", (Part("lower", 4),), 7_200, 60, needs_scarce=True)
    assert plan_promotion([GPU, LOW, LOWER], [needs], MANY).moves[0].target == "low"


def test_all_parts_on_its_worst_nodes_rise_or_none() -> None:
    pair = Resident("1", (Part("low", 4), Part("lower", 2)), 7_200, 60)
    assert plan_promotion([LOW, LOWER, HIGH], [pair], MANY).moves == (JobMove("1", "lower", "high", 2),)
    lower = Host("lower2", 16)
    both = Resident("1", (Part("lower", 4), Part("lower2", 2)), 7_200, 60)
    assert plan_promotion([LOWER, lower, HIGH], [both], MANY) == MovePlan()
    assert len(plan_promotion([LOWER, lower, HIGH, LOW], [both], MANY).moves) == 2


def test_the_larger_part_chooses_first() -> None:
    """The best node is the only one with room for it."""
    hosts = [Host("high", 4, rank=2), Host("low", 2, rank=1), LOWER, Host("lower2", 16)]
    both = Resident("1", (Part("lower", 2), Part("lower2", 4)), 7_200, 60)
    assert set(plan_promotion(hosts, [both], MANY).moves) == {
        JobMove("1", "lower2", "high", 4),
        JobMove("1", "lower", "low", 2),
    }


def test_what_must_stay_or_ends_soon_stays() -> None:
    for stays in (
        job("1", "low", 4, move_s=None),
        job("1", "low", 4, remaining_s=None),
        job("1", "low", 4, remaining_s=120),  # 60 s are given back, 60 s stand still
        Resident("1", (Part("low", 4),), 7_200, 60, may_use=frozenset({"low"})),
    ):
        assert plan_promotion([LOW, HIGH], [stays], MANY) == MovePlan()
    assert plan_promotion([LOW, HIGH], [job("1", "low", 4, remaining_s=121)], MANY).moves
    assert plan_promotion([LOW, HIGH], [job("1", "low", 4)], Limits(0)) == MovePlan()


@settings(max_examples=600, deadline=None)
@given(clusters(), limits)
def test_every_plan_is_worth_it_and_loses_nobody(cluster: Cluster, most: Limits) -> None:
    hosts, residents = cluster
    plan = plan_promotion(hosts, residents, most)
    assert_nobody_is_lost(cluster, plan, most)
    by_name = {host.name: host for host in hosts}
    by_id = {resident.job_id: resident for resident in residents}
    passed_s = gain = 0.0
    for job_id in plan.job_ids:
        resident = by_id[job_id]
        passed_s += resident.move_s or 0
        for move in (each for each in plan.moves if each.job_id == job_id):
            gain += move.processors / by_name[move.source].processors * ((resident.remaining_s or 0) - passed_s)
            assert standing(resident, by_name[move.target]) > standing(resident, by_name[move.source])
    assert plan.gain_node_s == pytest.approx(gain)
    assert plan.cost_node_s == pytest.approx(cost_node_s(cluster, plan.job_ids))
    if plan.moves:
        assert plan.gain_node_s > most.worth * plan.cost_node_s
    assert plan == plan_promotion(hosts[::-1], residents[::-1], most)


@settings(max_examples=600, deadline=None)
@given(clusters())
def test_nobody_is_left_who_could_rise(cluster: Cluster) -> None:
    """Every way to place their parts into what the plan leaves free is tried."""
    hosts, residents = cluster
    plan = plan_promotion(hosts, residents, MANY)
    by_name = {host.name: host for host in hosts}
    held = used(hosts, residents)
    assert {move.target for move in plan.moves} <= by_name.keys()
    for move in plan.moves:
        held[move.target] += move.processors
    waited_s = sum(each.move_s or 0 for each in residents if each.job_id in plan.job_ids)
    for resident in residents:
        if not resident.movable or resident.job_id in plan.job_ids:
            continue
        worst = min(standing(resident, by_name[part.node]) for part in resident.parts)
        parts = [part for part in resident.parts if standing(resident, by_name[part.node]) == worst]
        nodes = sum(part.processors / by_name[part.node].processors for part in parts)
        gain = nodes * ((resident.remaining_s or 0) - waited_s - (resident.move_s or 0))
        cost = cost_node_s(cluster, [resident.job_id])
        if gain <= cost or math.isclose(gain, cost):
            continue
        places = [
            name
            for name in by_name
            if name not in resident.nodes
            and (resident.may_use is None or name in resident.may_use)
            and standing(resident, by_name[name]) > worst
        ]
        for targets in permutations(places, len(parts)):
            room = [by_name[name].processors - held[name] for name in targets]
            assert any(part.processors > free for part, free in zip(parts, room, strict=True))
