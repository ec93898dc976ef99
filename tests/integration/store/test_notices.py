"""The outbox on every kind of database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from clearway.model.errors import StoreError
from clearway.model.notice import Channel, Notice, NoticeKind, Waiting
from clearway.model.operations import EvictionState
from clearway.store.repository import Store
from tests.builders import NOW, after, eviction

LONGEST = timedelta(minutes=15)


def notice(key: str, channel: Channel = Channel.MAIL, seconds: float = 0, user: str = "anna") -> Notice:
    return Notice(
        key=key,
        kind=NoticeKind.LEFT,
        channel=channel,
        at=after(seconds),
        created_at=after(seconds),
        user=user,
        job_id="7",
        about={"job_name": "caf\u00e9 \U0001f30d"},
    )


def due(store: Store, seconds: float = 0, channel: Channel = Channel.MAIL) -> list[str]:
    return [each.key for each in store.notices_due(channel, after(seconds), LONGEST, 100)]


def test_what_is_told_under_a_key_and_channel_is_told_once(store: Store) -> None:
    assert store.add_notices([notice("a"), notice("A"), notice("a", Channel.SLACK)]) == 3
    assert store.add_notices([notice("a"), notice("b"), notice("b")]) == 1
    assert store.add_notices([]) == 0
    assert due(store) == ["a", "A", "b"]
    (found,) = store.notices_due(Channel.SLACK, NOW, LONGEST, 1)
    assert found == replace(notice("a", Channel.SLACK), notice_id=found.notice_id)


def test_it_is_stored_with_its_change_or_not_at_all(store: Store) -> None:
    made = store.create_eviction(eviction(), tell=lambda e: [notice(f"{e.eviction_id}:made")])
    store.save_eviction(replace(made, late=True), [notice(f"{made.eviction_id}:late")])
    assert due(store) == [f"{made.eviction_id}:made", f"{made.eviction_id}:late"]
    store.save_eviction(replace(made, state=EvictionState.COMPLETED, finished_at=NOW))
    with pytest.raises(StoreError, match="what has ended is not changed"):
        store.save_eviction(replace(made, state=EvictionState.FAILED), [notice("never")])
    assert "never" not in due(store)


def test_from_waiting_to_said(store: Store) -> None:
    store.add_notices([notice("a"), notice("b", seconds=1), notice("c", user="")])
    a, b, c = store.notices_due(Channel.MAIL, after(1), LONGEST, 10)
    assert (a.key, b.key, c.key) == ("a", "b", "c")
    assert store.waiting_notices() == {Channel.MAIL: Waiting(3, NOW)}
    store.begin_notices([a.notice_id], after(30))
    assert due(store, 29) == ["b", "c"]
    assert store.notices_due(Channel.MAIL, after(30), LONGEST, 1)[0].attempts == 1
    store.postpone_notices([a.notice_id], after(50), "down" * 1_000)
    assert due(store, 49) == ["b", "c"]
    ids = [each.notice_id for each in store.notices_due(Channel.MAIL, after(60), LONGEST, 2)]
    store.notices_said(ids, after(60))
    assert store.messages_between(Channel.MAIL, "anna", after(60), after(60)) == 1
    assert store.messages_between(Channel.MAIL, "anna", after(61), after(99)) == 0
    assert store.messages_between(Channel.MAIL, "", NOW, after(99)) == 0
    store.give_up_notices([c.notice_id], after(60), "no such address")
    assert store.waiting_notices() == {}


def test_what_was_put_off_before_the_clock_was_set_back_is_due(store: Store) -> None:
    store.add_notices([notice("a"), notice("b"), notice("c", seconds=86_400)])
    a, b, _ = store.notices_due(Channel.MAIL, NOW, timedelta(seconds=900), 10)
    store.postpone_notices([a.notice_id], after(900))
    store.postpone_notices([b.notice_id], after(901))
    assert due(store) == ["b", "c"]


def test_what_waits_for_too_long_and_what_is_too_much(store: Store) -> None:
    store.add_notices([notice(f"n{number}", seconds=number) for number in range(6)])
    ids = [each.notice_id for each in store.notices_due(Channel.MAIL, after(10), LONGEST, 10)]
    assert store.overdue_notices(Channel.MAIL, NOW, 0, 10) == ()
    assert store.overdue_notices(Channel.MAIL, after(2), 0, 10) == tuple(ids[:2])
    assert store.overdue_notices(Channel.MAIL, after(2), 1, 10) == ()
    store.begin_notices(ids[1:], after(3))
    assert store.overdue_notices(Channel.MAIL, after(2), 1, 10) == (ids[1],)
    assert store.overdue_notices(Channel.MAIL, NOW, 0, 4) == tuple(ids[:2])
    store.notices_said(ids[:1], after(1))
    store.prune_notices(after(1.5))
    assert store.add_notices([notice("n0"), notice("n1"), notice("n5")]) == 2
