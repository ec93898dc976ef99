"""Rolling drains in each database: written, read, found while open, and pruned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.model.errors import StoreError
from clearway.model.orders import DrainOrder, RollingDrain, RollingState, Turn, TurnState
from clearway.model.requests import Answer
from clearway.store.repository import Store
from tests.builders import NOW, after


def made(nodes: int = 3) -> RollingDrain:
    names = tuple(f"n{number}" for number in range(nodes))
    order = DrainOrder(nodes=names, actor="olga", request_id=5, reason="neuer Kernel \N{GRINNING FACE}", begin_at=NOW)
    return RollingDrain(rolling_id=0, order=order, at_once=2, turns=tuple(Turn(name) for name in names), created_at=NOW)


def test_written_and_read(store: Store) -> None:
    first, second = (store.create_rolling_drain(made()) for _ in range(2))
    assert 0 < first.rolling_id < second.rolling_id
    assert store.rolling_drain(first.rolling_id) == first
    assert store.rolling_drain(9_999) is None
    turns = (replace(first.turns[0], state=TurnState.AWAY, drain_id=4), *first.turns[1:])
    moved = replace(first, turns=turns)
    store.save_rolling_drain(moved)
    store.save_rolling_drain(moved)  # nothing has changed
    assert store.rolling_drain(first.rolling_id) == moved
    assert store.open_rolling_drains() == (moved, second)
    ended = replace(moved, state=RollingState.COMPLETED, finished_at=after(5), outcome="3 node(s) were emptied.")
    store.save_rolling_drain(ended)
    assert store.open_rolling_drains() == (second,)
    assert store.rolling_drains() == (second, ended)
    assert store.rolling_drains(limit=1, offset=1) == (ended,)
    with pytest.raises(StoreError, match="no rolling drain 9999"):
        store.save_rolling_drain(replace(first, rolling_id=9_999))


def test_requests_name_them(store: Store) -> None:
    ordered = store.add_request("drain", None, "olga", NOW, "{}")
    store.finish_request(ordered, after(1), Answer(sentence="rolling drain 3", rolling_id=3))
    found = store.request(ordered)
    assert found is not None
    assert (found.rolling_id, found.eviction_id) == (3, None)
    cancel = store.add_request("cancel_rolling", None, "olga", NOW, rolling_id=3)
    assert [(each.request_id, each.rolling_id) for each in store.pending_requests()] == [(cancel, 3)]


def test_those_that_ended_long_ago_are_pruned(store: Store) -> None:
    old, young = (store.create_rolling_drain(made()) for _ in range(2))
    open_one = store.create_rolling_drain(replace(made(2_000), created_at=after(-9_000)))
    store.save_rolling_drain(replace(old, state=RollingState.CANCELLED, finished_at=after(-10)))
    young = replace(young, state=RollingState.COMPLETED, finished_at=after(10))
    store.save_rolling_drain(young)
    store.prune(NOW)
    assert store.rolling_drains() == (open_one, young)
