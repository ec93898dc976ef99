"""Evictions on all three databases: stored in full, saved cheaply, found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text

from clearway.model.errors import StoreError, UnknownEvictionError
from clearway.model.operations import Eviction, EvictionState, Operation, PreemptionState
from clearway.model.problem import Action
from clearway.model.records import Usage
from clearway.model.requests import Answer
from clearway.store.repository import Judgement, Store
from tests.builders import NOW, after, eviction, job, plan, preemption, urgent_job
from tests.integration.store.strategies import evictions, operations, record

shared_database = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@shared_database
@given(operations())
def test_any_operation_comes_back_as_it_was(store: Store, original: Operation) -> None:
    created = store.create_eviction(original)
    assert created == replace(original, eviction_id=created.eviction_id, mark=created.mark)
    assert created.mark
    assert store.eviction(created.eviction_id) == created
    assert store.plans(created.eviction_id) == (original.plan,)
    is_open = created in store.open_evictions()
    assert is_open is not original.state.terminal


@shared_database
@given(evictions(revision=st.just(0)), st.lists(evictions(), max_size=3))
def test_any_change_is_saved(store: Store, first: Eviction, versions: list[Eviction]) -> None:
    """Until it has ended."""
    last = store.create_eviction(first)
    plans = [first.plan]
    for revision, version in enumerate(versions, 1):
        saved = replace(version, eviction_id=last.eviction_id, revision=revision)
        if last.state.terminal:
            with pytest.raises(StoreError, match="what has ended is not changed"):
                store.save_eviction(saved)
            break
        store.save_eviction(saved)
        last = saved
        plans.append(version.plan)
    assert store.eviction(last.eviction_id) == last
    assert store.plans(last.eviction_id) == tuple(plans)


def test_microseconds_and_zones_survive(store: Store) -> None:
    moment = NOW.replace(microsecond=123457)
    saved = store.create_eviction(eviction(state_since=moment))
    read = store.eviction(saved.eviction_id)
    assert read.state_since == moment
    assert str(read.state_since.tzinfo) == "UTC"


def test_long_plans_fit(store: Store) -> None:
    """MariaDB's TEXT would end at 64 KiB."""
    big = store.create_eviction(eviction(plan(urgent_job(nodes=300)), outcome="x" * 100_000))
    assert store.eviction(big.eviction_id) == big


def test_names_differ_by_case_accent_and_trailing_space(store: Store) -> None:
    for key in ("name", "Name", "näme", "name "):
        store.set_value(key, key)
    assert [store.get_value(key) for key in ("name", "Name", "näme", "name ")] == ["name", "Name", "näme", "name "]


def test_text_that_no_database_takes_does_not_keep_an_event_from_being_recorded(store: Store) -> None:
    saved = store.create_eviction(eviction())
    store.add_event(saved.eviction_id, "1", NOW, "scontrol: caf\udce9 \0 ☕")
    assert store.steps(saved.eviction_id)[0].detail == "scontrol: caf? \ufffd ☕"


def test_a_figure_that_is_no_number_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="must be finite"):
        store.create_eviction(eviction(preemptions=(preemption(predicted_lost_node_s=float("nan")),)))
    assert store.evictions() == ()


def test_a_time_without_a_zone_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="without a zone"):
        store.create_eviction(eviction(created_at=NOW.replace(tzinfo=None)))


def test_saving_writes_only_what_changed(store: Store) -> None:
    saved = store.create_eviction(eviction(plan(urgent_job(nodes=25))))
    statements = record_statements(store)
    store.save_eviction(saved)
    assert [each for each in statements if not each.startswith("SELECT")] == []
    assert sum(each.startswith("SELECT") for each in statements) == 2, "the eviction with its plan, and its preemptions"

    statements.clear()
    moved = replace(saved.preemptions[7], state=PreemptionState.VACATING, requeued_at=after(1))
    saved = replace(saved, preemptions=(*saved.preemptions[:7], moved, *saved.preemptions[8:]))
    store.save_eviction(saved)
    written = [each for each in statements if not each.startswith("SELECT")]
    assert [each.split()[1] for each in written] == ["preemptions", "evictions"], "the eviction's version"
    assert store.eviction(saved.eviction_id) == saved


