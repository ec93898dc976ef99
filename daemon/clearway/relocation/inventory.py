"""Who could be moved and where to: from a snapshot to the hosts and residents of ``moves``. Pure.

What is not known is not moved. A job counts only when it is known what it holds on each of its nodes; when nothing but
processors, memory and features decides where it may run; and when the guards against preempting it too early or too
often allow it, for nobody has asked for this job. All that others hold on a node is one resident that stays: Slurm's
own count of processors less those of the jobs whose parts are known.

Slurm tells a job's processors in all. Of a job of several nodes they are known to be spread evenly when on each of its
nodes the node's own count, less that of jobs of one node there, leaves just that share; so with another job of several
nodes on any of them nothing is known. It restarts as a whole: the nodes that it keeps have to be there for it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from clearway.config.configuration import Config
from clearway.eligibility.exemption import exemption_of
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.costs import BY_ITSELF, NO_HISTORY, end_ready_s, preemption_options, why_no_checkpoint
from clearway.estimates.learning import History, key_of
from clearway.estimates.run_times import likely_end_s
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, Node, wanted_features
from clearway.model.orders import MoveKind
from clearway.model.plan import Choice, Verdict
from clearway.model.problem import Action, Option
from clearway.relocation.capacity import Rooms
from clearway.relocation.moves import Host, Part, Resident

_OTHERS = "others on "  # no job has such an id


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes that moves may concern, who is there, how each movable job is saved, and why others are not moved."""

    hosts: tuple[Host, ...]
    residents: tuple[Resident, ...]
    ways: Mapping[str, Option]
    fixed: tuple[Verdict, ...]


def inventory(
    kind: MoveKind,
    snapshot: ClusterSnapshot,
    config: Config,
    now: datetime,
    *,
    preempted: Mapping[str, int],
    under_way: UnderWay,
    history: History = NO_HISTORY,
    actions: Mapping[str, Action] = BY_ITSELF,
) -> Inventory:
    """``preempted``: earlier preemptions by job_id; ``actions``: of the checkpointers that jobs may name."""
    nodes = [node for node in snapshot.nodes if _may_concern(node, kind, snapshot, config, under_way)]
    rank, scarce = _ranks(kind, config)
    hosts = tuple(Host(node.name, node.cpus, rank(node), scarce(node)) for node in nodes)
    names = {host.name for host in hosts}
    rooms = Rooms.of(snapshot)
    residents, ways, fixed = [], {}, []
    for job in sorted(snapshot.jobs, key=lambda job: job.job_id):
        if not job.state.holds_nodes or not names & set(job.nodes):
            continue
        known_s = [end_ready_s(job, now, 0.0), likely_end_s(job, history, config, now)]
        remaining_s = min((each for each in known_s if each is not None), default=None)
        way = _way(job, snapshot, config, now, history, actions)
        why = (
            _why_not(job, config, now, preempted, under_way)
            or _several(job, names, snapshot)
            or _not_known(job, way, remaining_s, actions)
        )
        if why is not None:
            fixed.append(Verdict(job.job_id, Choice.EXEMPT, *why))
        parts = parts_of(job, snapshot)
        if not parts:
            continue  # counted among the others
        move_s = None
        if why is None and way is not None:
            ways[job.job_id] = way
            claims, _ = read_claims(job)
            restart_s = history.restart_s(*key_of(job, claims), len(parts)) if claims is not None else None
            move_s = way.checkpoint_s + config.execution.kill_allowance + (restart_s or 0.0)
        may_use = frozenset(node.name for node in nodes if _may_go(job, parts[0].processors, node, rooms))
        needs = bool(wanted_features(job) & _scarce_features(config))
        residents.append(Resident(job.job_id, parts, remaining_s, move_s, may_use, needs_scarce=needs))
    return Inventory(hosts, (*residents, *_others(nodes, residents)), ways, tuple(fixed))


def parts_of(job: Job, snapshot: ClusterSnapshot) -> tuple[Part, ...]:
    """What it holds on each of its nodes, equally much; empty when that is not known."""
    share, rest = divmod(job.cpus, max(1, len(job.nodes)))
    if len(job.nodes) > 1:
        for name in job.nodes:
            node = snapshot.node_by_name.get(name)
            beside = [each for each in snapshot.jobs_on.get(name, ()) if each.job_id != job.job_id]
            alone = all(len(each.nodes) == 1 for each in beside)
            if rest or not share or node is None or not alone:
                return ()
            if node.alloc_cpus - sum(each.cpus for each in beside) != share:
                return ()
    return tuple(Part(name, share) for name in job.nodes)


