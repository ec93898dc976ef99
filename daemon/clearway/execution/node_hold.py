"""How Clearway holds nodes: the DRAIN state, with a Reason that says for which operation. Pure."""

import re
from collections.abc import Iterable
from typing import TypeVar

from clearway.execution.job_lifecycle import Command
from clearway.execution.lifecycle import E, Lifecycle, Phase, Target, call_off
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import SlurmError
from clearway.model.operations import EmptiesNodes
from clearway.model.outcome import Outcome, OutcomeCode

_HOLD = "clearway drain"
_REASON = re.compile(_HOLD + r" (\d+)(?: [0-9a-f]+)?(?::|$)", re.ASCII)

N_contra = TypeVar("N_contra", bound=EmptiesNodes, contravariant=True)


def hold_reason(e: EmptiesNodes) -> str:
    """What a drained node's Reason says; by it the hold is known to be ours, and whose."""
    number = f"{e.eviction_id} {e.mark}" if e.mark else str(e.eviction_id)
    return f"{_HOLD} {number}" + (f": {e.order.reason}" if e.order.reason else "")


def drain_number(reason: str) -> int | None:
    """The operation that drained a node, by the node's Reason; None for any other reason."""
    found = _REASON.match(reason)
    return None if found is None else int(found[1])


def nodes_held(e: EmptiesNodes, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Which of its nodes this very operation has drained."""
    reason = hold_reason(e)
    nodes = [snapshot.node_by_name[name] for name in e.order.nodes if name in snapshot.node_by_name]
    return tuple(node.name for node in nodes if node.drained and node.reason == reason)


def nodes_with_other_reasons(e: EmptiesNodes, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Which of its nodes have a Reason that is not this operation's."""
    reason = hold_reason(e)
    nodes = [snapshot.node_by_name[name] for name in e.order.nodes if name in snapshot.node_by_name]
    return tuple(node.name for node in nodes if node.reason and node.reason != reason)


def not_ours_to_drain(nodes: Iterable[str], snapshot: ClusterSnapshot) -> str:
    """Why one of these nodes is left alone: Slurm keeps one Reason only, and ours would replace it. Else empty."""
    reasons = {name: snapshot.node_by_name[name].reason for name in nodes}
    return next((f"node {name} already has a reason: {why[:120]}" for name, why in sorted(reasons.items()) if why), "")


class NodesLifecycle(Lifecycle[N_contra]):
    """What the lifecycles share whose operations hold nodes."""

    def target(self, e: N_contra, command: Command, snapshot: ClusterSnapshot) -> Target:
        """Of its nodes those that are not so already."""
        ours = nodes_held(e, snapshot)
        missing = tuple(name for name in e.order.nodes if name not in ours)
        return Target(nodes=ours if command is Command.UNDRAIN else missing, reason=hold_reason(e))

    def refused(self, e: N_contra, command: Command, error: SlurmError) -> Phase | None:  # noqa: ARG002
        if e.state is not E.PLACING or error.retryable:
            return None
        return call_off(e, Outcome(OutcomeCode.NODES_REFUSED, f"The nodes cannot be taken: {error}"))
