"""From a snapshot to the plan of a compaction or promotion, with the reason for every job. Pure.

Model: ``compaction`` and ``promotion``, by processors; memory is checked here. Where jobs that fit alone do not fit
together the plan is made again without the place that was too small, a few times, then given up.

Nothing is moved while a job waits that Slurm could place by itself, as in the Slurm+DMTCP paper's Algorithm 1: it
would fill the very gaps. A job that waits for more than any gap offers is no reason to wait, it gains by compaction.
"""

import math
from dataclasses import replace
from datetime import datetime, timedelta

from clearway.config.configuration import CompactionConfig, Config, PromotionConfig
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.node_usage import FreeCapacity, most_memory_mib
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.orders import JobMove, MoveKind, RelocationOrder
from clearway.model.plan import Choice, Curve, CurvePoint, NoPlan, PlannedAction, RelocationPlan, Verdict
from clearway.model.problem import EvictionProblem
from clearway.relocation.compaction import plan_compaction
from clearway.relocation.inventory import Inventory, inventory
from clearway.relocation.moves import Limits, MovePlan, cost_node_s
from clearway.relocation.promotion import plan_promotion
from clearway.slurm.parse.hostlist import compress

_HOUR_S = 3_600.0
_TRIES = 20  # of making a plan whose jobs have the memory they need
_WAITS_FOR_ROOM = frozenset({"None", "Priority", "Resources"})  # what Slurm says of jobs that could start


def moves_config(kind: MoveKind, config: Config) -> CompactionConfig | PromotionConfig:
    return config.compaction if kind is MoveKind.COMPACTION else config.promotion


def could_be_placed(snapshot: ClusterSnapshot, now: datetime) -> Job | None:
    """A waiting job for which there is room now; None when there is none."""
    open_nodes = {node.name for node in snapshot.nodes if node.available and node.reservation is None}
    free = FreeCapacity.of(snapshot)
    for job in sorted(snapshot.jobs, key=lambda job: job.job_id):
        eligible = job.eligible_time is None or job.eligible_time <= now
        if job.state is not JobState.PENDING or not job.priority or not eligible or job.reason not in _WAITS_FOR_ROOM:
            continue
        nodes = max(1, job.num_nodes)
        share = max(1, job.cpus_per_node, math.ceil(job.cpus / nodes))
        fitting = [
            node.name
            for node in snapshot.nodes
            if node.name in open_nodes
            and set(job.partitions) & set(node.partitions)
            and free.fits(node.name, share, job.memory_mib)
        ]
        if len(fitting) >= nodes:
            return job
    return None


def plan_moves(
    kind: MoveKind, context: PlanningContext, *, jobs: int, actor: str, request_id: int = 0
) -> RelocationPlan | NoPlan:
    """Which jobs move where, at most ``jobs`` of them; a NoPlan tells for every job why it stays."""
    snapshot, config = context.snapshot, context.config
    if snapshot.unreadable:
        return NoPlan("not all jobs can be read")
    waiting = could_be_placed(snapshot, context.now)
    if waiting is not None:
        return NoPlan(f"job {waiting.display_id} waits, and Slurm could place it")
    found = inventory(kind, context)
    settings = moves_config(kind, config)
    moves = _fitting(kind, found, snapshot, Limits(jobs, settings.worth))
    gain_h, cost_h = moves.gain_node_s / _HOUR_S, moves.cost_node_s / _HOUR_S
    if jobs < 1:
        return NoPlan(f"{settings.jobs_per_hour} jobs were moved within the hour", verdicts=_spared(found, MovePlan()))
    if not moves.moves:
        return NoPlan(_why_nothing(kind, found), verdicts=_spared(found, moves))
    if gain_h < settings.min_gain:
        why = f"all moves together gain {gain_h:.2f} node-hours, {settings.min_gain:g} are asked for"
        return NoPlan(why, verdicts=_spared(found, MovePlan()))
    order = RelocationOrder(
        nodes=tuple(sorted(moves.emptied)) if kind is MoveKind.COMPACTION else (),
        actor=actor,
        request_id=request_id,
        reason=kind.value,
        kind=kind,
        moves=tuple(JobMove(move.job_id, move.source, move.target, move.processors) for move in moves.moves),
        gain_node_s=round(moves.gain_node_s, 3),
        cost_node_s=round(moves.cost_node_s, 3),
        power_down=kind is MoveKind.COMPACTION and config.compaction.power_down,
    )
    together = f"all moves together gain {gain_h:.2f} node-hours and cost {cost_h:.2f}"
    chosen = []
    for job_id in moves.job_ids:
        own = [move for move in moves.moves if move.job_id == job_id]
        off, onto = compress({move.source for move in own}), compress({move.target for move in own})
        chosen.append(Verdict(job_id, Choice.CHOSEN, kind.value, f"moves from {off} to {onto}; {together}"))
    return _plan(order, found, context, (*chosen, *_spared(found, moves)))


