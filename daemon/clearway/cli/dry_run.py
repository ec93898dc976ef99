"""What the daemon would decide, on a fresh snapshot; nothing is done."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

from clearway.bootstrap import checkpointer_actions, open_backend, open_planner
from clearway.cli.options import actor
from clearway.config.configuration import Config
from clearway.drain.plan import plan_drain
from clearway.drain.request import DrainRequest, chosen_nodes
from clearway.drain.rolling import Preview, preview
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import under_way_by
from clearway.estimates.history import read_history
from clearway.execution.lifecycle import not_ours_to_drain
from clearway.model.clock import SystemClock
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
    context = _fresh(config)
    partition = partition or usual_partition(context.snapshot, config.preemptors)
    return decide(imagined(nodes, max_delay_s, (partition,), context.now), context, open_planner(config))


def drain(config: Config, store: Store, wish: DrainRequest) -> DrainPlan | NoPlan:
    order, context = _order(config, store, wish)
    why = not_ours_to_drain(order.nodes, context.snapshot)
    if why:
        raise DrainError(why)
    return plan_drain(order, context, open_planner(config))


def rolling_drain(config: Config, store: Store, wish: DrainRequest) -> Preview:
    """The batches, if the cluster stayed as it is."""
    order, context = _order(config, store, wish)
    planner = open_planner(config)
    return preview(order, wish.rolling or 1, context.snapshot, lambda each: plan_drain(each, context, planner))


def moves(kind: MoveKind, config: Config, store: Store) -> RelocationPlan | NoPlan:
    context = _informed(config, store)
    return plan_moves(kind, context, jobs=jobs_left(kind, store, config, context.now), actor=actor())


def _fresh(config: Config) -> PlanningContext:
    configure_logging("text", quiet=True)  # standard output is for the answer alone
    with closing(open_backend(config, SystemClock())) as backend:
        snapshot = backend.snapshot()
    return PlanningContext(snapshot=snapshot, config=config, now=snapshot.taken_at, actions=checkpointer_actions())


def _informed(config: Config, store: Store) -> PlanningContext:
    """The same with what the daemon knows."""
    fresh = _fresh(config)
    return replace(
        fresh,
        preempted=store.preemption_counts(job.job_id for job in fresh.snapshot.jobs if job.state.holds_nodes),
        under_way=under_way_by(store.open_evictions()),
        history=read_history(store, config),
    )


def _order(config: Config, store: Store, wish: DrainRequest) -> tuple[DrainOrder, PlanningContext]:
    wish.check_times(datetime.now(UTC))
    context = _informed(config, store)
    return wish.order(chosen_nodes(wish.nodes, context.snapshot), actor()), context
