"""What the daemon would decide, on a fresh snapshot; nothing is done."""

from datetime import UTC, datetime

from clearway.api import what_if
from clearway.bootstrap import checkpointer_actions, open_backend, open_planner
from clearway.cli.options import actor
from clearway.config.configuration import Config
from clearway.drain.request import DrainRequest
from clearway.drain.rolling import Preview
from clearway.drain.selection import chosen_nodes
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.history import read_history
from clearway.execution.node_hold import not_ours_to_drain
from clearway.model.clock import SystemClock
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError
from clearway.model.orders import DrainOrder, MoveKind
from clearway.model.plan import DrainPlan, NoPlan, Plan, RelocationPlan
from clearway.preemption.detection import imagined, usual_partition
from clearway.preemption.plan import decide
from clearway.store.base import Store
from clearway.telemetry.log import configure_logging


def eviction(config: Config, nodes: int, max_delay_s: float, partition: str | None) -> Plan | NoPlan:
    """For an urgent job that does not exist. Earlier preemptions do not count: the question needs no database."""
    snapshot = _fresh(config)
    partition = partition or usual_partition(snapshot, config.preemptors)
    context = PlanningContext(
        snapshot=snapshot,
        config=config,
        now=snapshot.taken_at,
        preempted={},
        under_way=UnderWay(),
        actions=checkpointer_actions(),
    )
    preemptor = imagined(nodes, max_delay_s, (partition,), snapshot.taken_at)
    return decide(preemptor, context, open_planner(config))


def drain(config: Config, store: Store, wish: DrainRequest) -> DrainPlan | NoPlan:
    order, context = _order(config, store, wish)
    why = not_ours_to_drain(order.nodes, context.snapshot)
    if why:
        raise DrainError(why)
    return what_if.drain(order, context, open_planner(config))


def rolling_drain(config: Config, store: Store, wish: DrainRequest) -> Preview:
    order, context = _order(config, store, wish)
    return what_if.rolling_drain(order, wish, context, open_planner(config))


def moves(kind: MoveKind, config: Config, store: Store) -> RelocationPlan | NoPlan:
    return what_if.moves(kind, actor(), _situation(config, store), store)


def _fresh(config: Config) -> ClusterSnapshot:
    configure_logging("text", quiet=True)  # standard output is for the answer alone
    backend = open_backend(config, SystemClock())
    try:
        return backend.snapshot()
    finally:
        backend.close()


def _situation(config: Config, store: Store) -> PlanningContext:
    history = read_history(store, config)
    return what_if.situation(_fresh(config), config, store, store.open_evictions(), history, checkpointer_actions())


def _order(config: Config, store: Store, wish: DrainRequest) -> tuple[DrainOrder, PlanningContext]:
    wish.check_times(datetime.now(UTC))
    context = _situation(config, store)
    return wish.order(chosen_nodes(wish.nodes, context.snapshot), actor()), context
