"""What an urgent job needs of its nodes, what others hold of them, and who may stay."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from clearway.execution.progress import lost_nodes
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.problem import Amounts, Needs
from clearway.preemption.candidates import Survey
from clearway.preemption.node_needs import Sharing, holdings, needs_of, share
from clearway.preemption.validation import plan_misfit
from tests.builders import NOW, eviction, job, node, plan, snapshot, urgent_job

GPUS = {"gres": "gres:gpu:a100:2", "gpus": (("a100", 2),), "exclusive": False, "even_cpus": 3, "memory_mib": 100}


def gpu_node(name: str = "n1", **fields: Any) -> Node:
    defaults: dict[str, Any] = {"cpus": 8, "memory_mib": 1_000, "gpus": (("a100", 4),), "alloc_gpus": ()}
    return node(name, **(defaults | fields))


def holder(job_id: str, **fields: Any) -> Job:
    defaults: dict[str, Any] = {"cpus": 2, "memory_mib": 100, "gpus": (("a100", 2),), "exclusive": False}
    return job(job_id, ["n1"], **(defaults | fields))


def shared(needs: Needs, seen: ClusterSnapshot, may_leave: Collection[str]) -> Sharing:
    """On the node n1, which no job leaves anyway."""
    held = holdings({"n1"}, seen, (), may_leave, whole=needs.per_node == Amounts())
    return share(needs, held, seen, ((), {}), Survey().once)


@pytest.mark.parametrize(
    ("fields", "nodes", "found"),
    [
        ({}, [gpu_node(alloc_memory_mib=5)], Needs(Amounts(3, 100, (("a100", 2),)))),
        ({}, [gpu_node()], Needs(Amounts(3, 0, (("a100", 2),)))),  # memory is not shared out
        ({}, [gpu_node(cpus_per_core=2)], Needs(Amounts(4, 0, (("a100", 2),)))),  # jobs are given whole cores
        ({"cpus_per_node": 6}, [gpu_node()], Needs(Amounts(6, 0, (("a100", 2),)))),
        ({"exclusive": True}, [gpu_node()], None),
        ({"even_cpus": 0}, [gpu_node()], None),
        ({"memory_mib": 0}, [gpu_node(alloc_memory_mib=5)], None),
        ({"gpus": ()}, [gpu_node()], None),
        ({"gpus": (), "required_nodes": ("n2", "n1")}, [gpu_node()], Needs(required_nodes=("n1", "n2"))),
        ({"exclusive": True, "contiguous": True}, [gpu_node()], Needs(contiguous=True)),
    ],
)
def test_needs(fields: dict[str, Any], nodes: list[Node], found: Needs | None) -> None:
    seen = ClusterSnapshot(NOW, (), tuple(nodes))
    assert needs_of(urgent_job(**(GPUS | fields)), seen, {each.name for each in nodes}) == found


SMALL = {"num_nodes": 2, "exclusive": False, "even_cpus": 2, "cpus": 4, "cpus_per_node": 1, "memory_mib": 100}
HALF = Needs(Amounts(2, 100))
USED = {"alloc_cpus": 2, "alloc_memory_mib": 100}


def shared_node(name: str = "n1", **fields: Any) -> Node:
    return node(name, **({"cpus": 8, "memory_mib": 1_000} | USED | fields))


@pytest.mark.parametrize(
    ("fields", "nodes", "found"),
    [
        ({}, [shared_node()], HALF),
        ({}, [shared_node(alloc_memory_mib=0)], Needs(Amounts(2, 0))),  # memory is not shared out
        ({"required_nodes": ("n1",)}, [shared_node()], replace(HALF, required_nodes=("n1",))),
        ({"contiguous": True}, [shared_node()], replace(HALF, contiguous=True)),
        # Every processor may be wanted on a core of its own, and memory for each that a core has.
        ({}, [shared_node(cpus_per_core=2)], Needs(Amounts(4, 200))),
        ({}, [shared_node(cpus=4, cpus_per_core=2)], None),
        ({"even_cpus": 5, "cpus": 10}, [shared_node(cpus_per_core=2)], None),
        ({"memory_mib": 600}, [shared_node(cpus_per_core=2)], None),
        # The need is the whole node, or everybody has a whole node: the same as whole nodes.
        ({"even_cpus": 8, "cpus": 16}, [shared_node()], None),
        ({"memory_mib": 1_000}, [shared_node()], None),
        ({}, [shared_node(alloc_cpus=8)], None),
        # A node that is too small serves nobody; of the others parts do.
        ({"even_cpus": 4, "cpus": 8}, [shared_node(), node("n2", cpus=2, memory_mib=500)], Needs(Amounts(4, 100))),
        # All memory of a node (--mem=0) is told as that of some node.
        ({"memory_mib": 500}, [shared_node(), node("n2", cpus=8, memory_mib=500)], None),
        ({"memory_mib": 0}, [shared_node()], None),
        # What Slurm tells leaves a doubt: three tasks on two nodes, more of a node than the tasks need, nothing told.
        ({"cpus": 3}, [shared_node()], None),
        ({"cpus_per_node": 3}, [shared_node()], None),
        ({"even_cpus": 0, "cpus": 0}, [shared_node()], None),
        ({"even_cpus": 9, "cpus": 9, "num_nodes": 1}, [shared_node()], None),
        ({"partitions": ("batch", "urgent")}, [shared_node()], None),
        ({"gres": "license:1"}, [shared_node()], None),
        ({"gpus": None}, [shared_node()], None),
        ({"exclusive": True}, [shared_node()], None),
    ],
)
def test_parts_without_gpus_only_where_they_differ_and_beyond_doubt(
    fields: dict[str, Any], nodes: list[Node], found: Needs | None
) -> None:
    asked = urgent_job(**(SMALL | fields))
    seen = ClusterSnapshot(NOW, (holder("1", gpus=()),), tuple(nodes))
    assert needs_of(asked, seen, {each.name for each in nodes}) == found
    kept = (asked.required_nodes, asked.contiguous)
    whole = Needs(Amounts(), required_nodes=kept[0], contiguous=kept[1]) if any(kept) else None
    assert needs_of(asked, seen, {each.name for each in nodes}, whole=True) == whole


def test_an_idle_cluster_or_nodes_of_one_job_each_are_whole_nodes() -> None:
    asked, nodes = urgent_job(**SMALL), (shared_node(alloc_memory_mib=0), shared_node("n2", alloc_cpus=8))
    alone = (job("1", ["n2"], cpus=8),)
    assert needs_of(asked, ClusterSnapshot(NOW, alone, nodes), {"n1", "n2"}) is None
    beside = (*alone, job("2", ["n2"], cpus=1, exclusive=False))
    assert needs_of(asked, ClusterSnapshot(NOW, beside, nodes), {"n1", "n2"}) == HALF
    assert needs_of(asked, ClusterSnapshot(NOW, beside, nodes), {"n1"}) is None


TWO = (("a100", 2),)
ASKED_FOR_NONE = holder("1", exclusive=True, cpus=8, gpus=())
PART = Amounts(2, 0, TWO)
FOUR = (("a100", 4),)
WHOLE = Amounts(8, 1_000, FOUR)


@pytest.mark.parametrize(
    ("jobs", "taken", "held"),
    [
        ([holder("1"), holder("2")], {"alloc_cpus": 4, "alloc_gpus": FOUR}, {"1": PART, "2": PART}),
        ([holder("1"), holder("2", gpus=(("", 2),))], {"alloc_cpus": 4, "alloc_gpus": FOUR}, {"1": PART, "2": PART}),
        ([holder("1")], {"alloc_cpus": 2, "alloc_memory_mib": 100, "alloc_gpus": TWO}, {"1": Amounts(2, 100, TWO)}),
        ([ASKED_FOR_NONE], {"alloc_cpus": 8, "alloc_gpus": FOUR}, {"1": Amounts(8, 0, FOUR)}),
        # What does not add up, or is not told: whole nodes.
        ([holder("1")], {"alloc_cpus": 3, "alloc_gpus": TWO}, {"1": WHOLE}),
        ([holder("1")], {"alloc_cpus": 2, "alloc_gpus": (("a100", 3),)}, {"1": WHOLE}),
        ([holder("1")], {"alloc_cpus": 2, "alloc_memory_mib": 99, "alloc_gpus": TWO}, {"1": WHOLE}),
        ([holder("1")], {"alloc_cpus": 2, "alloc_gpus": None}, {"1": WHOLE}),
        ([holder("1", gpus=None)], {"alloc_cpus": 2, "alloc_gpus": TWO}, {"1": WHOLE}),
        ([holder("1", state=JobState.SUSPENDED)], {"alloc_cpus": 2, "alloc_gpus": TWO}, {"1": WHOLE}),
        ([holder("1"), holder("2", gpus=None)], {"alloc_cpus": 4, "alloc_gpus": FOUR}, {"1": WHOLE, "2": WHOLE}),
    ],
)  # fmt: skip
def test_what_jobs_hold_is_believed_where_it_adds_up(
    jobs: list[Job], taken: dict[str, Any], held: dict[str, Amounts]
) -> None:
    seen = ClusterSnapshot(NOW, tuple(jobs), (gpu_node(**taken),))
    needs = Needs(Amounts(1, 0, (("a100", 3),)))
    sharing = shared(needs, seen, {each.job_id for each in jobs})
    assert {job_id: on["n1"] for job_id, on in sharing.holds.items()} == held


def test_a_node_that_somebody_unknown_uses_serves_nobody() -> None:
    seen = ClusterSnapshot(NOW, (), (gpu_node(alloc_cpus=2),))
    assert shared(Needs(Amounts(1, 0, TWO)), seen, ()).nodes == ()
    assert shared(Needs(), seen, ()).nodes == ()


def test_two_of_any_type_on_a_node_of_two_types_count_whole() -> None:
    mixed = gpu_node(gpus=(("a100", 2), ("v100", 2)), alloc_cpus=4, alloc_gpus=(("a100", 2), ("v100", 1)))
    jobs = (holder("1", gpus=(("", 2),)), holder("2", gpus=(("", 1),)))
    sharing = shared(Needs(Amounts(1, 0, (("a100", 1),))), ClusterSnapshot(NOW, jobs, (mixed,)), {"1", "2"})
    assert {on["n1"].cores for on in sharing.holds.values()} == {8}


def test_who_may_stay_is_no_misfit_and_no_lost_node_but_everybody_else_is() -> None:
    goes, stays, foreign = (job(job_id, ["n1"], cpus=8) for job_id in ("1", "2", "3"))
    made = plan(urgent_job(nodes=1), [goes], placement_nodes=("n1",), staying=("2",))
    fine, changed = ([goes, stays, made.preemptor], [goes, stays, foreign, made.preemptor])
    assert plan_misfit(made, snapshot(fine)) == ""
    assert plan_misfit(made, snapshot(changed)) == "job 3 holds node n1, which the plan counts on"
    assert lost_nodes(eviction(made), snapshot(fine), ()) == {}
    assert lost_nodes(eviction(made), snapshot(changed), ()) == {"3": "it holds node n1"}
    assert "2 holds" in plan_misfit(replace(made, staying=()), snapshot(fine))
