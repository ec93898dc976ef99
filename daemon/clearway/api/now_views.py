"""From a cycle's report to what is shown of the present. Pure, but for one answer that is kept."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from clearway.api import now_schemas as n
from clearway.api.views import eviction_summary, view
from clearway.model.cluster import ClusterSnapshot, Node
from clearway.model.operations import Drain, Eviction, Operation, Promise, Relocation
from clearway.model.report import CycleReport
from clearway.slurm.parse.hostlist import compress, expand

_NOTHING = "-"


def operation_now(e: Operation, jobs: Iterable[n.JobProgress]) -> n.OperationNow:
    free_at = e.plan.made_at + timedelta(seconds=e.plan.chosen.max_delay_s)
    return eviction_summary(e, n.OperationNow, kind=e.kind, predicted_nodes_free_at=free_at, jobs=tuple(jobs))


def job_progress(e: Operation) -> Iterable[n.JobProgress]:
    for each in e.preemptions:
        yield view(
            n.JobProgress,
            each,
            each.job,
            nodes=len(each.job.nodes),
            predicted_lost_work_node_s=each.predicted_lost_node_s,
            actual_lost_work_node_s=each.actual_lost_node_s,
        )


def node_map(report: CycleReport, operations: Iterable[Operation]) -> n.NodeMap:
    """``operations``: those that the asker may know the nodes of."""
    base = _base(report.snapshot)
    uses = dict[str, str]()
    for e in operations:
        for name, use in _uses(e):
            uses[name] = use
    return n.NodeMap(names=base.folded, states=base.states, uses="".join(uses.get(x, _NOTHING) for x in base.names))


def _uses(e: Operation) -> Iterable[tuple[str, str]]:
    """Later ones count: a node that is held and that a job still leaves is one that a job leaves."""
    if e.state.terminal:
        return
    if isinstance(e, Eviction | Promise):
        held = "h" if e.state.before_start else "r" if e.state.acting else _NOTHING
        if e.state.acting:
            yield from ((name, held) for name in e.plan.placement_nodes)
        leaves = "l" if e.state.acting else "w"
    else:
        leaves = "d" if isinstance(e, Drain) else "m"
        if e.state.acting and isinstance(e, Drain | Relocation):
            yield from ((name, leaves) for name in e.drained_nodes)
        leaves = "l" if e.state.acting else "w"
    for each in e.preemptions:
        on_nodes = each.vacated_at is None and not each.state.terminal
        if on_nodes and not (e.state.acting and e.state.undoing and each.state.cancellable):
            yield from ((name, leaves) for name in each.job.nodes)


@dataclass(frozen=True, slots=True)
class _Base:
    """What is the same for every asker."""

    snapshot: ClusterSnapshot
    folded: str
    names: tuple[str, ...]
    states: str


_kept: list[_Base] = []  # of the newest snapshot: all askers of a cycle have the same one


def _base(snapshot: ClusterSnapshot) -> _Base:
    before = _kept[0] if _kept else None
    if before is not None and before.snapshot is snapshot:
        return before
    own = [node.name for node in snapshot.nodes]
    if before is not None and [node.name for node in before.snapshot.nodes] == own:
        folded, names = before.folded, before.names
    else:
        folded = compress(own)
        names = expand(folded, limit=max(1, len(own)))
        if set(names) != set(own):  # names that are no host list
            folded, names = ",".join(own), tuple(own)
    nodes, holders = snapshot.node_by_name, snapshot.jobs_on
    states = "".join(_state(nodes[name], held=name in holders) for name in names)
    made = _Base(snapshot, folded, names, states)
    _kept[:] = [made]
    return made


def _state(node: Node, *, held: bool) -> str:
    if not node.available:
        return "s" if node.silent else "u"
    if not held and node.alloc_cpus == 0:
        return "f"
    return "p" if 0 < node.alloc_cpus < node.cpus else "b"


def shown(report: CycleReport) -> tuple[object, ...]:
    """Whatever of a report a page shows that does not only follow from the time."""
    base = _base(report.snapshot)
    return (
        base.folded,
        base.states,
        tuple(
            (each.preemptor.job.job_id, each.preemptor.deadline, each.eviction_id, each.why) for each in report.waiting
        ),
        tuple(
            (e.eviction_id, e.state, e.revision, e.outcome, tuple((p.state, p.asked_at) for p in e.preemptions))
            for e in report.open_evictions
        ),
        tuple((each.rolling_id, each.state) for each in report.rolling_drains),
        (report.paused, report.halted, report.stopped, report.standby, report.clock_doubt, report.only_observes),
    )
