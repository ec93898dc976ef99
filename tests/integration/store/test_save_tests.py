"""Tests of saving on all three databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from clearway.model.records import SaveTest, SaveTestEnd
from clearway.store.repository import Store
from tests.builders import NOW, after, job


def save_test(request_id: int, job_id: str = "113", user: str = "ann") -> SaveTest:
    of = job(job_id, user=user, array_job_id="110", array_task_id=int(job_id) - 110)
    return SaveTest(
        request_id=request_id, job=of, actor=user, asked_at=after(request_id), latest=after(600), expected_s=20.5
    )


def test_they_come_back_as_they_were(store: Store) -> None:
    first, second = save_test(1), save_test(2, "114", "bob")
    for each in (first, second):
        store.create_save_test(each)
    assert store.save_test(1) == first
    assert store.save_test(3) is None
    found = {"took_s": 3.5, "size_mib": 2_048, "generation": 4, "restartable": True, "sentence": "it saved itself"}
    ended = replace(first, asked=True, end=SaveTestEnd.SAVED, ended_at=after(30), **found)  # type: ignore[arg-type]
    store.keep_save_test(ended)
    assert store.save_tests_of("113") == store.save_tests_of("110_3", own="ann") == (ended,)
    assert store.save_tests_of("113", own="bob") == ()
    assert store.save_tests_since(NOW) == (second, ended)
    assert store.save_tests_since(NOW + timedelta(hours=1)) == (second,), "it has not ended"
    store.prune(after(60))
    assert (store.save_test(1), store.save_test(2)) == (None, second)
