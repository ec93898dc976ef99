"""Whether a plan may be carried out: what its job asks for, limits, its cost, its time, and the cluster as it is. Pure.

Slurm starts no job on a node that a reservation takes before the job's time limit ends, even where the job is attached
to a placement over that node (measured on 22.05.8). So such nodes are no nodes for it.

Limits are asked before planning, where any running job may still leave, and of each plan until it is carried out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from clearway.config.access import BudgetConfig
from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.limits import Later, holds_back, may_be_lifted
from clearway.eligibility.node_usage import pools
from clearway.eligibility.under_way import UnderWay
from clearway.execution import open_operations
from clearway.execution.lifecycle import is_placement
from clearway.model.claims import CheckpointHow, last_checkpoint, read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.limits import Limits
from clearway.model.operations import Eviction, Operation
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import Ask, ObstacleCode, OperationPlan, Plan, Preemptor
from clearway.model.problem import Action, Needs
from clearway.model.records import Taking, Usage
from clearway.model.site import Vouched
from clearway.planning.formulation.partial_nodes import serves_beside
from clearway.preemption.detection import for_nodes, imagined_job, ordinary, preemptor_of, tasks_at_once, waits_since


def reserved_before_end(job: Job, start: datetime, context: PlanningContext) -> dict[str, str]:
    """Node to reservation, of nodes that are reserved before a job that starts by then has to have ended."""
    end = None if job.time_limit_s is None else start + timedelta(seconds=job.time_limit_s)
    coming = [each for each in context.reservations if each.start_time > context.now and each.name != job.reservation]
    return {name: each.name for each in coming if end is None or each.start_time < end for name in each.nodes}


def latest_start(preemptor: Preemptor, now: datetime) -> datetime:
    """By its deadline; one whose deadline has passed has its max delay once more."""
    return preemptor.deadline if preemptor.deadline > now else now + timedelta(seconds=preemptor.max_delay_s)


def before_planning(preemptor: Preemptor, partition: str, context: PlanningContext) -> str:
    """Why no plan on the nodes of this partition can help; empty where one may."""
    job, limits = preemptor.job, context.limits
    now = Later(context.snapshot, coming=_coming(job, preemptor.components, context.under_way.evictions, context))
    if why := _unknown_limit(job, (partition,), limits, now, preemptor.tasks):
        return why
    if limits is None:
        return ""
    now = replace(now, leaving=context.snapshot.running)
    return _told(holds_back(job, partition, limits, now, tasks=preemptor.tasks))


def _unknown_limit(job: Job, partitions: Sequence[str], limits: Limits | None, now: Later, tasks: int) -> str:
    """What is said where Slurm names a limit of a kind that is not known here, or has not looked again since it was
    changed; empty where it names none.
    """
    # Of an array squeue tells the reasons of all its waiting tasks.
    if not all(may_be_lifted(reason) for reason in job.reason.split(",")):
        return ""
    found = limits is not None and any(holds_back(job, each, limits, now, tasks=tasks) for each in partitions)
    return "" if found else f"it does not wait for nodes (reason {job.reason})"


def after_planning(
    plan: Plan, others: Sequence[Operation], context: PlanningContext, group: Sequence[Plan] = (), begun: bool = False
) -> str:
    """Why the preemptor would not start though this plan was carried out; empty where it would.

    ``others`` are carried out beside it, ``group`` with it or not at all; once ``begun`` it is for one more task.
    """
    snapshot, limits = context.snapshot, context.limits
    job = snapshot.job_by_id.get(plan.preemptor.job_id, plan.preemptor)
    gone = _gone(plan, others, group)
    why = _reserved(plan, job, context) or _scarce_licenses(job, others, gone, snapshot, begun=begun)
    if why or limits is None:
        return why
    later = Later(snapshot, gone, _coming(job, plan.components, others, context))
    nodes = [each for each in map(snapshot.node_by_name.get, plan.placement_nodes) if each is not None]
    tasks = 1 if begun else plan.tasks
    del nodes[len(nodes) if tasks == plan.tasks else job.num_nodes :]
    possible = [plan.partition] if plan.partition else job.partitions
    if begun and (why := _new_limit(plan, job, possible, limits, later)):
        return why
    whys = [holds_back(job, partition, limits, later, nodes, tasks=tasks) for partition in possible]
    return "" if "" in whys or not whys else _told(whys[0])


def _new_limit(plan: Plan, job: Job, partitions: Sequence[str], limits: Limits, later: Later) -> str:
    """As long as no job has left: what Slurm says has nothing to do with that then."""
    new = job.reason != plan.preemptor.reason and later.leaving <= later.snapshot.running
    return _unknown_limit(job, partitions, limits, replace(later, leaving=frozenset()), 1) if new else ""


def _reserved(plan: Plan, job: Job, context: PlanningContext) -> str:
    """What is said where a reservation takes a node: one to come, or one that has begun and is none of Clearway's."""
    begun = (each for each in context.reservations if each.start_time <= context.now < each.end_time)
    others = (each for each in begun if each.name != job.reservation and not is_placement(each))
    reserved = {name: each.name for each in others for name in each.nodes}
    reserved |= reserved_before_end(job, plan.due, context)
    if taken := next((name for name in plan.placement_nodes if name in reserved), ""):
        called = f"{plan.called} {job.job_id}"
        return f"reservation {reserved[taken]} takes node {taken} before the {called} would have ended"
    return ""


