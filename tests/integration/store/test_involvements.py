"""What is found by a job's id, on all three databases."""

from __future__ import annotations

from clearway.store.repository import Store
from tests.builders import eviction, job, plan, preemption, urgent_job


def test_by_either_id_and_newest_first(store: Store) -> None:
    task = job("113", user="ann", array_job_id="110", array_task_id=3)
    first = store.create_eviction(
        eviction(plan(urgent_job("900"), [task, job("114", user="bob")]), preemptions=(preemption(task),))
    )
    second = store.create_eviction(eviction(plan(urgent_job("113", user="eve")), preemptions=()))
    for asked in ("113", "110_3"):
        found = {each.eviction_id: each for each in store.involvements(asked)}
        assert found[first.eviction_id].subject == first.subject
        assert found[first.eviction_id].preemption == first.preemptions[0]
    found = store.involvements("113")
    assert [each.eviction_id for each in found] == [second.eviction_id, first.eviction_id]
    assert found[0].preemption is None, "it is the job that room is made for"
    assert [each.eviction_id for each in store.involvements("113", limit=1, offset=1)] == [first.eviction_id]
    assert store.involvements("4711") == ()


def test_a_number_that_another_user_had_before(store: Store) -> None:
    """Job ids come again, when Slurm has counted to their end."""
    store.create_eviction(eviction(plan(urgent_job("113", user="eve")), preemptions=()))
    own = store.create_eviction(eviction(preemptions=(preemption(job("113", user="ann")),)))
    assert [each.eviction_id for each in store.involvements("113", own="ann")] == [own.eviction_id]


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
