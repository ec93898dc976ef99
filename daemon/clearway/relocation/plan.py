"""From a snapshot to the plan of a compaction or promotion, with the reason for every job. Pure.

Model: ``compaction`` and ``promotion``, by processors; memory is checked here. Where jobs that fit alone do not fit
together the plan is made again without the place that was too small, a few times, then given up.

Nothing is moved while a job waits that Slurm could place by itself, as in the Slurm+DMTCP paper's Algorithm 1: it
would fill the very gaps. A job that waits for more than any gap offers is no reason to wait, it gains by compaction.
"""

import math
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from clearway.config.configuration import CompactionConfig, Config, PromotionConfig
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Exemption, Purpose, exemption
from clearway.eligibility.node_usage import FreeCapacity, most_memory_mib, processors_by_node
from clearway.eligibility.options import expected_end_s, options_for, why_not_saved
from clearway.estimates.learning import key_of
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node, wanted_features
from clearway.model.orders import MoveKind, RelocationOrder
from clearway.model.plan import Choice, Curve, CurvePoint, NoPlan, PlannedAction, RelocationPlan, Verdict
from clearway.model.problem import EvictionProblem, Option
from clearway.relocation.moves import (
    Host,
    Limits,
    MovePlan,
    Part,
    Resident,
    cost_node_s,
    plan_compaction,
    plan_promotion,
)
from clearway.slurm.parse.hostlist import compress

_OTHERS = "others on "  # no job has such an id
_HOUR_S = 3_600.0
_TRIES = 20  # of making a plan whose jobs have the memory they need
_WAITS_FOR_ROOM = frozenset({"None", "Priority", "Resources"})  # what Slurm says of jobs that could start


@dataclass(frozen=True, slots=True)
class Inventory:
    """Which jobs could be moved and where to.

    What is not known is not moved. A job counts only when it is known what it holds on each of its nodes; when nothing
    but processors, memory and features decides where it may run; and when no guard of ``eligibility.exemption`` holds.
    All that other jobs hold on a node is one resident that stays: Slurm's own count of processors less those of the
    jobs whose parts are known. A job restarts as a whole: the nodes that it keeps have to be there for it too.
    """

    hosts: tuple[Host, ...]  # that moves may concern
    residents: tuple[Resident, ...]
    ways: Mapping[str, Option]  # how each movable job is saved
    fixed: tuple[Verdict, ...]  # why others are not moved


def inventory(kind: MoveKind, context: PlanningContext) -> Inventory:
    snapshot, config = context.snapshot, context.config
    nodes = [node for node in snapshot.nodes if _may_concern(node, kind, context)]
    hosts = tuple(_host(node, kind, config.promotion) for node in nodes)
    names = {host.name for host in hosts}
    free = FreeCapacity.of(snapshot)
    residents, ways, fixed = [], {}, []
    for job in sorted(snapshot.jobs, key=lambda job: job.job_id):
        if not job.state.holds_nodes or not names & set(job.nodes):
            continue
        ends_s = expected_end_s(job, context)
        save = next(iter(options_for(job, context, kill=False)), None)
        why = _why_not(job, names, save, ends_s, context)
        if why is not None:
            fixed.append(Verdict(job.job_id, Choice.EXEMPT, *why))
        parts = parts_of(job, snapshot)
        if not parts:
            continue  # counted among the others
        move_s = None
        if why is None and save is not None:
            ways[job.job_id] = save
            move_s = _move_s(job, save, len(parts), context)
        least = min(part.processors for part in parts)  # whether a larger part fits is for the planner
        may_use = frozenset(node.name for node in nodes if _may_go(job, least, node, free))
        needs = _needs_scarce(job, config.promotion)
        residents.append(Resident(job.job_id, parts, ends_s, move_s, may_use, needs_scarce=needs))
    return Inventory(hosts, (*residents, *_others(nodes, residents)), ways, tuple(fixed))


def _move_s(job: Job, save: Option, nodes: int, context: PlanningContext) -> float:
    """Seconds from the checkpoint of a move until the job computes again."""
    claims, _ = read_claims(job)
    restart_s = context.history.restart_s(*key_of(job, claims), nodes) if claims is not None else None
    return save.takes_s + context.config.execution.kill_allowance + (restart_s or 0.0)


def parts_of(job: Job, snapshot: ClusterSnapshot) -> tuple[Part, ...]:
    return tuple(Part(name, processors) for name, processors in processors_by_node(job, snapshot).items())


def _others(nodes: list[Node], residents: list[Resident]) -> list[Resident]:
    told: Counter[str] = Counter()
    for part in chain.from_iterable(resident.parts for resident in residents):
        told[part.node] += part.processors
    rest = {node.name: node.alloc_cpus - told[node.name] for node in nodes}
    return [Resident(f"{_OTHERS}{name}", (Part(name, count),), None, None) for name, count in rest.items() if count > 0]