def _scarce_licenses(
    job: Job, others: Sequence[Operation], gone: frozenset[str], snapshot: ClusterSnapshot, *, begun: bool
) -> str:
    """What is said where too few of the job's licenses would be free once these jobs have gone."""
    if not job.licenses:
        return ""
    # Its placement may hold them already though the job is not in it.
    holding = replace(job, reservation=job.reservation or "its placement") if begun else job
    gone |= {each.job_id for each in snapshot.holders if each.state is JobState.COMPLETING}
    found, _ = pools(holding, snapshot, UnderWay(evictions=tuple(others)), gone, ())
    needs = Needs()
    scarce = [each.name for each in found if not serves_beside(each, needs)]
    return f"no job leaves for it: too few of {', '.join(scarce)} would be free" if scarce else ""


def _gone(plan: Plan, others: Sequence[Operation], group: Sequence[Plan]) -> frozenset[str]:
    """Jobs that give back what they have; one that is suspended keeps it, as far as limits go."""
    gone = {each.job_id for one in (plan, *group) for each in one.chosen.actions if each.action is not Action.SUSPEND}
    for other in others:
        gone |= other.promised_jobs - {p.job_id for p in other.preemptions if p.action is Action.SUSPEND}
    return frozenset(gone)


def _told(why: str) -> str:
    return f"no job leaves for it, as a limit would keep it waiting: {why}" if why else ""


def _coming(
    job: Job, components: Sequence[str], others: Sequence[Operation], context: PlanningContext
) -> tuple[tuple[Job, tuple[str, ...]], ...]:
    """Jobs that are to start as well: preemptors that others leave for, and the other ``components`` of the job."""
    found: dict[str, tuple[int, tuple[str, ...]]] = dict.fromkeys(components, (1, ()))
    for e in others:
        if isinstance(e, Eviction) and e.state.before_start:
            found[e.preemptor.job_id] = e.plan.tasks, e.plan.placement_nodes
    found.pop(job.job_id, None)
    by_id = context.snapshot.job_by_id
    return tuple(
        (by_id[job_id], nodes)
        for job_id, (tasks, nodes) in found.items()
        if job_id in by_id and by_id[job_id].state is JobState.PENDING
        for _ in range(tasks)
    )


# Fields of a waiting job that no plan follows from but by others of the Ask; each of them is the same in all Asks.
# tests/unit/core/test_ask.py says why of each.
_BLANK = imagined_job(0, (), datetime.fromtimestamp(0, UTC), raw_state="")
_NAMES = (
    *("name", "state", "raw_state", "reason", "submit_time", "eligible_time", "start_time", "end_time", "over_time_s"),
    *("deadline", "nodes", "comment", "batch", "requeueable", "priority", "nice", "dependency", "reservation"),
    *("array_job_id", "array_task_id"),
    *("pending_tasks", "array_limit", "het_job_id", "het_job_offset"),
)
WITHOUT_INFLUENCE: Mapping[str, Any] = {name: getattr(_BLANK, name) for name in _NAMES}
# What reasons begin with that may be about one of several partitions.
_OF_A_PARTITION = ("Partition", "AccountNotAllowed", "QOS")
_OF_PREEMPTOR = [each.name for each in fields(Ask) if each.name not in ("job", "since", "partitions")]


