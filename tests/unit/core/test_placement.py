"""The Slurm reservation for freed nodes: what it is called, what is in it, and when it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from clearway.execution.lifecycle import FLAGS, is_placement, placement, placement_ends, placement_name
from clearway.model.cluster import Reservation
from tests.builders import NOW, after, eviction, plan, urgent_job

GRACE = timedelta(minutes=15)


@pytest.mark.parametrize(
    ("name", "flags", "ours"),
    [
        ("clearway_7", FLAGS, True),
        ("clearway_7", (*FLAGS, "SPEC_NODES"), True),
        (placement_name(eviction(eviction_id=12)), FLAGS, True),
        (placement_name(eviction(eviction_id=12, mark="a1b2c3d4e5f6")), FLAGS, True),
        ("clearway_7", ("FLEX",), False),
        ("clearway_7", (), False),
        ("clearway_", FLAGS, False),
        ("clearway_x", FLAGS, False),
        ("clearway_7b", FLAGS, False),
        ("my_clearway_7", FLAGS, False),
        ("maintenance", FLAGS, False),
    ],
)
def test_which_reservations_are_ours(name: str, flags: tuple[str, ...], ours: bool) -> None:
    found = Reservation(name=name, nodes=("a",), start_time=NOW, end_time=after(1), flags=flags)
    assert is_placement(found) == ours


def test_it_is_made_for_one_user_over_exactly_the_planned_nodes() -> None:
    e = eviction(plan(urgent_job(user="ursula")), placement="clearway_7")
    made = placement(e, NOW, GRACE)
    assert made == Reservation(
        name="clearway_7",
        nodes=e.plan.placement_nodes,
        start_time=NOW,
        end_time=after(600 + 900),
        users=("ursula",),
        flags=("FLEX", "IGNORE_JOBS"),
    )
    assert is_placement(made)


@pytest.mark.parametrize(
    ("deadline_s", "ends_s"),
    [(600, 1_500), (1_200, 2_100), (10, 1_500), (-5_000, 1_500)],
    ids=["as planned", "after the deadline", "not before what was planned", "the deadline has passed"],
)
def test_it_always_ends(deadline_s: float, ends_s: float) -> None:
    e = eviction(replace(plan(), deadline=after(deadline_s)))
    assert placement_ends(e, GRACE) == after(ends_s)
