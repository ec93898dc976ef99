"""What may leave for an urgent job in all: as it was planned, or approved, and what one lost node costs. Pure.

A plan is made anew where a node is lost, a checkpoint fails or a job is changed, and another eviction follows one that
was called off: each of these plans is within reason, and together they could cost a whole cluster. So the first plan
is a pledge. Before any job has left, another plan is another pledge. Afterwards what follows may cost what is left of
it, and once what frees one node more; anything else has to be approved. An approval is a pledge of its own, which
binds the jobs, how they leave, and the nodes as well: no node is replaced without another one.
"""

from dataclasses import replace
from datetime import datetime

from clearway.config.configuration import ExecutionConfig
from clearway.estimates.checkpoint_load import approval_s
from clearway.estimates.costs import lost_work_node_s
from clearway.model.claims import checkpointed_since, has_had_its_time, read_claims
from clearway.model.cluster import Job
from clearway.model.operations import CHECKPOINTS, Eviction, Operation, Preemption
from clearway.model.plan import Plan, node_hours
from clearway.model.pledge import Pledge
from clearway.model.problem import Action
from clearway.slurm.parse.hostlist import short

# Jobs need not leave in the very second in which it was foretold: a cycle, and commands for many jobs, take their time.
_LATE_S = 60.0
_ROUNDING_S = 1.0
_MOST_TOLD = 10  # jobs in a sentence


def costs(plan: Plan, *, late_kills: bool) -> Pledge:
    """What a plan needs; ``late_kills``: jobs whose checkpoints are late are requeued without (``late_checkpoint``)."""
    lost = _lost_by_job(plan, late_kills=late_kills)
    return Pledge(len(lost), sum(lost.values()))


def _lost_by_job(plan: Plan, *, late_kills: bool) -> dict[str, float]:
    """By the ids of jobs that leave, node-seconds at most."""
    lost: dict[str, float] = {}
    for each, job in zip(plan.chosen.actions, plan.leaving, strict=True):
        if each.action is Action.END or each.job_id in plan.eternal:
            continue
        lost[each.job_id] = 0.0
        if each.action is Action.KILL:
            lost[each.job_id] = plan.losses[each.job_id] + max(1, job.num_nodes) * _LATE_S
        elif each.action in CHECKPOINTS and late_kills:
            later_s = plan.problem.max_delay_s + plan.begins_in_s + plan.frees_in_s + _LATE_S
            lost[each.job_id] = lost_work_node_s(job, read_claims(job)[0], plan.made_at, later_s)
    return lost


def approved(e: Eviction, now: datetime, execution: ExecutionConfig) -> Eviction:
    """With what its jobs will have lost where it is approved now, whatever else it asks for: a pledge of its own."""
    needs = costs(e.plan, late_kills=execution.late_checkpoint == "kill")
    more_s = (now - e.plan.made_at).total_seconds() - approval_s(e.mode, execution)
    lost_node_s = max(0.0, needs.lost_node_s + e.plan.unsaved_nodes * more_s)
    preemptions = tuple(_later(p, more_s) if p.action is Action.KILL else p for p in e.preemptions)
    plan = replace(e.plan, pledge=replace(needs, lost_node_s=lost_node_s))
    return replace(e, plan=plan, preemptions=preemptions, revision=e.revision + 1)


def _later(p: Preemption, more_s: float) -> Preemption:
    lost_node_s = p.predicted_lost_node_s + max(1, p.job.num_nodes) * more_s
    return replace(p, predicted_lost_node_s=max(0.0, lost_node_s))


def _left(e: Eviction) -> tuple[int, float]:
    """Jobs that have left for it, and what those of them have lost that were not saved."""
    gone = [p for p in e.preemptions if p.requeued_at is not None and p.action is not Action.END and not p.eternal]
    return len(gone), sum(p.actual_lost_node_s or 0.0 for p in gone if p.checkpointed_at is None)


def left_of(e: Eviction, *, late_kills: bool) -> Pledge:
    pledge, (jobs, lost_node_s) = e.plan.pledge or costs(e.plan, late_kills=late_kills), _left(e)
    left = max(0, pledge.jobs - jobs), max(0.0, pledge.lost_node_s - lost_node_s)
    return Pledge(*left, begun=pledge.begun or jobs > 0, replaced=pledge.replaced)


def is_for_the_same(earlier: Eviction, job: Job) -> bool:
    """Whether this job is the one that room was made for then; where Slurm requeues a job, it is submitted anew.

    Tasks of an array that still wait when others have started are other work.
    """
    before = earlier.preemptor
    if before.user != job.user or (job.pending_tasks > 1 and earlier.started_at is not None):
        return False
    requeued = job.restart_count > before.restart_count and job.submit_time >= before.submit_time
    return job.submit_time == before.submit_time or requeued


