"""From a snapshot to the eviction problem of one preemptor on the nodes of one partition. Pure."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.node_usage import amounts_of, pools, suits
from clearway.eligibility.under_way import UnderWay
from clearway.eligibility.urgent import is_eternal
from clearway.estimates.checkpoint_load import approval_s, file_system_busy_s
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.plan import Choice, Preemptor, Verdict
from clearway.model.problem import Amounts, Candidate, EvictionProblem, Needs, NodeResources
from clearway.preemption.candidates import JobOptions, Survey, job_options, looks_at_jobs
from clearway.preemption.node_needs import holdings, needs_of, node_of, share, slotted
from clearway.preemption.validation import latest_start, reserved_before_end

# Only Slurm's backfill starts heterogeneous jobs, and it looks so often (``bf_interval``).
BACKFILL_S = 30.0


@dataclass(frozen=True, slots=True)
class Ground:
    """What the problems of preemptors have in common that ask for the same of each node."""

    needs: Needs | None
    eligible: frozenset[str]  # nodes that the preemptor could run on
    leaving: frozenset[str]  # jobs that leave anyway
    eternal: frozenset[str]  # eternal jobs that hold nodes
    jobs: JobOptions
    ways: tuple[Hashable, ...]  # what names the jobs' options in the survey
    candidates: tuple[Candidate, ...] = ()
    nodes: tuple[NodeResources, ...] = ()
    pools: int = 0  # of licenses
    free_nodes: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()  # of the jobs that are no candidates


@dataclass(frozen=True, slots=True)
class PreparedProblem:
    """One preemptor's eviction problem, and what else its plan needs to be explained and placed."""

    preemptor: Preemptor
    partition: str
    context: PlanningContext
    problem: EvictionProblem
    ground: Ground

    @property
    def free_nodes(self) -> tuple[str, ...]:
        return self.ground.free_nodes

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.ground.verdicts


