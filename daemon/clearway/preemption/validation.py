"""Whether a plan may be carried out: its cost within the budget, its time, and the cluster as it is now. Pure."""

from datetime import datetime, timedelta

from clearway.config.budget import BudgetConfig
from clearway.execution import open_operations
from clearway.model.claims import CheckpointHow, last_checkpoint, read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.operations import Usage
from clearway.model.plan import OperationPlan, Plan
from clearway.model.problem import Action
from clearway.preemption.detection import tasks_at_once


def over_budget(plan: OperationPlan, usage: Usage, budget: BudgetConfig) -> str:
    """Why this plan would exceed what preemption may cost in an hour; empty when it does not."""
    jobs = sum(job.job_id not in plan.eternal for job in plan.preemptees)
    return open_operations.over_budget(jobs, plan.chosen.lost_work_node_s or 0.0, usage, budget)


def plan_misfit(plan: Plan, snapshot: ClusterSnapshot, promised: frozenset[str] = frozenset()) -> str:
    """Why a plan no longer fits the cluster as it is now; empty when it does. Plans age while they are made.

    ``promised`` are jobs that leave for other evictions.
    """
    preemptor = snapshot.job_by_id.get(plan.preemptor.job_id)
    if preemptor is None or preemptor.state is not JobState.PENDING:
        return f"the {plan.called} {plan.preemptor.job_id} does not wait any more"
    if preemptor.priority == 0:
        return f"the {plan.called} {plan.preemptor.job_id} is held"
    if asks_for(preemptor) != asks_for(plan.preemptor):
        return f"the {plan.called} {plan.preemptor.job_id} was changed"
    if tasks_at_once(preemptor, snapshot) < plan.tasks:
        return f"fewer tasks of array {plan.preemptor.job_id} may start than the plan is for"
    if gone := next(filter(None, (_job_misfit(planned, plan, snapshot) for planned in plan.leaving)), ""):
        return gone
    leaving = {job.job_id for job in plan.leaving}
    for name in plan.placement_nodes:
        node = snapshot.node_by_name.get(name)
        if node is None or not (node.available or (node.boot_s is not None and name in plan.free_nodes)):
            return f"node {name} is not available any more"
        for job in snapshot.jobs_on.get(name, ()):
            if job.job_id not in leaving | promised | set(plan.staying) and job.state is not JobState.COMPLETING:
                return f"job {job.job_id} holds node {name}, which the plan counts on"
    if plan.switch and {snapshot.topology.switch_of.get(name) for name in plan.placement_nodes} != {plan.switch}:
        return f"the plan's nodes are not known to be under leaf switch {plan.switch} any more"
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
    grace = timedelta(seconds=plan.problem.step_s)  # durations are rounded up to steps: a plan is not that exact
    if now > begin_by + grace:
        return "too much time has passed since the plan was made"
    saves = any(each.checkpoint_s for each in plan.chosen.actions)
    late = saves and now + timedelta(seconds=later_s) > begin_by + grace
    return "checkpoints of other evictions come before its own now" if late else ""


def asks_for(job: Job) -> tuple[object, ...]:
    """What a plan for this job depends on."""
    nodes = (job.num_nodes, job.partitions, job.features, job.required_nodes, job.excluded_nodes, job.contiguous)
    of_each = (job.cpus_per_node, job.even_cpus, job.memory_mib, job.gres, job.exclusive)
    return (*nodes, *of_each, job.switches, job.licenses, job.comment)