def ask_of(preemptor: Preemptor, limits: Limits | None = None) -> Ask:
    job = preemptor.job
    seen = {} if limits is None else limits.partitions
    return Ask(
        job=replace(job, **WITHOUT_INFLUENCE),
        since=None if preemptor.ordinary else waits_since(job),
        **{name: getattr(preemptor, name) for name in _OF_PREEMPTOR},
        partitions=tuple(seen[name] for name in preemptor.partitions if name in seen),
    )


def cannot_start(
    plan: Plan, snapshot: ClusterSnapshot, config: Config, own: frozenset[str] = frozenset()
) -> Outcome | None:
    """Why the job of a plan, which waits, would not start though its nodes were free; None where it would.

    By what Slurm says of it now: what keeps a plan from being made calls one off as well, and so does a reason that is
    not known, which is newer than the plan. ``own`` are Clearway's placements.
    """
    now = waiting_now(plan, snapshot, config, own)
    if now is None or (found := now.obstacle) is None:
        return None
    # Until Slurm looks again it may be about another of the partitions, which the job may not start in meanwhile. Of
    # its own one, limits are looked at by themselves.
    if plan.pin and found.code is ObstacleCode.OTHER_REASON and now.job.reason.startswith(_OF_A_PARTITION):
        return None
    by_hand = found.code is ObstacleCode.HELD and (now.job.reason == "JobHeldUser" or for_nodes(now.job.reason))
    owners = by_hand or found.code in (ObstacleCode.LATER, ObstacleCode.RESERVATION)
    code = OutcomeCode.POINTLESS if owners else OutcomeCode.CALLED_OFF
    return Outcome(code, f"The {plan.called} would not start: {found.why}")


def ask_misfit(plan: Plan, snapshot: ClusterSnapshot, config: Config, own: frozenset[str] = frozenset()) -> str:
    """What is said of a job that waits and does not ask any more for what it was planned for; empty for any other.

    Fewer tasks, idle nodes that it may count on by now, and what its partitions allow are looked at by themselves.
    """
    if _pending(plan, snapshot) is None:
        return ""
    if (now := waiting_now(plan, snapshot, config, own)) is None:
        return "is not urgent any more"
    # Of a plan from before it was kept by the rules of today.
    asked = _by_rules(plan.preemptor, plan, snapshot, config, own) or replace(now, job=plan.preemptor)
    before = plan.ask or ask_of(asked)
    asks = replace(ask_of(now), tasks=before.tasks, takes_free=before.takes_free, partitions=before.partitions)
    if asks == before:
        return ""
    told = [each.name for each in fields(Ask) if each.name != "job"]
    told = [name for name in told if getattr(asks, name) != getattr(before, name)]
    told += [each.name for each in fields(Job) if getattr(asks.job, each.name) != getattr(before.job, each.name)]
    return f"was changed ({', '.join(told).replace('_', ' ')})"


def waiting_now(
    plan: Plan, snapshot: ClusterSnapshot, config: Config, own: frozenset[str] = frozenset()
) -> Preemptor | None:
    """The job of a plan as it waits now, maybe in its ``own`` placements; None: it does not, or by no rule any more."""
    if (seen := _pending(plan, snapshot)) is None:
        return None
    if seen.partitions == (plan.pin,):  # while it may start there alone it still asks for all of its own
        seen = replace(seen, partitions=plan.preemptor.partitions)
    return _by_rules(seen, plan, snapshot, config, own)


def _by_rules(job: Job, plan: Plan, snapshot: ClusterSnapshot, config: Config, own: frozenset[str]) -> Preemptor | None:
    found = preemptor_of(job, config.preemptors, own, snapshot)
    if found is None and config.eternal.partitions and plan.ordinary:
        return ordinary(job, config.eternal, snapshot.taken_at, own, snapshot.topology)
    return found


def _pending(plan: Plan, snapshot: ClusterSnapshot) -> Job | None:
    seen = snapshot.job_by_id.get(plan.preemptor.job_id)
    return None if seen is None or seen.state is not JobState.PENDING else seen


def over_budget(plan: OperationPlan, usage: Usage, budget: BudgetConfig) -> str:
    """Why this plan would exceed what preemption may cost in an hour; empty when it does not."""
    jobs = sum(job.job_id not in plan.eternal for job in plan.preemptees)
    return open_operations.over_budget(jobs, plan.lost_node_s, usage, budget)