def test_a_new_plan_needs_a_new_revision(store: Store) -> None:
    saved = store.create_eviction(eviction())
    anew = replace(saved, plan=plan(made_at=after(30)))
    with pytest.raises(StoreError, match="needs a new revision"):
        store.save_eviction(anew)
    store.save_eviction(replace(anew, revision=1))
    assert store.plans(saved.eviction_id) == (saved.plan, anew.plan)
    assert store.eviction(saved.eviction_id).plan == anew.plan
    assert store.open_evictions()[0].plan == anew.plan


def test_open_evictions_parse_a_plan_once(store: Store) -> None:
    first = store.create_eviction(eviction())
    second = store.create_eviction(eviction(state=EvictionState.PROPOSED))
    done = store.create_eviction(eviction(state=EvictionState.COMPLETED))
    assert store.open_evictions() == (first, second)
    statements = record_statements(store)
    assert store.open_evictions() == (first, second)
    assert not any("FROM plans" in each for each in statements)

    store.save_eviction(replace(second, state=EvictionState.SUPERSEDED))
    assert store.open_evictions() == (first,)
    assert store._plans.known((second.eviction_id, 0)) is None
    assert store.eviction(done.eviction_id) == done


def test_lists_are_newest_first(store: Store) -> None:
    made = [
        store.create_eviction(eviction(state=state))
        for state in (EvictionState.COMPLETED, EvictionState.PLACING, EvictionState.FAILED, EvictionState.COMPLETED)
    ]
    assert store.evictions() == tuple(reversed(made))
    assert store.evictions(limit=2, offset=1) == (made[2], made[1])
    assert store.evictions(states=[EvictionState.COMPLETED]) == (made[3], made[0])
    assert store.evictions(states=[]) == ()


def test_lists_of_one_user(store: Store) -> None:
    """Those that serve a job of the user's, and those that such a job leaves for."""
    urgent = store.create_eviction(eviction(plan(urgent_job(nodes=10))))
    leaving = {each.job.user for each in urgent.preemptions}
    assert leaving - {urgent.preemptor.user}
    for user in (urgent.preemptor.user, *leaving):
        assert store.evictions(user=user, states=[urgent.state]) == (urgent,)
    assert store.evictions(user="stranger") == ()
    assert store.evictions(user=urgent.preemptor.user.upper()) == ()


def test_an_unknown_eviction(store: Store) -> None:
    with pytest.raises(UnknownEvictionError, match="no eviction 77"):
        store.eviction(77)
    with pytest.raises(UnknownEvictionError, match="no eviction 77"):
        store.save_eviction(replace(eviction(), eviction_id=77))
    with pytest.raises(UnknownEvictionError, match="no eviction 77"):
        store.add_request("cancel", 77, "carol", NOW)
    with pytest.raises(StoreError):
        store.begin_step(77, None, "attach", NOW)
    assert store.plans(77) == ()


def test_a_damaged_plan_says_where(store: Store) -> None:
    saved = store.create_eviction(eviction())
    with store._database.writing() as connection:
        connection.execute(text("UPDATE plans SET document = '{\"chosen\": 5}'"))
    with pytest.raises(StoreError, match="stored Plan cannot be read: made_at"):
        store.eviction(saved.eviction_id)


def test_counts_and_usage_take_what_passed_the_point_of_no_return(store: Store) -> None:
    def requeued(job_id: str, seconds: float, **fields: Any) -> Any:
        return preemption(job(job_id), requeued_at=after(seconds), predicted_lost_node_s=100.0, **fields)

    store.create_eviction(eviction(preemptions=(requeued("1", 0, actual_lost_node_s=60.0), requeued("2", 10))))
    store.create_eviction(
        eviction(state=EvictionState.COMPLETED, preemptions=(requeued("1", 20), preemption(job("3"))))
    )
    assert store.preemption_counts(map(job, "1234")) == {"1": 2, "2": 1}
    assert store.preemption_counts([]) == {}
    assert store.preemption_counts(job(str(number)) for number in range(2000)) == {"1": 2, "2": 1}
    assert store.usage_since(NOW) == Usage(3, 260.0)
    assert store.usage_since(after(15)) == Usage(1, 100.0)
    assert store.usage_since(after(60)) == Usage(0, 0.0)


