"""What preemption may cost within an hour: of a plan, and of one more job. Pure."""

from clearway.config.budget import BudgetConfig
from clearway.model.operations import Usage


def over_budget(jobs: int, lost_node_s: float, usage: Usage, budget: BudgetConfig) -> str:
    """Why so many more jobs, or so much more lost work (node-seconds), would exceed it; empty where they do not.

    What is intended counts as though it were done.
    """
    jobs += usage.jobs + usage.intended_jobs
    if budget.jobs_per_hour is not None and jobs > budget.jobs_per_hour:
        beside = f" ({usage.intended_jobs} of them for what is under way)" if usage.intended_jobs else ""
        return f"{jobs} jobs would be preempted within an hour{beside}, {budget.jobs_per_hour} are allowed"
    lost_h = (usage.lost_node_s + usage.intended_lost_node_s + lost_node_s) / 3_600
    limit = budget.lost_node_hours_per_hour
    if limit is not None and lost_h > limit:
        return f"{lost_h:.1f} node-hours would be lost within an hour, {limit:g} are allowed"
    return ""