def pledged(plan: Plan, earlier: Eviction | None, *, late_kills: bool) -> Pledge:
    """What may leave from now on where this plan is carried out; ``asks`` says why it may not be without an approval.

    ``earlier``: what this plan goes on with, the same eviction or one before; None: nothing.
    """
    needs = costs(plan, late_kills=late_kills)
    if earlier is None or not (left := left_of(earlier, late_kills=late_kills)).begun:
        return needs
    if needs.jobs <= left.jobs and needs.lost_node_s <= left.lost_node_s:
        return left
    if not left.replaced and _for_one_node(plan, earlier, needs.lost_node_s - left.lost_node_s, late_kills=late_kills):
        return Pledge(max(needs.jobs, left.jobs), max(needs.lost_node_s, left.lost_node_s), begun=True, replaced=True)
    lost = f", and lose up to {node_hours(needs.lost_node_s)}" if needs.lost_node_s else ""
    asks = (
        f"{needs.jobs} more job(s) would leave for it{lost}: more than was planned or approved, and one lost node costs"
    )
    return replace(needs, begun=True, asks=asks, after=earlier.eviction_id)


def within_one_node(plan: Plan, e: Eviction) -> Plan | None:
    """The plan, where a job that did not save itself may leave without: by what is pledged, or as one lost node costs.
    That is granted once, also where no job has left yet: its pledge says so.
    """
    left, needs = left_of(e, late_kills=False), costs(plan, late_kills=False)
    more_node_s = needs.lost_node_s - left.lost_node_s
    if needs.jobs <= left.jobs and more_node_s <= 0:
        return plan
    if left.replaced or not _for_one_node(plan, e, more_node_s, late_kills=False):
        return None
    return replace(plan, pledge=replace(plan.pledge or needs, begun=True, replaced=True))


def _for_one_node(plan: Plan, earlier: Eviction, more_node_s: float, *, late_kills: bool) -> bool:
    """Whether the jobs that were not to leave before, or leave once more, free one node of those that are taken, and
    no more is lost than on one of these: others may have no time to save themselves any more.
    """
    # One that was to end by itself was not to leave either.
    known = {p.job_id for p in earlier.preemptions if p.requeued_at is None and p.action is not Action.END}
    more = {name for job in plan.leaving if job.job_id not in known for name in job.nodes}
    lost = _lost_by_job(plan, late_kills=late_kills)
    on_node: dict[str, float] = dict.fromkeys(plan.placement_nodes, 0.0)
    for job in plan.leaving:
        for name in on_node.keys() & set(job.nodes):
            on_node[name] += lost.get(job.job_id, 0.0)
    return len(more & on_node.keys()) <= 1 and more_node_s <= max(on_node.values(), default=0.0)


def with_left(pledge: Pledge, e: Eviction) -> Pledge:
    """Of a plan that is made anew: what has left for the same eviction counts as well."""
    jobs, lost_node_s = _left(e)
    return replace(pledge, jobs=pledge.jobs + jobs, lost_node_s=pledge.lost_node_s + lost_node_s)


def not_approved(e: Eviction, plan: Plan) -> str:
    """What of a plan that was made anew is not as it was approved; empty where all is."""
    known = {(p.job_id, p.action) for p in e.preemptions}
    more = [each.job_id for each in plan.chosen.actions if (each.job_id, each.action) not in known]
    if more:
        return f"job {more[0]} would leave, or lose its work, too"
    if others := sorted(set(plan.placement_nodes) - set(e.plan.placement_nodes)):
        return f"node {others[0]} would be taken too"
    return ""


def grown_more(old: Plan, new: Plan) -> bool:
    """Whether more is lost than by the time that has passed, as where a checkpoint does not count any more."""
    passed_s = (new.made_at - old.made_at).total_seconds() + _ROUNDING_S
    return new.lost_node_s > old.lost_node_s + old.unsaved_nodes * passed_s


def what_leaves(e: Operation) -> str:
    """What is approved, as half a sentence."""
    plan = e.plan
    lost = f"{node_hours(e.predicted_lost_node_s)} are lost" if e.predicted_lost_node_s else "nothing is lost"
    jobs = ", ".join(job.display_id for job in plan.preemptees[:_MOST_TOLD])
    jobs += f" and {len(plan.preemptees) - _MOST_TOLD} more" if len(plan.preemptees) > _MOST_TOLD else ""
    return f"job(s) {jobs or 'none'} leave {short(plan.placement_nodes)}; {lost}"


def over_pledge(e: Eviction, p: Preemption, seen: Job, now: datetime, *, late_kills: bool, asks: bool) -> str:
    """Why this job must not leave now; empty where it may. ``asks``: it is only asked to save itself.

    It may have waited for long, and what it says of its checkpoints may not hold any more.
    """
    if p.eternal or p.requeued_at is not None:
        return ""
    left = left_of(e, late_kills=late_kills)
    if left.jobs < 1:
        return "more jobs would leave than was planned, or approved"
    claims, _ = read_claims(seen, p.job)
    saved = checkpointed_since(claims, p.asked_at or now) or has_had_its_time(p.job, p.asked_at, now)
    if asks or p.action is Action.SUSPEND or saved:
        return ""
    lost_node_s = lost_work_node_s(seen, claims, now)
    if lost_node_s <= left.lost_node_s:
        return ""
    return f"it would lose {node_hours(lost_node_s)}, more than is left of what was planned, or approved"
