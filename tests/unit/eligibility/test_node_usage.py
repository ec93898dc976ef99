"""How many processors a job has on each of its nodes."""

from __future__ import annotations

import pytest

from clearway.eligibility.node_usage import FreeCapacity, processors_by_node
from clearway.model.cluster import Job, JobState
from tests.builders import job, node, snapshot

SPREAD = job("1", ["n1", "n2"], cpus=10)
ALONE = job("2", ["n1"], cpus=4)


def found(*others: Job, of: Job = SPREAD, nodes: tuple[str, ...] = ("n1", "n2")) -> dict[str, int]:
    allocated = {"n1": 12, "n2": 2}
    seen = snapshot([of, *others], [node(name, cpus=16, alloc_cpus=allocated[name]) for name in nodes])
    return processors_by_node(of, seen)


def test_a_job_that_is_spread_unevenly_has_what_others_leave_of_each_node() -> None:
    assert found(ALONE) == {"n1": 8, "n2": 2}


def test_a_job_on_one_node_has_all_of_its_processors_there() -> None:
    assert found(of=ALONE) == {"n1": 4}


def test_where_another_job_is_spread_too_it_is_not_known() -> None:
    assert found(job("2", ["n1", "n2"], cpus=4)) == {}


@pytest.mark.fault(
    "No test saw a change after which processors of suspended jobs are taken for those of another job.",
    found_by="mutation",
)
def test_beside_a_suspended_job_it_is_not_known() -> None:
    """Slurm no longer counts what a suspended job has."""
    assert found(job("2", ["n1"], JobState.SUSPENDED, cpus=4)) == {}


def test_on_a_node_that_is_not_seen_it_is_not_known() -> None:
    assert found(ALONE, nodes=("n1",)) == {}


def test_what_does_not_add_up_is_not_known() -> None:
    """A job that has just ended may still be counted among what is allocated."""
    assert found() == {}
    assert found(job("2", ["n1"], cpus=12)) == {}


def test_of_memory_the_more_counts_that_jobs_or_slurm_tell_of() -> None:
    """A job of which less is known still has its memory; one that has just ended gives it back a moment later."""
    nodes = [node("n1", memory_mib=4_000, alloc_memory_mib=500), node("n2", memory_mib=4_000, alloc_memory_mib=3_000)]
    free = FreeCapacity.of(snapshot([job("1", ["n1", "n2"], memory_mib=1_000)], nodes))
    assert free.memory_mib == {"n1": 3_000, "n2": 1_000}
