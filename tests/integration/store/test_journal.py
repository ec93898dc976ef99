"""Steps, requests and small values, on all three databases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from clearway.model.errors import StoreError
from clearway.model.records import StepRecord
from clearway.model.requests import Answer, OperatorRequest, RequestResult
from clearway.store.repository import Store
from tests.builders import NOW, after, eviction


def test_a_step_is_intended_then_finished(store: Store) -> None:
    owner = store.create_eviction(eviction()).eviction_id
    other = store.create_eviction(eviction()).eviction_id
    first = store.begin_step(owner, None, "create_placement", NOW, "n1,n2")
    second = store.begin_step(owner, "101", "requeue", after(1))
    store.begin_step(other, "102", "requeue", after(2))
    store.add_event(owner, "101", after(3), "left its nodes")
    intended = StepRecord(
        step_id=first, eviction_id=owner, job_id=None, kind="create_placement", intended_at=NOW, detail="n1,n2"
    )
    assert store.steps(owner)[0] == intended

    store.finish_step(first, after(0.5), "ok")
    store.finish_step(second, after(2), "refused", "Invalid job id specified")
    assert store.steps(owner)[:2] == (
        replace(intended, finished_at=after(0.5), result="ok"),
        StepRecord(
            step_id=second,
            eviction_id=owner,
            job_id="101",
            kind="requeue",
            intended_at=after(1),
            finished_at=after(2),
            result="refused",
            detail="Invalid job id specified",
        ),
    )
    noticed = store.steps(owner)[2]
    assert (noticed.kind, noticed.intended_at, noticed.finished_at) == ("event", after(3), after(3))
    assert (noticed.job_id, noticed.detail) == ("101", "left its nodes")
    with pytest.raises(StoreError, match="no step 9999"):
        store.finish_step(9999, NOW, "ok")


def test_requests_wait_until_they_are_handled(store: Store) -> None:
    subject = store.create_eviction(eviction()).eviction_id
    pause = store.add_request("pause", None, "carol", NOW)
    cancel = store.add_request("cancel", subject, "dave", after(1))
    waiting = OperatorRequest(request_id=pause, kind="pause", eviction_id=None, actor="carol", created_at=NOW)
    assert [each.request_id for each in store.pending_requests()] == [pause, cancel]
    assert store.request(pause) == waiting

    store.finish_request(pause, after(2), Answer(sentence="paused"))
    assert store.request(pause) == replace(waiting, handled_at=after(2), code=RequestResult.DONE, result="paused")
    assert [each.request_id for each in store.pending_requests()] == [cancel]
    assert store.request(9999) is None
    with pytest.raises(StoreError, match="no request 9999"):
        store.finish_request(9999, NOW, Answer(sentence="ok"))


def test_small_values(open_store: Callable[[], Store]) -> None:
    store = open_store()
    assert store.get_value("paused") is None
    for value in (True, {"a": [1, 2.5, None, "é"]}, "text", None):
        store.set_value("paused", value)
        assert open_store().get_value("paused") == value
    with pytest.raises(StoreError):
        store.set_value("figure", float("inf"))
    assert store.get_value("figure") is None


def test_the_same_value_set_by_many_at_once(open_store: Callable[[], Store]) -> None:
    """The first of them inserts the row while the others try to."""
    stores = [open_store() for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        for key in ("a", "b", "c"):
            barrier = threading.Barrier(6, timeout=30)

            def set_it(number: int, key: str = key, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                stores[number % 3].set_value(key, number)

            list(pool.map(set_it, range(6)))
            assert stores[0].get_value(key) in range(6)


def test_a_server_tells_its_own_time(store: Store) -> None:
    theirs = store.server_time()
    if store._database.engine.dialect.name == "sqlite":
        assert theirs is None  # its clock is ours
    else:
        assert theirs is not None
        assert abs((datetime.now(UTC) - theirs).total_seconds()) < 60