def _fitting(kind: MoveKind, found: Inventory, snapshot: ClusterSnapshot, limits: Limits) -> MovePlan:
    """A plan whose jobs have the memory they need on their targets; without moves when none is found."""
    planner = plan_compaction if kind is MoveKind.COMPACTION else plan_promotion
    residents = {resident.job_id: resident for resident in found.residents}
    for _ in range(_TRIES):
        made = planner(found.hosts, tuple(residents.values()), limits)
        free = FreeCapacity.of(snapshot)
        jobs = snapshot.job_by_id
        needed_mib = {m: most_memory_mib(jobs[m.job_id], m.processors) for m in made.moves}
        small = [m for m, mib in needed_mib.items() if not free.take(m.target, m.processors, mib)]
        if not small:
            return made
        for move in small:
            known = residents[move.job_id]
            places = frozenset(host.name for host in found.hosts) if known.may_use is None else known.may_use
            residents[move.job_id] = replace(known, may_use=places - {move.target})
    return MovePlan()


def _why_nothing(kind: MoveKind, found: Inventory) -> str:
    alike = len({host.rank for host in found.hosts}) < 2 and not any(host.scarce for host in found.hosts)
    if kind is MoveKind.PROMOTION and found.hosts and alike:
        return "all nodes in question rank alike (promotion.order, else Slurm's Weight) and none is promotion.scarce"
    return "no move gains enough for what it costs"


def _spared(found: Inventory, moves: MovePlan) -> tuple[Verdict, ...]:
    """Of all that stay."""
    processors = {host.name: host.processors for host in found.hosts}
    stay = [each for each in found.residents if each.job_id in found.ways and each.job_id not in moves.job_ids]
    costs_h = {each.job_id: cost_node_s(each, processors) / _HOUR_S for each in stay}
    why = "moving it would cost {:.2f} node-hours, and no place is found for it that gains enough"
    spared = (Verdict(job_id, Choice.SPARED, "no_gain", why.format(cost_h)) for job_id, cost_h in costs_h.items())
    return (*found.fixed, *spared)


def _plan(
    order: RelocationOrder, found: Inventory, context: PlanningContext, verdicts: tuple[Verdict, ...]
) -> RelocationPlan:
    config, now = context.config, context.now
    jobs = [context.snapshot.job_by_id[job_id] for job_id in order.job_ids]
    ways = [found.ways[job.job_id] for job in jobs]
    # Saved one after another, each after the one before it has started again.
    each_s = [math.ceil(way.checkpoint_s) for way in ways]
    total_s = sum(each_s) + math.ceil(config.execution.landing_patience) * len(jobs) + math.ceil(config.drain.patience)
    point = CurvePoint(
        total_s,
        feasible=True,
        lost_work_node_s=0.0,
        checkpoint_s=sum(each_s),
        nodes_freed=len(order.nodes),
        actions=tuple(
            PlannedAction(job.job_id, way.action, 0.0, seconds)
            for job, way, seconds in zip(jobs, ways, each_s, strict=True)
        ),
    )
    targets = {name for job in jobs for name in order.nodes_after(job)}
    return RelocationPlan(
        made_at=now,
        deadline=now + timedelta(seconds=total_s),
        nodes_needed=len(order.nodes),
        problem=EvictionProblem(0, total_s, 1, (), len(order.nodes)),
        curve=Curve(order.kind.value, (point,)),
        chosen=point,
        placement_nodes=tuple(sorted({*order.nodes, *targets})),
        free_nodes=(),
        leaving=tuple(jobs),
        verdicts=tuple(sorted(verdicts, key=lambda verdict: verdict.job_id)),
        order=order,
    )
