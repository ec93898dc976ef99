"""Which jobs could be moved and where to: from a snapshot to the hosts and residents of ``moves``. Pure.

What is not known is not moved. A job counts only when it is known what it holds on each of its nodes; when nothing but
processors, memory and features decides where it may run; and when no guard of ``eligibility.exemption`` holds. All that
other jobs hold on a node is one resident that stays: Slurm's own count of processors less those of the jobs whose parts
are known. A job restarts as a whole: the nodes that it keeps have to be there for it too.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from clearway.config.configuration import Config, PromotionConfig
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Exemption, Purpose, exemption
from clearway.eligibility.node_usage import FreeCapacity, most_memory_mib, processors_by_node
from clearway.eligibility.options import expected_end_s, options_for, why_not_saved
from clearway.estimates.learning import key_of
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, Node, wanted_features
from clearway.model.orders import MoveKind
from clearway.model.plan import Choice, Verdict
from clearway.model.problem import Option
from clearway.relocation.moves import Host, Part, Resident

_OTHERS = "others on "  # no job has such an id


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes that moves may concern, the jobs there, how each movable one is saved, and why others are not moved."""

    hosts: tuple[Host, ...]
    residents: tuple[Resident, ...]
    ways: Mapping[str, Option]
    fixed: tuple[Verdict, ...]


def inventory(kind: MoveKind, context: PlanningContext) -> Inventory:
    """What moves of this kind may concern."""
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
        needs = bool(wanted_features(job) & _scarce_features(config))
        residents.append(Resident(job.job_id, parts, ends_s, move_s, may_use, needs_scarce=needs))
    return Inventory(hosts, (*residents, *_others(nodes, residents)), ways, tuple(fixed))


def _move_s(job: Job, save: Option, nodes: int, context: PlanningContext) -> float:
    """Seconds from the checkpoint of a move until the job computes again."""
    claims, _ = read_claims(job)
    restart_s = context.history.restart_s(*key_of(job, claims), nodes) if claims is not None else None
    return save.checkpoint_s + context.config.execution.kill_allowance + (restart_s or 0.0)


def parts_of(job: Job, snapshot: ClusterSnapshot) -> tuple[Part, ...]:
    """What it holds on each of its nodes; empty when that is not known."""
    return tuple(Part(name, processors) for name, processors in processors_by_node(job, snapshot).items())


def _others(nodes: list[Node], residents: list[Resident]) -> list[Resident]:
    told = dict.fromkeys((node.name for node in nodes), 0)
    for resident in residents:
        for part in resident.parts:
            if part.node in told:
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


def _scarce_features(config: Config) -> frozenset[str]:
    return frozenset(each.removeprefix("feature=") for each in config.promotion.scarce if each.startswith("feature="))


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
            why = "it also runs on nodes that moves do not concern, and could not start there again"
            return Exemption("several_nodes", why)
        if not parts_of(job, context.snapshot):
            why = "it runs on several nodes, and what it holds on each is not known"
            return Exemption("several_nodes", why)
    if save is None:
        return Exemption("not_saved", why_not_saved(job, context))
    return Exemption("end_unknown", "when it will end is not known") if ends_s is None else None
