"""Sentences about plans that several slices say alike. Pure."""

from clearway.model.durations import format_duration
from clearway.model.plan import PlannedAction
from clearway.model.problem import Action, EvictionProblem


def what_becomes(planned: PlannedAction) -> str:
    """What the action means for its job, as a sentence without its end."""
    match planned.action:
        case Action.KILL:
            return f"requeued without a checkpoint, losing {node_hours(planned.lost_work_node_s)}"
        case Action.APP_CHECKPOINT:
            return f"saves itself within {format_duration(planned.checkpoint_s)}, losing nothing"
        case Action.SYS_CHECKPOINT:
            return f"is checkpointed within {format_duration(planned.checkpoint_s)}, losing nothing"
        case Action.SUSPEND:
            return "is suspended in memory, losing nothing"
        case Action.END:
            return "ends by itself"


def node_hours(node_s: float) -> str:
    hours = node_s / 3_600
    return f"{hours:,.1f} node-hours" if hours >= 1 else f"{node_s:,.0f} node-seconds"


def kept_by_others(problem: EvictionProblem) -> str:
    """The end of a sentence on what cannot be done in time."""
    busy = format_duration(problem.busy_s)
    return f", of which checkpoints of other evictions keep the file system for {busy}" if problem.busy_s else ""
