"""Cases of the report on all three databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from clearway.store.repository import Store
from tests.builders import NOW, after
from tests.unit.core.cases import case, case_job


def test_they_come_back_as_they_were(store: Store) -> None:
    first, second = case("1"), case("2", began_at=after(10), jobs=(case_job("7", left_at=after(3)),))
    for each in (first, second):
        store.keep_case(each)
    assert store.open_cases() == (first, second)
    closed = replace(first, closed_at=after(30), started_at=after(20))
    store.keep_case(closed)
    store.keep_case(closed)
    assert store.open_cases() == (second,)
    assert store.cases_since(NOW) == (second, closed)
    assert store.cases_since(NOW, limit=1) == (second,)
    assert store.cases_since(NOW + timedelta(hours=1)) == (second,), "it is still followed"
    store.prune(after(60))
    assert store.cases_since(NOW) == (second,)


def test_a_job_may_have_several(store: Store) -> None:
    for each in (case("1"), case("1", began_at=after(10))):
        store.keep_case(each)
    assert len(store.cases_since(NOW)) == 2
