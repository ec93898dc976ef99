"""What a job has lost by leaving, in sentences for people. Pure.

A checkpoint shows what it is worth when the next run goes on from it, and not before.
"""

from clearway.model.claims import Restart, last_checkpoint, read_claims, tells_restart
from clearway.model.operations import Preemption
from clearway.model.plan import node_hours
from clearway.model.problem import Action

_MEASURED = {
    Restart.OK: "It went on from its newest checkpoint. It lost {lost}, its restart included.",
    Restart.FALLBACK: "It went on from an older checkpoint. It lost {lost}: what it had computed since, and its "
    "restart.",
    Restart.SCRATCH: "It began anew. It lost {lost}: all that it had computed, and its restart.",
}


def is_measured(p: Preemption) -> bool:
    """Whether its loss has been seen, and does not rest on a checkpoint from which no run has gone on yet."""
    if p.actual_lost_node_s is None:
        return False
    return p.restart is not None or not _counts_on_checkpoint(p)


def told_loss(p: Preemption) -> str:
    """What it has lost; empty where it has not left, or nothing could be lost."""
    if p.actual_lost_node_s is None or p.action in (Action.END, Action.SUSPEND):
        return ""
    lost = node_hours(p.actual_lost_node_s)
    if p.restart is not None:
        return _MEASURED[p.restart].format(lost=lost)
    return f"It lost {lost}." if is_measured(p) else f"{not_known(p)} If it does, {lost} are lost."


def not_known(p: Preemption) -> str:
    """Of a job that counts on a checkpoint, before its next run has shown anything; empty of any other."""
    if p.restart is not None or p.action in (Action.END, Action.SUSPEND) or not _counts_on_checkpoint(p):
        return ""
    if not p.job.can_be_requeued:
        return "It is not started again by itself; whether it could go on from its checkpoint is not known."
    if tells_restart(p.job):
        return "Whether it goes on from its checkpoint is not known yet."
    return "Only its program can tell whether it goes on from its checkpoint."


def _counts_on_checkpoint(p: Preemption) -> bool:
    if p.checkpointed_at is not None:
        return True
    start, left = p.job.start_time, p.requeued_at
    return start is not None and left is not None and last_checkpoint(read_claims(p.job)[0], start, left) > start
