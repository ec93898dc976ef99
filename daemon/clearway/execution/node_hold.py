"""How Clearway holds nodes: the DRAIN state, with a Reason that says for which operation. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from clearway.model.cluster import ClusterSnapshot
from clearway.model.orders import DrainOrder

_HOLD = "clearway drain"


def hold_reason(eviction_id: int, order: DrainOrder) -> str:
    """What a drained node's Reason says; by it the hold is known to be ours, and whose."""
    return f"{_HOLD} {eviction_id}" + (f": {order.reason}" if order.reason else "")


def drain_number(reason: str) -> int | None:
    """The eviction that drained a node, by the node's Reason; None for anybody else's reason."""
    number = reason.partition(":")[0].removeprefix(f"{_HOLD} ")
    return int(number) if reason.startswith(f"{_HOLD} ") and number.isascii() and number.isdigit() else None


def not_ours_to_drain(nodes: Iterable[str], snapshot: ClusterSnapshot) -> str:
    """Why one of these nodes is left alone: Slurm keeps one Reason only, and ours would replace it. Else empty."""
    reasons = {name: snapshot.node_by_name[name].reason for name in nodes}
    return next((f"node {name} already has a reason: {why[:120]}" for name, why in sorted(reasons.items()) if why), "")