def _named(taking: Taking, kind: str, job: Job, vouched: Vouched) -> tuple[str, ...]:
    """For whom this counts as taken, beside a job of this user and account."""
    any_account = kind == "account" and not vouched.accounts and taking.user == job.user
    return (getattr(taking, kind), *([job.account] if any_account else []))


def over_limits(plan: Plan, takings: Sequence[Taking], budget: BudgetConfig, vouched: Vouched) -> str:
    """Why this plan would exceed what may be taken in an hour for its user, account or rule; empty otherwise.

    Where Slurm takes any account, all that a user has taken counts for each account that the user gives: a new name
    would be a new budget.
    """
    jobs = sum(job.job_id not in plan.eternal for job in plan.preemptees)
    lost_node_s = plan.lost_node_s
    who = {"user": plan.preemptor.user, "account": plan.preemptor.account, "rule": plan.rule}
    for kind, name in who.items():
        same = [each for each in takings if name and name in _named(each, kind, plan.preemptor, vouched)]
        lost_h = (sum(each.lost_node_s for each in same) + lost_node_s) / 3_600
        sums = {"evictions": len(same) + 1, "jobs": sum(each.jobs for each in same) + jobs, "lost_node_hours": lost_h}
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

    def misfits() -> Iterator[str]:
        yield _waits_otherwise(plan, snapshot, config)
        yield from (_job_misfit(planned, plan, snapshot) for planned in plan.leaving)
        yield from (_node_misfit(name, plan, snapshot, promised) for name in plan.placement_nodes)
        if plan.switch and {snapshot.topology.switch_of.get(name) for name in plan.placement_nodes} != {plan.switch}:
            yield f"the plan's nodes are not known to be under leaf switch {plan.switch} any more"

    return next(filter(None, misfits()), "")


def _waits_otherwise(plan: Plan, snapshot: ClusterSnapshot, config: Config | None) -> str:
    job, named = _pending(plan, snapshot), f"the {plan.called} {plan.preemptor.job_id}"
    if job is None:
        return f"{named} does not wait any more"
    if job.priority == 0:
        return f"{named} is held"
    if config is not None and (found := cannot_start(plan, snapshot, config)) is not None:
        return found.why
    if config is not None and (what := ask_misfit(plan, snapshot, config)):
        return f"{named} {what}"
    if tasks_at_once(job, snapshot) < plan.tasks:
        return f"fewer tasks of array {plan.preemptor.job_id} may start than the plan is for"
    return ""


def _node_misfit(name: str, plan: Plan, snapshot: ClusterSnapshot, promised: frozenset[str]) -> str:
    node = snapshot.node_by_name.get(name)
    if node is None or not (node.available or (node.boot_s is not None and name in plan.free_nodes)):
        return f"node {name} is not available any more"
    if plan.partition and plan.partition not in node.partitions:
        return f"node {name} is not in partition {plan.partition} any more"
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
    claims, _ = read_claims(job)
    own_pace = claims is not None and claims.checkpoint is CheckpointHow.INTERVAL
    saves = any(each.job_id == job.job_id and each.action is Action.APP_CHECKPOINT for each in plan.chosen.actions)
    if saves and own_pace and last_checkpoint(claims, plan.made_at, snapshot.taken_at) > plan.made_at:
        return f"job {planned.job_id} has saved itself at its own pace since, and will not soon do so again"
    return ""


def plan_aged(plan: Plan, now: datetime, approval_s: float = 0.0, later_s: float = 0.0) -> str:
    """Why a plan could not be finished in time any more; ``later_s``: others keep the file system so much longer."""
    # What was counted on being begun later, and durations are rounded up to steps: a plan is not that exact.
    grace_s = plan.begins_in_s + plan.problem.step_s
    spare_s = plan.problem.max_delay_s - plan.chosen.max_delay_s + approval_s + grace_s
    begin_by = plan.made_at + timedelta(seconds=spare_s)
    if now > begin_by:
        return "too much time has passed since the plan was made"
    late = any(each.checkpoint_s for each in plan.chosen.actions) and now + timedelta(seconds=later_s) > begin_by
    return "checkpoints of other evictions come before its own now" if late else ""
