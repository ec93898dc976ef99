"""The shapes of urgent jobs that are tried on a real cluster, each submitted while no room is free.

docs/explanation/shapes.md has the same names. The cluster has six nodes of four processors; nodes 1 to 4 have four
A100 each, nodes 5 and 6 two drives. On each node two jobs have half of everything.
"""

from __future__ import annotations

from dataclasses import dataclass

GPUS = {f"node{at}": {"a100": 4} for at in range(1, 5)} | {f"node{at}": {"nvme:": 2} for at in (5, 6)}
SWITCHES = {"leaf1": "node[1-2]", "leaf2": "node[3-4]", "leaf3": "node[5-6]"}
FEATURES = {
    "node1": "fast,rack1",
    "node2": "slow,rack2",
    "node3": "fast,rack1,local",
    "node4": "slow,rack2,local",
    "node5": "old,local",
    "node6": "old",
}
LICENSES = "matlab:4"
FILL = {
    **{f"node{at}": ("-n2", "--mem=1500", "--gres=gpu:2") for at in range(1, 5)},
    **{f"node{at}": ("-n2", "--mem=1500", "--gres=nvme:1", "-L", "matlab:1") for at in (5, 6)},
}


@dataclass(frozen=True)
class Shape:
    name: str
    args: tuple[str, ...]
    nodes: int
    whole: bool = False  # it gets whole nodes
    within: tuple[str, ...] = ()  # one of these lists of nodes has to hold it; empty: any


def _shape(name: str, args: str, nodes: int = 1, *, whole: bool = False, within: str = "") -> Shape:
    return Shape(name, tuple(args.split()), nodes, whole, tuple(within.split()))


GPU_NODES = "node1,node2,node3,node4"
PAIRS = "node1,node2 node2,node3 node3,node4 node4,node5 node5,node6"
LEAVES = "node1,node2 node3,node4 node5,node6"
TWO_LEAVES = "node1,node2,node3,node4 node3,node4,node5,node6 node1,node2,node5,node6"
SHAPES = (
    _shape("whole nodes", "-N2 --exclusive", 2, whole=True),
    _shape("processors and memory", "-n2 --mem=500"),
    _shape("certain nodes", "-n2 --mem=500 -w node4", within="node4"),
    _shape("GPUs per node", "-N2 --mem=100 --gpus-per-node=a100:2", 2, within=GPU_NODES),
    _shape("GPUs per job", "-N2 --mem=100 --gpus=4", 2, within=GPU_NODES),
    _shape("GPUs per job, nodes left open", "--mem=100 --gpus=6", 2, within=GPU_NODES),
    _shape("GPUs per task", "-n4 -N2 --mem=100 --gpus-per-task=1", 2, within=GPU_NODES),
    _shape("GPUs per task, nodes left open", "-n6 --mem=100 --gpus-per-task=1", 2, within=GPU_NODES),
    _shape("GPUs per socket", "--mem=100 --gpus-per-socket=2 --sockets-per-node=1", whole=True, within=GPU_NODES),
    _shape("GPU binding", "--mem=100 --gres=gpu:1 --gpu-bind=closest", within=GPU_NODES),
    _shape("other generic resources", "--mem=100 --gres=nvme:1", within="node5,node6"),
    _shape("tasks alone", "-n6 --mem-per-cpu=200", 2),
    _shape("memory per processor", "-n2 --mem-per-cpu=700"),
    _shape("memory per GPU", "--gpus=2 --mem-per-gpu=300", within=GPU_NODES),
    _shape("processors per GPU", "-N2 --mem=100 --gpus=4 --cpus-per-gpu=1", 2, within=GPU_NODES),
    _shape("processors per GPU, nodes left open", "--mem=100 --gpus=2 --cpus-per-gpu=3", 2, within=GPU_NODES),
    _shape("processors per GPU and their memory", "--gpus=1 --cpus-per-gpu=2", within=GPU_NODES),
    _shape("processors and memory per GPU", "--gpus=1 --cpus-per-gpu=3 --mem-per-gpu=900", within=GPU_NODES),
    _shape("a range of nodes", "-N1-3 -n8 --mem=100", 2),
    _shape("exclusive for a user", "-n2 --mem=100 --exclusive=user", whole=True),
    _shape("overcommit", "-N1 -n8 --mem=100 --overcommit", whole=True),
    _shape("spread over nodes", "-N2 -n2 --mem=100 --spread-job", 2),
    _shape("spread over nodes, their number left open", "-n6 --mem=100 --spread-job", 2),
    _shape("contiguous nodes", "-N2 --mem=100 --exclusive --contiguous", 2, whole=True, within=PAIRS),
    _shape("one leaf switch", "-N2 --mem=100 --switches=1@5:00", 2, within=LEAVES),
    _shape("few leaf switches", "-N4 --mem=100 --switches=2@5:00", 4, within=TWO_LEAVES),
    _shape("one of two features", "-n2 --mem=100 -C fast|old", within="node1,node3,node5,node6"),
    _shape("features in parentheses", "-n2 --mem=100 -C (fast|slow)&local", within="node3,node4"),
    _shape("the same feature on all nodes", "-N2 --mem=100 -C [rack1|rack2]", 2, within="node1,node3 node2,node4"),
    _shape("preferred features", "-n2 --mem=100 --prefer=fast"),
    _shape("licenses", "-n2 --mem=100 -L matlab:2"),
)
