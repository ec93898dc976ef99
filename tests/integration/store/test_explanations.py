"""Explanations on all three databases: kept with their plan, found again, gone with their eviction."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from clearway.model.explanation import Explanation
from clearway.model.operations import EvictionState
from clearway.model.plan import Cost
from clearway.store.repository import Store
from clearway.store.rows import dump, load
from tests.builders import NOW, after, eviction, plan
from tests.integration.store.strategies import of

SOME = Explanation(cost=Cost(3_600.5, 0, 20, 2), alternatives=(), later=(), rules=(), complete=False)


@given(of(Explanation))
def test_any_explanation_comes_back_as_it_was(original: Explanation) -> None:
    assert load(Explanation, dump(original)) == original


def test_an_explanation_is_kept_with_its_plan(store: Store) -> None:
    eviction_id = store.create_eviction(eviction()).eviction_id
    other_id = store.create_eviction(eviction(created_at=after(10))).eviction_id
    assert store.explanation(eviction_id) is None
    assert store.explanation(99) is None
    assert store.unexplained(NOW) == (eviction_id, other_id)
    assert store.unexplained(after(10)) == (other_id,)

    store.explain_plan(eviction_id, 0, SOME)
    store.explain_plan(eviction_id, 0, replace(SOME, complete=True))
    assert store.explanation(eviction_id) == SOME, "the first one stays"
    assert store.unexplained(NOW) == (other_id,)


def test_a_plan_made_anew_is_explained_anew(store: Store) -> None:
    first = store.create_eviction(eviction())
    store.explain_plan(first.eviction_id, 0, SOME)
    store.save_eviction(replace(first, revision=1, plan=plan(made_at=after(5))))
    assert store.unexplained(NOW) == (first.eviction_id,)
    assert store.explanation(first.eviction_id) == SOME
    again = replace(SOME, complete=True)
    store.explain_plan(first.eviction_id, 1, again)
    assert store.explanation(first.eviction_id) == again
    assert store.unexplained(NOW) == ()
    store.create_eviction(eviction(created_at=after(10)))
    assert store.explanations({first.eviction_id, first.eviction_id + 1, 99}) == {first.eviction_id: again}
    assert store.explanations(()) == {}


def test_an_explanation_goes_with_its_eviction(store: Store) -> None:
    done = store.create_eviction(eviction(state=EvictionState.COMPLETED, finished_at=NOW))
    store.explain_plan(done.eviction_id, 0, SOME)
    assert store.prune(after(1)) == 1
    assert store.explanation(done.eviction_id) is None
