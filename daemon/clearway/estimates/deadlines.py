"""When what an eviction promises is due. Pure."""

from datetime import datetime, timedelta

from clearway.config.configuration import ExecutionConfig, Mode
from clearway.model.operations import Operation


def approval_s(mode: str, execution: ExecutionConfig) -> float:
    """Seconds that a plan leaves for an operator to approve it; 0 in modes without approval."""
    return execution.approval_time if mode == Mode.APPROVE else 0.0


def latest_of(e: Operation, execution: ExecutionConfig) -> datetime:
    """When nodes must begin to empty for the preemptor to start by its deadline."""
    return e.plan.made_at + timedelta(seconds=e.plan.problem.max_delay_s + approval_s(e.mode, execution))
