"""Where and for when the simulated Slurm plans jobs that have to wait."""

from __future__ import annotations

import numpy as np
import pytest

from clearway_lab.site.plans import Mask, NodeTable, Plans, chosen, opening
from tests.simulation.test_site_replay import machine

NOW = 6_000.0
TABLE = NodeTable({node.name: node for node in machine()})
ALL: Mask = np.ones(8, dtype=bool)


def free_from(*after_s: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return NOW + np.array(after_s)


@pytest.mark.parametrize(
    ("count", "at_s", "where"),
    [
        (1, 0, [0]),  # it fits at once
        (2, 130, [4, 5]),  # node 1 is free 30 s before, but 4 and 5 are neighbours, and end in the same window
        (5, 130, [4, 5, 1, 0, 2]),  # no run of five: the longest, and then the smallest that will do
        (6, 220, [0, 1, 2, 3, 4, 5]),  # the next window begins with the next end, and has 60 s
        (8, 900, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_a_job_is_planned_for_the_end_of_a_window_of_ends(count: int, at_s: float, where: list[int]) -> None:
    ends = free_from(0, 100, 130, 170, 110, 120, 900, 220)
    assert opening(ends, count, NOW) == NOW + at_s
    assert sorted(chosen(TABLE, np.arange(8), ends, count, NOW + at_s)) == sorted(where)


def test_what_never_fits_is_not_planned() -> None:
    assert opening(free_from(0, 10, 20), 4, NOW) is None


def test_nodes_are_held_from_the_minute_in_which_a_plan_begins() -> None:
    plans = Plans(NOW, TABLE)
    plans.place(ALL, free_from(*[100] * 8), 2, 50)
    assert plans.first[:3].tolist() == [NOW + 60, NOW + 60, np.inf]


def test_a_job_is_planned_beside_another_one() -> None:
    plans = Plans(NOW, TABLE)
    for count in (6, 2):
        plans.place(ALL, free_from(*[60] * 8), count, 60)
    assert plans.first.tolist() == [NOW + 60] * 8


def test_a_job_is_planned_behind_another_one() -> None:
    plans = Plans(NOW, TABLE)
    six: Mask = np.arange(8) < 6
    ends = free_from(60, 60, 60, 60, 60, 60, 500, 500)
    plans.place(six, ends, 6, 60)
    plans.place(ALL, ends, 6, 600)  # from 120 s on, where the first one is to have ended
    plans.place(ALL, ends, 2, 60)  # neither fits beside them before
    assert plans.first.tolist() == [NOW + 60] * 6 + [NOW + 480] * 2


def test_a_short_job_is_planned_before_another_one() -> None:
    plans = Plans(NOW, TABLE)
    ends = free_from(0, 0, 300, 300, 300, 300, 300, 300)
    plans.place(ALL, ends, 8, 60)
    plans.place(ALL, ends, 2, 240)
    assert plans.first.tolist() == [NOW] * 2 + [NOW + 300] * 6
