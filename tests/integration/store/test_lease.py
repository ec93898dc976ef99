"""The lease on all three databases: one daemon at a time, and nothing that another one writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clearway.model.errors import LeaseLostError, StoreError
from clearway.model.explanation import Explanation
from clearway.model.operations import EvictionState
from clearway.model.plan import Cost
from clearway.model.records import LeaderEnd
from clearway.model.requests import Answer
from clearway.store.repository import Store
from tests.builders import NOW, after, eviction

SOME = Explanation(cost=Cost(3_600.5, 0, 20, 2), alternatives=(), later=(), rules=(), complete=False)
LONG_S = 3_600.0
LIMIT_S = 120.0
OpenStore = Callable[[], Store]


def now() -> datetime:
    return datetime.now(UTC)


def taken(store: Store, owner: str, ttl_s: float = LONG_S) -> bool:
    return store.take_lease(owner, now(), ttl_s).owner == owner


def take(store: Store, owner: str, ttl_s: float = LONG_S) -> None:
    """As soon as it is free."""
    end = time.monotonic() + LIMIT_S
    while not taken(store, owner, ttl_s):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_only_one_owner_holds_the_lease(open_store: OpenStore) -> None:
    first, second = open_store(), open_store()
    assert taken(first, "a")
    lease = second.take_lease("b", now(), LONG_S)
    assert (lease.owner, lease.epoch) == ("a", 1)
    first.renew_lease(now(), 0.05)
    take(second, "b")
    assert [(each.epoch, each.owner, each.ended) for each in first.leaders()] == [
        (2, "b", None), (1, "a", LeaderEnd.EXPIRED)
    ]  # fmt: skip
    with pytest.raises(LeaseLostError):
        first.renew_lease(now(), LONG_S)
    assert not taken(first, "a")


def test_an_expired_lease_that_nobody_took_is_renewed(open_store: OpenStore) -> None:
    store = open_store()
    take(store, "a", 0.001)
    time.sleep(0.01)  # it is over by any clock
    store.renew_lease(now(), LONG_S)
    assert not taken(open_store(), "b")
    store.set_value("paused", True)


def test_a_takeover_says_whether_the_one_before_stopped_in_order(open_store: OpenStore) -> None:
    first, second = open_store(), open_store()
    assert first.take_lease("a", now(), LONG_S).orderly, "there was none before"
    first.release_lease(now())
    assert second.take_lease("b", now(), LONG_S).orderly
    assert not first.take_lease("c", now(), LONG_S, gone="b").orderly, "its process has ended, a command may not have"
    assert second.depose("root", now()) == "c"
    assert not second.take_lease("d", now(), LONG_S).orderly
    assert [(each.owner, each.ended, each.ended_by) for each in second.leaders()] == [
        ("d", None, ""), ("c", LeaderEnd.FORCED, "root"), ("b", LeaderEnd.EXPIRED, ""), ("a", LeaderEnd.RELEASED, "")
    ]  # fmt: skip


def test_only_its_owner_releases_the_lease(open_store: OpenStore) -> None:
    first, second = open_store(), open_store()
    take(first, "a")
    second.release_lease(now())
    assert not taken(second, "b")
    first.release_lease(now())
    assert taken(second, "b")


def test_servers_go_by_their_own_clock(open_store: OpenStore, database_url: str) -> None:
    """A daemon whose clock is an hour ahead takes nothing over; SQLite's file belongs to one host, and its clock."""
    first, second = open_store(), open_store()
    assert taken(first, "a")
    ahead = now() + timedelta(hours=2)
    lease = second.take_lease("b", ahead, LONG_S)
    assert lease.owner == ("b" if database_url.startswith("sqlite") else "a")
    (newest, *_) = first.leaders()
    if not database_url.startswith("sqlite"):
        first.renew_lease(ahead, LONG_S)
        seen = first.sign_of_life()
        assert seen is not None
        assert abs((seen - now()).total_seconds()) < 600
        assert abs((newest.began_at - now()).total_seconds()) < 600


