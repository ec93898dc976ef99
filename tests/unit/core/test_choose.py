"""Which point of a curve is carried out."""

from __future__ import annotations

import pytest

from clearway.model.plan import Cost, CurvePoint, PlannedAction, choose
from clearway.model.problem import Action, Option


def point(
    max_delay_s: int, lost: float, back: int = 0, checkpoint_s: int = 0, jobs: int = 1, ends: int = 0
) -> CurvePoint:
    actions = [PlannedAction(str(number), Action.KILL, 0, 0) for number in range(jobs)]
    actions += [PlannedAction(f"end {number}", Action.END, 0, 0) for number in range(ends)]
    return CurvePoint(max_delay_s, True, lost, checkpoint_s, 1, tuple(actions), back)


NOT_POSSIBLE = CurvePoint(0, feasible=False)


@pytest.mark.parametrize("nodes", [None, 0, 4])
@pytest.mark.parametrize(
    ("points", "chosen"),
    [
        ([NOT_POSSIBLE], None),
        ([NOT_POSSIBLE, point(60, 5)], 1),
        ([point(0, 5), point(60, 4.5, 10**6)], 1),
        ([point(0, 5), point(60, 5), point(120, 4), point(180, 4)], 2),
        ([point(0, 5, ends=3), point(0, 5, jobs=2)], 0),
    ],
)
def test_it_loses_the_least_work_and_is_the_earliest(
    points: list[CurvePoint], chosen: int | None, nodes: int | None
) -> None:
    assert choose(points, nodes) == (None if chosen is None else points[chosen])


@pytest.mark.parametrize(
    ("nodes", "lost", "saved", "later"),
    [
        (None, 0, 1, True),  # no job waits
        (4, 0, 240, False),  # as much as its nodes wait: 4 x 60 s
        (4, 0, 241, True),
        (4, 100_000, 240, False),  # whatever is lost
        (4, 100_000, 241, True),
        (0, 100_000, 1, True),
        (2_048, 0, 3_600, False),  # minutes for a node-hour
    ],
)
def test_how_much_cheaper_returns_are_worth_a_wait(nodes: int | None, lost: float, saved: int, later: bool) -> None:
    points = [point(60, lost, 10_000), point(120, lost, 10_000 - saved)]
    assert choose(points, nodes) == points[later]
    assert choose(points[::-1], nodes) == points[later], "whatever the order of the points"


@pytest.mark.parametrize("nodes", [None, 0])
@pytest.mark.parametrize("other", [{"checkpoint_s": 59}, {"checkpoint_s": 60, "jobs": 1}])
def test_a_later_point_with_fewer_keys_where_waiting_costs_nothing(nodes: int | None, other: dict[str, int]) -> None:
    points = [point(60, 5, 7, 60, jobs=2), point(120, 5, 7, **other)]
    assert choose(points, nodes) == points[1]
    assert choose(points, 1) == points[0], "an urgent job does not wait for that"


def test_an_urgent_job_waits_within_its_delay_where_no_job_is_preempted_then() -> None:
    points = [point(0, 0, 1, jobs=1), point(60, 0, jobs=0, ends=2), point(120, 0, jobs=0, ends=1)]
    assert choose(points, 2_048) == points[1]
    assert choose([point(0, 5), *points], 2_048) == points[1]


def test_costs_are_compared_key_by_key_and_ends_cost_nothing() -> None:
    assert Cost(1, 9, 9, 9) < Cost(2) < Cost(2, 1) < Cost(2, 1, 0, 1) < Cost(2, 1, 1)
    options = [Option(Action.KILL, 0.1, 0, 0, 3), Option(Action.END, 9, 9, 9, 9), Option(Action.KILL, 0.2, 1.5)]
    assert Cost.of(options) == Cost(0.3, 3, 2, 2) == Cost.of(options[:1]) + Cost.of(options[2:])