def _several(job: Job, names: AbstractSet[str], snapshot: ClusterSnapshot) -> tuple[str, str] | None:
    """Code and reason why a job of several nodes is not moved; ``names`` are the nodes that moves may concern."""
    if len(job.nodes) == 1:
        return None
    if job.contiguous or job.switches:
        return "several_nodes", "its nodes have to lie together"
    if not names >= set(job.nodes):
        return "several_nodes", "it also runs on nodes that moves do not concern, and could not start there again"
    if not parts_of(job, snapshot):
        return "several_nodes", "it runs on several nodes, and what it holds on each is not known"
    return None


def _others(nodes: list[Node], residents: list[Resident]) -> list[Resident]:
    told = dict.fromkeys((node.name for node in nodes), 0)
    for resident in residents:
        for part in resident.parts:
            if part.node in told:
                told[part.node] += part.processors
    rest = {node.name: node.alloc_cpus - told[node.name] for node in nodes}
    return [Resident(f"{_OTHERS}{name}", (Part(name, count),), None, None) for name, count in rest.items() if count > 0]


def _may_concern(node: Node, kind: MoveKind, snapshot: ClusterSnapshot, config: Config, under_way: UnderWay) -> bool:
    """Available, nobody else's business, and the jobs on it account for what Slurm says is taken."""
    wanted = config.compaction.partitions if kind is MoveKind.COMPACTION else ()
    if (
        not node.available
        or node.reservation is not None
        or node.reason
        or node.name in under_way.nodes
        or not node.cpus
    ):
        return False
    single = sum(job.cpus for job in snapshot.jobs_on.get(node.name, ()) if len(job.nodes) == 1)
    return single <= node.alloc_cpus <= node.cpus and (not wanted or bool(set(wanted) & set(node.partitions)))


def _ranks(kind: MoveKind, config: Config) -> tuple[Callable[[Node], int], Callable[[Node], bool]]:
    if kind is MoveKind.COMPACTION:
        return (lambda _: 0), (lambda _: False)
    order, rare = config.promotion.order, config.promotion.scarce

    def rank(node: Node) -> int:
        place = next((place for place, wanted in enumerate(order) if _is(node, wanted)), len(order))
        return -place if order else -node.weight

    return rank, lambda node: any(_is(node, wanted) for wanted in rare)


def _is(node: Node, selector: str) -> bool:
    kind, _, name = selector.partition("=")
    return name in (node.features if kind == "feature" else node.partitions)


def _scarce_features(config: Config) -> frozenset[str]:
    return frozenset(each.removeprefix("feature=") for each in config.promotion.scarce if each.startswith("feature="))


def _may_go(job: Job, processors: int, node: Node, rooms: Rooms) -> bool:
    """Whether so much of it could run there beside those that are there now; where it wants whole nodes: alone."""
    return (
        node.name not in job.excluded_nodes
        and bool(set(job.partitions) & set(node.partitions))
        and wanted_features(job) <= set(node.features)
        and node.cpus >= job.cpus_per_node
        and not (job.exclusive and node.alloc_cpus)
        and rooms.fits(node.name, processors, job.memory_mib)
    )


def _way(
    job: Job,
    snapshot: ClusterSnapshot,
    config: Config,
    now: datetime,
    history: History,
    actions: Mapping[str, Action],
) -> Option | None:
    """How it is saved without losing anything."""
    memory_mib = max((snapshot.node_by_name[n].memory_mib for n in job.nodes if n in snapshot.node_by_name), default=0)
    options = preemption_options(
        job,
        read_claims(job)[0],
        now,
        config.costs,
        memory_mib,
        kill=False,
        requeueable=job.requeueable and job.batch,
        history=history,
        actions=actions,
    )
    return options[0] if options else None


def _why_not(
    job: Job, config: Config, now: datetime, preempted: Mapping[str, int], under_way: UnderWay
) -> tuple[str, str] | None:
    """Code and reason why this job is not moved whatever that would gain."""
    plain = not any(mark in job.features for mark in "|[*!(")
    guards = (
        (job.reservation is not None, "reservation", f"it runs in reservation {job.reservation}"),
        (bool(job.required_nodes), "asks_for_nodes", "it asks for nodes by name"),
        (bool(job.gres), "gres", "it holds more than processors and memory"),
        (bool(job.licenses), "licenses", "it holds licenses, which others could take meanwhile"),
        (not plain, "features", f"what it asks of nodes is not simple: {job.features}"),
    )
    exempt = exemption_of(job, config, now, preempted, under_way)
    return exempt or next(((code, reason) for applies, code, reason in guards if applies), None)


def _not_known(
    job: Job, way: Option | None, remaining_s: float | None, actions: Mapping[str, Action]
) -> tuple[str, str] | None:
    if way is None:
        cannot = "it cannot be requeued" if not (job.requeueable and job.batch) else ""
        return "not_saved", cannot or why_no_checkpoint(read_claims(job)[0], actions) or "it cannot save itself"
    return ("end_unknown", "when it will end is not known") if remaining_s is None else None
