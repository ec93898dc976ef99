"""In which ways a job can leave its nodes: the same for preemptions, drains and relocations. Pure."""

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.urgent import is_eternal
from clearway.estimates.checkpoint_load import shared_bandwidth
from clearway.estimates.costs import CostBasis, end_ready_s, lost_work_node_s, preemption_options, why_no_checkpoint
from clearway.estimates.history import run_key
from clearway.estimates.learning import key_of
from clearway.model.claims import read_claims
from clearway.model.cluster import Job
from clearway.model.problem import Option


def options_for(
    job: Job, context: PlanningContext, *, kill: bool, shared: bool = False, later_s: float = 0.0
) -> tuple[Option, ...]:
    """How the job can be made to leave before its own end; empty where it cannot.

    ``kill``: it may be requeued, or cancelled, without a checkpoint. ``shared``: checkpoints are written beside each
    other where the configuration says so; else one after another. ``later_s``: time that may pass before the plan
    begins. No checkpoint is asked for twice in vain.
    """
    memories_mib = [node.memory_mib for name in job.nodes if (node := context.snapshot.node_by_name.get(name))]
    by = CostBasis(
        now=context.now,
        costs=context.config.costs,
        history=context.history,
        actions=context.actions,
        shared_mib_s=shared_bandwidth(context.config) if shared else None,
        later_s=later_s,
    )
    requeueable = job.can_be_requeued and job.job_id not in context.under_way.avoid
    memory_mib = max(memories_mib, default=0)
    return preemption_options(job, read_claims(job)[0], by, memory_mib, kill=kill, requeueable=requeueable)


def may_kill(job: Job, context: PlanningContext, max_loss_s: float | None = None) -> bool:
    """Whether it may be requeued without a checkpoint: by what is allowed, and where it loses no more than this."""
    if not context.config.candidates.allow_kill or is_eternal(job, context.config.eternal):
        return False
    if not max_loss_s:
        return max_loss_s is None
    return lost_work_node_s(job, read_claims(job)[0], context.now) <= max_loss_s * max(1, job.num_nodes)


def expected_end_s(job: Job, context: PlanningContext) -> float | None:
    """Seconds until it ends by its time limit, or sooner by what its earlier runs took; None where neither is known."""
    ends_s = [end_ready_s(job, context.now, 0.0)]
    confidence = context.config.planning.end_confidence
    if confidence is not None and job.start_time is not None:
        ran_s = max(0.0, (context.now - job.start_time).total_seconds())
        ends_s.append(context.history.run_times(*run_key(job)).likely_end_s(ran_s, confidence))
    return min((each for each in ends_s if each is not None), default=None)


def why_not_saved(job: Job, context: PlanningContext) -> str:
    """Why a job without an option cannot be saved, as a sentence without its end."""
    if not job.can_be_requeued:
        return "it cannot be requeued"
    if job.job_id in context.under_way.avoid:
        return "it did not save itself when it was asked to"
    claims, _ = read_claims(job)
    why = why_no_checkpoint(claims, context.actions)
    if why or claims is None or context.history.trusted(*key_of(job, claims), context.now):
        return why or "it cannot save itself"
    return f"its last {context.history.failures_in_a_row(*key_of(job, claims))} checkpoints failed"
