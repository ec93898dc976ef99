"""How many nodes a waiting job takes at least, where it leaves that open; the requests are real ones of Slurm 22.05."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clearway.eligibility.node_usage import job_with_least_nodes, node_kinds
from clearway.model.cluster import Job, Node, Spread
from tests.builders import job, node, urgent_job

NODES = [
    node("n1", cpus=4, memory_mib=4_000, gpus=(("a100", 4),)),
    node("n2", cpus=4, memory_mib=4_000, gpus=(("a100", 2),)),
    node("n3", cpus=64, memory_mib=4_000, partitions=("large",)),
]


def with_least_nodes(jobs: list[Job], nodes: list[Node]) -> list[Job]:
    kinds = node_kinds(nodes)
    return [job_with_least_nodes(each, kinds) for each in jobs]


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


# Slurm 22.05 tells a processor for each task, newer releases those of the GPUs; the job takes the same.
@pytest.mark.parametrize("told", ["22.05", "24.11"])
@pytest.mark.parametrize(
    ("spread", "nodes", "found"),
    [
        (Spread(1, 1, gpus_per_job=(("", 2),), cpus_per_gpu=2), 1, (1, 4, 4)),
        (Spread(1, 1, gpus_per_job=(("", 2),), cpus_per_gpu=3), 1, (2, 3, 6)),  # a node has room for one
        (Spread(2, 1, gpus_per_job=(("", 4),), cpus_per_gpu=2), 2, (2, 4, 8)),
        (Spread(6, 2, gpus_per_task=(("", 1),), cpus_per_gpu=2), 1, (3, 4, 12)),
        (Spread(4, 1, gpus_per_task=(("a100", 1),), cpus_per_gpu=1), 1, (1, 4, 4)),
        (Spread(1, 1, gpus_per_node=(("a100", 2),), cpus_per_gpu=2), 1, (1, 4, 4)),
        (Spread(6, 1, gpus_per_node=(("", 1),), cpus_per_gpu=2), 2, (2, 3, 6)),  # more tasks than that
        (Spread(1, 1, gpus_per_job=(("", 2), ("nic:", 1)), cpus_per_gpu=1), 1, (1, 2, 2)),
        (Spread(1, 1, gpus_per_job=(("", 1),), cpus_per_gpu=5), 1, (1, 5, 5)),  # no node has as many
    ],
)
def test_processors_of_gpus_count(told: str, spread: Spread, nodes: int, found: tuple[int, int, int]) -> None:
    cpus = spread.tasks * spread.cpus_per_task
    cpus = cpus if told == "22.05" else max(cpus, spread.cpus_for_gpus(nodes))
    own = [replace(each, gpus=(*each.gpus, ("nic:", 1))) for each in NODES]
    fields = {"partitions": ("batch",), "num_nodes": nodes, "cpus": cpus, "spread": spread, "memory_mib": 100}
    (got,) = with_least_nodes([urgent_job(**fields)], own)
    assert (got.num_nodes, got.even_cpus, got.cpus) == found


@pytest.mark.parametrize(
    ("spread", "cpus", "told_mib", "memory_mib"),
    [
        (Spread(1, 1, gpus_per_job=(("", 2),), cpus_per_gpu=2), 1, 700, 2_800),  # it may be that of one processor
        (Spread(1, 1, gpus_per_job=(("", 2),), cpus_per_gpu=2), 4, 700, 700),  # all processors are told
        (Spread(1, 1, gpus_per_job=(("", 2),), cpus_per_gpu=2), 1, 1_500, 4_000),  # no more than a node has
        (Spread(1, 1, gpus_per_job=(("", 2),), cpus_per_gpu=2, memory_per_gpu_mib=300), 1, 600, 600),
        (Spread(1, 1, gpus_per_job=(("", 6),), memory_per_gpu_mib=300), 1, 1_800, 900),  # three on each of two nodes
    ],
)
def test_memory_that_comes_with_gpus(spread: Spread, cpus: int, told_mib: int, memory_mib: int) -> None:
    fields = {"partitions": ("batch",), "num_nodes": 1, "cpus": cpus, "spread": spread, "memory_mib": told_mib}
    (got,) = with_least_nodes([urgent_job(**fields)], NODES)
    assert got.memory_mib == memory_mib


def test_memory_that_no_node_has_is_spread_too() -> None:
    fields = {"partitions": ("batch",), "num_nodes": 1, "cpus": 6, "spread": Spread(6, 1)}
    (got,) = with_least_nodes([urgent_job(**fields, memory_mib=6_000)], NODES)
    assert (got.num_nodes, got.memory_mib) == (2, 3_000)
    (small,) = with_least_nodes([urgent_job(**fields, memory_mib=200)], NODES)
    assert small.memory_mib == 200, "it may be that of each node"


def test_other_jobs_stay_as_they_are() -> None:
    jobs = [job("1", cpus=100), urgent_job("2", cpus=100), urgent_job("3", spread=Spread(), partitions=("none",))]
    assert with_least_nodes(jobs, NODES) == jobs
