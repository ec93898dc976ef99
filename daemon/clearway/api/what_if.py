"""What the loop would decide on one snapshot; nothing is done. REST and the command line ask here."""

from collections.abc import Mapping, Sequence

from clearway.config.configuration import Config
from clearway.drain.plan import plan_drain
from clearway.drain.request import DrainRequest
from clearway.drain.rolling import Preview, preview
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import under_way_by
from clearway.estimates.learning import History
from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import Operation
from clearway.model.orders import DrainOrder, MoveKind
from clearway.model.plan import DrainPlan, NoPlan, RelocationPlan
from clearway.model.problem import Action
from clearway.planning.base import Planner
from clearway.relocation.controller import jobs_left
from clearway.relocation.plan import plan_moves
from clearway.store.base import Store


def situation(
    snapshot: ClusterSnapshot,
    config: Config,
    store: Store,
    open_ones: Sequence[Operation],
    history: History,
    actions: Mapping[str, Action],
) -> PlanningContext:
    """What the loop would plan from, with its guards, its history and what is under way."""
    return PlanningContext(
        snapshot=snapshot,
        config=config,
        now=snapshot.taken_at,
        preempted=store.preemption_counts(job.job_id for job in snapshot.jobs if job.state.holds_nodes),
        under_way=under_way_by(open_ones),
        history=history,
        actions=actions,
    )


def drain(order: DrainOrder, context: PlanningContext, planner: Planner) -> DrainPlan | NoPlan:
    return plan_drain(
        order,
        context.snapshot,
        context.config,
        planner,
        context.now,
        under_way=context.under_way,
        history=context.history,
        actions=context.actions,
    )


def rolling_drain(order: DrainOrder, wish: DrainRequest, context: PlanningContext, planner: Planner) -> Preview:
    """The batches, if the cluster stayed as it is."""
    return preview(order, wish.rolling or 1, context.snapshot, lambda each: drain(each, context, planner))


def moves(kind: MoveKind, actor: str, context: PlanningContext, store: Store) -> RelocationPlan | NoPlan:
    return plan_moves(
        kind,
        context.snapshot,
        context.config,
        context.now,
        jobs=jobs_left(kind, store, context.config, context.now),
        actor=actor,
        preempted=context.preempted,
        under_way=context.under_way,
        history=context.history,
        actions=context.actions,
    )