def prepare_problem(
    preemptor: Preemptor,
    partition: str,
    context: PlanningContext,
    *,
    whole: bool = False,
    booting: bool = False,
    survey: Survey | None = None,
) -> PreparedProblem:
    """The eviction problem of one preemptor on the nodes of one partition.

    ``whole``: whole nodes, unless it asks for GPUs; else parts of nodes may do. ``booting``: nodes that are switched
    off serve as well. Slurm boots them once all the others are free, so jobs have to leave that much earlier.
    ``survey``: of several preemptors, for contexts that differ in what is under way alone.
    """
    survey = survey or Survey()
    config, now = context.config, context.now
    boots = _boot_times(preemptor, partition, context) if booting else {}
    horizon_s = horizon(preemptor, context) - max(boots.values(), default=0.0)
    ground = _ground(preemptor, partition, context, survey, boots, max(horizon_s, survey.longest_s), whole=whole)
    parts = ground.needs is not None
    # Parts of nodes are planned to the second, however long there is.
    step_s = 1 if parts else max(1, math.ceil(horizon_s / config.planning.steps))
    problem = EvictionProblem(
        preemptor.nodes + ground.pools if parts else max(0, preemptor.nodes - len(ground.free_nodes)),
        int(horizon_s // step_s) * step_s,
        step_s,
        ground.candidates,
        preemptor.nodes,
        ground.needs,
        ground.nodes,
        busy_s=file_system_busy_s(context.under_way.evictions, context.snapshot, config, now, horizon_s),
    )
    return PreparedProblem(preemptor, partition, context, problem, ground)


def eternal_jobs(context: PlanningContext, survey: Survey) -> frozenset[str]:
    """Those that hold nodes."""
    snapshot, eternal = context.snapshot, context.config.eternal
    return survey.once("eternal", lambda: frozenset(j.job_id for j in snapshot.holders if is_eternal(j, eternal)))


def _ground(
    preemptor: Preemptor,
    partition: str,
    context: PlanningContext,
    survey: Survey,
    boots: Mapping[str, float],
    ends_within_s: float,
    *,
    whole: bool,
) -> Ground:
    """Parts of the survey are named by all that they depend on."""
    snapshot, job, under_way, several = context.snapshot, preemptor.job, context.under_way, preemptor.tasks > 1
    eternal = eternal_jobs(context, survey)
    reserved = frozenset(reserved_before_end(job, latest_start(preemptor, context.now), context))
    asks = (job.excluded_nodes, job.features, job.cpus_per_node, job.memory_mib, job.gpus, job.spread)
    of_nodes = ("eligible", partition, preemptor.takes_free, asks, reserved, under_way.nodes, under_way.own_nodes)
    eligible = survey.once(of_nodes, lambda: _eligible(preemptor, partition, context, eternal, reserved))
    eligible = eligible.union(boots)
    going = ("leaving", under_way.leaving, under_way.promised)
    leaving = survey.once(going, lambda: _leaving(snapshot, under_way))
    shape = (job.gres, job.exclusive, job.even_cpus, job.contiguous, job.required_nodes, job.partitions, job.licenses)
    switches = job.switches if job.switches <= 1 or job.switches < job.num_nodes else None  # None: any number does
    of_number = (job.even_cpus * job.num_nodes == job.cpus, switches)
    asked = ("needs", asks, shape, of_number, several, whole, eligible)
    needs = survey.once(asked, lambda: needs_of(job, snapshot, eligible, whole=whole, several=several))
    # A job that stands suspended keeps what it has of a node, GPUs among it.
    may_suspend = context.config.candidates.allow_suspend and needs is None and not job.gpus
    suspend_on = eligible if may_suspend else frozenset[str]()
    of_rule = (preemptor.rule, preemptor.max_kill_loss_s, preemptor.only_opportunistic, preemptor.ordinary)
    claimed = (under_way.jobs, under_way.avoid, under_way.unsaved, under_way.lasting)
    of_jobs = ("looks", *of_rule, *claimed, leaving, suspend_on, job.memory_mib if may_suspend else 0)
    looks = survey.once(of_jobs, partial(looks_at_jobs, preemptor, context, leaving, suspend_on, survey.cache))
    ways = (of_jobs, ends_within_s)
    jobs = survey.once(("jobs", *ways), lambda: job_options(looks, ends_within_s))
    alone = (job.job_id, preemptor.tasks) if job.licenses or several else None
    kind = ("ground", *ways, eligible, needs, under_way.promised, alone)
    known = Ground(needs, eligible, leaving, eternal, jobs, ways)
    return survey.once(kind, lambda: _with_candidates(known, preemptor, context, survey))


def _with_candidates(known: Ground, preemptor: Preemptor, context: PlanningContext, survey: Survey) -> Ground:
    needs, eligible, leaving, options = known.needs, known.eligible, known.leaving, known.jobs.options
    snapshot, ways = context.snapshot, known.ways
    licenses = pools(preemptor.job, snapshot, context.under_way, leaving, options.keys())
    nodes: tuple[NodeResources, ...] = ()
    if needs is None:
        staying = {name: {j.job_id for j in snapshot.jobs_on.get(name, ())} - leaving for name in eligible}
        candidates, verdicts = _candidates(preemptor, context, known, _freeable(staying, options.keys()))
        # Nodes that are free, or are once the jobs that leave anyway have left.
        empty = (snapshot.node_by_name[name] for name, job_ids in staying.items() if not job_ids)
        free = frozenset(node.name for node in empty if node.name in snapshot.jobs_on or not node.alloc_cpus)
    else:
        whole = needs.per_node == Amounts()
        hold = partial(holdings, eligible, snapshot, leaving, options.keys(), whole=whole)
        held = survey.once(("holdings", *ways, eligible, whole), hold)
        sharing = share(needs, held, snapshot, licenses, survey.once)
        if preemptor.tasks > 1:
            sharing = slotted(sharing, needs, preemptor.tasks)
        nodes, holds, free = sharing
        find = partial(_candidates, preemptor, context, known, holds, holds)
        shared = preemptor.tasks == 1 and not licenses[0]
        candidates, verdicts = survey.once(("candidates", *ways, eligible, id(holds)), find) if shared else find()
    return replace(
        known,
        candidates=candidates,
        nodes=nodes,
        pools=len(licenses[0]),
        free_nodes=_surest_first(free, snapshot, context.under_way.promised),
        verdicts=verdicts,
    )


def _candidates(
    preemptor: Preemptor,
    context: PlanningContext,
    known: Ground,
    freeable: Mapping[str, Iterable[str]],
    holds: Mapping[str, Mapping[str, Amounts]] | None = None,
) -> tuple[tuple[Candidate, ...], tuple[Verdict, ...]]:
    """The jobs that could free nodes, and the verdicts on all others; ``holds``: of each node that is freeable."""
    candidates, verdicts = [], list(known.jobs.verdicts)
    for job_id, options in known.jobs.options.items():
        job, names = context.snapshot.job_by_id[job_id], tuple(sorted(freeable.get(job_id, ())))
        if not names:
            code, why = "elsewhere", f"none of its nodes can serve the {preemptor.called}"
            if not known.eligible.isdisjoint(job.nodes):
                code = "shared_with_exempt"
                why = "it shares its nodes with jobs that may not be preempted, so nothing would be freed"
            verdicts.append(Verdict(job_id, Choice.EXEMPT, code, why))
            continue
        start, end = job.start_time or context.now, job.ends_by
        candidate = Candidate(
            job_id=job_id,
            nodes=len(names),
            options=options,
            node_names=names,
            holds=() if holds is None else tuple([holds[job_id][name] for name in names]),
            ran_s=round(job.ran_s(context.now), 3),
            remaining_s=None if end is None else round(max(0.0, (end - context.now).total_seconds()), 3),
            waited_s=round(max(0.0, (start - job.submit_time).total_seconds()), 3),
            preempt_priority=context.snapshot.preempt_priorities.of(job),
            job_nodes=len(job.nodes),
        )
        candidates.append(candidate)
    return tuple(candidates), tuple(sorted(verdicts, key=lambda verdict: verdict.job_id))


def horizon(preemptor: Preemptor, context: PlanningContext) -> float:
    """Seconds within which nodes must begin to empty.

    What passes before the plan is begun, and what Slurm needs to end jobs and start the preemptor, is taken off. After
    its deadline it gets its max delay once more: it is still urgent, and a horizon of zero would only allow kills.
    """
    remaining_s = ((preemptor.late_until or preemptor.deadline) - context.now).total_seconds()
    if remaining_s <= 0:
        remaining_s = preemptor.max_delay_s
    return max(0.0, remaining_s - frees_in_s(preemptor, context) - context.begins_in_s)


def frees_in_s(preemptor: Preemptor, context: PlanningContext) -> float:
    """Seconds beside what jobs need to leave: for an operator's approval, and for Slurm to end them and start it."""
    execution = context.config.execution
    starts_s = execution.kill_allowance + (BACKFILL_S if preemptor.components else 0.0)
    return starts_s + approval_s(context.config.daemon.mode, execution)


def longest_horizon(some: Sequence[Preemptor], context: PlanningContext) -> float:
    """Of several preemptors; 0 for one, which has its own."""
    return max(horizon(each, context) for each in some) if len(some) > 1 else 0.0


def _boot_times(preemptor: Preemptor, partition: str, context: PlanningContext) -> dict[str, float]:
    """Nodes that are switched off, could serve it, and would be up in time; and the seconds to boot, at most."""
    under_way, limit_s = context.under_way, context.config.execution.node_boot
    horizon_s = horizon(preemptor, context)
    found = {
        node.name: min(node.boot_s, limit_s) if limit_s else node.boot_s
        for node in (context.snapshot.nodes if preemptor.takes_free else ())
        if node.boot_s is not None and _suits(node, preemptor.job, partition, under_way)
    }
    return {name: boot_s for name, boot_s in found.items() if boot_s <= horizon_s}


def _eligible(
    preemptor: Preemptor, partition: str, context: PlanningContext, eternal: frozenset[str], reserved: frozenset[str]
) -> frozenset[str]:
    """Nodes that the preemptor could run on, were they empty, and that no other eviction has placed its own on."""
    snapshot = context.snapshot
    most = _most_gpus(preemptor.job, snapshot)
    return frozenset(
        node.name
        for node in snapshot.nodes
        if node.available
        and node.name not in reserved
        and (preemptor.takes_free or not eternal.isdisjoint(j.job_id for j in snapshot.jobs_on.get(node.name, ())))
        and _suits(node, preemptor.job, partition, context.under_way)
        and (most is None or amounts_of(node).gpus_of(most[0]) == most[1])
    )


def _most_gpus(job: Job, snapshot: ClusterSnapshot) -> tuple[str, int] | None:
    """What its nodes must have where sockets need GPUs: how many sockets is not told, so the most there is."""
    if not job.gpus or job.spread is None or not job.spread.per_socket:
        return None
    name = job.gpus[0][0]
    return name, max(amounts_of(node).gpus_of(name) for node in snapshot.nodes)


def _suits(node: Node, job: Job, partition: str, under_way: UnderWay) -> bool:
    """Whether the preemptor could run on this node, were it empty and switched on."""
    return (
        node.name not in under_way.nodes
        and (node.reservation is None or node.name in under_way.own_nodes)
        and suits(node, job, partition)
    )


def _leaving(snapshot: ClusterSnapshot, under_way: UnderWay) -> frozenset[str]:
    """Jobs that will not hold their nodes for long, whatever is decided."""
    going = under_way.leaving | under_way.promised
    return frozenset(
        job.job_id
        for job in snapshot.holders
        if job.state is JobState.COMPLETING or (job.job_id in going and job.state.holds_nodes)
    )


def _freeable(staying: Mapping[str, AbstractSet[str]], may_leave: AbstractSet[str]) -> dict[str, list[str]]:
    """Job to the nodes that are free once it and all others on them have left; ``staying`` are jobs by node."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, job_ids in staying.items():
        if job_ids <= may_leave:
            for job_id in job_ids:
                found[job_id].append(name)
    return found


def _surest_first(names: Iterable[str], snapshot: ClusterSnapshot, promised: frozenset[str]) -> tuple[str, ...]:
    """Last come nodes with jobs that leave for other evictions, before them those that are switched off."""

    def doubts(name: str) -> tuple[bool, bool, str]:
        node = node_of(name)
        depends_on_others = any(job.job_id in promised for job in snapshot.jobs_on.get(node, ()))
        return depends_on_others, snapshot.node_by_name[node].boot_s is not None, name

    return tuple(sorted(names, key=doubts))
