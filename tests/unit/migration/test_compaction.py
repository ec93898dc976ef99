"""Compaction: who is moved where, and that it is worth it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import assume, given, settings

from clearway.model.orders import JobMove
from clearway.relocation.moves import Host, Limits, MovePlan, Part, Resident, plan_compaction
from tests.unit.migration.small_clusters import (
    Cluster,
    assert_nobody_is_lost,
    clusters,
    cost_node_s,
    crowds,
    held_node_s,
    limits,
    partly_used,
    used,
)

MANY = Limits(jobs=100)


def job(
    job_id: str, node: str, processors: int, remaining_s: float | None = 7_200, move_s: float | None = 60
) -> Resident:
    return Resident(job_id, (Part(node, processors),), remaining_s, move_s)


def nodes(count: int, processors: int = 16) -> list[Host]:
    return [Host(f"n{number}", processors) for number in range(count)]


def gain_node_s(cluster: Cluster, moves: Sequence[JobMove]) -> float:
    before, after = held_node_s(cluster), held_node_s(cluster, moves)
    return sum(before[name] - after[name] for name in before if math.isfinite(before[name]))


def test_the_emptiest_node_is_emptied() -> None:
    residents = [job("1", "n0", 10), job("2", "n1", 3), job("3", "n2", 5)]
    plan = plan_compaction(nodes(3), residents, MANY)
    assert plan.moves == (JobMove("2", "n1", "n0", 3),)
    assert plan.emptied == ("n1",)
    # n1 is free after 60 s instead of 7,200, n0 is held for 60 s longer; 3 of 16 processors stand still for 60 s.
    assert plan.gain_node_s == 7_200 - 60 - 60
    assert plan.cost_node_s == pytest.approx(60 * 3 / 16)


def test_parts_that_fit_only_together_with_the_right_ones_are_placed() -> None:
    """The largest part into the only gap for it, whatever the order: 4 and 3 into gaps of 4 and 3."""
    residents = [job("1", "n0", 3), job("2", "n0", 4), job("3", "n1", 12), job("4", "n2", 13)]
    plan = plan_compaction(nodes(3), residents, MANY)
    assert set(plan.moves) == {JobMove("1", "n0", "n2", 3), JobMove("2", "n0", "n1", 4)}
    assert plan_compaction(nodes(3), [*residents, job("5", "n1", 1)], MANY).moves == ()


def test_one_that_must_stay_keeps_its_node() -> None:
    others = [job("2", "n0", 1), job("3", "n1", 8)]
    for stays in (
        job("1", "n0", 1, move_s=None),
        job("1", "n0", 1, remaining_s=None),
        Resident("1", (Part("n0", 1),), 7_200, 60, may_use=frozenset({"n0"})),
    ):
        assert plan_compaction(nodes(2), [stays, job("3", "n1", 16)], MANY) == MovePlan()
        assert "n0" not in plan_compaction(nodes(2), [stays, *others], MANY).emptied


def test_what_ends_soon_is_not_moved() -> None:
    target = job("2", "n1", 8, remaining_s=10_000)
    assert plan_compaction(nodes(2), [job("1", "n0", 1, remaining_s=60), target], MANY).moves == ()
    # 1/16 node stands still for 60 s; n0 is held until 64 s anyway, and 60 s of that for the move: 4 > 3.75.
    assert plan_compaction(nodes(2), [job("1", "n0", 1, remaining_s=64), target], MANY).gain_node_s == 4
    assert plan_compaction(nodes(2), [job("1", "n0", 1, remaining_s=63), target], MANY).moves == ()
    assert plan_compaction(nodes(2), [job("1", "n0", 1, remaining_s=64), target], Limits(9, worth=2)).moves == ()


def test_of_two_gaps_the_one_that_ends_later_is_taken() -> None:
    residents = [job("1", "n0", 1), job("2", "n1", 8, remaining_s=3_600), job("3", "n2", 4, remaining_s=9_000)]
    assert plan_compaction(nodes(3), residents, Limits(1)).moves == (JobMove("1", "n0", "n2", 1),)


def test_a_job_keeps_its_shape() -> None:
    """Its other part is on n1, so that is no place for this one."""
    spread = Resident("1", (Part("n0", 2), Part("n1", 2)), 7_200, 60)
    assert plan_compaction(nodes(2), [spread], MANY).moves == ()
    plan = plan_compaction(nodes(3), [spread, job("2", "n2", 8)], MANY)
    assert plan.moves == (JobMove("1", "n0", "n2", 2),)
    assert plan.cost_node_s == pytest.approx(60 * 4 / 16)  # all of it stands still


def test_a_job_is_moved_once_in_a_plan() -> None:
    """Its two parts are alone on two nodes: one of them is emptied now."""
    spread = Resident("1", (Part("n0", 2), Part("n1", 2)), 7_200, 60)
    plan = plan_compaction(nodes(4), [spread, job("2", "n2", 8, move_s=None), job("3", "n3", 8, move_s=None)], MANY)
    assert plan.emptied == ("n0",)
    assert plan.cost_node_s == pytest.approx(60 * 4 / 16)


def test_places_that_are_alike_but_for_who_may_use_them_are_told_apart() -> None:
    picky = Resident("2", (Part("n0", 3),), 7_200, 60, may_use=frozenset({"n1"}))
    residents = [job("1", "n0", 3), picky, job("3", "n1", 13), job("4", "n2", 13)]
    assert set(plan_compaction(nodes(3), residents, MANY).moves) == {
        JobMove("1", "n0", "n2", 3),
        JobMove("2", "n0", "n1", 3),
    }


def test_nodes_that_nobody_told_of_and_overfull_ones_are_left_alone() -> None:
    assert plan_compaction(nodes(1), [job("1", "n0", 1), job("2", "elsewhere", 1)], MANY).moves == ()
    assert plan_compaction(nodes(2), [job("1", "n0", 17), job("2", "n1", 1)], MANY).moves == ()
    assert plan_compaction([], [], MANY) == MovePlan()


def test_limits_hold() -> None:
    residents = [job("1", "n0", 1), job("2", "n0", 1), job("3", "n1", 3), job("4", "n2", 8)]
    assert plan_compaction(nodes(3), residents, Limits(0)).moves == ()
    assert plan_compaction(nodes(3), residents, Limits(1)).emptied == ("n1",)
    assert plan_compaction(nodes(3), residents, Limits(3)).emptied == ("n0", "n1")
    with pytest.raises(ValueError, match=r"worth 0\.5"):
        Limits(1, worth=0.5)


def test_a_search_that_is_cut_short_says_so() -> None:
    residents = [job(str(number), "n0", 1, remaining_s=7_200 + number) for number in range(6)]
    residents += [job(f"1{number}", f"n{number}", 8, remaining_s=3_600 + 100 * number) for number in range(1, 5)]
    short = plan_compaction(nodes(5), residents, Limits(100, tries=6))
    whole = plan_compaction(nodes(5), residents, MANY)
    assert not short.exact
    assert whole.exact
    assert whole.gain_node_s >= short.gain_node_s > 0


@settings(max_examples=600, deadline=None)
@given(clusters(), limits)
def test_every_plan_is_worth_it_and_loses_nobody(cluster: Cluster, most: Limits) -> None:
    hosts, residents = cluster
    plan = plan_compaction(hosts, residents, most)
    assert_nobody_is_lost(cluster, plan, most)
    assert plan.gain_node_s == pytest.approx(gain_node_s(cluster, plan.moves))
    assert plan.cost_node_s == pytest.approx(cost_node_s(cluster, plan.job_ids))
    assert bool(plan.moves) == bool(plan.emptied)
    if plan.moves:
        assert plan.gain_node_s > most.worth * plan.cost_node_s
    before = partly_used(hosts, residents)
    assert {name for move in plan.moves for name in (move.source, move.target)} <= before
    held = used(hosts, residents)
    for move in plan.moves:
        held[move.source] -= move.processors
        held[move.target] += move.processors
    after = {host.name for host in hosts if 0 < held[host.name] < host.processors}
    assert after <= before - set(plan.emptied)


@settings(max_examples=100, deadline=None)
@given(clusters(), limits)
def test_the_order_in_which_things_are_told_does_not_matter(cluster: Cluster, most: Limits) -> None:
    hosts, residents = cluster
    assert plan_compaction(hosts[::-1], residents[::-1], most) == plan_compaction(hosts, residents, most)


@settings(max_examples=600, deadline=None)
@given(clusters(nodes=5, jobs=14) | crowds())
def test_the_first_node_is_emptied_as_exhaustive_search_would(cluster: Cluster) -> None:
    hosts, residents = cluster
    plan = plan_compaction(hosts, residents, MANY)
    expected = _first_by_exhaustive_search(cluster)
    if expected is None:
        assert plan.moves == ()
        return
    source, gain = expected
    assert plan.emptied[0] == source
    assert plan.exact
    first = [move for move in plan.moves if move.source == source]
    assert gain_node_s(cluster, first) == pytest.approx(gain)


def _first_by_exhaustive_search(cluster: Cluster) -> tuple[str, float] | None:
    """The emptiest node that is worth it, and the most that emptying it can gain."""
    hosts, residents = cluster
    held = used(hosts, residents)
    partly = sorted(partly_used(hosts, residents), key=lambda name: (held[name], name))
    for source in partly:
        there = [each for each in residents if source in each.nodes]
        if not all(each.movable for each in there):
            continue
        best = -math.inf
        for targets in product([name for name in partly if name != source], repeat=len(there)):
            coming = dict(held)
            moves = []
            for each, target in zip(there, targets, strict=True):
                size = next(part.processors for part in each.parts if part.node == source)
                coming[target] += size
                moves.append(JobMove(each.job_id, source, target, size))
            fits = all(coming[host.name] <= host.processors for host in hosts)
            allowed = all(
                target not in each.nodes and (each.may_use is None or target in each.may_use)
                for each, target in zip(there, targets, strict=True)
            )
            if fits and allowed:
                best = max(best, gain_node_s(cluster, moves))
        cost = cost_node_s(cluster, [each.job_id for each in there])
        assume(not math.isclose(best, cost))  # the same sum in another order may be a little more, or less
        if best > cost:
            return source, best
    return None