def _may_concern(node: Node, kind: MoveKind, context: PlanningContext) -> bool:
    """Available, not held for another purpose, and the jobs on it account for what Slurm says is taken."""
    wanted = context.config.compaction.partitions if kind is MoveKind.COMPACTION else ()
    held = node.reservation is not None or node.reason or node.name in context.under_way.nodes
    if not node.available or held or not node.cpus:
        return False
    single = sum(job.cpus for job in context.snapshot.jobs_on.get(node.name, ()) if len(job.nodes) == 1)
    return single <= node.alloc_cpus <= node.cpus and (not wanted or bool(set(wanted) & set(node.partitions)))


def _host(node: Node, kind: MoveKind, config: PromotionConfig) -> Host:
    if kind is MoveKind.COMPACTION:
        return Host(node.name, node.cpus)
    place = next((place for place, wanted in enumerate(config.order) if _is(node, wanted)), len(config.order))
    rank = -place if config.order else -node.weight
    return Host(node.name, node.cpus, rank, any(_is(node, wanted) for wanted in config.scarce))


def _is(node: Node, selector: str) -> bool:
    kind, _, name = selector.partition("=")
    return name in (node.features if kind == "feature" else node.partitions)


def _needs_scarce(job: Job, config: PromotionConfig) -> bool:
    return any(f"feature={name}" in config.scarce for name in wanted_features(job))


def _may_go(job: Job, processors: int, node: Node, free: FreeCapacity) -> bool:
    """Whether so much of it could run there beside those that are there now; where it wants whole nodes: alone."""
    return (
        node.name not in job.excluded_nodes
        and bool(set(job.partitions) & set(node.partitions))
        and wanted_features(job) <= set(node.features)
        and node.cpus >= job.cpus_per_node
        and not (job.exclusive and node.alloc_cpus)
        and free.fits(node.name, processors, most_memory_mib(job, processors))
    )


def _why_not(
    job: Job, names: AbstractSet[str], save: Option | None, ends_s: float | None, context: PlanningContext
) -> Exemption | None:
    """Why a job is not moved, whatever that would gain; ``names`` are the nodes that moves may concern."""
    exempt = exemption(job, Purpose.RELOCATION, context)
    if exempt is not None:
        return exempt
    if len(job.nodes) > 1:
        if job.contiguous or job.switches:
            return Exemption("several_nodes", "its nodes have to lie together")
        if not names >= set(job.nodes):
            return Exemption(
                "several_nodes", "it also runs on nodes that moves do not concern, and could not start there again"
            )
        if not parts_of(job, context.snapshot):
            return Exemption("several_nodes", "it runs on several nodes, and what it holds on each is not known")
    if save is None:
        return Exemption("not_saved", why_not_saved(job, context))
    return Exemption("end_unknown", "when it will end is not known") if ends_s is None else None


def moves_config(kind: MoveKind, config: Config) -> CompactionConfig | PromotionConfig:
    return config.compaction if kind is MoveKind.COMPACTION else config.promotion


def could_be_placed(snapshot: ClusterSnapshot, now: datetime) -> Job | None:
    """A waiting job for which there is room now; None when there is none."""
    open_nodes = [node for node in snapshot.nodes if node.available and node.reservation is None]
    free = FreeCapacity.of(snapshot)
    for job in sorted(snapshot.jobs, key=lambda job: job.job_id):
        eligible = job.eligible_time is None or job.eligible_time <= now
        if job.state is not JobState.PENDING or not job.priority or not eligible or job.reason not in _WAITS_FOR_ROOM:
            continue
        nodes = max(1, job.num_nodes)
        share = max(1, job.cpus_per_node, math.ceil(job.cpus / nodes))
        fitting = [
            node
            for node in open_nodes
            if set(job.partitions) & set(node.partitions) and free.fits(node.name, share, job.memory_mib)
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
    why = ""
    if jobs < 1:
        why = f"{settings.jobs_per_hour} jobs were moved within the hour"
    elif not moves.moves:
        why = _why_nothing(kind, found)
    elif gain_h < settings.min_gain:
        why = f"all moves together gain {gain_h:.2f} node-hours, {settings.min_gain:g} are asked for"
    if why:
        return NoPlan(why, verdicts=_spared(found, MovePlan()))
    order = RelocationOrder(
        nodes=tuple(sorted(moves.emptied)) if kind is MoveKind.COMPACTION else (),
        actor=actor,
        request_id=request_id,
        reason=kind.value,
        kind=kind,
        moves=moves.moves,
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
    each_s = [math.ceil(way.takes_s) for way in ways]
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
