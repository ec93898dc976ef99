"""The cache of parsed plans stays within its bound and forgets what is closed."""

from __future__ import annotations

from clearway.store.plan_rows import PlanCache
from tests.builders import plan


def test_it_gives_back_what_it_was_given() -> None:
    cache, kept = PlanCache(), plan()
    cache.put((1, 0), kept, 100, {})
    assert cache.get((1, 0)) is kept
    assert cache.get((1, 1)) is None


def test_a_full_cache_turns_away_instead_of_evicting() -> None:
    cache, first = PlanCache(capacity_chars=150), plan()
    cache.put((1, 0), first, 100, {})
    cache.put((2, 0), plan(), 100, {})
    assert cache.get((1, 0)) is first
    assert cache.get((2, 0)) is None


def test_closed_evictions_make_room() -> None:
    cache, second = PlanCache(capacity_chars=150), plan()
    cache.put((1, 0), plan(), 100, {})
    cache.keep_only({(2, 0)})
    assert cache.get((1, 0)) is None
    cache.put((2, 0), second, 100, {})
    assert cache.get((2, 0)) is second
