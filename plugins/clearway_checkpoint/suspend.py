"""Suspending a job in memory: Slurm stops its processes, and their memory stays on the node.

There is nothing to do on the compute node, so there is no driver: the daemon asks Slurm to suspend the job and, when
no other job holds its processors any more, to resume it. Nothing is moved out of memory for that, and only memory that
is free now counts (docs/decisions/0018).
"""

from collections.abc import Sequence
from pathlib import Path

from clearway.model.problem import Action
from clearway_checkpoint.driver import Probe, Saved, Verified

_NOTHING_TO_DO = "Slurm suspends, nothing to do on the node"


class Suspend:
    """The ``suspend`` checkpointer: what the daemon must know of it, and a plain no to everything on the node."""

    name = "suspend"
    action = Action.SUSPEND
    limits = (
        "The job stays on its nodes with all its memory: it is lost when a node fails.",
        "It is offered only where every node has memory for the urgent job beside all jobs that may stay there.",
        "Licenses, GPUs and other generic resources stay with the suspended job.",
        "Network connections and time limits outside Slurm go on while the job stands still.",
    )

    def probe(self, program: Sequence[str] = ()) -> Probe:  # noqa: ARG002 - the protocol's signature
        return Probe(ok=False, reason=_NOTHING_TO_DO)

    def wrap(self, program: Sequence[str]) -> tuple[str, ...]:
        return tuple(program)

    def checkpoint(self, generation: Path, pid: int) -> Saved:  # noqa: ARG002 - the protocol's signature
        return Saved(ok=False, reason=_NOTHING_TO_DO)

    def verify(self, generation: Path) -> Verified:  # noqa: ARG002 - the protocol's signature
        return Verified(ok=False, reason=_NOTHING_TO_DO)

    def restart(self, generation: Path, program: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002 - likewise
        return tuple(program)