def test_usage_tells_what_is_intended(store: Store) -> None:
    def eviction_of(*preemptions: Any, **fields: Any) -> int:
        return store.create_eviction(eviction(preemptions=preemptions, **fields)).eviction_id

    def planned(job_id: str, **fields: Any) -> Any:
        return preemption(job(job_id), predicted_lost_node_s=100.0, **fields)

    gone = planned("3", state=PreemptionState.VACATED, requeued_at=NOW)
    ends, eternal = planned("4", action=Action.END), planned("5", eternal=True)
    first = eviction_of(planned("1"), planned("2", state=PreemptionState.CHECKPOINTING), gone, ends, eternal)
    eviction_of(planned("6"), state=EvictionState.AWAITING_APPROVAL)
    eviction_of(planned("7"), state=EvictionState.CANCELLING)
    second = eviction_of(planned("8"), state=EvictionState.PREEMPTING)
    assert store.usage_since(NOW) == Usage(1, 100.0, 3, 300.0) == store.cycle_state(NOW, ()).usage
    assert store.usage_since(NOW, first) == Usage(1, 100.0, 1, 100.0)
    assert store.usage_since(after(1), second) == Usage(0, 0.0, 2, 200.0)


def test_an_operation_is_stored_as_it_is_judged_by_what_is_stored_already(store: Store) -> None:
    def judge(usage: Usage) -> Eviction:
        state = EvictionState.AWAITING_APPROVAL if usage.intended_jobs else EvictionState.PLACING
        return eviction(preemptions=(preemption(),), state=state)

    created = [store.create_eviction(judge(Usage()), Judgement(NOW, judge)) for _ in range(2)]
    assert [e.state for e in created] == [EvictionState.PLACING, EvictionState.AWAITING_APPROVAL]
    assert list(store.open_evictions()) == created


@shared_database
@given(
    record(
        Eviction,
        eviction_id=st.just(0),
        state=st.just(EvictionState.PREEMPTING),
        preemptions=st.just((preemption(),) * 3),
    ),
    st.integers(0, 5),
)
def test_preemptions_come_and_go(store: Store, original: Eviction, kept: int) -> None:
    saved = store.create_eviction(original)
    for count in (kept, 2, 4):
        saved = replace(saved, preemptions=tuple(preemption(job(index), order=index) for index in range(count)))
        store.save_eviction(saved)
        assert store.eviction(saved.eviction_id) == saved


def test_pruning_takes_all_that_hangs_on_an_eviction(open_store: Callable[[], Store]) -> None:
    store = open_store()
    old = [store.create_eviction(eviction(state=EvictionState.COMPLETED, finished_at=after(-60))) for _ in range(101)]
    ended_without_time = store.create_eviction(eviction(state=EvictionState.SUPERSEDED, state_since=after(-60)))
    young = store.create_eviction(eviction(state=EvictionState.FAILED, finished_at=after(60)))
    still_open = store.create_eviction(eviction(state_since=after(-6000)))
    last = store.create_eviction(eviction(state=EvictionState.CANCELLED, finished_at=after(-1)))
    store.begin_step(old[0].eviction_id, "1", "requeue", after(-70))
    about_old = store.add_request("cancel", old[0].eviction_id, "carol", after(-70))
    handled, waiting = (
        store.add_request("pause", None, "carol", after(-70)),
        store.add_request("resume", None, "c", NOW),
    )
    store.finish_request(handled, after(-65), Answer(sentence="ok"))

    assert store.prune(NOW) == 103
    assert store.prune(NOW) == 0
    assert store.evictions() == (still_open, young)
    for gone in (old[0], ended_without_time):
        assert store.steps(gone.eviction_id) == ()
        assert store.plans(gone.eviction_id) == ()
    assert store.request(about_old) is None
    assert store.request(handled) is None
    assert store.request(waiting) is not None
    assert count_rows(store, "preemptions") == len(young.preemptions) + len(still_open.preemptions)

    store.close()
    assert open_store().create_eviction(eviction()).eviction_id > last.eviction_id, "an id was given out twice"


def record_statements(store: Store) -> list[str]:
    """The SQL that the store sends from now on."""
    statements: list[str] = []

    @event.listens_for(store._database.engine, "before_cursor_execute")
    def _note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    return statements


def count_rows(store: Store, table: str) -> int:
    with store._database.reading() as connection:
        return int(connection.execute(text(f"SELECT COUNT(*) FROM {table}")).scalar_one())
