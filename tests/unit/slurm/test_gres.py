"""GPUs in Slurm's words: what real releases print, what is not known, and what nobody should print."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.slurm import parse
from clearway.slurm.parse import FieldError, gres
from clearway.slurm.pyslurm_records import read_nodes
from tests.unit.slurm.test_hostile import GOOD


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:a100:4,gpu:v100:2", (("a100", 4), ("v100", 2))),
        ("gpu:a100:4(S:0-1)", (("a100", 4),)),
        ("gpu:a100:3(IDX:0-1,3),gpu:v100:0(IDX:N/A)", (("a100", 3),)),
        ("gpu:2(IDX:0,2)", (("", 2),)),
        ("gpu:1g.5gb:7,shard:8,nic:2", (("1g.5gb", 7), ("nic:", 2), ("shard:", 8))),
        ("gpu:2,bandwidth:lustre:no_consume:4G", (("", 2),)),
        ("gpu:2,lscratch:800G", (("", 2),)),  # no type of its name
        ("gpu:80g", (("80g", 1),)),
        ("gres:gpu", (("", 1),)),
        ("gres/gpu=1", (("", 1),)),
        ("gpu:h100", (("h100", 1),)),
        ("(null)", ()),
        ("", ()),
        ("N/A", ()),
    ],
)
def test_gpus_by_type(text: str, found: parse.Gpus) -> None:
    assert parse.gpus(text, "Gres") == found


@pytest.mark.parametrize(
    "text", ["gpu:a100:4:9", "gpu::4", "4", "gpu:a100:1234567", "gpu a100", "gpu:a:b:c", "(", "gpu:4)"]
)
def test_what_is_no_list_of_gres_is_told_in_one_line(text: str) -> None:
    with pytest.raises(FieldError) as told:
        parse.gpus(text, "Gres")
    assert str(told.value).startswith("Gres holds")
    assert "\n" not in str(told.value)


def row(**changes: str) -> dict[str, str]:
    return dict(GOOD) | {"tres-per-node": "N/A", "tres-per-task": "N/A"} | changes


# (request, number of nodes, tasks) as squeue 22.05 or 26.05 printed it for real jobs -> GPUs on each node
@pytest.mark.parametrize(
    ("changes", "nodes", "found"),
    [
        ({"tres-per-node": "gres:gpu:a100:2"}, 2, (("a100", 2),)),
        ({"tres-per-node": "gres/gpu:a100:2"}, 2, (("a100", 2),)),
        ({"tres-per-node": "gres:gpu:v100:1,gres:gpu:a100:1"}, 1, (("a100", 1), ("v100", 1))),
        ({"tres-per-node": "gres:gpu:1"}, 1, (("", 1),)),
        ({"tres-per-job": "gres:gpu:3"}, 1, (("", 3),)),
        ({"tres-per-job": "gres:gpu:a100:3"}, 2, None),  # 2 + 1 or 1 + 2
        ({"tres-per-task": "gres:gpu:1", "NumTasks": "2"}, 1, (("", 2),)),
        ({"tres-per-task": "cpu=2,gres/gpu=1", "NumTasks": "2"}, 1, (("", 2),)),
        ({"tres-per-task": "gres:gpu:1", "NumTasks": "2"}, 2, None),
        ({"tres-per-task": "cpu=2"}, 2, ()),
        ({"tres-per-socket": "gres:gpu:1"}, 1, None),
        ({"tres-per-node": "gres:shard:2"}, 1, None),  # a part of a GPU
        ({"tres-per-node": "gres:gpu:2,gres:nic:1"}, 1, (("", 2), ("nic:", 1))),
        ({"tres-per-node": "gres:fpga:u280:2"}, 2, (("fpga:u280", 2),)),
        ({"tres-per-node": "gres:gpu:2,gres:gpu:a100:1"}, 1, None),
        ({"tres-per-node": "gres:gpu:2", "tres-per-job": "gres:gpu:4"}, 1, None),
        ({"tres-per-node": "gres:gpu:2)("}, 1, None),
        ({}, 2, ()),
    ],
)
def test_what_a_job_asks_for_on_each_node(changes: dict[str, str], nodes: int, found: parse.Gpus | None) -> None:
    hosts = "node1" if nodes == 1 else f"node[1-{nodes}]"
    job = parse.job_from_row(row(NodeList=hosts, NumNodes=str(nodes), **changes))
    assert job.gpus == found


# Of waiting jobs, as squeue 22.05 printed it: an even share of what is asked for in all.
@pytest.mark.parametrize(
    ("changes", "nodes", "found", "whole"),
    [
        ({"tres-per-job": "gres:gpu:6"}, 2, (("", 3),), False),
        ({"tres-per-job": "gres:gpu:a100:3"}, 2, (("a100", 2),), False),  # 2 + 1 or 1 + 2
        ({"tres-per-task": "gres:gpu:2", "NumTasks": "3"}, 2, (("", 4),), False),  # two tasks on a node
        ({"tres-per-job": "gres:gpu:8", "tres-per-node": "gres:gpu:4"}, 2, (("", 4),), False),
        ({"tres-per-job": "gres:gpu:2", "tres-per-node": "gres:nic:1"}, 1, (("", 2), ("nic:", 1)), False),
        ({"tres-per-socket": "gres:gpu:1"}, 1, (("", 1),), True),  # how many sockets is not told
        ({"tres-per-node": "gres:shard:2"}, 1, (("shard:", 2),), True),  # parts of GPUs
        ({"tres-per-node": "gres:gpu:2,gres:gpu:a100:1"}, 1, None, False),
        ({"tres-per-job": "gres:gpu:1", "tres-per-socket": "gres:gpu:1"}, 1, None, False),
        ({"tres-per-node": "gres:bandwidth:lustre:4G"}, 1, None, False),
    ],
)
def test_what_a_waiting_job_asks_for_on_each_node(
    changes: dict[str, str], nodes: int, found: parse.Gpus | None, whole: bool
) -> None:
    waits = {"State": "PENDING", "NodeList": "", "NumNodes": str(nodes), "OverSubscribe": "OK", "tres-alloc": ""}
    job = parse.job_from_row(row(**waits | changes))
    assert job.state.value == "pending"
    assert (job.gpus, job.exclusive) == (found, whole)


# As squeue of 22.05 and 26.05 printed it for ``--gpus=4 --cpus-per-gpu=2 --mem-per-gpu=300 -N2`` and others.
@pytest.mark.parametrize(
    ("changes", "cpus", "memory_mib"),
    [
        ({"cpus-per-tres": "gres:gpu:2", "mem-per-tres": "gres:gpu:300"}, 2, 300),
        ({"cpus-per-tres": "gres/gpu:2", "mem-per-tres": "gres/gpu:2048"}, 2, 2_048),
        ({"cpus-per-tres": "gres/gpu:2", "cpus-per-task": "N/A"}, 2, 0),
        ({}, 0, 0),
    ],
)
def test_what_comes_with_each_gpu(changes: dict[str, str], cpus: int, memory_mib: int) -> None:
    waits = {"State": "PENDING", "NodeList": "", "NumNodes": "2", "tres-per-job": "gres:gpu:4", "tres-alloc": ""}
    spread = parse.job_from_row(row(**waits | changes)).spread
    assert spread is not None
    assert (spread.cpus_per_gpu, spread.memory_per_gpu_mib, spread.cpus_per_task) == (cpus, memory_mib, 1)
    assert (spread.cpus_on_each(2), spread.cpus_for_gpus(2)) == (max(1, 2 * cpus), 4 * cpus)


@pytest.mark.parametrize("told", ["gres:gpu:a100:2", "gres:nic:2", "gres:gpu:1G", "9", "gres:gpu:1234567"])
def test_what_cannot_come_with_each_gpu_leaves_the_job_to_slurm(told: str) -> None:
    waits = {"State": "PENDING", "NodeList": "", "tres-per-job": "gres:gpu:4", "tres-alloc": ""}
    for column in ("cpus-per-tres", "mem-per-tres"):
        job = parse.job_from_row(row(**waits, **{column: told}))
        assert (job.gpus, job.spread) == (None, None)


def test_nodes_of_real_releases() -> None:
    line = (
        "NodeName=node2 Arch=x86_64 CPUAlloc=4 CPUEfctv=4 CPUTot=4 ActiveFeatures=(null) Gres=gpu:a100:4,gpu:v100:2 "
        "GresDrain=N/A GresUsed=gpu:a100:4(IDX:0-3),gpu:v100:1(IDX:4) RealMemory=4000 AllocMem=3100 State=ALLOCATED "
        "ThreadsPerCore=2 Partitions=batch,urgent"
    )
    (node,), skipped = parse.read_nodes(line)
    assert not skipped
    assert (node.gpus, node.alloc_gpus) == ((("a100", 4), ("v100", 2)), (("a100", 4), ("v100", 1)))
    assert (node.alloc_memory_mib, node.cpus_per_core) == (3100, 2)
    (other,), _ = parse.read_nodes(line.replace(" GresUsed=gpu:a100:4(IDX:0-3),gpu:v100:1(IDX:4)", ""))
    assert other.alloc_gpus is None
    (odd,), _ = parse.read_nodes(line.replace("Gres=gpu:a100:4,gpu:v100:2", "Gres=gpu:a100:4;rm"))
    assert odd.gpus == ()
    assert odd.available or odd.raw_state == "ALLOCATED"


@pytest.mark.parametrize(
    ("used", "found"),
    [
        (["gpu:3", "gpu:a100:2", "gpu:v100:1"], (("a100", 2), ("v100", 1))),  # all types are tracked
        (["gpu:3", "gpu:a100:2"], None),  # one type is not
        (["gpu:3"], (("", 3),)),
        ([], ()),
        (["gpu;3"], None),
    ],
)
def test_what_pyslurm_tells_of_a_node(used: list[str], found: parse.Gpus | None) -> None:
    record = {
        "name": "n1",
        "state": "IDLE",
        "total_cpus": 4,
        "real_memory": 4000,
        "gres": ["gpu:a100:4", "gpu:v100:2"],
        "allocated_gres": used,
        "threads_per_core": 2,
    }
    (node,), skipped = read_nodes([record], [])
    assert not skipped
    assert (node.gpus, node.alloc_gpus) == ((("a100", 4), ("v100", 2)), found)


@pytest.mark.parametrize(
    ("word", "exclusive"), [("OK", False), ("YES", False), ("NO", True), ("USER", True), ("", True)]
)
def test_who_has_whole_nodes(word: str, exclusive: bool) -> None:
    assert parse.job_from_row(row(OverSubscribe=word)).exclusive is exclusive


@given(st.text(), st.text(), st.integers(1, 4), st.integers(0, 9))
def test_any_text_is_gpus_or_an_error_and_never_more(node: str, job: str, nodes: int, tasks: int) -> None:
    found: parse.Gpus = ()
    with suppress(FieldError):
        found = parse.gpus(node, "Gres")
    assert all(count > 0 for _, count in found)
    assert list(found) == sorted(found)
    asked = gres.gpus_asked(gres.GresAsked(job), nodes=nodes, tasks=tasks)
    assert asked is None or all(0 < count < 10**7 for _, count in asked)


@given(
    st.lists(st.tuples(st.sampled_from(["a100", "v100", "1g.5gb"]), st.integers(1, 64)), unique_by=lambda each: each[0])
)
def test_what_is_printed_is_read(gpus: list[tuple[str, int]]) -> None:
    text = ",".join(f"gpu:{name}:{count}(S:0-1)" for name, count in gpus)
    assert parse.gpus(text, "Gres") == tuple(sorted(gpus))
    asked = ",".join(f"gres:gpu:{name}:{count}" for name, count in gpus)
    assert gres.gpus_asked(gres.GresAsked(asked), nodes=3, tasks=1) == tuple(sorted(gpus))
