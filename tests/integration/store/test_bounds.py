"""What keeps the database small, and what limits are asked by, on every kind of database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.model.errors import TooManyRequestsError
from clearway.model.operations import EvictionState
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.records import Taking
from clearway.model.requests import RECENT, Allowance, Answer, RequestKind
from clearway.store import request_rows
from clearway.store.repository import Store
from tests.builders import NOW, after, eviction, job, plan, urgent_job


def test_the_plans_that_a_proposal_had_before_are_forgotten(store: Store) -> None:
    first = store.create_eviction(eviction(state=EvictionState.PROPOSED))
    second = replace(first, plan=replace(first.plan, made_at=after(60)), revision=first.revision + 1)
    store.save_eviction(second)
    assert len(store.plans(first.eviction_id)) == 2
    store.forget_plans(first.eviction_id, second.revision)
    assert store.plans(first.eviction_id) == (second.plan,)
    assert store.eviction(first.eviction_id) == second


def test_what_was_put_aside_goes_and_nothing_else(store: Store) -> None:
    states = EvictionState.SUPERSEDED, EvictionState.SUPERSEDED, EvictionState.COMPLETED
    made = [store.create_eviction(eviction(state=EvictionState.PROPOSED)) for _ in states]
    for each, state, at in zip(made, states, (0, 100, 0), strict=True):
        store.save_eviction(replace(each, state=state, finished_at=after(at)))
    assert store.prune_superseded(after(50)) == 1
    assert [each.eviction_id for each in store.evictions()] == [made[2].eviction_id, made[1].eviction_id]


def test_the_size_is_known(store: Store) -> None:
    for _ in range(20):
        store.create_eviction(eviction())
    assert store.size_bytes() > 10_000


def test_what_was_taken_and_for_whom(store: Store) -> None:
    urgent = urgent_job(900, 2, user="ursula", account="storms")
    intends = store.create_eviction(eviction(replace(plan(urgent), rule="weather"), EvictionState.PREEMPTING))
    took = store.create_eviction(eviction(state=EvictionState.PREEMPTING))
    left = replace(took.preemptions[0], requeued_at=after(10), actual_lost_node_s=5.0)
    store.save_eviction(replace(took, state=EvictionState.COMPLETED, preemptions=(left, *took.preemptions[1:])))
    store.create_eviction(eviction(state=EvictionState.PROPOSED))
    lost_node_s = sum(p.predicted_lost_node_s for p in intends.preemptions)
    expected = {
        Taking(user="ursula", account="storms", rule="weather", jobs=2, lost_node_s=lost_node_s),
        Taking(user=took.preemptor.user, account=took.preemptor.account, rule="", jobs=1, lost_node_s=5.0),
    }
    assert set(store.takings(NOW)) == expected
    assert len(store.takings(after(20))) == 1, "what is intended counts however old the plan is"


def test_what_looks_like_a_loop(store: Store) -> None:
    for number in range(3):
        made = store.create_eviction(eviction(plan(urgent_job(900, 1, user="ursula"), [job(101)])))
        left = tuple(replace(p, requeued_at=after(number)) for p in made.preemptions)
        ended = replace(made, state=EvictionState.FAILED, preemptions=left, finished_at=after(number))
        store.save_eviction(ended.told(Outcome(OutcomeCode.TOO_LATE, "It did not start")))
    again, in_vain = store.loops(NOW, 3)
    assert (again.user, in_vain.user) == ("ursula", "ursula")
    assert again.why == "job 101 was preempted 3 times for job 900"
    assert in_vain.why == "evictions 1, 2, 3 made jobs leave, and no urgent job started"
    assert not store.loops(after(1), 3)


def ask(store: Store, kind: RequestKind = RequestKind.COMPACT, actor: str = "ann", at: int = 0) -> int:
    return store.add_request(kind, None, actor, after(at))


def test_what_one_actor_may_have_waiting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is asked: the command line, another program, or REST."""
    monkeypatch.setattr(request_rows, "OF_OPERATORS", Allowance(waiting=3, recent=100))
    made = [ask(store) for _ in range(3)]
    entries = len(store.audit_trail())
    with pytest.raises(TooManyRequestsError, match="3 requests of ann wait to be handled"):
        ask(store)
    assert len(store.audit_trail()) == entries, "what is refused leaves nothing behind"
    assert len(store.pending_requests()) == 3
    ask(store, actor="bob")
    ask(store, RequestKind.HALT)
    store.finish_request(made[0], NOW, Answer(sentence="done"))
    ask(store)


def test_what_one_actor_may_ask_within_some_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rows, "OF_OPERATORS", Allowance(waiting=100, recent=3))
    for number in range(3):
        store.finish_request(ask(store, at=number), after(number), Answer(sentence="done"))
    with pytest.raises(TooManyRequestsError, match="ann has made 3 requests within 10 min"):
        ask(store, at=5)
    ask(store, RequestKind.HALT, at=5)
    ask(store, actor="bob", at=5)
    ask(store, at=int(RECENT.total_seconds()) + 1)


def test_switches_are_bounded_too_and_by_themselves(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rows, "OF_SWITCHES", Allowance(waiting=2, recent=3))
    for kind in (RequestKind.PAUSE, RequestKind.RESUME):
        ask(store, kind)
    with pytest.raises(TooManyRequestsError):
        ask(store, RequestKind.HALT)
    ask(store)