def test_of_many_at_once_one_gets_the_lease(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(8)]
    for attempt in range(10):
        barrier = threading.Barrier(8, timeout=60)

        def acquire(number: int, attempt: int = attempt, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return taken(stores[number], f"{attempt}-{number}")

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(acquire, range(8)))
        assert sum(won) == 1
        stores[won.index(True)].release_lease(now())
    epochs = [each.epoch for each in stores[0].leaders()]
    assert epochs == list(range(10, 0, -1))


def _writes(store: Store) -> dict[str, Callable[[], Any]]:
    """Everything that only the leader may write, on rows that exist."""
    saved = store.create_eviction(eviction())
    number = saved.eviction_id
    step = store.begin_step(number, None, "attach", NOW)
    request = store.add_request("pause", None, "olga", NOW)
    moved = replace(saved, outcome="moved")
    return {
        "create_eviction": lambda: store.create_eviction(eviction()),
        "save_eviction": lambda: store.save_eviction(moved),
        "begin_step": lambda: store.begin_step(number, None, "requeue", NOW),
        "finish_step": lambda: store.finish_step(step, NOW, "ok"),
        "add_event": lambda: store.add_event(number, None, NOW, "woken"),
        "finish_request": lambda: store.finish_request(request, NOW, Answer(sentence="ok")),
        "set_value": lambda: store.set_value("paused", True),
        "explain_plan": lambda: store.explain_plan(number, 0, SOME),
        "record_runs": lambda: store.record_runs(()),
        "prune": lambda: store.prune(after(LONG_S)),
    }


def test_a_daemon_that_has_lost_the_lease_writes_nothing(open_store: OpenStore) -> None:
    store, other = open_store(), open_store()
    take(store, "a")
    writes = _writes(store)
    store.depose("root", now())
    for write in writes.values():
        with pytest.raises(LeaseLostError):
            write()
    take(other, "b")
    for write in writes.values():
        with pytest.raises(LeaseLostError):
            write()
    (only,) = other.evictions()
    assert (only.outcome, other.get_value("paused")) == ("", None)
    assert [each.kind for each in other.steps(only.eviction_id)] == ["attach"]
    assert len(other.pending_requests()) == 1
    assert store.add_request("resume", None, "olga", NOW), "whoever runs may ask"
    # The same writes by the one that leads.
    other.release_lease(now())
    take(store, "c")
    for write in writes.values():
        write()


def test_a_takeover_waits_for_a_write_that_has_begun(open_store: OpenStore) -> None:
    """So what is read after it is the last word of the leader before."""
    store, other = open_store(), open_store()
    take(store, "a")
    with ThreadPoolExecutor(1) as pool:
        with store._leading():
            deposing = pool.submit(other.depose, "root", now())
            time.sleep(0.2)
            assert not deposing.done()
        assert deposing.result(LIMIT_S) == "a"


def test_what_another_writer_has_changed_is_not_overwritten(open_store: OpenStore) -> None:
    first, second = open_store(), open_store()
    made = first.create_eviction(eviction())
    second.cycle_state(NOW, ())
    first.save_eviction(replace(made, outcome="one"))
    with pytest.raises(StoreError, match="changed by another writer"):
        second.save_eviction(replace(made, outcome="two"))
    second.cycle_state(NOW, ())
    second.save_eviction(replace(made, outcome="two"))
    with pytest.raises(StoreError, match="changed by another writer"):
        first.save_eviction(replace(made, outcome="three"))


def test_an_eviction_that_has_ended_stays_as_it_is(open_store: OpenStore) -> None:
    store = open_store()
    made = store.create_eviction(eviction())
    ended = replace(made, state=EvictionState.CANCELLED, finished_at=after(5))
    store.save_eviction(ended)
    store.save_eviction(ended)  # the same again is nothing new
    woken = replace(made.preemptions[0], attempts=made.preemptions[0].attempts + 1)
    for late in (made, replace(ended, outcome="more"), replace(ended, preemptions=(woken, *ended.preemptions[1:]))):
        with pytest.raises(StoreError, match="what has ended is not changed"):
            store.save_eviction(late)
    assert store.eviction(made.eviction_id) == ended
