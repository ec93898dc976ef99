"""What many plans have in common is stored once, and goes with the last of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import delete, func, select

from clearway.model.errors import StoreError
from clearway.model.notice import Notice
from clearway.model.operations import EvictionState
from clearway.model.plan import Choice, Plan, Verdict
from clearway.model.problem import Candidate
from clearway.store.repository import Store
from clearway.store.tables import PLAN_PARTS, PLANS
from tests.builders import NOW, eviction, plan, urgent_job
from tests.integration.store.test_evictions import record_statements

JOBS = 500


def crowd(count: int) -> list[Plan]:
    """Plans that were made together: they differ in one verdict."""
    one = plan()
    options = one.problem.candidates[0].options
    candidates = tuple([Candidate(str(5_000 + number), 1, options) for number in range(JOBS)])
    made = []
    for place in range(count):
        verdicts = [Verdict(each.job_id, Choice.SPARED, "not_needed", "not needed") for each in candidates]
        verdicts[place] = replace(verdicts[place], choice=Choice.CHOSEN, code="kill", reason=f"for {place}")
        problem = replace(one.problem, candidates=candidates)
        made.append(replace(one, preemptor=urgent_job(str(900 + place)), problem=problem, verdicts=tuple(verdicts)))
    return made


@pytest.fixture
def reopened(store: Store) -> Iterator[Callable[[], Store]]:
    """The same database, with nothing in memory."""
    opened: list[Store] = []

    def again() -> Store:
        opened.append(Store(store._database.engine.url.render_as_string(hide_password=False)))
        return opened[-1]

    yield again
    for each in opened:
        each.close()


def parts(store: Store) -> int:
    with store._database.reading() as connection:
        return connection.execute(select(func.count()).select_from(PLAN_PARTS)).scalar_one()


def test_plans_that_were_made_together_are_stored_with_their_candidates_once(
    store: Store, reopened: Callable[[], Store]
) -> None:
    made = crowd(5)
    stored = [store.create_eviction(eviction(each)) for each in made]
    assert parts(store) == 1
    with store._database.reading() as connection:
        rows = connection.execute(select(PLANS.c.document, PLANS.c.verdicts)).all()
        [shared] = connection.execute(select(PLAN_PARTS.c.document)).scalars()
    assert max(len(row.document) + len(row.verdicts) for row in rows) < len(shared) / 3
    again = reopened()
    read = again.open_evictions()
    assert [each.plan for each in read] == made
    assert read == tuple(stored)
    assert len({id(each.plan.problem.candidates) for each in read}) == 1
    statements = record_statements(again)
    assert again.open_evictions() == read
    assert not any("FROM plan" in each for each in statements)


def test_a_part_goes_with_the_last_plan_that_has_it(store: Store) -> None:
    _, second = (
        store.create_eviction(eviction(each, state=EvictionState.SUPERSEDED, finished_at=NOW + timedelta(days=day)))
        for day, each in enumerate(crowd(2))
    )
    assert store.prune_superseded(NOW + timedelta(hours=1)) == 1
    assert parts(store) == 1
    assert store.eviction(second.eviction_id).plan == second.plan
    assert store.prune(NOW + timedelta(days=9)) == 1
    assert parts(store) == 0


def test_a_part_goes_with_the_plans_that_a_proposal_had_before(store: Store) -> None:
    [one] = crowd(1)
    proposal = store.create_eviction(eviction(one, state=EvictionState.PROPOSED))
    other = replace(one.problem, candidates=one.problem.candidates[1:])
    store.save_eviction(replace(proposal, revision=1, plan=replace(one, problem=other)))
    assert parts(store) == 2
    store.forget_plans(proposal.eviction_id, 1)
    assert parts(store) == 1
    assert store.eviction(proposal.eviction_id).plan.problem == other


def test_a_part_that_was_lost_is_told(store: Store, reopened: Callable[[], Store]) -> None:
    made = store.create_eviction(eviction(crowd(1)[0]))
    with store._database.writing() as connection:
        connection.execute(delete(PLAN_PARTS))
    with pytest.raises(StoreError, match="candidates"):
        reopened().eviction(made.eviction_id)
    assert store.eviction(made.eviction_id) == made  # what is in memory is there


def test_a_plan_that_was_not_stored_is_not_remembered(store: Store) -> None:
    """The next eviction may have its number."""
    first, second = crowd(2)

    def fails(_: object) -> list[Notice]:
        raise StoreError("the notices cannot be written")

    for attempt in (first, second):
        with pytest.raises(StoreError, match="notices"):
            store.create_eviction(eviction(attempt), tell=fails)
    assert parts(store) == 0
    assert not any(store._plans.known((number, 0)) for number in range(1, 4))
    made = store.create_eviction(eviction(second))
    assert store.open_evictions() == (made,)
