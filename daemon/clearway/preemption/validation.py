"""Whether a plan may be carried out: its cost within the budget, its time, and the cluster as it is now. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from clearway.config.access import BudgetConfig
from clearway.config.configuration import Config
from clearway.execution import open_operations
from clearway.model.claims import CheckpointHow, last_checkpoint, read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.operations import Usage
from clearway.model.plan import OperationPlan, Plan
from clearway.model.problem import Action
from clearway.model.records import Taking
from clearway.preemption.ask import ask_misfit
from clearway.preemption.detection import tasks_at_once


def over_budget(plan: OperationPlan, usage: Usage, budget: BudgetConfig) -> str:
    """Why this plan would exceed what preemption may cost in an hour; empty when it does not."""
    jobs = sum(job.job_id not in plan.eternal for job in plan.preemptees)
    return open_operations.over_budget(jobs, plan.chosen.lost_work_node_s or 0.0, usage, budget)


def over_limits(plan: Plan, takings: Sequence[Taking], budget: BudgetConfig) -> str:
    """Why this plan would exceed what may be taken in an hour for its user, account or rule; empty otherwise."""
    jobs = sum(job.job_id not in plan.eternal for job in plan.preemptees)
    lost_node_s = plan.chosen.lost_work_node_s or 0.0
    who = {"user": plan.preemptor.user, "account": plan.preemptor.account, "rule": plan.rule}
    for kind, name in who.items():
        same = [each for each in takings if name and getattr(each, kind) == name]
        sums: dict[str, float] = {
            "evictions": len(same) + 1,
            "jobs": sum(each.jobs for each in same) + jobs,
            "lost_node_hours": (sum(each.lost_node_s for each in same) + lost_node_s) / 3_600,
        }
        for what, amount in sums.items():
            limit = getattr(budget, f"{kind}_{what}_per_hour")
            if name and jobs and limit is not None and amount > limit:
                called = what.replace("lost_node_hours", "lost node-hours")
                return f"{amount:.4g} {called} within an hour would be for {kind} {name}, {limit:g} are allowed"
    return ""


def plan_misfit(
    plan: Plan, snapshot: ClusterSnapshot, promised: frozenset[str] = frozenset(), config: Config | None = None
) -> str:
    """Why a plan no longer fits the cluster as it is now; empty when it does. Plans age while they are made.

    ``promised`` are jobs that leave for other evictions. ``config``: by whose rules the job has to ask for the same.
    """
    jobs = (partial(_job_misfit, planned, plan, snapshot) for planned in plan.leaving)
    nodes = (partial(_node_misfit, name, plan, snapshot, promised) for name in plan.placement_nodes)
    found = (look() for look in chain([partial(_waits_otherwise, plan, snapshot, config)], jobs, nodes))
    if why := next(filter(None, found), ""):
        return why
    if plan.switch and {snapshot.topology.switch_of.get(name) for name in plan.placement_nodes} != {plan.switch}:
        return f"the plan's nodes are not known to be under leaf switch {plan.switch} any more"
    return ""


def _waits_otherwise(plan: Plan, snapshot: ClusterSnapshot, config: Config | None) -> str:
    job, named = snapshot.job_by_id.get(plan.preemptor.job_id), f"the {plan.called} {plan.preemptor.job_id}"
    if job is None or job.state is not JobState.PENDING:
        return f"{named} does not wait any more"
    if job.priority == 0:
        return f"{named} is held"
    if config is not None and (what := ask_misfit(plan, snapshot, config)):
        return f"{named} {what}"
    if tasks_at_once(job, snapshot) < plan.tasks:
        return f"fewer tasks of array {plan.preemptor.job_id} may start than the plan is for"
    return ""


def _node_misfit(name: str, plan: Plan, snapshot: ClusterSnapshot, promised: frozenset[str]) -> str:
    node = snapshot.node_by_name.get(name)
    if node is None or not (node.available or (node.boot_s is not None and name in plan.free_nodes)):
        return f"node {name} is not available any more"
    gone = promised | {job.job_id for job in plan.leaving} | set(plan.staying)
    for job in snapshot.jobs_on.get(name, ()):
        if job.job_id not in gone and job.state is not JobState.COMPLETING:
            return f"job {job.job_id} holds node {name}, which the plan counts on"
    return ""


def _job_misfit(planned: Job, plan: Plan, snapshot: ClusterSnapshot) -> str:
    """Why this job cannot leave as it was planned; empty when it can."""
    job = snapshot.job_by_id.get(planned.job_id)
    if job is None or job.run != planned.run or job.nodes != planned.nodes:
        return f"job {planned.job_id} is not in the run that the plan was made for"
    if job.state is not JobState.RUNNING:
        return f"job {planned.job_id} is {job.state.value}"
    saves = any(each.job_id == job.job_id and each.action is Action.APP_CHECKPOINT for each in plan.chosen.actions)
    if saves and saved_at_own_pace(job, plan.made_at, snapshot.taken_at):
        return f"job {planned.job_id} has saved itself at its own pace since, and will not soon do so again"
    return ""


def saved_at_own_pace(job: Job, made_at: datetime, now: datetime) -> bool:
    """Whether the checkpoint that a plan was to wait for came before the plan began."""
    claims, _ = read_claims(job)
    paced = claims is not None and claims.checkpoint is CheckpointHow.INTERVAL
    return paced and last_checkpoint(claims, made_at, now) > made_at


def plan_aged(plan: Plan, now: datetime, approval_s: float = 0.0, later_s: float = 0.0) -> str:
    """Why a plan that was not begun could not be finished in time any more; empty when it could.

    ``later_s``: how much longer than it counted on the file system is kept by others.
    """
    begin_by = plan.made_at + timedelta(seconds=plan.problem.max_delay_s - plan.chosen.max_delay_s + approval_s)
    # What was counted on being begun later, and durations are rounded up to steps: a plan is not that exact.
    grace = timedelta(seconds=plan.begins_in_s + plan.problem.step_s)
    if now > begin_by + grace:
        return "too much time has passed since the plan was made"
    saves = any(each.checkpoint_s for each in plan.chosen.actions)
    late = saves and now + timedelta(seconds=later_s) > begin_by + grace
    return "checkpoints of other evictions come before its own now" if late else ""
