"""The parsed plans that are kept stay within their bound, and those of closed evictions are forgotten."""

from __future__ import annotations

from clearway.store.plan_rows import Kept, Part, PlanRows
from tests.builders import plan


def kept(eviction_id: int, parts: dict[str, Part] | None = None) -> Kept:
    return Kept((eviction_id, 0), plan(), 100, parts or {})


def test_it_gives_back_what_it_was_given() -> None:
    plans, first = PlanRows(), kept(1)
    plans.keep(first)
    assert plans.known((1, 0)) is first.plan
    assert plans.known((1, 1)) is None


def test_full_memory_turns_away_instead_of_evicting() -> None:
    plans, first = PlanRows(capacity_chars=150), kept(1)
    plans.keep(first)
    plans.keep(kept(2))
    assert plans.known((1, 0)) is first.plan
    assert plans.known((2, 0)) is None


def test_a_part_that_plans_share_counts_once() -> None:
    plans, shared = PlanRows(capacity_chars=300), {"digest": Part((), 100)}
    plans.keep(kept(1, shared))
    plans.keep(kept(2, shared))
    plans.keep(kept(3))
    assert [plans.known((eviction_id, 0)) is not None for eviction_id in (1, 2, 3)] == [True, True, False]


def test_closed_evictions_make_room() -> None:
    plans, second = PlanRows(capacity_chars=150), kept(2)
    plans.keep(kept(1))
    plans.keep_only({(2, 0)})
    assert plans.known((1, 0)) is None
    plans.keep(second)
    assert plans.known((2, 0)) is second.plan
