"""What is found by a job's id, on all three databases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearway.model.cluster import Job
from clearway.store.repository import Store
from tests.builders import after, eviction, job, plan, preemption, urgent_job


def test_by_either_id_and_newest_first(store: Store) -> None:
    task = job("113", user="ann", array_job_id="110", array_task_id=3)
    first = store.create_eviction(
        eviction(plan(urgent_job("900"), [task, job("114", user="bob")]), preemptions=(preemption(task),))
    )
    for asked in ("113", "110_3"):
        found = {each.eviction_id: each for each in store.involvements(asked)}
        assert found[first.eviction_id].subject == first.subject
        assert found[first.eviction_id].preemption == first.preemptions[0]
    second = store.create_eviction(eviction(plan(urgent_job("113", user="eve")), preemptions=()))
    assert [each.eviction_id for each in store.involvements("113")] == [second.eviction_id], "the newest of this id"
    of_ann = store.involvements("113", seen=task)
    assert of_ann == (), "hers was before eve's"
    assert store.involvements("4711") == ()


def test_a_number_that_another_user_had_before(store: Store) -> None:
    """Job ids come again, when Slurm has counted to their end."""
    store.create_eviction(eviction(plan(urgent_job("113", user="eve")), preemptions=()))
    own = store.create_eviction(eviction(preemptions=(preemption(job("113", user="ann")),)))
    assert [each.eviction_id for each in store.involvements("113", own="ann")] == [own.eviction_id]


def test_each_job_of_a_number_has_its_own(store: Store) -> None:
    """Slurm has begun anew twice; a requeue makes a submission later, and is one more restart."""

    def left(submitted_s: float, restarts: int = 0, **fields: Any) -> tuple[Job, int]:
        seen = job("5", submit_time=after(submitted_s), restart_count=restarts, **fields)
        gone = preemption(seen, requeued_at=after(submitted_s + 10))
        return seen, store.create_eviction(eviction(preemptions=(gone,))).eviction_id

    first, one = left(0)
    again, two = left(100, 1)
    assert store.preemption_counts([again]) == {"5": 2}
    assert [e.eviction_id for e in store.involvements("5", seen=again)] == [two, one]
    assert [e.eviction_id for e in store.involvements("5", seen=again, limit=1, offset=1)] == [one]
    requeued = replace(again, submit_time=after(200), restart_count=4)  # by others
    assert store.preemption_counts([requeued]) == {"5": 2}
    strangers = (
        replace(first, user="bob", submit_time=after(300), restart_count=9),
        replace(first, submit_time=after(9)),
    )
    for stranger in strangers:
        assert store.preemption_counts([stranger]) == {}
        assert store.involvements("5", seen=stranger) == ()
    _, three = left(1_000)
    newest, four = left(1_100, 1)
    assert store.preemption_counts([newest]) == {"5": 2}
    assert [e.eviction_id for e in store.involvements("5", seen=newest)] == [four, three]
    assert [e.eviction_id for e in store.involvements("5")] == [four, three], "it has left the queue"


def test_a_plan_is_not_replaced_by_one_for_another_job_of_the_number(store: Store) -> None:
    def planned(**fields: Any) -> int:
        return store.create_eviction(eviction(plan(urgent_job("9", **fields)), preemptions=())).eviction_id

    first = planned(user="eve")
    stranger = planned(user="fay")
    assert store.successor(first) is None
    later = planned(user="eve", submit_time=after(500))
    again = planned(user="eve", submit_time=after(500))
    assert (store.successor(first), store.successor(stranger), store.successor(later)) == (None, None, again)


def test_evictions_of_a_job_or_a_user_as_far_as_a_user_knows(store: Store) -> None:
    ann, bob = job("101", user="ann"), job("102", user="bob")
    made = store.create_eviction(
        eviction(plan(urgent_job("900", user="eve"), [ann, bob]), preemptions=(preemption(ann), preemption(bob)))
    )
    other = store.create_eviction(eviction(plan(urgent_job("901", user="fay")), preemptions=()))
    assert store.evictions(job="102") == store.evictions(user="bob") == (made,)
    assert store.evictions(job="901") == store.evictions(user="fay") == (other,)
    assert store.evictions(own="ann", job="101") == store.evictions(own="ann", job="900") == (made,)
    assert store.evictions(own="ann", job="102") == store.evictions(own="ann", user="bob") == ()
    assert store.evictions(own="ann", user="eve") == store.evictions(own="ann") == (made,)
    assert store.evictions(own="ann", user="fay") == ()
