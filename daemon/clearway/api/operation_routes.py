"""Evictions, drains, moves and promises, with plan, reasons, curve and steps; and what is asked for.

What is asked is written to the store, under the asker's name; the loop reads it in its next cycle, checks whether the
asker may, and writes the result. Nothing here calls Slurm.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Response
from starlette.convertors import StringConvertor, register_url_convertor

from clearway.api import schemas, views
from clearway.api.authorization import Actor, Asker, Seen, needs
from clearway.api.context import NOT_FOUND, Context, Daemon, JobFilter, Report, UserFilter, paged, problems
from clearway.drain.lifecycle import plan_drain
from clearway.drain.request import DrainRequest, UndrainRequest, chosen_nodes
from clearway.drain.rolling import preview
from clearway.execution.lifecycle import not_ours_to_drain
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError
from clearway.model.operations import STATE_GROUPS, EvictionState, Promise
from clearway.model.orders import DrainOrder, MoveKind, RollingDrain, RollingState
from clearway.model.plan import DrainPlan, NoPlan
from clearway.model.records import LARGEST_ID
from clearway.model.requests import OF_USERS, RequestKind, Role
from clearway.preemption.approval import ApprovalRequest
from clearway.promise.request import PromiseRequest
from clearway.relocation.controller import jobs_left
from clearway.relocation.plan import plan_moves
from clearway.telemetry.log import get_logger

OPERATOR = needs(Role.OPERATOR)
_VIEWER = [needs(Role.VIEWER)]
router = APIRouter(prefix="/evictions", tags=["evictions"], dependencies=[needs(Role.USER)])
requests = APIRouter(tags=["requests"])
drains = APIRouter(tags=["drains"], dependencies=[needs(Role.USER)])
moves = APIRouter(tags=["moves"], dependencies=_VIEWER)
rolling = APIRouter(prefix="/rolling-drains", tags=["drains"], dependencies=_VIEWER)
promised = APIRouter(prefix="/promises", tags=["promises"], dependencies=_VIEWER)

# The store loads evictions with their plans, a big one of which takes some 10 MB; only summaries are kept.
_LOADED_AT_ONCE = 5
_LONGEST_PREVIEW_S = 10.0  # of a rolling drain, each of whose turns is a plan

EvictionId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the eviction")]
StateFilter = StrEnum("StateFilter", [*STATE_GROUPS, *(state.value for state in EvictionState)])  # type: ignore[misc]


@router.get("")
def evictions(
    daemon: Daemon,
    seen: Seen,
    page: Annotated[views.Page, paged("evictions", most=100, usual=50, newest=True)],
    state: Annotated[
        StateFilter | None,
        Query(description="planned (proposed, awaiting approval or scheduled), active (under way), past, or one state"),
    ] = None,
    job_id: JobFilter = None,
    user: UserFilter = None,
) -> schemas.EvictionList:
    """Evictions, newest first. One concerns the job or the user that it serves, and those that leave for it."""
    states = None if state is None else STATE_GROUPS.get(state.value) or (EvictionState(state.value),)
    found: dict[int, schemas.EvictionSummary] = {}  # by id: one that is planned meanwhile shifts the others
    for start in range(page.offset, page.end + 1, _LOADED_AT_ONCE):
        loaded = daemon.store.evictions(
            states=states, user=user, job=job_id, own=seen.own_alone, limit=_LOADED_AT_ONCE, offset=start
        )
        found |= {each.eviction_id: seen.of_operation(each).summary(views.summary(each)) for each in loaded}
        if len(loaded) < _LOADED_AT_ONCE:
            break
    return views.page(schemas.EvictionList, tuple(found.values()), page)


@router.get("/{eviction_id}", responses=NOT_FOUND)
def eviction(daemon: Daemon, seen: Seen, eviction_id: EvictionId) -> schemas.EvictionView:
    """One eviction: its plan with its curve, its preemptions with their times, predicted and actual."""
    found = daemon.store.eviction(eviction_id)
    return seen.eviction(found).eviction(views.eviction_view(found, daemon.store))


@router.get("/{eviction_id}/verdicts", responses=NOT_FOUND)
def verdicts(
    daemon: Daemon,
    seen: Seen,
    eviction_id: EvictionId,
    page: Annotated[views.Page, paged("jobs", most=1_000, usual=100)],
) -> schemas.VerdictList:
    """Why each running job leaves or stays, by its present plan; those that leave come first."""
    found = daemon.store.eviction(eviction_id)
    told = seen.eviction(found).verdicts(views.verdict_views(found))
    return views.page(schemas.VerdictList, told[page.offset :], page)


@router.get("/{eviction_id}/steps", responses=NOT_FOUND)
def steps(daemon: Daemon, seen: Seen, eviction_id: EvictionId) -> schemas.StepList:
    """Everything that was done or noticed, in order."""
    own = seen.eviction(daemon.store.eviction(eviction_id))
    found = (schemas.StepView.model_validate(step) for step in daemon.store.steps(eviction_id))
    return schemas.StepList(items=own.steps(found))


@router.get("/{eviction_id}/explanation", responses=NOT_FOUND)
def explanation(daemon: Daemon, seen: Seen, eviction_id: EvictionId) -> schemas.ExplanationView:
    """The cost of sparing each chosen job, preempting each spared job, waiting longer, or following simple rules."""
    found = daemon.store.eviction(eviction_id)
    own = seen.eviction(found)
    explained = daemon.store.explanation(eviction_id)
    if explained is None:
        raise HTTPException(404, f"eviction {eviction_id} is not explained yet")
    whole = views.explanation_view(eviction_id, found.plan, explained)
    return whole.model_copy(update={"alternatives": tuple(a for a in whole.alternatives if own.has(a.job_id))})


@router.get("/{eviction_id}/plans", responses=NOT_FOUND)
def plans(daemon: Daemon, seen: Seen, eviction_id: EvictionId) -> schemas.PlanList:
    """Every plan that it has had: it is planned anew when a job does not leave in time."""
    own = seen.eviction(daemon.store.eviction(eviction_id))
    found = daemon.store.plans(eviction_id)
    return schemas.PlanList(items=tuple(own.plan(views.plan_view(plan, schemas.WholePlanView)) for plan in found))


@dataclass(frozen=True)
class Asking:
    """Stores a request for the loop, and wakes it. The route that takes it names the role that this needs."""

    daemon: Daemon
    actor: Actor
    asker: Asker
    response: Response

    def __call__(
        self, kind: RequestKind, eviction_id: int | None = None, *, document: str = "", rolling_id: int | None = None
    ) -> schemas.RequestView:
        store, now = self.daemon.store, self.daemon.clock.now()
        if not self.asker.role.includes(Role.OPERATOR):
            store.check_number(self.actor, now, OF_USERS)
        request_id = store.add_request(kind, eviction_id, self.actor, now, document, rolling_id)
        get_logger().info("request", request=request_id, kind=kind, eviction=eviction_id, actor=self.actor)
        self.daemon.wake()
        self.response.headers["Location"] = f"/api/v1/requests/{request_id}"
        asked = {"kind": kind, "eviction_id": eviction_id, "rolling_id": rolling_id, "created_at": now}
        return views.view(
            schemas.RequestView, self, request_id=request_id, **asked, handled_at=None, code=None, result=""
        )


Ask = Annotated[Asking, Depends()]


@requests.post("/evictions/{eviction_id}/approve", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def approve(ask: Ask, eviction_id: EvictionId, approval: ApprovalRequest | None = None) -> schemas.RequestView:
    """Let an eviction that awaits approval be carried out, as it was read.

    It binds the jobs, how they leave, their nodes and what is lost: whatever needs more is asked about again.
    """
    document = "" if approval is None or approval.revision is None else approval.model_dump_json()
    return ask(RequestKind.APPROVE, eviction_id, document=document)


@requests.post("/evictions/{eviction_id}/cancel", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def cancel(ask: Ask, eviction_id: EvictionId) -> schemas.RequestView:
    """Undo what can be undone: jobs that have not passed their point of no return stay."""
    return ask(RequestKind.CANCEL, eviction_id)


def _add_request(to: APIRouter, path: str, kind: RequestKind, description: str) -> None:
    """A route by which operators ask for what needs no more than its name."""

    def asked(ask: Ask) -> schemas.RequestView:
        return ask(kind)

    to.post(path, name=kind.value, description=description, status_code=202, dependencies=[OPERATOR])(asked)


for _kind, _description in {
    RequestKind.PAUSE: "Begin nothing new; what has passed its point of no return is followed to its end.",
    RequestKind.RESUME: "End a pause.",
    RequestKind.HALT: "Give Slurm no command any more, from this moment on, also in the middle of a cycle.",
    RequestKind.UNHALT: "End a halt. One by the file `daemon.halt_file` lasts until the file is removed.",
}.items():
    _add_request(requests, f"/{_kind.value}", _kind, _description)


@requests.get("/requests/{request_id}", dependencies=[needs(Role.USER)], responses=NOT_FOUND)
def request(
    daemon: Daemon,
    seen: Seen,
    request_id: Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the request")],
) -> schemas.RequestView:
    """The result of a request, for viewers and for whoever has asked it."""
    found = daemon.store.request(request_id)
    if found is None or (seen.asker.name != found.actor and not seen.asker.role.includes(Role.VIEWER)):
        raise HTTPException(404, f"no request {request_id}")
    return schemas.RequestView.model_validate(found)


class _RollingSegment(StringConvertor):
    """Else /what-if would be a number to the route that reads one, and not a path with a method of its own."""

    regex = "(?!what-if$)[^/]+"


register_url_convertor("rolling", _RollingSegment())
RollingId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the rolling drain")]


def _may_ask(asker: Asker, daemon: Daemon) -> None:
    if not asker.role.includes(Role.OPERATOR) and not daemon.config().drain.owners:
        raise HTTPException(403, f"this needs the role {Role.OPERATOR}, for drain.owners is not set")


@drains.post("/drains", status_code=202, dependencies=[Depends(_may_ask)])
def drain(daemon: Daemon, ask: Ask, wish: DrainRequest) -> schemas.RequestView:
    """Empty nodes: nothing new starts there, and every job is saved and goes on elsewhere.

    When the request is handled its ``eviction_id`` names the drain, which is an eviction like others; that of a rolling
    one its ``rolling_id``.
    """
    _check_nodes(daemon, wish)
    return ask(RequestKind.DRAIN, document=wish.model_dump_json())


@drains.post("/undrains", status_code=202, dependencies=[Depends(_may_ask)])
def undrain(daemon: Daemon, ask: Ask, wish: UndrainRequest) -> schemas.RequestView:
    """Let nodes take jobs again that a drain has emptied."""
    _check_nodes(daemon, wish)
    return ask(RequestKind.UNDRAIN, document=wish.model_dump_json())


def _check_nodes(daemon: Context, wish: DrainRequest | UndrainRequest) -> None:
    """Here, and not in a cycle, which has no time for what cannot be."""
    if (report := daemon.report()) is not None:
        try:
            chosen_nodes(wish.nodes, report.snapshot)
        except DrainError as error:
            raise HTTPException(422, str(error)) from None


@drains.post("/drains/what-if", name="what_if", responses=problems({409: "these nodes cannot be drained"}))
def drain_what_if(daemon: Daemon, seen: Seen, report: Report, wish: DrainRequest) -> schemas.WhatIfView:
    """How the jobs on these nodes would leave; changes nothing."""
    if wish.rolling is not None:
        raise HTTPException(422, "rolling: ask rolling-drains/what-if")
    order = _order(wish, report.snapshot)
    why = not_ours_to_drain(order.nodes, report.snapshot)
    if why:
        raise HTTPException(409, why)
    jobs = (job for name in order.nodes for job in report.snapshot.jobs_on.get(name, ()))
    if not seen.all("jobs") and not seen.owns_all(jobs):
        raise HTTPException(403, "jobs of others run on these nodes, and Slurm's PrivateData hides what they can do")
    plan = plan_drain(order, daemon.planning_context(report), daemon.planner)
    return seen.of_snapshot(report.snapshot).what_if(views.what_if_view(report.snapshot.taken_at, plan))


def _order(wish: DrainRequest, snapshot: ClusterSnapshot) -> DrainOrder:
    try:
        wish.check_times(snapshot.taken_at)
        return wish.order(chosen_nodes(wish.nodes, snapshot), "what-if")
    except DrainError as error:
        raise HTTPException(422, str(error)) from None


_add_request(
    moves,
    "/compactions",
    RequestKind.COMPACT,
    """Move jobs off the emptiest nodes onto others that are partly used, so that whole nodes become empty.

