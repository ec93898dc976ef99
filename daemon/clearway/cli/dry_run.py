"""What the daemon would decide, on a fresh snapshot; nothing is done."""

from dataclasses import replace
from datetime import UTC, datetime

from clearway.bootstrap import checkpointer_actions, open_backend, open_planner
from clearway.cli.options import actor
from clearway.config.configuration import Config
from clearway.drain.plan import plan_drain
from clearway.drain.request import DrainRequest
from clearway.drain.rolling import Preview, preview
from clearway.drain.selection import chosen_nodes
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import under_way_by
from clearway.estimates.history import read_history
from clearway.execution.node_hold import not_ours_to_drain
from clearway.model.clock import SystemClock
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError
from clearway.model.orders import DrainOrder, MoveKind
from clearway.model.plan import DrainPlan, NoPlan, Plan, RelocationPlan
from clearway.preemption.detection import imagined, usual_partition
from clearway.preemption.plan import decide
from clearway.relocation.controller import jobs_left
from clearway.relocation.plan import plan_moves
from clearway.store.base import Store
from clearway.telemetry.log import configure_logging


def eviction(config: Config, nodes: int, max_delay_s: float, partition: str | None) -> Plan | NoPlan:
    """For an urgent job that does not exist. Earlier preemptions do not count: the question needs no database."""
    snapshot = _fresh(config)
    partition = partition or usual_partition(snapshot, config.preemptors)
    preemptor = imagined(nodes, max_delay_s, partition, snapshot.taken_at)
    return decide(preemptor, _context(snapshot, config), open_planner(config))


def drain(config: Config, store: Store, wish: DrainRequest) -> DrainPlan | NoPlan:
    order, snapshot = _order(config, wish)
    why = not_ours_to_drain(order.nodes, snapshot)
    if why:
        raise DrainError(why)
    return _decide(order, snapshot, config, store)


def rolling_drain(config: Config, store: Store, wish: DrainRequest) -> Preview:
    """The batches, if the cluster stayed as it is."""
    order, snapshot = _order(config, wish)
    return preview(order, wish.rolling or 1, snapshot, lambda each: _decide(each, snapshot, config, store))


def moves(kind: MoveKind, config: Config, store: Store) -> RelocationPlan | NoPlan:
    snapshot = _fresh(config)
    context = replace(
        _context(snapshot, config, store),
        preempted=store.preemption_counts(job.job_id for job in snapshot.jobs if job.state.holds_nodes),
        history=read_history(store, config),
    )
    return plan_moves(kind, context, jobs=jobs_left(kind, store, config, context.now), actor=actor())


def _fresh(config: Config) -> ClusterSnapshot:
    configure_logging("text", quiet=True)  # standard output is for the answer alone
    backend = open_backend(config, SystemClock())
    try:
        return backend.snapshot()
    finally:
        backend.close()


def _order(config: Config, wish: DrainRequest) -> tuple[DrainOrder, ClusterSnapshot]:
    wish.check_times(datetime.now(UTC))
    snapshot = _fresh(config)
    return wish.order(chosen_nodes(wish.nodes, snapshot), actor()), snapshot


def _decide(order: DrainOrder, snapshot: ClusterSnapshot, config: Config, store: Store) -> DrainPlan | NoPlan:
    return plan_drain(order, _context(snapshot, config, store), open_planner(config))


def _context(snapshot: ClusterSnapshot, config: Config, store: Store | None = None) -> PlanningContext:
    return PlanningContext(
        snapshot=snapshot,
        config=config,
        now=snapshot.taken_at,
        under_way=under_way_by(store.open_evictions() if store is not None else ()),
        actions=checkpointer_actions(),
    )
