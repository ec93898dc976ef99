"""How many nodes a waiting job takes at least, where it leaves that open; the requests are real ones of Slurm 22.05."""

from __future__ import annotations

from typing import Any

import pytest

from clearway.eligibility.node_counts import with_least_nodes
from clearway.model.cluster import Spread
from tests.builders import job, node, urgent_job

NODES = [
    node("n1", cpus=4, memory_mib=4_000, gpus=(("a100", 4),)),
    node("n2", cpus=4, memory_mib=4_000, gpus=(("a100", 2),)),
    node("n3", cpus=64, memory_mib=4_000, partitions=("large",)),
]


@pytest.mark.parametrize(
    ("asked", "spread", "found"),
    [
        ({"cpus": 4}, Spread(4, 1), (1, 4, ())),
        ({"cpus": 6}, Spread(6, 1), (2, 3, ())),
        ({"cpus": 6, "num_nodes": 3}, Spread(6, 1), (3, 2, ())),
        ({"cpus": 9}, Spread(3, 3), (3, 3, ())),
        ({"cpus": 1}, Spread(16, 1), (1, 16, ())),  # --overcommit
        ({"cpus": 1}, Spread(1, 1, gpus_per_job=(("", 8),)), (2, 1, (("", 4),))),
        ({"cpus": 1}, Spread(1, 1, gpus_per_job=(("", 8),), gpus_per_node=(("", 2),)), (4, 1, (("", 2),))),
        ({"cpus": 6}, Spread(6, 1, gpus_per_task=(("a100", 1),)), (2, 3, (("a100", 3),))),
        ({"cpus": 3}, Spread(3, 1, gpus_per_task=(("", 3),)), (3, 1, (("", 3),))),
        ({"cpus": 1}, Spread(1, 1, gpus_per_job=(("v100", 1),)), (1, 0, ())),  # no node has any
    ],
)
def test_the_least_number_of_nodes(asked: dict[str, Any], spread: Spread, found: tuple[object, ...]) -> None:
    fields = {"partitions": ("batch",), "num_nodes": 1, "spread": spread, "memory_mib": 100} | asked
    fields |= {"even_cpus": spread.cpus_on_each(fields["num_nodes"])}
    (got,) = with_least_nodes([urgent_job(**fields)], NODES)
    expected_nodes, cpus, gpus = found
    assert got.num_nodes == expected_nodes
    if expected_nodes != fields["num_nodes"]:
        assert (got.even_cpus, got.gpus) == (cpus, gpus)


def test_memory_that_no_node_has_is_spread_too() -> None:
    fields = {"partitions": ("batch",), "num_nodes": 1, "cpus": 6, "spread": Spread(6, 1)}
    (got,) = with_least_nodes([urgent_job(**fields, memory_mib=6_000)], NODES)
    assert (got.num_nodes, got.memory_mib) == (2, 3_000)
    (small,) = with_least_nodes([urgent_job(**fields, memory_mib=200)], NODES)
    assert small.memory_mib == 200, "it may be that of each node"


def test_other_jobs_stay_as_they_are() -> None:
    jobs = [job("1", cpus=100), urgent_job("2", cpus=100), urgent_job("3", spread=Spread(), partitions=("none",))]
    assert with_least_nodes(jobs, NODES) == jobs