When the request is handled its ``eviction_id`` names what was begun, which is an eviction like others.""",
)
_add_request(
    moves,
    "/promotions",
    RequestKind.PROMOTE,
    "Move jobs from lower-ranked nodes to free higher-ranked ones, and off scarce nodes that they do not need.",
)


def _add_moves_what_if(kind: MoveKind) -> None:
    def what_if(daemon: Daemon, report: Report) -> schemas.WhatIfView:
        context = daemon.planning_context(report)
        jobs = jobs_left(kind, daemon.store, context.config, context.now)
        return views.what_if_view(context.now, plan_moves(kind, context, jobs=jobs, actor="what-if"))

    says = f"Which jobs a {kind.value} would move now, and why others stay; changes nothing."
    moves.post(f"/{kind.value}s/what-if", name=kind.value, description=says)(what_if)


for _move in MoveKind:
    _add_moves_what_if(_move)


@rolling.get("")
def rolling_drains(
    daemon: Daemon,
    page: Annotated[views.Page, paged("rolling drains", most=100, usual=50, newest=True)],
    state: Annotated[RollingState | None, Query(description="rolling drains in this state alone")] = None,
) -> schemas.RollingList:
    """Rolling drains, newest first."""
    return views.rolling_list(daemon.store, page, state)


@rolling.get("/{rolling_id:rolling}", responses=NOT_FOUND)
def rolling_drain(daemon: Daemon, rolling_id: RollingId) -> schemas.RollingView:
    """One rolling drain, with the turn of each of its nodes."""
    return views.rolling_view(_existing(daemon, rolling_id))


@rolling.post("/{rolling_id}/cancel", name="cancel", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def cancel_rolling(daemon: Daemon, ask: Ask, rolling_id: RollingId) -> schemas.RequestView:
    """Begin no more of its drains, and cancel what is not empty yet; empty nodes stay drained."""
    _existing(daemon, rolling_id)
    return ask(RequestKind.CANCEL_ROLLING, rolling_id=rolling_id)


def _existing(daemon: Context, rolling_id: int) -> RollingDrain:
    found = daemon.store.rolling_drain(rolling_id)
    if found is None:
        raise HTTPException(404, f"no rolling drain {rolling_id}")
    return found


@rolling.post("/what-if", name="what_if")
def rolling_what_if(daemon: Daemon, report: Report, wish: DrainRequest) -> schemas.RollingWhatIf:
    """Which nodes would be emptied together if nothing changed; changes nothing."""
    order = _order(wish, report.snapshot)
    snapshot, context = report.snapshot, daemon.planning_context(report)
    ends = daemon.clock.monotonic() + _LONGEST_PREVIEW_S

    def plan(each: DrainOrder) -> DrainPlan | NoPlan:
        if daemon.clock.monotonic() > ends:
            why = f"to work this out takes longer than {_LONGEST_PREVIEW_S:g} s; name fewer nodes, or more at a time"
            raise HTTPException(422, f"nodes: {why}")
        return plan_drain(each, context, daemon.planner)

    found = preview(order, wish.rolling or 1, snapshot, plan)
    return views.view(schemas.RollingWhatIf, snapshot, found, skipped=dict(found.skipped))


@promised.post("", status_code=202, dependencies=[OPERATOR])
def promise(ask: Ask, wish: PromiseRequest) -> schemas.RequestView:
    """Have nodes free from a time on, for the jobs of some users.

    When the request is handled its ``eviction_id`` names the promise, which is an eviction like others.
    """
    return ask(RequestKind.PROMISE, document=wish.model_dump_json())


@promised.get("")
def promises(
    daemon: Daemon, page: Annotated[views.Page, paged("promises", most=100, usual=50, newest=True)]
) -> schemas.EvictionList:
    """Promises, the newest first; /evictions/{eviction_id} has more of each."""
    return views.promise_list(daemon.store, page)


@promised.delete("/{eviction_id}", name="cancel", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def cancel_promise(daemon: Daemon, ask: Ask, eviction_id: EvictionId) -> schemas.RequestView:
    """Cancel a promise: its reservation is removed, and no further job leaves for it."""
    if not isinstance(daemon.store.eviction(eviction_id), Promise):
        raise HTTPException(404, f"no promise {eviction_id}")
    return ask(RequestKind.CANCEL, eviction_id)
